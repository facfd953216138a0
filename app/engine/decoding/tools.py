"""Tool calls: how templates write them, the grammar that forces them, and templates without a form for them.

A format counts as known only if the template, given a chat with two calls, writes exactly what the format says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from app.engine.decoding import Vocabulary
from app.engine.decoding.chat_template import ChatTemplate
from app.engine.decoding.grammar import is_mark
from app.protocol.commands import Message
from app.protocol.tools import (
    ARGUMENTS,
    FORMATS,
    GENERAL,
    ID,
    ID_LENGTH,
    KEY,
    NAME,
    VALUE,
    TextValue,
    Tool,
    ToolCall,
    ToolFormat,
    ToolFormatName,
    ToolUse,
    definition,
    parameters_of,
    text_value,
)
from app.system import KnownError

_CALLS = (
    ToolCall("firstcal1", "first_tool", '{"place": "Rome"}'),
    ToolCall("secondca2", "second_tool", '{"count": 3}'),
)
_TOOLS = [
    Tool(
        name="first_tool",
        description="Oneword.",
        parameters={"type": "object", "properties": {"place": {"type": "string", "description": "Where"}}},
    ),
    Tool(
        name="second_tool",
        description="Otherword.",
        parameters={"type": "object", "properties": {"count": {"type": "integer", "description": "How many"}}},
    ),
]


# ------------------------------------------------------------ what a template writes


def found_format(template: ChatTemplate) -> tuple[ToolFormatName, bool]:
    """How ``template`` writes calls, and whether it wants their arguments as text; ``general`` if that is unknown, or
    it doesn't show the tools and their results."""
    if "tool" not in template.source:
        return "general", False
    for text_arguments in (False, True):
        for count in (2, 1):
            text = _rendered(template, _CALLS[:count], text_arguments=text_arguments)
            for name, known in FORMATS.items():
                if known.several == (count == 2) and written(known, _CALLS[:count]) in text:
                    return name, text_arguments
    return "general", False


def _rendered(template: ChatTemplate, calls: tuple[ToolCall, ...], *, text_arguments: bool) -> str:
    """A chat with ``calls``; empty if the template refuses it, or leaves out the tools or their results."""
    results = [
        Message(role="tool", content=f"result{place}word", tool_call_id=call.id, tool_name=call.name)
        for place, call in enumerate(calls)
    ]
    question, answer = Message(role="user", content="Well?"), Message(role="assistant", content="", tool_calls=calls)
    text = template.attempt(question, answer, *results, tools=_TOOLS, text_arguments=text_arguments) or ""
    expected = [*(result.content for result in results), "Oneword", "Otherword"]
    return text if all(word in text for word in expected) else ""


def written(known: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """The ``calls`` of an answer in the form ``known``."""
    texts = [
        known.call.replace(NAME, call.name).replace(ID, call.id).replace(ARGUMENTS, _arguments(known, call))
        for call in calls
    ]
    return known.opening + known.separator.join(texts) + known.closing


def _arguments(known: ToolFormat, call: ToolCall) -> str:
    if not known.parameter:
        return call.arguments
    pairs = json.loads(call.arguments).items()
    return "".join(known.parameter.replace(KEY, name).replace(VALUE, str(value)) for name, value in pairs)


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts and names changed."""
    match value:
        case str():
            return change(value)
        case list():
            return [with_texts(one, change) for one in value]
        case dict():
            return {change(name): with_texts(one, change) for name, one in value.items()}
    return value


_PLACES = re.compile(f"([{NAME}{ID}{ARGUMENTS}])")
_SIGNS = re.compile(r"([\[\]{}().*+?|^$/\\])")
"""Characters with a meaning in a regular expression."""
_KEY = r"[^<>\"\n]{1,128}"


class CallGrammar:
    """The grammar of an answer with calls by ``use``, written in a format, for one vocabulary."""

    def __init__(
        self,
        known: ToolFormat,
        use: ToolUse,
        vocabulary: Vocabulary | None = None,
        forced: Sequence[dict[str, Any]] = (),
        answer: dict[str, Any] | None = None,
    ) -> None:
        """Without a ``vocabulary``, marks are spelled, to check everything else. ``forced``: what llguidance can force
        of each tool's parameters (`app.helper.messages.GrammarChecked.schema`). ``answer``: the schema of an answer
        without a call; ``None``: any text."""
        self._forced = {tool.name: schema for tool, schema in zip(use.tools, forced, strict=False)}
        self._answer = answer
        self._format = known
        self._use = use
        self._vocabulary = vocabulary
        self.marks: dict[int, bytes] = {}
        """The text of control tokens in it."""
        self.notes: dict[str, list[str]] = {}
        """By tool: what of its parameters the form of the calls can't force, once `source` has been called."""

    def source(self) -> str:
        """In llguidance's notation."""
        known, use = self._format, self._use
        tools = [tool for tool in use.tools if use.only in ("", tool.name)]
        is_token = [type(part) for part in self._parts(known.mark)] == [int]
        more = [self._literal(known.separator), "call"]
        repeated = f" ({' '.join(filter(None, more))})*" if use.several and known.several else ""
        rules = [f"call{place}: {self._call(tool, place)}" for place, tool in enumerate(tools)]
        rules.append("call: " + " | ".join(f"call{place}" for place in range(len(tools))))
        # The mark of the first call is a rule of its own, because text before a spelled mark ends with it.
        behind = self._literal(known.opening + known.call.partition(NAME)[0], without=known.mark)
        rules += [f"first{place}: {self._call(tool, place, begins=behind)}" for place, tool in enumerate(tools)]
        rules.append("first: " + " | ".join(f"first{place}" for place in range(len(tools))))
        closing = self._literal(known.closing)
        rules.append(f"calls: first{repeated} {closing}".rstrip())
        rules.append(f"mark: {self._literal(known.mark)}")
        for place, tool in enumerate(tools):
            as_json = [f"arguments{place}: {_json(self._schema(tool))}"]
            rules += self._parameters(tool, place) if known.parameter else as_json
        return "\n".join([f"start: {self._start(is_token=is_token)}", *rules, *self._texts(is_token=is_token)])

    def _start(self, *, is_token: bool) -> str:
        calls = "mark calls"
        if self._use.required:
            return calls
        if self._answer is not None:
            return f"answer | {calls}"
        if not self._format.anywhere:
            return f"TEXT | {calls}"
        return f"TEXT? ({calls})?" if is_token else "TEXT | before calls"

    def _texts(self, *, is_token: bool) -> Iterator[str]:
        """The rules of text without a call."""
        if self._use.required:
            return
        if self._answer is not None:
            yield f"answer: {_json(self._answer)}"
            return
        mark = _escaped(self._format.mark)
        if not self._format.anywhere:
            yield rf"TEXT: /\s*([^{mark}\s](?s:.*))?/"
            return
        yield f"TEXT: /(?s:.{'+' if is_token else '*'})/ & ~/(?s:.*){mark}(?s:.*)/"
        if not is_token:
            yield f"before[lazy]: /(?s:.*){mark}/"

    def _call(self, tool: Tool, place: int, begins: str | None = None) -> str:
        """One call; ``begins``: what comes before the name."""
        places = {NAME: json.dumps(tool.name), ID: f"/[a-zA-Z0-9]{{{ID_LENGTH}}}/", ARGUMENTS: f"arguments{place}"}
        written = [places.get(part) or self._literal(part) for part in _PLACES.split(self._format.call)]
        if begins is not None:
            written[0] = begins
        return " ".join(filter(str.strip, written))

    def _schema(self, tool: Tool) -> dict[str, Any]:
        """What the arguments of ``tool`` have to follow, as far as that can be forced."""
        nothing = {"properties": {}, "additionalProperties": False}
        forced = self._forced.get(tool.name, tool.parameters) if tool.parameters else nothing
        return {**forced, "type": "object"}

    def _parameters(self, tool: Tool, place: int) -> Iterator[str]:
        """The rules of arguments that are written one by one, in the schema's order."""
        whole, forced = parameters_of(tool.parameters), self._schema(tool)
        schemas = parameters_of(forced).schemas
        definitions = {name: forced[name] for name in ("$defs", "definitions") if name in forced}
        notes = self.notes[tool.name] = [f"“{keyword}” at the top level" for keyword in whole.not_followed]
        before, _, after = self._format.parameter.partition(VALUE)
        names = []
        for number, (key, one) in enumerate(whole.schemas.items()):
            value = text_value(one, tool.parameters)
            if not re.fullmatch(_KEY, key):
                notes.append(f"an argument called {json.dumps(key)}")
                continue
            rule = f"p{place}x{number}"
            names.append(rule if key in whole.required else f"{rule}?")
            begins = self._literal(before.replace(KEY, key))
            if value is None:
                yield f"{rule}: {begins} {rule}j {self._literal(after)}"
                inner = schemas.get(key, {})
                yield f"{rule}j: {_json({**definitions, **inner} if isinstance(inner, dict) else inner)}"
                continue
            notes += [f"“{keyword}” at #/properties/{key}" for keyword in value.not_followed]
            if value.choices is not None:
                choices = " | ".join(json.dumps(text, ensure_ascii=False) for text in value.choices)
                yield f"{rule}: {begins} ({choices}) {self._literal(after)}"
            else:
                yield from self._text(rule, begins, value, after)
        if whole.any_name:
            names.append(f"p{place}*")
            start, _, end = before.partition(KEY)
            begins = f"{self._literal(start)} /{_KEY}/ {self._literal(end)}"
            yield from self._text(f"p{place}", begins, TextValue(), after)
        yield f"arguments{place}: {' '.join(names)}" if names else f'arguments{place}: ""'

    def _text(self, rule: str, begins: str, value: TextValue, after: str) -> Iterator[str]:
        """The rules of an argument that is text, up to what comes ``after`` it. Raises `KnownError`."""
        parts = list(self._parts(after))
        any_text = f"(?s:.{{{value.least},{'' if value.most is None else value.most}}})"
        if all(isinstance(part, str) for part in parts):
            yield f"{rule}: {begins} {rule}t"
            yield f"{rule}t[lazy]: /{any_text}{_escaped(after)}/"
        elif isinstance(parts[0], int):
            optional = "" if value.least else "?"
            yield f"{rule}: {begins} {rule.upper()}T{optional} {self._literal(after)}"
            yield f"{rule.upper()}T: /{any_text}/ & ~/(?s:.*){_escaped(after)}(?s:.*)/ & /(?s:.+)/"
        else:
            raise KnownError("The model's marks of tool calls can't be used for arguments that are texts.")

    def _literal(self, text: str, *, without: str = "") -> str:
        """``text`` as a part of a rule; ``without`` its beginning."""
        parts = list(self._parts(text))
        if without and isinstance(parts[0], int):
            parts = parts[1:]
        elif without:
            assert isinstance(parts[0], str)
            parts[0] = parts[0].removeprefix(without)
        shown = (f"<[{part}]>" if isinstance(part, int) else json.dumps(part, ensure_ascii=False) for part in parts)
        return " ".join(one for one in shown if one != '""')

    def _parts(self, text: str) -> Iterator[str | int]:
        """``text`` with the ids of marks that are tokens in place of their text."""
        rest = text
        tokens = self._vocabulary.tokenize(text, special=True, bos=False) if self._vocabulary else []
        for token in tokens:
            assert self._vocabulary is not None
            name = self._vocabulary.mark(token)
            if not name or name not in rest or not is_mark(name, self._vocabulary.piece(token)):
                continue
            before, _, rest = rest.partition(name)
            if before:
                yield before
            self.marks[token] = name.encode()
            yield token
        if rest:
            yield rest


def _escaped(text: str) -> str:
    """``text`` in a regular expression."""
    return _SIGNS.sub(r"\\\1", text).replace("\n", r"\n")


def _json(schema: Any) -> str:
    """JSON by a schema, as a part of a rule."""
    from app.helper.grammars import CALL_OPTIONS  # imports llguidance

    return f"%json {json.dumps({**schema, 'x-guidance': CALL_OPTIONS} if isinstance(schema, dict) else schema)}"


# Chats with tools for templates that don't know tools, or write calls in an unknown form.
#
# They get the tools as JSON in the system prompt, calls as text of the answer, and results as messages of the user.

_EXAMPLE = GENERAL.call.replace(NAME, "the name").replace(ARGUMENTS, '{"argument": "value"}')
_INTRODUCTION = f"""You can call functions. Each of these lines describes one:
%s

To call a function, write its name and its arguments like this, and nothing behind it:
{_EXAMPLE}
For several calls, write several such blocks. You get the results in the next message. Where no function helps, answer \
as usual."""


def as_text(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The chat with ``tools``, for a template that gets no tools."""
    groups = groupby(messages, lambda message: message.role == "tool")
    turns = [turn for is_result, some in groups for turn in _turns(some, is_result)]
    if not tools:
        return turns
    lines = "\n".join(msgspec.json.encode(definition(tool)["function"]).decode() for tool in tools)
    introduction, system = _INTRODUCTION % lines, turns[0] if turns and turns[0].role == "system" else None
    text = f"{system.content}\n\n{introduction}" if system and system.content else introduction
    return [Message(role="system", content=text), *(turns[1:] if system else turns)]


def one_by_one(messages: Sequence[Message]) -> list[Message]:
    """The chat with one call in each message, followed by its result."""
    turns: list[Message] = []
    for one in messages:
        if one.role == "tool":
            callers = (
                n for n, turn in enumerate(turns, 1) if one.tool_call_id in (call.id for call in turn.tool_calls)
            )
            turns.insert(max(callers, default=len(turns)), one)
            continue
        first, *others = one.tool_calls or (None,)
        turns.append(msgspec.structs.replace(one, tool_calls=(first,)) if first else one)
        turns += [msgspec.structs.replace(one, content="", thinking="", tool_calls=(call,)) for call in others if call]
    return turns


def _turns(messages: Iterable[Message], is_result: bool) -> Iterator[Message]:
    if is_result:
        results = (f"Result of {one.tool_name or 'the function'}:\n{one.content}" for one in messages)
        yield Message(role="user", content="\n\n".join(results))
        return
    for one in messages:
        content = "\n".join(filter(None, (one.content, written(GENERAL, one.tool_calls))))
        yield msgspec.structs.replace(one, content=content, tool_calls=())
