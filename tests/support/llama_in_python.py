"""llama-server inside a Python process: run by the Python that has ``xllamacpp``, with its settings as JSON.

It imports nothing of ours, which that Python doesn't have.
"""

from __future__ import annotations

import json
import signal
import sys

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    """Serve until a signal ends it."""
    given = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.n_ctx = given["model"], given["port"], given["context"]
    params.model_alias = {given["model"].rpartition("/")[2]}
    params.n_parallel, params.endpoint_metrics, params.ui = 1, True, False
    params.api_keys = [given["key"]] if given["key"] else []
    if ngrams := given["ngrams"]:
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        for name, value in ngrams.items():
            setattr(params.speculative.ngram_simple, name, value)
    signal.signal(signal.SIGINT, lambda *_: sys.exit())
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{xllamacpp.BUILD_INFO} at {server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
