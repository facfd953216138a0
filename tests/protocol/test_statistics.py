from __future__ import annotations

import msgspec
import pytest

from app.protocol.events import DraftFigures, Figures, Piece, Round
from app.protocol.options import TextKind
from app.protocol.statistics import (
    Statistics,
    exported_acceptance_by_position,
    joined,
    thinking_and_answer,
)


def a_round(tokens: int, tested: int, accepted: int, time: float, passes: int = 1) -> Round:
    return Round(
        index=1,
        verify_passes=passes,
        pieces=[Piece(text="x")] * tokens,
        tokens=tokens,
        drafted=tested,
        tested=tested,
        accepted=accepted,
        draft_seconds=0.1,
        verify_seconds=0.2,
        other_seconds=0.3,
        time=time,
    )


def test_figures_follow_their_definitions() -> None:
    statistics = Statistics(prompt_tokens=30, cached_tokens=10, prompt_seconds=0.5)
    for round_ in (
        a_round(1, 0, 0, 1.0, passes=0),
        a_round(4, 5, 3, 2.0),
        a_round(1, 5, 0, 2.5),
        a_round(6, 5, 5, 3.0),
    ):
        statistics.add(round_)
    figures = statistics.figures(4.0)
    draft = figures.draft
    assert (draft.drafted, draft.tested, draft.accepted, draft.verify_passes) == (15, 15, 8, 3)
    assert draft.acceptance_rate == 8 / 15
    assert draft.mean_acceptance_length == 1 + 8 / 3
    assert draft.accepted_per_position == [2, 2, 2, 1, 1]
    assert draft.tested_per_position == [3, 3, 3, 3, 3]
    assert exported_acceptance_by_position(draft) == [2 / 3, 2 / 3, 2 / 3, 1 / 3, 1 / 3]
    assert figures.completion_tokens == 12
    assert draft.tested - draft.accepted == 7
    assert figures.completion_tokens - draft.accepted == 4  # the target's own: one a round
    assert figures.time_to_first_token_seconds == 1.0
    assert figures.decode_tokens_per_second == pytest.approx(11 / 2.0)
    assert figures.prompt_tokens_per_second == 20 / 0.5
    assert figures.total_seconds == 4.0


def test_the_sums_over_the_kinds_of_text_are_those_of_the_answer_without_its_first_token() -> None:
    statistics = Statistics()
    kinds: list[TextKind] = ["thinking", "thinking", "prose", "code", "code", "prose", "list"]
    for number, kind in enumerate(kinds):
        passes = 1 if number else 0
        accepted = (0, 3, 1, 5, 2, 0, 1)[number]
        round_ = a_round(accepted + 1, 5 * passes, accepted, 0.5 + 0.3 * number, passes)
        statistics.add(msgspec.structs.replace(round_, kind=kind))
    statistics.add(Round(index=9, verify_passes=0, time=9.0))  # text released at the end
    figures = statistics.figures(9.0)
    assert [one.kind for one in figures.kinds] == ["thinking", "prose", "code", "list"]
    code = next(one for one in figures.kinds if one.kind == "code")
    assert (code.tokens, code.tested, code.accepted, code.verify_passes) == (9, 10, 7, 2)
    assert code.seconds == pytest.approx(0.6)
    assert sum(one.tokens for one in figures.kinds) == figures.completion_tokens - 1
    assert sum(one.tested for one in figures.kinds) == figures.draft.tested
    assert sum(one.accepted for one in figures.kinds) == figures.draft.accepted
    assert sum(one.verify_passes for one in figures.kinds) == figures.draft.verify_passes
    seconds = sum(one.seconds for one in figures.kinds)
    assert figures.decode_tokens_per_second == pytest.approx(sum(one.tokens for one in figures.kinds) / seconds)
    thinking, answer = thinking_and_answer(figures.kinds)
    assert thinking == figures.kinds[0] and answer.tokens == sum(one.tokens for one in figures.kinds[1:])


def test_tokens_and_time_of_thinking() -> None:
    statistics = Statistics()
    for number, thinking in enumerate([True, True, False, False]):
        pieces = [Piece(text="a", thinking=thinking), Piece(text="b", thinking=thinking)]
        round_ = a_round(2, 5, 1, 1.0 + number, 1)
        statistics.add(msgspec.structs.replace(round_, pieces=pieces))
    figures = statistics.figures(9.0)
    assert (figures.thinking_tokens, figures.thinking_seconds) == (4, 1.0)


def test_an_answer_in_two_parts_has_the_sums_of_both() -> None:
    """Also the decode speed, as if there had been no pause: without the first token of each part."""
    draft = DraftFigures(
        drafted=12,
        tested=10,
        accepted=6,
        verify_passes=4,
        acceptance_rate=0.6,
        mean_acceptance_length=2.5,
        accepted_per_position=[4, 2],
        tested_per_position=[4, 4],
    )
    first = Figures(completion_tokens=11, decode_tokens_per_second=10.0, time_to_first_token_seconds=0.5, draft=draft)
    then = Figures(
        completion_tokens=5,
        decode_tokens_per_second=2.0,
        time_to_first_token_seconds=9.0,
        total_seconds=3.0,
        draft=DraftFigures(
            tested=2, accepted=2, verify_passes=1, accepted_per_position=[1, 1, 0], estimated_passes=True
        ),
    )
    both = joined(first, then)
    assert (both.completion_tokens, both.time_to_first_token_seconds, both.total_seconds) == (16, 0.5, 3.0)
    assert both.decode_tokens_per_second == pytest.approx(14 / (1.0 + 2.0))
    assert (both.draft.tested, both.draft.accepted, both.draft.verify_passes) == (12, 8, 5)
    assert (both.draft.acceptance_rate, both.draft.mean_acceptance_length) == (8 / 12, 1 + 8 / 5)
    assert (both.draft.accepted_per_position, both.draft.tested_per_position) == ([5, 3, 0], [4, 4])
    assert both.draft.estimated_passes
    assert joined(first, Figures()).decode_tokens_per_second == pytest.approx(10.0)


def test_parts_are_added_up_by_drafter_and_kind_in_any_order() -> None:
    def part(seconds: float, tokens: int, tested: int) -> Figures:
        statistics = Statistics()
        for round_ in (a_round(1, 0, 0, 0.5, passes=0), a_round(tokens, tested, 1, 0.5 + seconds)):
            statistics.add(msgspec.structs.replace(round_, drafter="ngram" if tested else None))
        return statistics.figures(1.0 + seconds)

    parts = [part(1.0, 4, 3), part(3.0, 2, 2), part(0.5, 3, 1)]
    left, right = joined(joined(parts[0], parts[1]), parts[2]), joined(parts[0], joined(parts[1], parts[2]))
    for whole in (left, right):
        assert whole.decode_tokens_per_second == pytest.approx(9 / 4.5)
        assert (whole.completion_tokens, whole.total_seconds) == (12, 7.5)
        (drafter,) = whole.draft.drafters
        assert (drafter.tested, drafter.accepted, drafter.acceptance_rate) == (6, 3, 0.5)
        assert sum(one.tokens for one in whole.kinds) == 9
    nothing = Figures(total_seconds=2.0)
    late = joined(nothing, parts[0])
    assert (late.time_to_first_token_seconds, late.total_seconds) == (2.5, 4.0)
    assert late.decode_tokens_per_second == parts[0].decode_tokens_per_second
