"""Run a generation to its end and keep everything it said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Message, ScoreTokens
from app.protocol.events import GenerationFinished, GenerationStarted, Piece, PromptProgressed, Round, TokensScored
from app.protocol.options import DEFAULT_DRAFT_LENGTH, Sampling

GREEDY = Sampling(temperature=0)
ROUNDING = 0.2
"""Two computations of the same logit are never further apart, on any processor: ten times what F16 weights were seen to
do. Logits of another token or place are whole units away."""


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

    @property
    def thinking(self) -> str:
        return "".join(piece.text for piece in self.pieces if piece.thinking)

    @property
    def answer(self) -> str:
        return "".join(piece.text for piece in self.pieces if not piece.thinking)


def ask(text: str, **options: Any) -> Generate:
    """A `Generate` for one message of the user; the draft model alone with a fixed length, unless told otherwise."""
    options.setdefault("messages", [Message(role="user", content=text)])
    options.setdefault("seed", 1)
    options.setdefault("draft_length", DEFAULT_DRAFT_LENGTH)
    options.setdefault("drafter", "model")
    return Generate(request=2, **options)


def run(
    engine: Engine,
    command: Generate,
    cancel_after: int | None = None,
    watch: Callable[[Sequence[Round]], None] = lambda _: None,
) -> Answer:
    """Generate; with ``cancel_after`` the engine is told to stop when that many rounds have come. ``watch`` is called
    with the rounds so far.
    """
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
                watch(rounds)
                if len(rounds) == cancel_after:
                    engine.cancel()
    assert started is not None and finished is not None
    return Answer(started, finished, rounds, progress, tokens_of(engine))


def tokens_of(engine: Engine) -> list[int]:
    """The tokens of its last answer."""
    return engine._sequence.tokens[engine._sequence.prompt_length :]


def longest(engine: Engine, length: int) -> int:
    """How long drafts of ``length`` are: on a GPU, a running state takes back no more tokens than it has snapshots."""
    target = engine._target
    assert target is not None
    return min(length, target.longest_draft) if target.info.gpu_layers else length


def assert_same(engine: Engine, command: Generate, answer: Answer, plain: Answer) -> None:
    """Both have the same words up to a near-tie, if there is one: passes of other widths round otherwise.

    Where the first near-tie lies is up to the processor, so no seed is safe from it on all of them. ``engine`` still
    has the target loaded that answered ``command``; the chat it holds may be gone afterwards.
    """
    place = first_difference(answer, plain)
    if place is None:
        assert answer.text == plain.text
    else:
        scored = scores_at(engine, command, answer, plain, place)
        assert scored and scored.could_win == [True, True], f"token {place} differs, and not because of rounding"


def first_difference(answer: Answer, plain: Answer) -> int | None:
    """The number of the first token that isn't the same, ``None`` if all are."""
    pairs = zip(answer.token_ids, plain.token_ids, strict=False)
    place = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if place is None and len(answer.token_ids) != len(plain.token_ids):
        return min(len(answer.token_ids), len(plain.token_ids))
    return place


def scores_at(engine: Engine, command: Generate, answer: Answer, plain: Answer, place: int) -> TokensScored | None:
    """How both tokens score where the two answers differ; ``None`` where one of them ends."""
    if place >= min(len(answer.token_ids), len(plain.token_ids)):
        return None
    return engine.score_tokens(
        ScoreTokens(
            request=1,
            messages=command.messages,
            answer=[*command.continued, *plain.token_ids[:place]],
            candidates=[answer.token_ids[place], plain.token_ids[place]],
            sampling=command.sampling,
            seed=command.seed or 0,
            overflow=command.overflow,
            format=command.format,
            raw=command.raw,
        )
    )


def assert_sums_close(answer: Answer) -> None:
    """The sums of DESIGN.md, over the rounds, the pieces and the figures alike."""
    draft = answer.finished.figures.draft
    pieces = [piece for piece in answer.pieces if piece.id >= 0]  # half a character at the end is text without a token
    accepted = sum(piece.drafter is not None for piece in pieces)
    assert len(pieces) == answer.finished.figures.completion_tokens == sum(r.tokens for r in answer.rounds)
    assert accepted == draft.accepted == sum(draft.accepted_per_position)
    assert draft.tested == sum(r.tested for r in answer.rounds)
    assert draft.drafted >= draft.tested >= draft.accepted
    assert all(r.accepted <= r.tested and r.tokens <= r.accepted + 1 + r.forced for r in answer.rounds)
    assert draft.verify_passes == sum(r.verify_passes for r in answer.rounds)
    if draft.verify_passes:
        assert draft.mean_acceptance_length == pytest.approx(1 + accepted / draft.verify_passes)
