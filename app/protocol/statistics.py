"""The counters of a generation and the figures computed from them. Each figure is defined here and nowhere else.

| figure | definition |
|---|---|
| drafted, tested, ignored | tokens proposed; given to a verify pass; proposed but never tested |
| acceptance rate | accepted ÷ tested |
| mean acceptance length | 1 + accepted ÷ verify passes |
| acceptance by position i, shown | of the drafts at least i long, the share whose first i tokens were all accepted |
| acceptance by position i, exported | verify passes that accepted position i ÷ all verify passes (vLLM's) |
| decode speed | tokens after the first ÷ time from the first to the last |
| time to first token | from the arrival of the request to the first token, prompt processing included |

tokens = accepted + the target's own + forced (which end the thinking early); drafted = tested + ignored; tested =
accepted + rejected. A token that was accepted but comes after the answer's end (after a stop string, say) counts as
rejected. The counters by kind of text add up to the answer's without its first token; a round counts entirely for the
kind it began in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

import msgspec

from app.protocol.events import DrafterFigures, DraftFigures, Figures, KindFigures, Round
from app.protocol.options import CONTINUES, DrafterName, TextKind

_COUNTERS = "drafted tested accepted verify_passes"


def acceptance_rate(accepted: int, tested: int) -> float | None:
    """``None`` if nothing was tested."""
    return accepted / tested if tested else None


def has_drafted(figures: DraftFigures) -> bool:
    """Whether anything was drafted; some servers only report that passes gave more than one token each."""
    return figures.tested > 0 or figures.drafted > 0 or (figures.mean_acceptance_length or 0.0) > 1.0


def mean_acceptance_length(accepted: int, verify_passes: int) -> float | None:
    """``None`` if there were no passes."""
    return 1 + accepted / verify_passes if verify_passes else None


def acceptance_by_position(accepted: Sequence[int], tested: Sequence[int]) -> list[float]:
    """As shown; its mean, weighted by the number of drafts, is the acceptance rate."""
    return [hits / drafts for hits, drafts in zip(accepted, tested, strict=False) if drafts > 0]


def exported(figures: DraftFigures) -> dict[str, int | float | None]:
    """The counters that all exports contain."""
    names = ("drafted", "tested", "accepted", "acceptance_rate", "verify_passes", "mean_acceptance_length")
    return {name: getattr(figures, name) for name in names}


def exported_acceptance_by_position(figures: DraftFigures) -> list[float]:
    """As exported; empty if there were no passes."""
    passes = figures.verify_passes
    return [accepted / passes for accepted in figures.accepted_per_position] if passes else []


def kind_speed(figures: KindFigures) -> float | None:
    """Decode speed for one kind of text; ``None`` if there is none."""
    return figures.tokens / figures.seconds if figures.tokens and figures.seconds > 0 else None


def drafting(drafted: int, tested: int, accepted: int, verify_passes: int, **others: Any) -> DraftFigures:
    """The counters with the figures that follow from them; ``others`` are further fields."""
    known = {
        "acceptance_rate": acceptance_rate(accepted, tested),
        "mean_acceptance_length": mean_acceptance_length(accepted, verify_passes),
    }
    counters = {"drafted": drafted, "tested": tested, "accepted": accepted, "verify_passes": verify_passes}
    return DraftFigures(**{**counters, **known, **others})


def sums_by_kind(*answers: Iterable[KindFigures]) -> list[KindFigures]:
    """The counters of several answers, added up by kind of text."""
    sums: dict[TextKind, KindFigures] = {}
    for one in chain.from_iterable(answers):
        sums[one.kind] = _with(sums.get(one.kind, KindFigures(kind=one.kind)), one, one.seconds)
    return list(sums.values())


def _by_drafter(round_: Round, drafter: DrafterName) -> list[DrafterFigures]:
    """Each one's own tokens. A pass counts for the one that began the draft."""
    more, own = round_.continued, round_.tested - round_.continued
    accepted = min(round_.accepted, own)
    begun = DrafterFigures(
        name=drafter, drafted=round_.drafted - more, tested=own, accepted=accepted, verify_passes=int(round_.tested > 0)
    )
    if not more:
        return [begun]
    return [begun, DrafterFigures(name=CONTINUES, drafted=more, tested=more, accepted=round_.accepted - accepted)]


def sums_by_drafter(*answers: Iterable[DrafterFigures]) -> list[DrafterFigures]:
    """The counters of several answers, added up by drafter."""
    sums: dict[DrafterName, DrafterFigures] = {}
    for one in chain.from_iterable(answers):
        counters = _sums(sums.get(one.name, DrafterFigures(name=one.name)), one, _COUNTERS)
        rate = acceptance_rate(counters["accepted"], counters["tested"])
        sums[one.name] = DrafterFigures(name=one.name, acceptance_rate=rate, **counters)
    return list(sums.values())


def joined(first: Figures, then: Figures) -> Figures:
    """The figures of a continued answer as a whole. Prompt and first token are those of the first part with any tokens;
    the decode speed excludes the first token of each part.
    """
    steps, seconds = map(sum, zip(_decoding(first), _decoding(then), strict=True))
    begin = first if first.completion_tokens else then
    waited = then.time_to_first_token_seconds
    if begin is then and waited is not None:
        begin = msgspec.structs.replace(then, time_to_first_token_seconds=first.total_seconds + waited)
    return msgspec.structs.replace(
        begin,
        decode_tokens_per_second=steps / seconds if seconds else None,
        draft=_joined_drafting(first.draft, then.draft),
        kinds=sums_by_kind(first.kinds, then.kinds),
        **_sums(first, then, "completion_tokens total_seconds draft_seconds verify_seconds other_seconds"),
        **_sums(first, then, "thinking_tokens thinking_seconds"),
    )


def _decoding(figures: Figures) -> tuple[float, float]:
    """The tokens that the decode speed is measured over, and their seconds."""
    if not figures.decode_tokens_per_second:
        return 0, 0.0
    tokens = sum(one.tokens for one in figures.kinds) or max(figures.completion_tokens - 1, 1)
    return tokens, tokens / figures.decode_tokens_per_second


def _joined_drafting(first: DraftFigures, then: DraftFigures) -> DraftFigures:
    positions: dict[str, Any] = {
        name: [sum(both) for both in zip_longest(getattr(first, name), getattr(then, name), fillvalue=0)]
        for name in ("accepted_per_position", "tested_per_position", "passes_per_accepted")
    }
    return drafting(
        **_sums(first, then, _COUNTERS),
        **positions,
        drafters=sums_by_drafter(first.drafters, then.drafters),
        source=then.source,
        estimated_passes=first.estimated_passes or then.estimated_passes,
    )


def _sums(first: object, then: object, names: str) -> dict[str, Any]:
    return {name: getattr(first, name) + getattr(then, name) for name in names.split()}


def _with(kind: KindFigures, more: Round | KindFigures, seconds: float) -> KindFigures:
    sums = _sums(kind, more, "tokens tested accepted verify_passes")
    return KindFigures(kind=kind.kind, seconds=kind.seconds + seconds, **sums)


def thinking_and_answer(kinds: Iterable[KindFigures]) -> tuple[KindFigures, KindFigures]:
    """The counters for thinking, and for everything else (as ``prose``)."""
    sums = [KindFigures(kind="thinking"), KindFigures(kind="prose")]
    for one in kinds:
        which = one.kind != "thinking"
        sums[which] = _with(sums[which], one, one.seconds)
    return sums[0], sums[1]


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
    drafters: list[DrafterFigures] = field(default_factory=list)
    kinds: dict[TextKind, KindFigures] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    first_token_time: float | None = None
    first_tokens: int = 0
    last_token_time: float = 0.0
    thinking_tokens: int = 0
    thinking_end: float = 0.0

    def add(self, round_: Round) -> None:
        """Add one round."""
        self.tokens += round_.tokens
        self.drafted += round_.drafted
        self.tested += round_.tested
        self.accepted += round_.accepted
        self.verify_passes += round_.verify_passes
        self.draft_seconds += round_.draft_seconds
        self.verify_seconds += round_.verify_seconds
        self.other_seconds += round_.other_seconds
        if round_.drafter:
            self.drafters = sums_by_drafter(self.drafters, _by_drafter(round_, round_.drafter))
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
            known = self.kinds.get(round_.kind, KindFigures(kind=round_.kind))
            self.kinds[round_.kind] = _with(known, round_, round_.time - self.last_token_time)
        self.last_token_time = round_.time

    def draft_figures(self) -> DraftFigures:
        """The drafting counters as they are shown and stored."""
        return drafting(
            self.drafted,
            self.tested,
            self.accepted,
            self.verify_passes,
            accepted_per_position=list(self.accepted_per_position),
            tested_per_position=list(self.tested_per_position),
            drafters=list(self.drafters),
        )

    def decode_speed(self, tokens: int) -> float | None:
        """``tokens`` is the whole answer's, by the server's own count if it has one."""
        seconds, steps = self.last_token_time - (self.first_token_time or 0.0), tokens - self.first_tokens
        return steps / seconds if steps > 0 and seconds > 0 else None

    def figures(self, total_seconds: float) -> Figures:
        """The answer's figures; ``total_seconds`` is from the request to the end."""
        processed = self.prompt_tokens - self.cached_tokens
        return Figures(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.tokens,
            time_to_first_token_seconds=self.first_token_time,
            prompt_tokens_per_second=processed / self.prompt_seconds if self.prompt_seconds > 0 else None,
            decode_tokens_per_second=self.decode_speed(self.tokens),
            total_seconds=total_seconds,
            draft_seconds=self.draft_seconds,
            verify_seconds=self.verify_seconds,
            other_seconds=self.other_seconds,
            draft=self.draft_figures(),
            kinds=list(self.kinds.values()),
            thinking_tokens=self.thinking_tokens,
            thinking_seconds=max(self.thinking_end - (self.first_token_time or 0.0), 0.0),
        )
