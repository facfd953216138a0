"""The status sentence in every situation."""

from __future__ import annotations

import pytest

from app.engine.protocol import DraftFigures, Figures, ModelInfo, PairLoaded
from app.ui.speed import wording
from app.ui.speed.wording import Situation, status

TARGET = ModelInfo(path="target.gguf", name="Target")
DRAFT = ModelInfo(path="draft.gguf", name="Draft")
PAIR = PairLoaded(request=1, target=TARGET, draft=DRAFT)
ALONE = PairLoaded(request=1, target=TARGET)
REFUSED = PairLoaded(request=1, target=TARGET, draft_refused="The vocabularies differ at token 17")
DRAFTED = Figures(
    decode_tokens_per_second=74.2,
    draft=DraftFigures(tested=252, accepted=172, acceptance_rate=0.6825, verify_passes=90, mean_acceptance_length=2.91),
)
PLAIN = Figures(decode_tokens_per_second=41.0)


@pytest.mark.parametrize(
    ("situation", "sentence", "mood"),
    [
        (Situation(), "No models open · Open a target model, and a draft model if you have one.", "plain"),
        (
            Situation(engine_state="no model"),
            "No models open · Open a target model, and a draft model if you have one.",
            "plain",
        ),
        (Situation(engine_state="loading 40 %"), "Loading 40 %", "plain"),
        (Situation(engine_state="stopped"), "Engine stopped · The chat says why, and restarts it.", "bad"),
        (
            Situation(pair=PAIR, draft_length=5),
            "Draft on · Figures come with the next answer · up to 5 guesses a pass",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=1, answering=True, figures=Figures()),
            "Draft on · Reading the chat · up to 1 guess a pass",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED, plain_speed=41.0),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s · 1.8× plain",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED, plain_speed=100.0),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s · 0.7× plain"
            " · slower than plain here: try a shorter draft length",
            "warning",
        ),
        (Situation(pair=PAIR), "Draft off · Draft length is 0: the target answers alone.", "plain"),
        (Situation(pair=PAIR, figures=PLAIN), "Draft off · 41 tok/s", "plain"),
        (
            Situation(pair=PAIR, figures=DRAFTED),
            "Draft off · From the next answer on, the target answers alone.",
            "plain",
        ),
        (
            Situation(pair=ALONE, draft_length=5),
            "No draft · The target answers alone. Open a small draft model of the same family to go faster.",
            "plain",
        ),
        (Situation(pair=ALONE, figures=PLAIN), "No draft · 41 tok/s", "plain"),
        (
            Situation(pair=REFUSED, draft_length=5, figures=PLAIN),
            "Draft refused · The vocabularies differ at token 17. The target answers alone.",
            "warning",
        ),
        (Situation(pair=PAIR, failure="It ran out of memory."), "Engine stopped · It ran out of memory.", "bad"),
    ],
)
def test_status_sentence(situation: Situation, sentence: str, mood: str) -> None:
    found = status(situation)
    assert found.sentence == sentence
    assert found.mood == mood


def test_no_speed_up_without_a_baseline() -> None:
    assert Situation(figures=DRAFTED).speed_up is None
    assert Situation(figures=Figures(), plain_speed=41.0).speed_up is None
    assert Situation(figures=DRAFTED, plain_speed=37.1).speed_up == pytest.approx(2.0)


def test_definitions_are_never_taken_for_markup() -> None:
    for text in wording.HELP.values():
        assert "<" not in text
