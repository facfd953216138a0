"""What `benchmarks.real_bench` concludes from figures and texts, and the questions it asks; it needs no model."""

from __future__ import annotations

import json
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.llama_cpp_tools import ROOT

QUESTIONS = ROOT.parent / "shared" / "spec-bench" / "question.jsonl"
_DRAWS = 4000
Timed = Sequence[tuple[float, int]]


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians, and its interval of 95 %."""

    value: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Of figures that belong together in pairs; the interval is that of pairs drawn again. ``None`` without pairs."""
    a, b = np.array(ours, dtype=float), np.array(theirs, dtype=float)
    if len(a) != len(b):
        raise ValueError("figures without partners")
    if not len(a):
        return None
    drawn = np.random.default_rng(0).integers(0, len(a), (_DRAWS, len(a)))
    low, high = np.quantile(np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1), (0.025, 0.975))
    return Ratio(float(np.median(a) / np.median(b)), float(low), float(high), len(a))


def median_or_none(values: Sequence[float]) -> float | None:
    """`statistics.median`, also of nothing."""
    return statistics.median(values) if values else None


# ---------------------------------------------------------------- questions


@dataclass(frozen=True)
class Question:
    """One of Spec-Bench's."""

    number: int
    kind: str
    turns: tuple[str, ...]

    @property
    def text(self) -> str:
        """Its first turn."""
        return self.turns[0]


def load_questions(path: Path = QUESTIONS) -> list[Question]:
    """All of them, in the order of the file. Ends the process with a sentence if there is no such file."""
    if not path.is_file():
        raise SystemExit(f"Spec-Bench's questions are not in {path.name}; name the file with --questions.")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [Question(int(row["question_id"]), row["category"], tuple(row["turns"])) for row in rows]


def by_kind(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """The questions of each kind."""
    kinds: dict[str, list[Question]] = {}
    for question in questions:
        kinds.setdefault(question.kind, []).append(question)
    return kinds


def sample(questions: Sequence[Question], per_kind: int, seed: int) -> list[Question]:
    """``per_kind`` of each kind (fewer where there are no more), kinds taking turns; the same for the same ``seed``.

    A larger sample begins with the smaller one's questions of each kind.
    """
    drawn = []
    for kind, own in by_kind(questions).items():
        shuffled = list(own)
        random.Random(f"{seed} {kind}").shuffle(shuffled)
        drawn.append(shuffled[:per_kind])
    longest = max((len(own) for own in drawn), default=0)
    return [own[place] for place in range(longest) for own in drawn if place < len(own)]


def texts_for_prompts(path: Path = QUESTIONS) -> list[str]:
    """Text that people wrote, to make prompts of any length from: Spec-Bench's long questions, or our notes."""
    if path.is_file():
        return [one.text for one in load_questions(path) if one.kind in ("summarization", "rag", "extraction")]
    return [file.read_text(encoding="utf-8") for file in sorted((ROOT / "benchmarks" / "notes").glob("*.md"))]


def words_from(texts: Sequence[str], number: int, words: int) -> list[str]:
    """``words`` words in a row, each with the space behind it; each ``number`` begins with another text, so that no two
    prompts begin alike."""
    first = (7 * number) % len(texts)
    found: list[str] = []
    while len(found) < words:
        for text in (*texts[first:], *texts[:first]):
            found += re.findall(r"\S+\s*", f"{text}\n")
    return found[:words]


# ---------------------------------------------------------------- texts


@dataclass(frozen=True)
class Difference:
    """Where two answers differ first: the number of the token from 0, and the token of each; ``None``: it has ended.

    The first answer is the one without a draft.
    """

    place: int
    first: int | None
    second: int | None

    def __str__(self) -> str:
        return f"token {self.place} is {_or_end(self.first)} without and {_or_end(self.second)} with a draft"


def _or_end(token: int | None) -> str:
    return "the end" if token is None else str(token)


def first_difference(first: Sequence[int], second: Sequence[int]) -> Difference | None:
    """Of the tokens of two answers; ``None`` if they are the same."""
    for place in range(max(len(first), len(second))):
        a = first[place] if place < len(first) else None
        b = second[place] if place < len(second) else None
        if a != b:
            return Difference(place, a, b)
    return None


# ---------------------------------------------------------------- speeds over time


def speeds_over_time(tokens: Timed, undisturbed: Timed, width: float) -> list[tuple[float, float, float]]:
    """For each ``width`` seconds: when they began, tokens per second, and that ÷ the speed of another, undisturbed run
    of the same tokens. `Timed` are when rounds ended, and their tokens.
    """
    if not tokens:
        return []
    found = []
    for number in range(int(tokens[-1][0] / width)):
        begin = number * width
        count = sum(one for time, one in tokens if begin < time <= begin + width)
        found.append((begin, count / width, share_of(tokens, undisturbed, begin, begin + width)))
    return found


def seconds_until_back(tokens: Timed, undisturbed: Timed, since: float, share: float, width: float) -> float | None:
    """How long after ``since`` the first ``width`` seconds begin in which the speed is at least ``share`` of that of an
    undisturbed run of the same tokens.

    ``None``: there are none.
    """
    for begin in (since, *(time for time, _ in tokens if time > since)):
        if begin + width > tokens[-1][0]:
            return None
        if share_of(tokens, undisturbed, begin, begin + width) >= share:
            return begin - since
    return None


def share_of(tokens: Timed, undisturbed: Timed, begin: float, end: float) -> float:
    """The speed between two times ÷ that of the same tokens in the undisturbed run."""
    first, last = (sum(count for time, count in tokens if time <= limit) for limit in (begin, end))
    return (_time_of(undisturbed, last) - _time_of(undisturbed, first)) / (end - begin)


def _time_of(tokens: Timed, number: int) -> float:
    """When so many tokens were there."""
    times = np.array([0.0, *(time for time, _ in tokens)])
    return float(np.interp(number, np.concatenate([[0], np.cumsum([count for _, count in tokens])]), times))


def show_progress(text: str) -> None:
    """On one line, where somebody may be looking."""
    if sys.stderr.isatty():
        print(f"\r{text:60}", end="" if text else "\r", file=sys.stderr, flush=True)


def as_json(value: Any) -> Any:
    """`Ratio` and other records as objects of JSON."""
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, Path):
        return value.name
    return as_json(vars(value)) if hasattr(value, "__dict__") else value
