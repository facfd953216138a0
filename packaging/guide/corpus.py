"""The guide's corpus: topics with many wordings, short dialogues, and the split into training and held-out wordings."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class Turn:
    """One question in its wordings, and its one answer. `facts` are lists of lower-case alternatives."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    answer: str
    facts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Topic:
    """A topic (one turn) or a dialogue (several turns, each asked after the one before)."""

    id: str
    kind: str
    turns: tuple[Turn, ...]


def load_corpus(folder: Path = CORPUS) -> list[Topic]:
    """Read every `*.jsonl` of `folder`; ValueError names the line that is wrong or the id that occurs twice."""
    topics: list[Topic] = []
    seen: set[str] = set()
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                topic = _topic(json.loads(line))
            except (KeyError, ValueError, TypeError) as error:
                raise ValueError(f"{path.name}:{number}: {error!r}") from error
            if topic.id in seen:
                raise ValueError(f"{path.name}:{number}: the id {topic.id} occurs twice")
            seen.add(topic.id)
            topics.append(topic)
    if not topics:
        raise ValueError(f"no corpus in {folder}")
    return topics


def corpus_hash(folder: Path = CORPUS) -> str:
    """SHA-256 over names and contents of the corpus files."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.jsonl")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def has_facts(answer: str, facts: tuple[tuple[str, ...], ...]) -> bool:
    """Whether the answer contains every fact, each in at least one of its alternatives."""
    lowered = answer.lower()
    return all(any(alternative in lowered for alternative in fact) for fact in facts)


def _topic(entry: dict[str, Any]) -> Topic:
    turns = entry.get("turns", [entry])
    return Topic(
        entry["id"],
        entry["kind"],
        tuple(_turn(f"{entry['id']}/{position}", turn) for position, turn in enumerate(turns)),
    )


def _turn(name: str, entry: dict[str, Any]) -> Turn:
    train, held_out = split(name, entry["questions"])
    facts = tuple(tuple(fact.split("|")) for fact in entry.get("facts", ()))
    if not has_facts(entry["answer"], facts):
        raise ValueError(f"the answer of {name} lacks one of its own facts")
    return Turn(train, held_out, entry["answer"], facts)


def split(name: str, wordings: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Training and held-out wordings: a tenth is held out, chosen by hash, so that the split never depends on order.

    Where a tenth is no whole number the hash of the name rounds, so that it is a tenth over all topics.
    """
    ranked = sorted(wordings, key=lambda wording: _hash(f"{name}\0{wording}"))
    count = int(len(wordings) * HELD_OUT_SHARE + _hash(name) / 2**64)
    return tuple(ranked[count:]), tuple(ranked[:count])


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
