"""Where two answers part, and what several comparisons come to."""

from __future__ import annotations

from app.compare.prompts import Prompt
from app.compare.results import (
    Comparison,
    Run,
    first_difference,
    score_command,
    summarize,
    with_scores,
)
from app.protocol.commands import Generate, Message
from app.protocol.events import (
    DrafterFigures,
    DraftFigures,
    Figures,
    Piece,
    TokensScored,
)
from app.protocol.options import Sampling

WARM = Sampling(temperature=0.8)
ASKED = Generate(request=0, messages=[Message(role="user", content="Well?")], sampling=WARM, overflow="keep_ends")


def answer(*pieces: tuple[int, str], figures: Figures | None = None) -> Run:
    return Run(pieces=[Piece(text=text, id=token) for token, text in pieces], figures=figures or Figures())


def of_server(text: str) -> Run:
    return Run(pieces=[Piece(text=text)])


def comparison(plain: Run, drafted: Run, kind: str = "own") -> Comparison:
    prompt = Prompt(kind=kind, messages=[Message(role="user", content="x")])
    found = first_difference(plain, drafted)
    return Comparison(prompt=prompt, seed=5, command=ASKED, plain=plain, drafted=drafted, difference=found)


def test_same_texts() -> None:
    assert first_difference(answer((1, "a"), (2, "b")), answer((1, "a"), (2, "b"))) is None
    assert first_difference(answer((1, "a"), (2, "b")), answer((3, "ab"))) is None, "the text is what counts"
    assert first_difference(Run(), Run()) is None


def test_what_the_engine_is_asked_and_what_it_answers() -> None:
    pair = comparison(answer((1, "on"), (2, " the")), answer((1, "on"), (3, " then")))
    asked = score_command(pair)
    assert asked is not None and pair.difference is not None
    assert (asked.answer, asked.candidates, asked.seed) == ([1], [2, 3], 5)
    assert (asked.sampling, asked.overflow, asked.messages) == (WARM, "keep_ends", ASKED.messages)
    scored = TokensScored(request=4, logits=[7.5, 7.0], scores=[1.5, 1.25], could_win=[True, True], rounding=0.3)
    found = with_scores(pair.difference, scored)
    assert (found.plain_logit, found.drafted_logit) == (7.5, 7.0)
    assert (found.score_gap, found.rounding, found.near_tie) == (0.25, 0.3, True)
    assert (found.token, found.plain, found.drafted) == (1, " the", " then")
    left_out = TokensScored(request=4, logits=[7.5, 1.0], scores=[1.5, None], could_win=[True, False], rounding=0.02)
    found = with_scores(pair.difference, left_out)
    assert (found.score_gap, found.near_tie) == (None, False)


# ---------------------------------------------------------------- tables


def pair_of(
    kind: str,
    plain: float | None,
    drafted: float | None,
    text: str = "a",
    *,
    tested: int = 0,
    accepted: int = 0,
    passes: int = 0,
) -> Comparison:
    def timed(speed: float | None, draft: DraftFigures) -> Figures:
        return Figures(completion_tokens=10, decode_tokens_per_second=speed, total_seconds=2.0, draft=draft)

    names = [DrafterFigures(name="model", drafted=9, tested=tested, accepted=accepted, verify_passes=passes)]
    counted = DraftFigures(drafted=9, tested=tested, accepted=accepted, verify_passes=passes, drafters=names)
    first = answer((1, "a"), figures=timed(plain, DraftFigures()))
    return comparison(first, answer((ord(text), text), figures=timed(drafted, counted)), kind)


def test_a_table_by_kind() -> None:
    found = summarize(
        [
            pair_of("code", 10.0, 20.0, tested=8, accepted=6, passes=4),
            pair_of("prose", 10.0, 9.0, "b", passes=9),
            pair_of("code", 20.0, 60.0, tested=2, passes=2),
            pair_of("code", None, 50.0),
        ]
    )
    assert [row.kind for row in found.rows] == ["code", "prose"]
    code, prose = found.rows
    assert (code.runs, code.same, code.tokens, code.seconds) == (3, 3, 30, 12.0)
    assert (code.plain_speed, code.drafted_speed, code.speed_up) == (15.0, 40.0, 2.5)
    assert (code.speed_up_low, code.speed_up_high) == (2.25, 2.75)
    assert (code.tested, code.accepted, code.acceptance_rate, code.mean_acceptance_length) == (10, 6, 0.6, 2.0)
    assert code.drafters == [
        DrafterFigures(name="model", drafted=27, tested=10, accepted=6, acceptance_rate=0.6, verify_passes=6)
    ]
    assert (prose.same, prose.near_ties, prose.acceptance_rate, prose.speed_up) == (0, 0, None, 0.9)
    assert (found.total.kind, found.total.runs, found.total.speed_up) == ("all", 4, 2.0)
    assert found.total.acceptance_rate == 0.6
    for comparisons in ([], [pair_of("code", None, None)]):
        total = summarize(comparisons).total
        assert (total.speed_up, total.speed_up_low, total.plain_speed, total.acceptance_rate) == (None,) * 4
