"""Between the settings, the Open models dialog and the next answer."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from app.protocol.messages import ModelInfo, PairLoaded, Sampling
from app.settings import Settings
from app.ui.settings.in_use import answer_settings, choice_in_use, keep_choice

COOL = Sampling(temperature=0.0)
PAIR = PairLoaded(request=1, target=ModelInfo(path="t.gguf", name="t"), default_draft_length=8, sampling=COOL)


def test_the_model_decides_until_the_user_does() -> None:
    values = Settings()
    assert answer_settings(values, None).sampling == Sampling()
    assert answer_settings(values, PAIR).sampling == choice_in_use(values, None, PAIR).sampling == COOL


def test_the_draft_length_is_automatic_until_the_user_sets_one() -> None:
    values = Settings()
    assert answer_settings(values, None).draft_length == answer_settings(values, PAIR).draft_length == "auto"
    values.draft_length = 0
    assert answer_settings(values, PAIR).draft_length == 0


def test_a_drafter_the_pair_does_not_have_is_left_for_the_automatic_choice() -> None:
    alone, drafted = PAIR, msgspec.structs.replace(PAIR, draft=ModelInfo(path="d.gguf", name="d"))
    values = Settings(propose="greedy")
    for chosen, with_draft, without in (
        ("auto", "auto", "auto"),
        ("model", "model", "auto"),
        ("chain", "chain", "auto"),
        ("ngram", "ngram", "ngram"),
        ("none", "none", "none"),
    ):
        values = msgspec.convert({**msgspec.to_builtins(values), "drafter": chosen}, Settings)
        assert answer_settings(values, drafted).drafter == with_draft
        assert answer_settings(values, alone).drafter == without
        assert values.drafter == chosen
    assert answer_settings(values, drafted).propose == "greedy"


def test_what_the_user_chooses_holds_for_every_model_until_it_is_reset() -> None:
    values = Settings()
    choice = choice_in_use(values, None, PAIR)
    keep_choice(values, replace(choice, sampling=Sampling()), PAIR)
    assert answer_settings(values, PAIR).sampling == Sampling()
    keep_choice(values, choice, PAIR)
    assert answer_settings(values, PAIR).sampling == COOL
    assert answer_settings(values, None).sampling == Sampling()
