"""The counters of a generation and the figures computed from them. Each figure is defined here and nowhere else.

| figure | definition |
|---|---|
| drafted, tested, ignored | tokens proposed; given to a verify pass; proposed but never tested |
| acceptance rate | accepted ÷ tested |
| mean acceptance length | 1 + accepted ÷ verify passes |
| acceptance by position i, shown | of the drafts that long, the share whose first i tokens were all accepted |
| acceptance by position i, exported | verify passes that accepted position i ÷ all verify passes (vLLM's) |
| decode speed | tokens after the first ÷ time from the first to the last |
| time to first token | from the arrival of the request to the first token, prompt processing included |

The sums close: tokens = accepted + the target's own + forced, which end the thinking early; drafted = tested + ignored;
tested = accepted + rejected. A token that was accepted but lies behind the end of the answer (behind a stop string,
say) counts as rejected: it is not in the answer. The sums over the kinds of text are those of the answer without its
first token; a round counts whole for the kind it began in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

import msgspec

from app.protocol.events import DrafterFigures, DraftFigures, Figures, KindFigures, Round
from app.protocol.options import DrafterName, TextKind


def acceptance_rate(accepted: int, tested: int) -> float | None:
    """``None`` if nothing was tested."""
    return accepted / tested if tested else None


def has_drafted(figures: DraftFigures) -> bool:
    """Whether anything was drafted. A server may say no more than that passes gave more than one token each."""
    return figures.tested > 0 or figures.drafted > 0 or (figures.mean_acceptance_length or 0.0) > 1.0


def mean_acceptance_length(accepted: int, verify_passes: int) -> float | None:
    """``None`` if there was no pass."""
    return 1 + accepted / verify_passes if verify_passes else None


def acceptance_by_position(accepted: Sequence[int], tested: Sequence[int]) -> list[float]:
    """The one that is shown. The acceptance rate is its mean, weighted by the number of drafts."""
    return [hits / drafts for hits, drafts in zip(accepted, tested, strict=False) if drafts > 0]


def exported(figures: DraftFigures) -> dict[str, int | float | None]:
    """The counters that every export has, by their names."""
    names = ("drafted", "tested", "accepted", "acceptance_rate", "verify_passes", "mean_acceptance_length")
    return {name: getattr(figures, name) for name in names}


def exported_acceptance_by_position(figures: DraftFigures) -> list[float]:
    """The exported one; empty if there was no pass."""
    passes = figures.verify_passes
    return [accepted / passes for accepted in figures.accepted_per_position] if passes else []


def kind_speed(figures: KindFigures) -> float | None:
    """Decode speed over text of one kind, in tokens per second; ``None`` if there is none."""
    return figures.tokens / figures.seconds if figures.tokens and figures.seconds > 0 else None


def sums_by_kind(*answers: Iterable[KindFigures]) -> list[KindFigures]:
    """The counters of several answers added up."""
    sums: dict[TextKind, KindCounts] = {}
    for figures in chain.from_iterable(answers):
        sums.setdefault(figures.kind, KindCounts()).add(figures, figures.seconds)
    return [counts.figures(kind) for kind, counts in sums.items()]


def joined(first: Figures, then: Figures) -> Figures:
    """Those of an answer that was continued, for both parts together: its first token, and with it the prompt, is the
    first part's. The first token of each part is not in the decode speed; the figures by drafter are the second's.
    """
    tokens, draft = first.completion_tokens + then.completion_tokens, _joined_drafting(first.draft, then.draft)
    seconds = sum((one.completion_tokens - 1) / (one.decode_tokens_per_second or math.inf) for one in (first, then))
    return msgspec.structs.replace(
        first,
        completion_tokens=tokens,
        decode_tokens_per_second=max(tokens - 2, 1) / seconds if seconds else None,
        draft=draft,
        kinds=sums_by_kind(first.kinds, then.kinds),
        **_sums(first, then, "total_seconds draft_seconds verify_seconds other_seconds"),
        **_sums(first, then, "thinking_tokens thinking_seconds"),
    )


def _joined_drafting(first: DraftFigures, then: DraftFigures) -> DraftFigures:
    sums = _sums(first, then, "drafted tested accepted verify_passes")
    positions = {
        name: [sum(both) for both in zip_longest(getattr(first, name), getattr(then, name), fillvalue=0)]
        for name in ("accepted_per_position", "tested_per_position", "passes_per_accepted")
    }
    return msgspec.structs.replace(
        then,
        acceptance_rate=acceptance_rate(sums["accepted"], sums["tested"]),
        mean_acceptance_length=mean_acceptance_length(sums["accepted"], sums["verify_passes"]),
        estimated_passes=first.estimated_passes or then.estimated_passes,
        **sums,
        **positions,
    )


def _sums(first: object, then: object, names: str) -> dict[str, Any]:
    return {name: getattr(first, name) + getattr(then, name) for name in names.split()}


def thinking_and_answer(kinds: Iterable[KindFigures]) -> tuple[KindFigures, KindFigures]:
    """The counters over the thinking, and over all else, which comes as ``prose``."""
    sums = KindCounts(), KindCounts()
    for figures in kinds:
        sums[figures.kind != "thinking"].add(figures, figures.seconds)
    return sums[0].figures("thinking"), sums[1].figures("prose")


@dataclass
class DrafterCounts:
    """The counters of one drafter."""

    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0

    def add(self, round_: Round) -> None:
        """Count one round of this drafter."""
        self.drafted += round_.drafted
        self.tested += round_.tested
        self.accepted += round_.accepted
        self.verify_passes += round_.tested > 0

    def figures(self, name: DrafterName) -> DrafterFigures:
        """The counters as they are shown and stored."""
        return DrafterFigures(name=name, acceptance_rate=acceptance_rate(self.accepted, self.tested), **vars(self))


@dataclass
class KindCounts:
    """The counters over text of one kind."""

    tokens: int = 0
    seconds: float = 0.0
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0

    def add(self, counted: Round | KindFigures, seconds: float) -> None:
        """Count a round of this kind, or add what was counted in another answer."""
        self.tokens += counted.tokens
        self.seconds += seconds
        self.tested += counted.tested
        self.accepted += counted.accepted
        self.verify_passes += counted.verify_passes

    def figures(self, kind: TextKind) -> KindFigures:
        """The counters as they are shown and stored."""
        return KindFigures(kind=kind, **vars(self))


@dataclass
class Statistics:
    """Adds up the rounds of one generation. Times are seconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    tokens: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    tested_per_position: list[int] = field(default_factory=list)
    drafters: dict[DrafterName, DrafterCounts] = field(default_factory=dict)
    kinds: dict[TextKind, KindCounts] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    first_token_time: float | None = None
    first_tokens: int = 0
    last_token_time: float = 0.0
    thinking_tokens: int = 0
    thinking_end: float = 0.0

    def add(self, round_: Round) -> None:
        """Count one round."""
        self.tokens += round_.tokens
        self.drafted += round_.drafted
        self.tested += round_.tested
        self.accepted += round_.accepted
        self.verify_passes += round_.verify_passes
        self.draft_seconds += round_.draft_seconds
        self.verify_seconds += round_.verify_seconds
        self.other_seconds += round_.other_seconds
        if round_.drafter:
            self.drafters.setdefault(round_.drafter, DrafterCounts()).add(round_)
        if thinking := sum(piece.thinking for piece in round_.pieces):
            self.thinking_tokens += thinking
            self.thinking_end = round_.time
        missing = round_.tested - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        self.tested_per_position.extend([0] * missing)
        for position in range(round_.tested):
            self.tested_per_position[position] += 1
        for position in range(round_.accepted):
            self.accepted_per_position[position] += 1
        if not round_.tokens:
            return
        if self.first_token_time is None:
            self.first_token_time, self.first_tokens = round_.time, round_.tokens
        else:
            self.kinds.setdefault(round_.kind, KindCounts()).add(round_, round_.time - self.last_token_time)
        self.last_token_time = round_.time

    def draft_figures(self) -> DraftFigures:
        """The counters of drafting as they are shown and stored."""
        return DraftFigures(
            drafted=self.drafted,
            tested=self.tested,
            accepted=self.accepted,
            acceptance_rate=acceptance_rate(self.accepted, self.tested),
            verify_passes=self.verify_passes,
            mean_acceptance_length=mean_acceptance_length(self.accepted, self.verify_passes),
            accepted_per_position=list(self.accepted_per_position),
            tested_per_position=list(self.tested_per_position),
            drafters=[counts.figures(name) for name, counts in self.drafters.items()],
        )

    def figures(self, total_seconds: float) -> Figures:
        """The figures of the footer. ``total_seconds`` is the whole generation, from request to end."""
        decode_seconds = self.last_token_time - (self.first_token_time or 0.0)
        after_first = self.tokens - self.first_tokens
        processed = self.prompt_tokens - self.cached_tokens
        return Figures(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.tokens,
            time_to_first_token_seconds=self.first_token_time,
            prompt_tokens_per_second=processed / self.prompt_seconds if self.prompt_seconds > 0 else None,
            decode_tokens_per_second=after_first / decode_seconds if after_first and decode_seconds > 0 else None,
            total_seconds=total_seconds,
            draft_seconds=self.draft_seconds,
            verify_seconds=self.verify_seconds,
            other_seconds=self.other_seconds,
            draft=self.draft_figures(),
            kinds=[counts.figures(kind) for kind, counts in self.kinds.items()],
            thinking_tokens=self.thinking_tokens,
            thinking_seconds=max(self.thinking_end - (self.first_token_time or 0.0), 0.0),
        )
