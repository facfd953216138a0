"""The engine process as it is, only that it saves every KV cache, however small and quick to compute.

Started as ``python -m tests.support.eager_engine [dies]``; ``dies`` kills it in the middle of the first file it writes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

from app.engine.host import chat_cache, chat_cache_files, worker


def _dying(chunks: Iterator[memoryview | bytes]) -> Iterator[memoryview | bytes]:
    yield next(chunks)
    yield next(chunks)[:100]
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    chat_cache.LEAST_SECONDS = chat_cache.READ_SECONDS_PER_BYTE = 0.0
    if sys.argv[1:] == ["dies"]:
        whole = chat_cache_files.chunks
        chat_cache_files.chunks = lambda header, state: _dying(whole(header, state))
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
