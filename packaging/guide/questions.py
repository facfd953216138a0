"""What the pair is asked when it is measured, and whether an answer is the one that its topic has.

Imports neither PyTorch nor the app's engine.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from guide.corpus import Topic, has_facts

BLIND = Path(__file__).parent / "blind.jsonl"
LABELS = Path(__file__).parent / "labels.jsonl"
LABEL_TOPICS = Path(__file__).parent / "label-topics.tsv"
OPENING_WORDS = 8
"""An answer that begins with this many words of a topic's answer is that topic's."""
LEAST_COMMON = 3
"""With fewer words in common at its beginning, an answer is no topic's."""


@dataclass(frozen=True)
class Asked:
    """A question that the pair was not trained on, what was said before it, and the answer it should get.

    `label` is what the question is about, where it comes from `labels.jsonl`.
    """

    topic: str
    kind: str
    before: tuple[str, ...]
    wording: str
    facts: tuple[tuple[str, ...], ...]
    own: str
    label: str = ""


def held_out(topics: list[Topic]) -> list[Asked]:
    """All held-out wordings, follow-ups of dialogues too, in a fixed random order."""
    asked = []
    for topic in topics:
        before: list[str] = []
        for turn in topic.turns:
            asked += [
                Asked(topic.id, topic.kind, tuple(before), wording, turn.facts, turn.answer)
                for wording in turn.held_out
            ]
            before += [turn.train[0], turn.answer]
    random.Random(0).shuffle(asked)
    return asked


def blind(topics: list[Topic]) -> list[Asked]:
    """The questions of `blind.jsonl`, each for the topic it names."""
    return [_first_turn(topics, entry["topic"], entry["question"]) for entry in _lines(BLIND)]


def labels(topics: list[Topic]) -> list[Asked]:
    """The questions of `labels.jsonl` about labels that have one of these topics."""
    of_label, names = label_topics(), {topic.id for topic in topics}
    return [
        _first_turn(topics, of_label[entry["label"]], entry["question"], entry["label"])
        for entry in _lines(LABELS)
        if of_label.get(entry["label"]) in names
    ]


def label_questions() -> dict[str, list[str]]:
    """The questions of `labels.jsonl` by label."""
    found: dict[str, list[str]] = {}
    for entry in _lines(LABELS):
        found.setdefault(entry["label"], []).append(entry["question"])
    return found


def label_topics() -> dict[str, str]:
    """The topic of each label, from `label-topics.tsv`; ValueError names a line that is wrong."""
    topics: dict[str, str] = {}
    for number, line in enumerate(LABEL_TOPICS.read_text(encoding="utf-8").splitlines(), 1):
        label, tab, topic = line.partition("\t")
        if not (label and tab and topic.strip()) or label in topics:
            raise ValueError(f"{LABEL_TOPICS.name}:{number}: expected a new label, a tab and the id of its topic")
        topics[label] = topic.strip()
    return topics


def gets_own(asked: Asked, answer: str) -> bool:
    """Whether this is the answer of the question's own topic: it begins like that, and has all facts."""
    opening = asked.own.split()[:OPENING_WORDS]
    return answer.split()[: len(opening)] == opening and has_facts(answer, asked.facts)


def topic_of(answer: str, topics: Iterable[Topic]) -> str:
    """Id of the topic that has an answer with the most words in common at the beginning; empty if there is none."""
    said, best, most = answer.split()[:OPENING_WORDS], "", LEAST_COMMON - 1
    for topic in topics:
        for turn in topic.turns:
            common = _common(said, turn.answer.split())
            if common > most:
                best, most = topic.id, common
    return best


def learnt(topics: list[Topic]) -> set[str]:
    """All questions of the corpus, `bare`."""
    return {bare(wording) for topic in topics for turn in topic.turns for wording in (*turn.train, *turn.held_out)}


def bare(question: str) -> str:
    """A question without letter case and punctuation, as the corpus tells questions apart."""
    return " ".join(re.findall(r"\w+", question.lower()))


def _common(one: list[str], other: list[str]) -> int:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


def _first_turn(topics: list[Topic], name: str, question: str, label: str = "") -> Asked:
    topic = next((topic for topic in topics if topic.id == name), None)
    if topic is None:
        raise ValueError(f"The corpus has no topic {name}, which {question!r} asks for.")
    turn = topic.turns[0]
    return Asked(topic.id, topic.kind, (), question, turn.facts, turn.answer, label)


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
