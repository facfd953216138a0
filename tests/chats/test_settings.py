"""The settings of a chat: what was chosen over what is recommended, as text, and stop strings as they are typed."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.inspect import Metadata, UnionType, type_info

from app.chats.settings import ChatSettings, SamplingChoice, chat_settings, stop_strings_as_text, stop_strings_from
from app.protocol.messages import Sampling

RECOMMENDED = Sampling(temperature=0.3, top_k=20, top_p=0.9)


def test_what_was_chosen_goes_before_what_is_recommended() -> None:
    assert SamplingChoice().over(RECOMMENDED) == RECOMMENDED
    assert SamplingChoice(temperature=0.0, top_k=0).over(RECOMMENDED) == Sampling(temperature=0.0, top_k=0, top_p=0.9)


def test_a_choice_has_the_fields_and_the_ranges_that_the_engine_takes() -> None:
    def range_of(annotation: object) -> tuple[object, ...]:
        kind = type_info(annotation)
        kind = kind.types[0] if isinstance(kind, UnionType) else kind
        kind = kind.type if isinstance(kind, Metadata) else kind
        return type(kind), *(getattr(kind, name) for name in ("ge", "gt", "le", "lt"))

    chosen, sampling = (
        {field.name: range_of(field.type) for field in msgspec.structs.fields(table)}
        for table in (SamplingChoice, Sampling)
    )
    assert chosen == sampling


def test_everything_that_can_be_set_has_a_title_and_a_description() -> None:
    for table in (SamplingChoice, ChatSettings):
        for field in msgspec.structs.fields(table):
            if field.name == "sampling":
                continue
            kind = type_info(field.type)
            kind = kind.types[0] if isinstance(kind, UnionType) else kind
            assert isinstance(kind, Metadata), field.name
            words = kind.extra_json_schema or {}
            assert words["title"] and words["description"].endswith(".")


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


def test_stop_strings_as_they_are_typed() -> None:
    assert stop_strings_from("END\n\n\\n\\n\nUser:") == ["END", "\n\n", "User:"]
    assert stop_strings_from("50\\% \\") == ["50\\% \\"]
