"""The settings of a chat: what was chosen over what is recommended, as text, and stop strings as they are typed."""

from __future__ import annotations

from typing import get_args

import pytest

from app.chats.settings import ChatSettings, chat_settings, stop_strings_as_text, stop_strings_from
from app.protocol.answering import TITLES, WORDS, SamplingChoice
from app.protocol.commands import Generate
from app.protocol.options import Overflow, Sampling

RECOMMENDED = Sampling(temperature=0.3, top_k=20, top_p=0.9)


def test_what_was_chosen_goes_before_what_is_recommended() -> None:
    assert SamplingChoice().over(RECOMMENDED) == RECOMMENDED
    assert SamplingChoice(temperature=0.0, top_k=0).over(RECOMMENDED) == Sampling(temperature=0.0, top_k=0, top_p=0.9)


def test_a_choice_has_the_fields_of_what_the_engine_takes() -> None:
    assert SamplingChoice.__struct_fields__ == Sampling.__struct_fields__


def test_everything_that_can_be_set_has_a_title_and_a_description() -> None:
    fields = {*SamplingChoice.__struct_fields__, *ChatSettings.__struct_fields__} - {"sampling"}
    assert fields == WORDS.keys()
    assert all(title and description.endswith(".") for title, description, *_ in WORDS.values())


def test_what_nobody_chose_is_as_the_engine_has_it() -> None:
    chosen, request = ChatSettings(), Generate(request=1, messages=[])
    for name in ("seed", "max_tokens", "stop", "overflow", "drafter"):
        assert getattr(chosen, name) == getattr(request, name)
    assert chosen.sampling.over(Sampling()) == request.sampling
    assert set(TITLES["overflow"]) == set(get_args(Overflow))


def test_settings_come_back_from_their_text() -> None:
    settings = ChatSettings(
        preset="Mine",
        system_prompt="Be brief. \N{GRINNING FACE}",
        sampling=SamplingChoice(temperature=0.0, min_p=0.1),
        seed=2**63 - 1,
        max_tokens=5,
        stop=["\n\n", "END"],
        overflow="keep_ends",
        drafter="ngram",
    )
    assert chat_settings(settings.to_json()) == settings
    assert chat_settings(ChatSettings().to_json()) == ChatSettings()
    assert chat_settings("") is None
    assert chat_settings(ChatSettings(system_prompt="a\ud800b", seed=1).to_json()) == ChatSettings(
        system_prompt="a?b", seed=1
    )


@pytest.mark.parametrize("text", ["{", "[]", "1", "\ud800", '{"seed": ' + "[" * 100_000])
def test_what_is_no_settings_is_none(text: str) -> None:
    assert chat_settings(text) is None


def test_of_settings_that_make_no_sense_the_others_stay() -> None:
    text = '{"seed": -1, "drafter": "magic", "unknown": 1, "stop": ["a"], "sampling": {"top_p": 9, "top_k": 3}}'
    assert chat_settings(text) == ChatSettings(stop=["a"], sampling=SamplingChoice(top_k=3))


@pytest.mark.parametrize(
    "stop",
    [
        [],
        ["END"],
        ["\n"],
        ["\n\n", "User:"],
        ["a\tb"],
        ["\\"],
        ["\\n"],
        ["C:\\new\\"],
        [" leading", "trailing "],
        ["é🙂"],
    ],
)
def test_stop_strings_survive_the_text_field(stop: list[str]) -> None:
    assert stop_strings_from(stop_strings_as_text(stop)) == stop
