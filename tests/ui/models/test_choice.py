"""The choice of models: what needs a reload, stop strings as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.protocol.messages import LoadSettings, Sampling
from app.ui.models.choice import OpenModelsChoice, stop_strings_as_text, stop_strings_from

CHOICE = OpenModelsChoice(target="target.gguf", draft="draft.gguf")


def test_only_files_and_load_settings_need_other_models() -> None:
    assert CHOICE.same_models(replace(CHOICE, sampling=Sampling(temperature=0.1), seed=4, system_prompt="Be brief."))
    assert CHOICE.same_models(replace(CHOICE, max_tokens=9, stop=["x"], accept="rejection"))
    assert not CHOICE.same_models(replace(CHOICE, draft=None))
    assert not CHOICE.same_models(replace(CHOICE, target="other.gguf"))
    assert not CHOICE.same_models(replace(CHOICE, load=LoadSettings(context_length=512)))


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


def test_stop_strings_as_they_are_typed() -> None:
    assert stop_strings_from("END\n\n\\n\\n\nUser:") == ["END", "\n\n", "User:"]
    assert stop_strings_from("50\\% \\") == ["50\\% \\"]
