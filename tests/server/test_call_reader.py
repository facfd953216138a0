"""Calls come out of an answer's text whole, however it is cut into pieces."""

from __future__ import annotations

import random

import pytest

from app.protocol.tools import ARGUMENTS, FORMATS, ID, NAME, ToolFormat, ToolFormatName
from app.server.call_reader import CallReader

ARGUED = ['{"a": "</tool_call> } \\" <tool_call>", "b": {"c": [1, {}]}}', "{}", '{ "x"\n: "}]</TOOLCALL>[ARGS]" }']
NAMES = [name for name in FORMATS if name]


def written(known: ToolFormat, count: int) -> str:
    calls = [
        known.call.replace(NAME, f"tool_{place}").replace(ID, f"abcdefgh{place}").replace(ARGUMENTS, ARGUED[place])
        for place in range(count)
    ]
    return known.opening + known.separator.join(calls) + known.closing


def read(known: ToolFormat, text: str, rng: random.Random, *, cut: bool = False) -> tuple[str, list[tuple[str, str]]]:
    reader, shown, calls = CallReader(known), "", []
    while text:
        size = rng.randint(1, 9)
        more, found = reader.read(text[:size])
        shown, text = shown + more, text[size:]
        calls += [(call.name, call.arguments) for call in found]
    return shown + reader.end(cut=cut), calls


@pytest.mark.parametrize("name", NAMES)
def test_calls_in_any_pieces(name: ToolFormatName) -> None:
    known, rng = FORMATS[name], random.Random(1)
    for _ in range(200):
        count = rng.randint(1, 3 if known.several else 1)
        text = rng.choice(["", "Yes.\n", "A < b\n\n", " \n"]) if known.anywhere else rng.choice(["", "\n"])
        shown, calls = read(known, text + written(known, count), rng)
        assert shown == text.rstrip()
        assert calls == [(f"tool_{place}", ARGUED[place]) for place in range(count)]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_cut_is_left_out(name: ToolFormatName) -> None:
    known, rng = FORMATS[name], random.Random(1)
    text = written(known, 2 if known.several else 1)
    whole = [("tool_0", ARGUED[0]), ("tool_1", ARGUED[1])]
    for end in range(len(text)):
        shown, calls = read(known, text[:end], rng, cut=True)
        assert shown == "" and calls == whole[: len(calls)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "Yes.", "  Yes. \n", "<b>[TOOL {x}", "a <tool_call", "\n\n"])
def test_text_stays_text(name: ToolFormatName, text: str) -> None:
    known = FORMATS[name]
    shown, calls = read(known, text, random.Random(2))
    assert not calls
    assert shown == text


def test_ids_are_the_answers_own_where_it_has_them() -> None:
    reader = CallReader(FORMATS["mistral-list"])
    _, calls = reader.read(written(FORMATS["mistral-list"], 2))
    assert [call.id for call in calls] == ["abcdefgh0", "abcdefgh1"]
    _, (other,) = CallReader(FORMATS["hermes"]).read(written(FORMATS["hermes"], 1))
    assert other.id.startswith("call_")
