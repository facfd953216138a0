"""What `drafters` concludes from figures, without models."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.drafters import AUTO, PLAIN, against_best, conclusions
from benchmarks.real_contestants import Said
from benchmarks.real_spec_bench import ALL, Run


def runs(*speeds: dict[str, float], kinds: Sequence[str] = ("qa", "code")) -> list[Run]:
    """One question after the other, with the speed of each contestant."""
    return [
        Run(
            name,
            number,
            kinds[number % len(kinds)],
            0.0,
            Said("", 20, speed, 0.1, 5, tokens=[1, 2], tested=4, accepted=2),
        )
        for number, own in enumerate(speeds)
        for name, speed in own.items()
    ]


def test_the_best_one_is_chosen_on_the_other_questions() -> None:
    """Each of two is lucky once: who chose in hindsight would compare with 200."""
    lucky = runs(
        {PLAIN: 100.0, AUTO: 100.0, "model 3": 200.0, "ngram 3": 50.0},
        {PLAIN: 100.0, AUTO: 100.0, "model 3": 50.0, "ngram 3": 200.0},
    )
    found = against_best(lucky, ["model 3", "ngram 3"], lucky)
    assert found is not None and (found.value, found.pairs) == (2.0, 2)
    hindsight = against_best(lucky, ["model 3", "ngram 3"], lucky, in_hindsight=True)
    assert hindsight is not None and hindsight.value == pytest.approx(0.8)


def test_where_a_kind_has_one_question_the_others_choose() -> None:
    several = runs(
        {PLAIN: 100.0, AUTO: 150.0, "model 3": 100.0, "ngram 3": 50.0},
        {PLAIN: 100.0, AUTO: 150.0, "model 3": 100.0, "ngram 3": 300.0},
    )
    found = against_best(several[4:], ["model 3", "ngram 3"], several)
    assert found is not None and found.value == pytest.approx(1.5), "model 3 was best on the other question"


def test_conclusions_by_kind_and_the_text() -> None:
    found = conclusions(
        runs(
            {PLAIN: 100.0, AUTO: 120.0, "ngram 3": 90.0, "ngram auto": 99.0, "llama-server": 80.0},
            {PLAIN: 50.0, AUTO: 60.0, "ngram 3": 80.0, "ngram auto": 49.0, "llama-server": 40.0},
        )
    )
    ratios = found["ratios"]
    assert ratios[f"Auto ÷ {PLAIN}"][ALL].value == pytest.approx(1.2)
    assert ratios["Auto ÷ llama-server"]["code"].value == pytest.approx(1.5)
    assert ratios["ngram auto ÷ no draft"]["prose"].value == pytest.approx(0.99), "questions of qa are prose"
    assert found["same"]["ngram 3"] == (2, 2) and "llama-server" not in found["same"]
    assert found["counts"][AUTO]["accepted"] == 4
