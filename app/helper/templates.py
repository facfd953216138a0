"""Renders chat templates, which are Jinja source from untrusted files. Runs in the helper process."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import msgspec
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.helper.messages import CheckTemplate, Message, Rendered, RenderTemplate, TemplateChecked, TemplateFailed

SIZE_LIMIT = 16 * 1024 * 1024
"""Characters that a template may write."""
_DETAIL_CHARACTERS = 200
_WORD = re.compile(r"(?<![/\w])[^\W_]+")
"""A word, except a switch such as ``/no_think``, which templates remove from a message."""
_SHORT = 20
"""The words of messages shorter than this may be in a prompt by accident."""
_MARK = f"mark{secrets.token_hex(16)}at"
"""The beginning of a word that can't be in a chat."""
_THINKING_NAMES = ("reasoning_content", "reasoning", "thinking", "thought")
"""Templates' names for a message's thinking; most leave it out of the prompt."""
_THINKING_PART = "block['type'] == 'thinking'"
"""Found in templates that want thinking as part of the content (Mistral's)."""
_TRIMMED = "You have access to the following functions in JSONSchema format"
"""Found in StepFun's templates, whose models loop on spaces around a message (llama.cpp issue 24181)."""
_RESERVED = {
    *("messages", "bos_token", "eos_token", "add_generation_prompt", "continue_final_message", "raise_exception"),
    *("strftime_now", "date_string", "datetime", "documents", "functions"),
}
"""Variables that a request may never set; nor may it set any about tools."""
_CHANNEL = "<|channel|>"
_FINAL = "<|channel|>final<|message|>"
"""In gpt-oss answers that were stored with their thinking, which its template refuses."""


class _UnusableError(Exception):
    """There is no prompt; ``failure`` says why."""

    def __init__(self, failure: TemplateFailed) -> None:
        super().__init__(failure)
        self.failure = failure


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the model's text for training; it has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's

    def parse(self, parser: Parser) -> nodes.Node:
        """See `jinja2.ext.Extension.parse`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Absent(jinja2.Undefined):
    """A missing variable adds nothing to a text, where jinja2's own type would raise an error."""

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__


class _Given(list[Any]):
    """A list that a template can't change."""


class _Environment(ImmutableSandboxedEnvironment):
    """Templates may use lists of their own: Kimi's has a queue."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """See `jinja2.sandbox.SandboxedEnvironment`."""
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)


def answer(request: CheckTemplate | RenderTemplate) -> TemplateChecked | Rendered | TemplateFailed:
    """Compile a template, or render a chat.

    Some templates refuse or drop a system message, so its text goes in front of the user's first message. Some drop
    string content and expect typed parts. Some loop over the tools even if there are none. Some want user and assistant
    to take turns, or one system message at most (`_in_turns`). Each form is tried; a template that loses the user's
    words in all of them is refused.
    """
    try:
        template = _compiled(request.source)
        if isinstance(request, CheckTemplate):
            return TemplateChecked(_variables(request.source))
        return Rendered(_rendered(template, request).encode("utf-8", "replace").decode())
    except MemoryError:
        raise
    except _UnusableError as error:
        failure = error.failure
        return TemplateChecked([], failure.detail) if isinstance(request, CheckTemplate) else failure
    except Exception as error:  # a template runs arbitrary code, so anything can be raised
        return TemplateFailed("failed", _line(error))


def _line(error: Exception) -> str:
    """An error as one line of printable characters."""
    name = "" if isinstance(error, jinja2.TemplateSyntaxError) else f"{type(error).__name__}: "
    text = f"{name}{error}"[: _DETAIL_CHARACTERS + 1].encode("utf-8", "replace").decode()
    if len(text) > _DETAIL_CHARACTERS:
        text = text[: _DETAIL_CHARACTERS - 1] + "…"
    return "".join(character if character.isprintable() else "\ufffd" for character in text.replace("\n", " "))


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], undefined=_Absent
    )
    environment.globals.update(raise_exception=_raise)
    environment.filters["tojson"] = _to_json
    return environment


@lru_cache(maxsize=4)
def _compiled(source: str) -> jinja2.Template:
    try:
        return _environment().from_string(source)
    except MemoryError:
        raise
    except Exception as error:  # even SyntaxError: jinja2 compiles some mistakes, such as a stray break, to Python
        raise _UnusableError(TemplateFailed("broken", _line(error))) from error


def _variables(source: str) -> list[str]:
    """The variables that a request may set: those that the template reads and doesn't set, or only sets if missing."""
    tree = _environment().parse(source)
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    asked = [test.node for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined")]
    asked += [one.node for one in tree.find_all(nodes.Filter) if one.name in ("default", "d") and one.node]
    own -= {node.name for node in asked if isinstance(node, nodes.Name)}
    names = meta.find_undeclared_variables(tree) - own - _RESERVED
    return sorted(name for name in names if "tool" not in name)


@dataclass(frozen=True)
class _Form:
    """One way to pass a chat to a template."""

    typed: bool
    """Contents are lists of parts."""
    merged: bool
    """The system prompt is in the user's first message."""
    tools: bool
    """The variable ``tools`` exists, and is None without tools; templates that loop over it fail then."""


def _rendered(template: jinja2.Template, request: RenderTemplate) -> str:
    problem: Exception | None = None
    for messages in _orders(request.messages):
        marked = _marked(messages) if any(0 < len(one.content) < _SHORT for one in _sought(messages)) else []
        for form in _forms(messages, has_tools=bool(request.tools)):
            try:
                text = _prompt(template, request, messages, form)
                if not _has_tools(text, request.tools):
                    raise _UnusableError(TemplateFailed("loses", ""))
                if _has_words(text, messages) and _has_words(_prompt(template, request, marked, form), marked):
                    return text
                problem = problem or _UnusableError(TemplateFailed("loses", ""))
            except (MemoryError, _UnusableError):  # the latter for endless output
                raise
            except Exception as error:
                problem = problem or error
    assert problem is not None
    raise problem


def _orders(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The chat as it is, then in the order that stricter templates want."""
    yield messages
    in_turns = _in_turns(messages)
    if in_turns != messages:
        yield in_turns
    if any(one.tool_calls or one.role == "tool" for one in messages):
        yield _in_turns(list(map(_without_calls, messages)))


def _in_turns(messages: Sequence[Message]) -> list[Message]:
    """At most one system message, at the front, then a message by the user, then alternating roles.

    A later system message becomes the user's, so that the prompt before it stays the same.
    """
    found: list[Message] = []
    for message in messages:
        role = message.role
        if role == "system" and any(one.role != "system" for one in found):
            role = "user"
        if role == "assistant" and all(one.role == "system" for one in found):
            found.append(Message("user", ""))
        if found and role == found[-1].role != "tool":
            found[-1] = _joined(found[-1], message)
        else:
            found.append(msgspec.structs.replace(message, role=role))
    if [one.role for one in found] == ["system"]:
        found[0] = msgspec.structs.replace(found[0], role="user")
    return found


def _joined(first: Message, second: Message) -> Message:
    content, thinking = (
        "\n\n".join(filter(None, texts))
        for texts in ((first.content, second.content), (first.thinking, second.thinking))
    )
    return msgspec.structs.replace(
        first, content=content, thinking=thinking, tool_calls=[*first.tool_calls, *second.tool_calls]
    )


def _without_calls(message: Message) -> Message:
    """The message with its calls as text; a tool's result becomes the user's message."""
    if message.role == "tool":
        return Message("user", f"Result of {message.name}:\n{message.content}")
    calls = (json.dumps(call["function"], ensure_ascii=False) for call in message.tool_calls)
    return msgspec.structs.replace(message, content="\n".join(filter(None, (message.content, *calls))), tool_calls=[])


def _forms(messages: Sequence[Message], *, has_tools: bool) -> Iterator[_Form]:
    """The forms to try until the template accepts one."""
    can_merge = [message.role for message in messages[:2]] == ["system", "user"]
    for typed in (False, True):
        for merged in (False, True) if can_merge else (False,):
            yield _Form(typed, merged, tools=True)
            if not has_tools:
                yield _Form(typed, merged, tools=False)


def _prompt(template: jinja2.Template, request: RenderTemplate, messages: Sequence[Message], form: _Form) -> str:
    if not messages:
        return ""
    now = datetime.fromisoformat(request.now)
    variables: dict[str, Any] = {
        **request.variables,
        "bos_token": request.bos,
        "eos_token": request.eos,
        "add_generation_prompt": True,
        "strftime_now": now.strftime,
        "date_string": now.strftime("%d %b %Y"),
        "datetime": now.strftime("%b %d %Y"),
    }
    if form.tools:
        variables["tools"] = _Given(request.tools) or None
    shown = [_message(request.source, message, form) for message in messages]
    if form.merged:
        system, first = messages[:2]
        content = f"{system.content}\n\n{first.content}".lstrip("\n")
        shown[:2] = [_message(request.source, Message("user", content), form)]
    return _written(template.generate(variables, messages=_Given(shown)))


def _message(source: str, message: Message, form: _Form) -> dict[str, Any]:
    """A message in the form that templates expect."""
    content = message.content.strip() if _TRIMMED in source else message.content
    if message.role == "assistant" and _CHANNEL in source and content.startswith(_CHANNEL):
        content = content.rpartition(_FINAL)[2] if _FINAL in content else ""
    thinking = message.thinking
    if message.tool_calls and thinking and content and _CHANNEL in source:  # gpt-oss's refuses both beside a call
        thinking, content = f"{thinking}\n\n{content}", ""
    parts = [{"type": "text", "text": content}]
    shown = {"role": message.role, "content": parts if form.typed else content}
    if thinking and _THINKING_PART in source:
        shown["content"] = [{"type": "thinking", "thinking": thinking}, *parts]
    elif thinking:
        shown.update(dict.fromkeys(_THINKING_NAMES, thinking))
    if message.tool_calls:
        shown["tool_calls"] = message.tool_calls
    if message.role == "tool":
        shown.update(tool_call_id=message.tool_call_id, name=message.name)
    return shown


def _has_tools(text: str, tools: Sequence[dict[str, Any]]) -> bool:
    """Whether the prompt names all of the tools."""
    return all(tool["function"]["name"] in text for tool in tools)


def _has_words(text: str, messages: Sequence[Message]) -> bool:
    """Whether the prompt has all required words. Templates may change spaces and punctuation."""
    known = set(_WORD.findall(text))
    words = (word for one in _sought(messages) for word in _WORD.findall(one.content) or one.content.split())
    return all(word in known or word in text or _to_json(word)[1:-1] in text for word in words)


def _sought(messages: Sequence[Message]) -> list[Message]:
    """The messages required in the prompt: system messages and everything after the last answer, or the last message.

    Earlier turns may be missing: the built-in pair's template leaves them out.
    """
    last = max((at for at, one in enumerate(messages[:-1]) if one.role == "assistant"), default=-1)
    return [one for at, one in enumerate(messages) if one.role == "system" or at > last]


def _marked(messages: Sequence[Message]) -> list[Message]:
    """The messages with a unique word added to each."""
    texts = (one.content and f"{one.content} {_MARK}{number}" for number, one in enumerate(messages))
    return [msgspec.structs.replace(one, content=text) for one, text in zip(messages, texts, strict=True)]


def _written(parts: Iterator[str]) -> str:
    written, size = [], 0
    for part in parts:
        written.append(part)
        size += len(part)
        if size > SIZE_LIMIT:
            raise _UnusableError(TemplateFailed("endless", ""))
    return "".join(written)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """``tojson`` of the transformers library, which templates are written for."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
