"""The engine process as it is, only that it keeps every KV cache, however small and quick to compute.

Started as ``python -m tests.support.eager_engine [dies]``; ``dies`` kills it in the middle of the first file it writes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

from app.engine.host import chat_cache, state_file, worker

EAGER = chat_cache.Policy(least_seconds=0.0, least_file_seconds=0.0, gain=0.0, gain_of_repeats=0.0)


def _dying(chunks: Iterator[memoryview | bytes]) -> Iterator[memoryview | bytes]:
    yield next(chunks)
    yield next(chunks)[:100]
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    chat_cache.DEFAULT_POLICY = EAGER
    if sys.argv[1:] == ["dies"]:
        whole = state_file.chunks
        state_file.chunks = lambda header, state: _dying(whole(header, state))
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
