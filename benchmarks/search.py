"""Searches thousands of chats.

    python -m benchmarks.search [--chats N] [--messages N] [--json]

A real chat file is filled with chats of English, German and Chinese made-up sentences whose words are as unevenly
common as those of a language, and its search index is built in the steps in which the app builds it. Told are the size
and the time of the index, and for each kind of search the median, the 95th percentile and the longest of 100, on the
clock and on the processor. Before each search something is written, as by an answer that grows. What a search keeps of
the titles is lost with each message that is sent and each answer that ends: that is measured as "list changed".
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from app.chats.model import Role, StoredMessage
from app.chats.store import ChatStore, new_id
from app.chats.tree import insert

SEARCHES = 100
Seconds = tuple[float, float]
"""On the clock and on the processor."""
_SYLLABLES = [start + middle + end for start in "bcdfghklmnprstvwz" for middle in "aeiouäöü" for end in ("", *"lnrst")]
_WORDS = 20_000
_CHINESE_WORDS = 6_000


class Language:
    """Sentences of made-up words, each as common as its place among them tells (Zipf)."""

    def __init__(self, words: Sequence[str], separator: str, length: tuple[int, int], chance: random.Random) -> None:
        self.words = words
        self._separator = separator
        self._length = length
        self._chance = chance
        self._weights = list(accumulate(1 / (place + 3) for place in range(len(words))))

    def text(self) -> str:
        """A message of about 300 to 600 characters."""
        size, sentences = self._chance.randint(*self._length), []
        while size > 0:
            count = min(size, self._chance.randint(6, 14))
            sentence = self._separator.join(self._chance.choices(self.words, cum_weights=self._weights, k=count))
            sentences.append(sentence.capitalize() + ("." if self._separator else "。"))
            size -= count
        return self._separator.join(sentences)


def languages(chance: random.Random) -> tuple[Language, Language]:
    """A western one and Chinese, most words of which have two characters."""
    words = dict.fromkeys("".join(chance.choices(_SYLLABLES, k=chance.choice((1, 2, 2, 3, 3)))) for _ in range(_WORDS))
    characters = [chr(chance.randint(0x4E00, 0x8FFF)) for _ in range(2500)]
    chinese = dict.fromkeys(
        "".join(chance.choices(characters, k=chance.choice((1, 2, 2, 2)))) for _ in range(_CHINESE_WORDS)
    )
    return Language(list(words), " ", (50, 100), chance), Language(list(chinese), "", (150, 320), chance)


def fill(store: ChatStore, chats: int, messages: int, spoken: tuple[Language, Language], chance: random.Random) -> int:
    """Every tenth chat is Chinese. Returns the characters written."""
    size = 0
    store._connection.execute("PRAGMA synchronous = OFF")
    for number in range(chats):
        language = spoken[number % 10 == 9]
        with store._writing() as connection:
            chat_id, parent = new_id(), None
            store._create(chat_id, language.text()[:40], "")
            for place in range(messages):
                text = language.text()
                role: Role = "assistant" if place % 2 else "user"
                message = StoredMessage(new_id(), chat_id, parent, role, text, "complete", time.time())
                insert(connection, message)
                parent, size = message.id, size + len(text)
    return size


def searches(
    spoken: tuple[Language, Language], chance: random.Random, message: Callable[[], str]
) -> dict[str, Callable[[], str]]:
    """Kinds of searches; ``message`` is the text of any message."""
    western, chinese = (
        [word for word in language.words if len(word) >= least] for language, least in zip(spoken, (4, 2), strict=True)
    )
    return {
        "common": lambda: chance.choice(western[:50]),
        "list changed": lambda: chance.choice(western[len(western) // 2 :]),
        "rare": lambda: chance.choice(western[len(western) // 2 :]),
        "two common words": lambda: " ".join(chance.sample(western[:50], 2)),
        "two words": lambda: f"{chance.choice(western[:500])} {chance.choice(western[:500])}",
        "common and rare": lambda: f"{chance.choice(western[:50])} {chance.choice(western[5000:])}",
        "words of a message": lambda: " ".join(message().split()[1:5])[:80],
        "part of a word": lambda: chance.choice(western[:3000])[:3],
        "one letter": lambda: chance.choice(western)[0],
        "short": lambda: chance.choice(western)[:2],
        "short and rare": lambda: f"{chance.choice(western)[:2]} {chance.choice(western[5000:])}",
        "Chinese, two": lambda: chance.choice(chinese)[:2],
        "Chinese, four": lambda: chance.choice(chinese[:200])[:2] + chance.choice(chinese[:200])[:2],
        "no hit": lambda: "".join(chance.sample(_SYLLABLES, 4)) + "qx",
    }


def percentiles(seconds: Sequence[Seconds]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, times in zip(("", "processor_"), zip(*seconds, strict=True), strict=True):
        ordered = sorted(1000 * one for one in times)
        found[f"{name}p50_ms"] = round(ordered[len(ordered) // 2], 1)
        found[f"{name}p95_ms"] = round(ordered[int(len(ordered) * 0.95)], 1)
        found[f"{name}max_ms"] = round(ordered[-1], 1)
    return found


def measure(path: Path, chats: int, messages: int) -> dict[str, object]:
    chance = random.Random(15)
    spoken = languages(chance)
    with ChatStore(path) as store:
        size = fill(store, chats, messages, spoken, chance)
        steps, began = [time.perf_counter()], time.perf_counter()
        while store.update_index():
            steps.append(time.perf_counter())
        built = time.perf_counter() - began
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        result: dict[str, object] = {
            "chats": chats,
            "messages": chats * messages,
            "characters_per_message": round(size / chats / messages),
            "chats_mb": round(path.stat().st_size / 1e6, 1),
            "index_mb": round(sum(file.stat().st_size for file in path.parent.glob("*.search*")) / 1e6, 1),
            "index_seconds": round(built, 1),
            "index_longest_step_ms": round(1000 * max(b - a for a, b in pairwise(steps)), 1),
        }
        every, chat_id = list[Seconds](), store.chats()[0].id
        for kind, text in searches(spoken, chance, lambda: any_message(store, chance)).items():
            times, hits = list[Seconds](), list[int]()
            for number in range(SEARCHES):
                wanted = text()
                store.set_unsent(None, str(number))
                if kind == "list changed":
                    store.rename_chat(chat_id, str(number))
                on_clock, on_processor = time.perf_counter(), time.thread_time()
                hits.append(len(store.search(wanted)))
                times.append((time.perf_counter() - on_clock, time.thread_time() - on_processor))
            every += times
            result[kind] = {**percentiles(times), "median_chats": sorted(hits)[SEARCHES // 2]}
        result["all"] = percentiles(every)
        return result


def any_message(store: ChatStore, chance: random.Random) -> str:
    connection = store._connection
    (last,) = connection.execute("SELECT max(seq) FROM messages").fetchone()
    (text,) = connection.execute("SELECT text FROM messages WHERE seq = ?", (chance.randint(1, last),)).fetchone()
    return str(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder) / "chats.sqlite", options.chats, options.messages)
    if not options.json:
        for name, value in result.items():
            print(f"{name.replace('_', ' '):<24} {value}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
