"""Between the settings, the Open models dialog and the next answer."""

from __future__ import annotations

from dataclasses import replace

from app.engine.protocol import ModelInfo, PairLoaded, Sampling
from app.settings import Settings
from app.ui.settings_in_use import answer_settings, choice_in_use, keep_choice

COOL = Sampling(temperature=0.0)
PAIR = PairLoaded(request=1, target=ModelInfo(path="t.gguf", name="t"), default_draft_length=8, sampling=COOL)


def test_the_model_decides_until_the_user_does() -> None:
    values = Settings()
    assert answer_settings(values, None).sampling == Sampling()
    assert answer_settings(values, PAIR).sampling == choice_in_use(values, None, PAIR).sampling == COOL
    assert answer_settings(values, PAIR).draft_length == 8


def test_what_the_user_chooses_holds_for_every_model_until_it_is_reset() -> None:
    values = Settings()
    choice = choice_in_use(values, None, PAIR)
    keep_choice(values, replace(choice, sampling=Sampling()), PAIR)
    assert answer_settings(values, PAIR).sampling == Sampling()
    keep_choice(values, choice, PAIR)
    assert answer_settings(values, PAIR).sampling == COOL
    assert answer_settings(values, None).sampling == Sampling()
