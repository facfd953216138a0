"""How long a large import takes, and how much memory its two processes need.

    python -m tests.benchmarks.imports [--megabytes 300] [--chats 20000] [--format chatgpt|openai|slipstream]

Writes a file of that size in the shape of a format, asks for its summary and imports it into a new store.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from app.chats.importing import Import
from app.chats.store import ChatStore

_WORDS = [
    "the",
    "water",
    "tea",
    "leaf",
    "steeps",
    "for",
    "three",
    "minutes",
    "at",
    "eighty",
    "degrees",
    "and",
    "then",
    "it",
    "is",
    "poured",
    "—",
    "grün",
    "茶",
]
_POLL_SECONDS = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--chats", type=int, default=20_000)
    parser.add_argument("--format", choices=["chatgpt", "openai", "slipstream"], default="chatgpt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chats.json"
        write(path, options.format, options.chats, options.megabytes * 1_000_000)
        print(f"{path.stat().st_size / 1e6:.0f} MB with {options.chats:,} chats, {options.format}")
        with Memory() as memory:
            reading = Import([path])
            report("summary", memory, reading.summary)
            with ChatStore(Path(folder) / "chats.sqlite") as store:
                report("import", memory, lambda: reading.run(store.add_records))
                report("import again", memory, lambda: reading.run(store.add_records))
                assert len(store.chats()) == options.chats


def report(name: str, memory: Memory, function: Callable[[], object]) -> None:
    memory.peak = memory.peak_of_helper = 0
    begun = time.monotonic()
    function()
    taken = time.monotonic() - begun
    print(
        f"{name:13} {taken:6.1f} s   peak: both processes {memory.peak / 1e6:.0f} MB, "
        f"the helper alone {memory.peak_of_helper / 1e6:.0f} MB"
    )


class Memory:
    """The largest resident size of this process and its children, measured while this is open."""

    def __init__(self) -> None:
        self.peak = 0
        self.peak_of_helper = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        own = psutil.Process()
        while not self._is_over.wait(_POLL_SECONDS):
            try:
                helpers = sum(child.memory_info().rss for child in own.children())
            except psutil.Error:
                continue
            self.peak_of_helper = max(self.peak_of_helper, helpers)
            self.peak = max(self.peak, helpers + own.memory_info().rss)


def write(path: Path, name: str, count: int, size: int) -> None:
    """A file of about ``size`` bytes with ``count`` chats of eight messages."""
    makers: dict[str, Callable[[int, list[str]], Any]] = {"chatgpt": _chatgpt, "openai": _openai, "slipstream": _own}
    rng = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            texts = list(_texts(rng, size // count // 8))
            file.write(("," if number else "[") + json.dumps(makers[name](number, texts), ensure_ascii=False))
        file.write("]")


def _texts(rng: random.Random, length: int) -> Iterator[str]:
    paragraph = " ".join(rng.choices(_WORDS, k=60))
    for place in range(8):
        yield f"{place} " + (paragraph + "\n\n") * max(1, length // len(paragraph.encode()))


def _openai(_number: int, texts: list[str]) -> Any:
    return {
        "messages": [{"role": "assistant" if place % 2 else "user", "content": one} for place, one in enumerate(texts)]
    }


def _own(number: int, texts: list[str]) -> Any:
    messages = [
        {"id": str(place), "parent": str(place - 1) if place else None, "role": "user", "text": one}
        for place, one in enumerate(texts)
    ]
    return {"slipstream_chat": 1, "id": f"{number:032x}", "title": f"Chat {number}", "messages": messages}


def _chatgpt(number: int, texts: list[str]) -> Any:
    mapping = {
        f"n{place}": {
            "id": f"n{place}",
            "parent": f"n{place - 1}" if place else None,
            "children": [f"n{place + 1}"] if place < 7 else [],
            "message": {
                "author": {"role": "assistant" if place % 2 else "user", "metadata": {}},
                "create_time": 1.7e9 + number * 100 + place,
                "content": {"content_type": "text", "parts": [one]},
                "metadata": {"model_slug": "tea-2b", "finish_details": {"type": "stop", "stop_tokens": [1, 2]}},
                "recipient": "all",
            },
        }
        for place, one in enumerate(texts)
    }
    return {"id": f"c{number}", "title": f"Chat {number}", "current_node": "n7", "mapping": mapping}


if __name__ == "__main__":
    main()
