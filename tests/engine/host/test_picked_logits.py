"""Answers from logits that llama.cpp picks are those from whole rows: the passes are the same, and so is every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.engine.decoding.sampling import Logits, TopLogits
from app.engine.host.engine import Engine
from app.engine.llama import context
from app.protocol.commands import Load
from app.protocol.options import AcceptRule, DrafterName, LoadSettings, Sampling
from tests.support.generation import Answer, ask, run
from tests.support.matrix import in_proof

Pair = tuple[Path, Path | None]
TEXT = "one two three four five six seven eight nine ten " * 4
SAMPLINGS = [
    Sampling(temperature=0.8),
    Sampling(temperature=0.0),
    Sampling(temperature=1.0, top_k=20, top_p=0.95, min_p=0.0, presence_penalty=1.5, penalty_window=32),
    Sampling(temperature=0.0, repetition_penalty=1.3),
]
RULES = ["block", *in_proof(["coupled", "rejection"])]


def answers(engine: Engine, pair: Pair, rule: AcceptRule, drafter: DrafterName) -> list[Answer]:
    """One for each way of sampling."""
    target, draft = pair
    command = Load(
        request=1,
        target=str(target),
        draft=str(draft) if draft else None,
        head="on" if drafter == "mtp" else "auto",
        settings=LoadSettings(context_length=1024, threads=1),
    )
    engine.load(command, lambda _: None)
    options: dict[str, Any] = {"draft_length": 4, "drafter": drafter, "accept": rule, "max_tokens": 60}
    return [run(engine, ask(TEXT, sampling=sampling, seed=7, **options)) for sampling in SAMPLINGS]


def picked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that were picked, by pass, from now on. The engine must load again."""
    read, seen = context.TopK.read, list[int]()

    def counting(self: context.TopK, first: int, outputs: int) -> Logits:
        logits = read(self, first, outputs)
        assert isinstance(logits, TopLogits)
        seen.append(len(logits))
        return logits

    engine.unload()
    monkeypatch.setattr(context.TopK, "read", counting)
    monkeypatch.setattr(context, "pays", lambda _: True)
    return seen


def assert_alike(rule: AcceptRule, whole: list[Answer], top: list[Answer]) -> None:
    """The same text; and the same drafts, unless how they are proposed was learned in the first answers."""
    for one, other in zip(whole, top, strict=True):
        assert one.token_ids == other.token_ids and one.token_ids
        rounds = [[(r.drafted, r.tested, r.accepted) for r in answer.rounds] for answer in (one, other)]
        assert rounds[0] == rounds[1] or rule == "coupled"
        assert sum(tested for _, tested, _ in rounds[0]), "nothing was drafted"


@pytest.mark.parametrize("rule", RULES)
def test_with_a_draft_model(
    engine: Engine, random_pair: Pair, rule: AcceptRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answers(engine, random_pair, rule, "model")
    rows = picked(engine, monkeypatch)
    assert_alike(rule, whole, answers(engine, random_pair, rule, "model"))
    assert {1, 5} <= set(rows), "of the draft, and of verify passes"


def test_whole_rows_for_an_answer_whose_sampling_needs_them(
    engine: Engine, random_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = picked(engine, monkeypatch)
    answers(engine, random_pair, "coupled", "model")
    before = len(rows)
    for sampling in (Sampling(top_k=0), Sampling(presence_penalty=-0.5), Sampling(top_k=200)):
        assert run(engine, ask(TEXT, sampling=sampling, draft_length=4, max_tokens=20)).token_ids
    assert len(rows) == before
    assert run(engine, ask(TEXT, draft_length=4, max_tokens=20)).token_ids
    assert len(rows) > before
