"""What the n-gram drafter costs by length of context: to take a token in, to take a prompt in, to propose.

    python -m benchmarks.ngram [--repeat N] [--json]

Two texts: a chat that quotes itself, and one token over and over, where every place matches every other. Growing is
measured over the last tokens before each length, a few at a time as rounds add them. Memory is what the index holds.

Beside it stands a suffix automaton, which finds the longest match in amortized constant time, too, of any length. It
can't go back: for another branch of a chat it is made anew.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.ngram import NgramDrafter
from app.protocol.options import MAX_DRAFT_LENGTH, Sampling

TASK = Task(sampling=Sampling(), seed=1)

LENGTHS = (1_000, 10_000, 100_000)
GROWN = 500
ROUND = 4
COLUMNS = {
    "grow_us": "grow µs/token",
    "begin_ms": "begin ms",
    "again_ms": "begin again ms",
    "propose_us": "propose µs",
    "propose_worst_us": "worst µs",
    "memory_mb": "memory MB",
}


class SuffixAutomaton:
    """All substrings of a text that grows (Blumer et al. 1985): states with their transitions, suffix links, lengths,
    and where each ended first."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link, self._length, self._end = [-1], [0], [0]
        self._last = self._count = 0

    def add(self, token: int) -> None:
        """The text has become longer by ``token``."""
        new, state = self._state({}, self._length[self._last] + 1, self._count), self._last
        self._count += 1
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._split(state, token)
        else:
            self._link[new] = 0
        self._last = new

    def longest_match(self) -> tuple[int, int]:
        """How many of the last tokens stood before, and where they ended first."""
        state = self._link[self._last]
        return (self._length[state], self._end[state]) if state > 0 else (0, 0)

    def _split(self, state: int, token: int) -> int:
        """The state of exactly what leads to ``state``, and ``token``."""
        old = self._next[state][token]
        if self._length[state] + 1 == self._length[old]:
            return old
        copy = self._state(dict(self._next[old]), self._length[state] + 1, self._end[old])
        self._link[copy] = self._link[old]
        while state >= 0 and self._next[state].get(token) == old:
            self._next[state][token] = copy
            state = self._link[state]
        self._link[old] = copy
        return copy

    def _state(self, following: dict[int, int], length: int, end: int) -> int:
        self._next.append(following)
        self._link.append(-1)
        self._length.append(length)
        self._end.append(end)
        return len(self._next) - 1


def quoting_text(length: int, seed: int = 1) -> list[int]:
    """Tokens of which about half are quoted from before, in pieces; the others follow a skewed distribution."""
    rng = random.Random(seed)
    tokens: list[int] = []
    while len(tokens) < length:
        if tokens and rng.random() < 0.5:
            begin = rng.randrange(len(tokens))
            tokens += tokens[begin : begin + rng.randint(5, 60)]
        else:
            tokens += [int(30_000 * rng.random() ** 4) for _ in range(30)]
    return tokens[:length]


def measure_text(tokens: list[int], repeat: int) -> dict[str, float]:
    """Medians over ``repeat`` runs, but for the slowest draft of all."""
    grow, begin, again, propose = list[float](), list[float](), list[float](), list[float]()
    for _ in range(repeat):
        drafter = NgramDrafter(lambda _: False)
        sequence = TokenSequence(tokens[:-GROWN])
        begin.append(_timed(drafter.begin, sequence, TASK))
        spent = 0.0
        for place in range(len(tokens) - GROWN, len(tokens), ROUND):
            new = tokens[place : place + ROUND]
            propose.append(_timed(drafter.propose, MAX_DRAFT_LENGTH))
            for token in new:
                sequence.append(token)
            spent += _timed(drafter.accepted)
        grow.append(spent / GROWN)
        again.append(_timed(drafter.begin, TokenSequence(tokens), TASK))
    return {
        "grow_us": statistics.median(grow) * 1e6,
        "begin_ms": statistics.median(begin) * 1e3,
        "again_ms": statistics.median(again) * 1e3,
        "propose_us": statistics.median(propose) * 1e6,
        "propose_worst_us": max(propose) * 1e6,
        "memory_mb": _memory(tokens) / 1e6,
    }


def measure_automaton(tokens: list[int]) -> dict[str, float]:
    """The same of a suffix automaton, as far as it has it."""
    begun = time.perf_counter()
    automaton = SuffixAutomaton()
    for token in tokens:
        automaton.add(token)
    seconds = time.perf_counter() - begun
    tracemalloc.start()
    automaton = SuffixAutomaton()
    for token in tokens:
        automaton.add(token)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    again = seconds * 1e3  # it can't go back
    return {
        "grow_us": seconds / len(tokens) * 1e6,
        "begin_ms": again,
        "again_ms": again,
        "propose_us": _timed(automaton.longest_match) * 1e6,
        "propose_worst_us": 0.0,
        "memory_mb": used / 1e6,
    }


def _timed(call: Callable[..., object], *arguments: object) -> float:
    begun = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begun


def _memory(tokens: list[int]) -> int:
    tracemalloc.start()
    drafter = NgramDrafter(lambda _: False)
    drafter.begin(TokenSequence(tokens), TASK)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used


def measure(repeat: int) -> dict[str, Any]:
    """All figures, by text and length of context."""
    return {
        "repeat": repeat,
        "quoting": {str(length): measure_text(quoting_text(length), repeat) for length in LENGTHS},
        "one token": {str(length): measure_text([7] * length, repeat) for length in LENGTHS},
        "automaton": {str(length): measure_automaton(quoting_text(length)) for length in LENGTHS},
    }


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'text':10} {'context':>8} " + " ".join(f"{label:>14}" for label in COLUMNS.values())]
    for text in ("quoting", "one token", "automaton"):
        for length, row in result[text].items():
            lines.append(f"{text:10} {length:>8} " + " ".join(f"{row[column]:14.2f}" for column in COLUMNS))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Cost of the n-gram drafter")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(max(options.repeat, 1))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
