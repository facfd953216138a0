"""Reads the shown branch of a long chat from the store.

    python -m tests.benchmarks.branch [--messages N] [--tokens N] [--json]

The chat has a question and an answer in turn, each answer with the origin and the id of each token, and every tenth
answer has two versions. Told are the time of reading, the median of 20, and the memory that the messages take.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

from app.chats.model import StoredMessage, to_json
from app.chats.rows import insert
from app.chats.store import ChatStore, new_id

_TIMES = 20


def fill(store: ChatStore, messages: int, tokens: int) -> str:
    chat, parent = store.create_chat("Long"), None
    words = [f"word{place % 7} " for place in range(tokens)]
    provenance = to_json(
        [
            [len(word), "model" if place % 3 else None, place // 3 + 1, "other" if place % 9 == 0 else None]
            for place, word in enumerate(words)
        ]
    )
    settings = to_json({"sampling": {"temperature": 0.8, "top_k": 40}, "system_prompt": "", "template": "model"})
    figures = to_json({"completion_tokens": tokens, "decode_tokens_per_second": 74.0})
    with store._writing() as connection:
        for number in range(messages):
            common = chat.id, parent
            if number % 2 == 0:
                added = [StoredMessage(new_id(), *common, "user", f"Question {number}?", "complete", 0.0)]
            else:
                added = [
                    StoredMessage(
                        *(new_id(), *common, "assistant", "".join(words), "complete", 0.0, 7, "end", "Guide"),
                        *(settings, figures, provenance),
                        tokens=range(100_000, 100_000 + tokens),
                    )
                    for _ in range(2 if number % 20 == 1 else 1)
                ]
            for one in added:
                insert(connection, one)
            parent = added[-1].id
        connection.execute("UPDATE chats SET leaf_id = ?", (parent,))
    return chat.id


def measure(path: Path, messages: int, tokens: int) -> dict[str, float]:
    with ChatStore(path) as store:
        chat_id = fill(store, messages, tokens)
    with ChatStore(path) as store:
        seconds = []
        for _ in range(_TIMES):
            began = time.perf_counter()
            count = len(store.branch(chat_id))
            seconds.append(time.perf_counter() - began)
        tracemalloc.start()
        branch = store.branch(chat_id)
        (size, _) = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {
            "messages": count,
            "first_ms": round(1000 * seconds[0], 1),
            "median_ms": round(1000 * statistics.median(seconds), 1),
            "fastest_ms": round(1000 * min(seconds), 1),
            "memory_mb": round(size / 1e6, 1),
            "text_mb": round(sum(len(one.text) for one in branch) / 1e6, 1),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=150, help="of each answer")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder) / "chats.sqlite", options.messages, options.tokens)
    if not options.json:
        for name, value in result.items():
            print(f"{name.replace('_', ' '):<16} {value}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
