"""Run a generation to its end and keep everything it said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from app.engine.engine import Engine
from app.engine.protocol import (
    DEFAULT_DRAFT_LENGTH,
    Generate,
    GenerationFinished,
    GenerationStarted,
    Message,
    Piece,
    PromptProgressed,
    Round,
    Sampling,
)

GREEDY = Sampling(temperature=0)


@dataclass
class Answer:
    """What a generation brought."""

    started: GenerationStarted
    finished: GenerationFinished
    rounds: list[Round] = field(default_factory=list)
    progress: list[PromptProgressed] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    @property
    def pieces(self) -> list[Piece]:
        return [piece for round_ in self.rounds for piece in round_.pieces]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def ask(text: str, **options: Any) -> Generate:
    """A `Generate` for one message of the user; the draft model alone with a fixed length, unless told otherwise."""
    options.setdefault("messages", [Message(role="user", content=text)])
    options.setdefault("seed", 1)
    options.setdefault("draft_length", DEFAULT_DRAFT_LENGTH)
    options.setdefault("drafter", "model")
    return Generate(request=2, **options)


def run(engine: Engine, command: Generate, cancel_after: int | None = None) -> Answer:
    """Generate; with ``cancel_after`` the engine is told to stop when that many rounds have come."""
    started, finished = None, None
    rounds: list[Round] = []
    progress: list[PromptProgressed] = []
    engine.ready()
    for event in engine.generate(command):
        match event:
            case GenerationStarted():
                started = event
            case GenerationFinished():
                finished = event
            case PromptProgressed():
                progress.append(event)
            case Round():
                rounds.append(event)
                if len(rounds) == cancel_after:
                    engine.cancel()
    assert started is not None and finished is not None
    return Answer(started, finished, rounds, progress, engine.token_ids)


def assert_sums_close(answer: Answer) -> None:
    """The sums of DESIGN.md, over the rounds, the pieces and the figures alike."""
    draft = answer.finished.figures.draft
    pieces = [piece for piece in answer.pieces if piece.id >= 0]  # half a character at the end is text without a token
    accepted = sum(piece.drafter is not None for piece in pieces)
    assert len(pieces) == answer.finished.figures.completion_tokens == sum(r.tokens for r in answer.rounds)
    assert accepted == draft.accepted == sum(draft.accepted_per_position)
    assert draft.tested == sum(r.tested for r in answer.rounds)
    assert draft.drafted >= draft.tested >= draft.accepted
    assert all(r.accepted <= r.tested and r.tokens <= r.accepted + 1 for r in answer.rounds)
    assert draft.verify_passes == sum(r.verify_passes for r in answer.rounds)
    if draft.verify_passes:
        assert draft.mean_acceptance_length == pytest.approx(1 + accepted / draft.verify_passes)
