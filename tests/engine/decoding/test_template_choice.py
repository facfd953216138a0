"""Which chat template a model is used with, and chats with tools for templates that don't know any."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from app.engine.decoding.chat_template import BUILT_IN, CHATML, TemplateInputs
from app.engine.decoding.prompt import ChatTokenizer
from app.engine.decoding.tools import one_by_one
from app.protocol.commands import Message
from app.protocol.tools import FORMATS, ToolCall
from tests.support.tool_models import LIGHT, WEATHER, template_for
from tests.support.vocabulary import FakeVocabulary

GO = "{{ if .System }}[system] {{ .System }} {{ end }}[user] {{ .Prompt }} [assistant]"
OWN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}[{{ m.role }}] {{ m.content }}{% endfor %}"
)
QUESTION = Message(role="user", content="How is the weather in Rome?")
FIRST = ToolCall("abcdefgh1", "get_weather", '{"place": "Rome", "days": 2}')
SECOND = ToolCall("abcdefgh2", "switch-light", '{"on": true}')
CALLED = [
    Message(role="system", content="Be brief, please."),
    QUESTION,
    Message(role="assistant", content="I look it up.", tool_calls=(FIRST, SECOND)),
    Message(role="tool", content="Sunny all day.", tool_call_id=FIRST.id, tool_name=FIRST.name),
    Message(role="tool", content="It is on.", tool_call_id=SECOND.id, tool_name=SECOND.name),
]


class Letters(FakeVocabulary):
    """A vocabulary of characters, with some marks."""

    def __init__(self, template: str | None, *marks: str, for_tools: str | None = None) -> None:
        self._template, self._for_tools, self._marks = template, for_tools, list(marks)

    def chat_template(self, name: str = "") -> str | None:
        return self._for_tools if name == "tool_use" else None if name else self._template

    def special_text(self, which: str) -> str:
        return {"bos": "<s>", "eos": "</s>"}[which]

    def special_texts(self) -> tuple[list[str], list[str]]:
        return self._marks, []


def shown(tokenizer: ChatTokenizer, chat: list[Message], *, tools: bool = True) -> str:
    inputs = TemplateInputs(datetime(2026, 1, 1), {}, [WEATHER, LIGHT] if tools else [], tokenizer.text_arguments)
    return "".join(map(chr, tokenizer.chat(chat, inputs)))


@pytest.mark.parametrize(
    "source",
    [
        GO,
        "{% for %}",
        "{{ raise_exception('never') }}",
        "### Instruction:\n### Response:\n",
        "{{ messages[0].content.split()[0] }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ messages[0].parts.text }}",
        "{{- /*\n------ messages ------\n*/ -}}\n{{ range .Messages }}{{ .Content }}{{ end }}",
        r"{{- bos_token }}\n{%- if tools is defined %}\n{%- set date = \"26 Jul\" %}\n{%- endif %}",
        "  \n",
    ],
    ids=["Go", "broken", "refuses", "no Jinja", "loses words", "endless", "other fields", "Go 2", "escaped", "empty"],
)
def test_a_template_that_cannot_be_rendered_is_replaced(source: str) -> None:
    used = ChatTokenizer(Letters(source)).templates
    assert used.kind == "chatml" and used.usual.source == CHATML
    assert used.refused and "own chat template" in used.refused and "ChatML template is used instead" in used.refused
    assert used.stops == ["<|im_end|>", "<|im_start|>"]


@pytest.mark.parametrize(
    ("mark", "kind", "written"),
    [
        ("<|im_start|>", "chatml", "<|im_start|>user\nHi"),
        ("<start_of_turn>", "gemma", "<s><start_of_turn>user\nBe brief, please.\n\nHi"),
        ("<|start_header_id|>", "llama3", "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"),
        ("<|assistant|>", "phi3", "<|user|>\nHi<|end|>\n<|assistant|>\n"),
        ("<other>", "chatml", "<|im_start|>user\nHi"),
    ],
)
def test_the_general_template_is_that_of_the_special_tokens(mark: str, kind: str, written: str) -> None:
    tokenizer = ChatTokenizer(Letters(GO, mark))
    assert tokenizer.templates.kind == kind
    assert mark not in tokenizer.templates.stops
    assert written in shown(tokenizer, [CALLED[0], Message(role="user", content="Hi")], tools=False)
    assert ChatTokenizer(Letters(None, mark)).templates.kind == "chatml", "of a base model, they were never trained"


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_general_template_is_chosen_by_its_name(name: str) -> None:
    used = ChatTokenizer(Letters(OWN), name).templates
    assert (used.kind, used.refused) == (name, None)
    assert used.stops


def test_a_file_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_bytes(b"\xef\xbb\xbf" + OWN.replace("[", "<").encode())
    used = ChatTokenizer(Letters(OWN), str(path)).templates
    assert (used.kind, used.refused) == ("file", None)
    path.write_text(GO)
    used = ChatTokenizer(Letters(OWN), str(path)).templates
    assert used.kind == "model" and used.refused and "own is used instead" in used.refused
    used = ChatTokenizer(Letters(None), str(tmp_path / "none.jinja")).templates
    assert used.kind == "chatml" and used.refused and "can't be read" in used.refused
    used = ChatTokenizer(Letters(GO), str(path)).templates
    assert used.kind == "chatml" and used.refused and "chosen" in used.refused and "own" in used.refused


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_template_with_a_name_is_used_for_tools(is_listed: bool) -> None:
    for_tools = template_for(FORMATS["hermes"])
    named = [{"name": "default", "template": OWN}, {"name": "tool_use", "template": for_tools}]
    model = Letters(json.dumps(named)) if is_listed else Letters(OWN, for_tools=for_tools)
    tokenizer = ChatTokenizer(model)
    assert tokenizer.tool_format == "hermes"
    assert shown(tokenizer, [QUESTION], tools=False) == f"[user] {QUESTION.content}"
    assert "<|im_start|>system" in shown(tokenizer, [QUESTION])
    assert '<tool_call>\n{"name": "get_weather"' in shown(tokenizer, CALLED, tools=False)
    tokenizer = ChatTokenizer(Letters(OWN, for_tools=GO))
    assert tokenizer.tool_format == "general", "where that one is broken"


# ---------------------------------------------------------------- the general form


@pytest.mark.parametrize("source", [OWN, ALTERNATING, BUILT_IN["gemma"][0], CHATML])
def test_tools_calls_and_results_are_text_where_the_template_knows_none(source: str) -> None:
    tokenizer = ChatTokenizer(Letters(source))
    assert tokenizer.tool_format == "general"
    text = shown(tokenizer, CALLED)
    for part in (
        "Be brief, please.",
        '{"name":"get_weather","description":"The weather in a place.","parameters":{"type":"object"',
        'I look it up.\n<tool_call>\n{"name": "get_weather", "arguments": {"place": "Rome", "days": 2}}\n</tool_call>\n'
        '<tool_call>\n{"name": "switch-light", "arguments": {"on": true}}\n</tool_call>',
        "Result of get_weather:\nSunny all day.\n\nResult of switch-light:\nIt is on.",
    ):
        assert part in text
    assert "switch-light" in shown(tokenizer, [QUESTION])
    assert "Result of get_weather:\nSunny all day." in shown(tokenizer, CALLED, tools=False)


def test_marks_in_tools_calls_and_results_stay_text() -> None:
    tokenizer = ChatTokenizer(Letters(OWN, "<evil>"))
    call = ToolCall(FIRST.id, FIRST.name, json.dumps({"place": "<evil>"}))
    chat = [
        QUESTION,
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="a <evil> one", tool_call_id=call.id, tool_name=call.name),
    ]
    rendered, hidden = tokenizer.rendered(chat, TemplateInputs(datetime(2026, 1, 1), {}, [WEATHER]))
    assert "<evil>" not in rendered and "<evil>" in "".join(map(str, hidden.values()))


def test_a_template_that_takes_one_call_at_a_time_gets_them_one_by_one() -> None:
    tokenizer = ChatTokenizer(Letters(template_for(FORMATS["llama"])))
    assert tokenizer.tool_format == "llama"
    text = shown(tokenizer, CALLED)
    order = ["get_weather", "Sunny all day.", "switch-light", "It is on."]
    places = [text.rindex(word) for word in order]
    assert places == sorted(places)
    again = [*CALLED, Message(role="assistant", content="So."), *CALLED[1:]]
    assert [one.content for one in one_by_one(again) if one.role == "tool"] == ["Sunny all day.", "It is on."] * 2
