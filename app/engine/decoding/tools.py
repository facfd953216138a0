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
from app.engine.decoding.argument_grammar import ArgumentGrammar, Literals, json_rule, pattern
from app.engine.decoding.chat_template import ChatTemplate
from app.engine.decoding.thinking_splitters import FINAL
from app.protocol.calls import pattern_of
from app.protocol.commands import Message
from app.protocol.notations import PLAIN, escaped
from app.protocol.tools import (
    ARGUMENTS,
    FORMATS,
    GENERAL,
    ID,
    ID_LENGTH,
    INDEX,
    NAME,
    Tool,
    ToolCall,
    ToolFormat,
    ToolFormatName,
    ToolUse,
    definition,
)

_CALLS = (
    ToolCall("firstcal1", "first_tool", '{"many": ["a", 1], "more": {"b": ["c"]}, "place": "Rome"}'),
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
_AS_TEXTS = FORMATS["glm"]


# ------------------------------------------------------------ what a template writes


def found_format(template: ChatTemplate) -> tuple[ToolFormatName, bool]:
    """How ``template`` writes calls, and whether it wants their arguments as text; ``general`` if that is unknown, or
    it doesn't show the tools and their results."""
    if "tool" not in template.source:
        return "general", False
    for text_arguments in (False, True):
        for count in (2, 1):
            calls = _CALLS[:count]
            as_texts = tuple(for_template(call, _AS_TEXTS) for call in calls)
            shown = [_rendered(template, some, text_arguments=text_arguments) for some in (calls, as_texts)]
            for name, known in FORMATS.items():
                if known.several == (count == 2) and written(known, calls) in shown[known.takes_texts]:
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


def written(known: ToolFormat, calls: Sequence[ToolCall], *, counted: bool = True) -> str:
    """The ``calls`` of an answer as templates write them in the form ``known``; not ``counted``: with placeholders for
    their numbers."""
    texts = [
        (known.in_template or known.call)
        .replace(NAME, call.name)
        .replace(ID, call.id)
        .replace(INDEX, str(index) if counted else INDEX)
        .replace(ARGUMENTS, _arguments(known, call))
        for index, call in enumerate(calls)
    ]
    return known.opening + known.separator.join(texts) + known.closing


def as_models_write(known: ToolFormat, prompt: str) -> str:
    """A rendered ``prompt`` with its calls in the form of `ToolFormat.call`."""
    theirs, ours = (one.partition(ARGUMENTS)[0] for one in (known.in_template, known.call))
    return re.sub(pattern_of(theirs), ours.replace(NAME, r"\g<name>"), prompt) if theirs else prompt


def in_front(known: ToolFormat, chat: Sequence[Message], render: Callable[[Sequence[Message]], str]) -> str:
    """The prompt for ``chat``, with text in front of the calls that it came before."""
    if not known.text_last:
        return render(chat)
    text = render([msgspec.structs.replace(one, content="") if one.tool_calls else one for one in chat])
    at = 0
    for one in chat:
        calls = written(known, one.tool_calls)
        if one.tool_calls and (at := text.find(calls, max(at, 0))) >= 0:
            text = text[:at] + one.content + text[at:]
            at += len(one.content) + len(calls)
    return text


def _arguments(known: ToolFormat, call: ToolCall) -> str:
    if not known.parameter:
        return call.arguments
    return known.notation.entries(json.loads(call.arguments), ("", known.between, ""), known.members)


def for_template(
    call: ToolCall, known: ToolFormat, hide: Callable[[str], str] = str, keep: Callable[[str], str] = str
) -> ToolCall:
    """``call`` in a way that makes a template write what the model wrote. ``hide`` changes its texts; ``keep`` those
    that templates write in another way than models: without escapes (LFM2.5), or with (MiniCPM)."""

    def as_written(text: str) -> str:
        shown = escaped(text) if known.notation.escapes else text
        is_plain = text.isprintable() and shown == text and not (known.takes_texts and re.search("[<&]", text))
        return hide(text) if is_plain else keep(shown.encode("utf-8", "replace").decode())

    def change(value: Any) -> Any:
        if known.takes_texts:
            return as_written(PLAIN.write(value))
        in_quotes = known.notation.escapes and not isinstance(value, dict)
        return with_texts(value, as_written if in_quotes else hide)

    values = {hide(name): change(value) for name, value in json.loads(call.arguments).items()}
    return ToolCall(hide(call.id), hide(call.name), json.dumps(values, ensure_ascii=False))


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


_PLACES = re.compile(f"([{NAME}{ID}{ARGUMENTS}{INDEX}])")


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
        self._literals = Literals(vocabulary)
        self.marks = self._literals.marks
        """The text of control tokens in it."""
        self.notes: dict[str, list[str]] = {}
        """By tool: what of its parameters the form of the calls can't force, once `source` has been called."""

    def source(self) -> str:
        """In llguidance's notation."""
        known, use = self._format, self._use
        tools = [tool for tool in use.tools if use.only in ("", tool.name)]
        more = [self._literals(known.separator), "call"]
        repeated = f" ({' '.join(filter(None, more))})*" if use.several and known.several else ""
        rules = [f"call{place}: {self._call(tool, place, known.call)}" for place, tool in enumerate(tools)]
        rules.append("call: " + " | ".join(f"call{place}" for place in range(len(tools))))
        # The mark is a rule of its own, because text before a spelled one ends with it.
        first, begins = "first", ""
        if known.opening:
            first, begins = "call", self._literals.behind(known.opening, known.mark)
        else:
            rules += [f"first{n}: {self._call(tool, n, known.call, known.mark)}" for n, tool in enumerate(tools)]
            rules.append("first: " + " | ".join(f"first{place}" for place in range(len(tools))))
        parts = (begins, first + repeated, self._literals(known.closing))
        rules.append(f"calls: {' '.join(filter(None, parts))}")
        for place, tool in enumerate(tools):
            rules += self._arguments(tool, f"arguments{place}")
        return "\n".join([*self._start(), *rules])

    def _start(self) -> Iterator[str]:
        """The rules of the whole answer."""
        spelled, rest = self._literals.split(self._format.mark)
        yield f"mark: {self._literals(self._format.mark)}"
        if self._answer is not None:
            yield f"answer: {json_rule(self._answer)}"
        if self._format.channels:
            yield from self._in_channels()
        elif self._use.required:
            yield "start: mark calls"
        elif self._answer is not None:
            yield "start: answer | mark calls"
        elif not self._format.anywhere:
            yield "start: TEXT | mark calls"
            yield rf"TEXT: /\s*([^{pattern(self._format.mark)}\s](?s:.*))?/"
        elif spelled:
            yield f"start: TEXT | before {rest} calls"
            yield f"before{'' if rest else '[lazy]'}: /(?s:.*){pattern(spelled)}/"
        else:
            yield "start: TEXT? (mark calls)?"
        if self._format.channels or not (self._use.required or self._answer or not self._format.anywhere):
            yield f"TEXT: /(?s:.{'*' if spelled else '+'})/ & ~/(?s:.*){pattern(self._format.mark)}(?s:.*)/"

    def _in_channels(self) -> Iterator[str]:
        """The rules of an answer with all its channels: thinking, what is said before a call, and the answer."""
        channel, message, goes_on = map(self._literals, ("<|channel|>", "<|message|>", "<|end|><|start|>assistant"))
        names, last = ('"analysis"', "") if self._use.required else ('("analysis" | "commentary")', " | final")
        yield f"block: {channel} {names} {message} TEXT? {goes_on}"
        yield f"final: {self._literals(FINAL)} {'TEXT?' if self._answer is None else 'answer'}"
        yield f"start: block* (mark calls{last})"

    def _call(self, tool: Tool, place: int, form: str, begun: str = "") -> str:
        """One call in its ``form``, the beginning of which has ``begun``."""
        places = {NAME: json.dumps(tool.name), ID: f"/[a-zA-Z0-9]{{{ID_LENGTH}}}/", INDEX: "/[0-9]{1,3}/"}
        begins, *parts = _PLACES.split(form)
        places[ARGUMENTS] = f"arguments{place}"
        written = [self._literals.behind(begins, begun), *(places.get(part) or self._literals(part) for part in parts)]
        return " ".join(filter(str.strip, written))

    def _arguments(self, tool: Tool, name: str) -> Iterator[str]:
        """The rules of a tool's arguments, as far as they can be forced."""
        nothing = {"properties": {}, "additionalProperties": False}
        forced = self._forced.get(tool.name, tool.parameters) if tool.parameters else nothing
        forced = {**forced, "type": "object"}
        if not self._format.parameter:
            yield f"{name}: {json_rule(forced)}"
            return
        found = ArgumentGrammar(self._format, tool, forced, self._literals, name)
        self.notes[tool.name] = found.notes
        yield from found.rules


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
