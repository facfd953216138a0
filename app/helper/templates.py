"""Chat templates: Jinja source from an untrusted file. Runs in the helper process, whose limits stop what hangs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.helper.messages import CheckTemplate, Rendered, RenderTemplate, TemplateAnswer, TemplateFailed, TemplateRequest

SIZE_LIMIT = 16 * 1024 * 1024
"""The maximum number of characters a template may write."""
_DETAIL_CHARACTERS = 200
_WORD = re.compile(r"[^\W_]+")

Messages = list[dict[str, Any]]


class _UnusableError(Exception):
    """There is no prompt; ``failure`` says why."""

    def __init__(self, failure: TemplateFailed) -> None:
        super().__init__(failure)
        self.failure = failure


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what the model wrote, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's

    def parse(self, parser: Parser) -> nodes.Node:
        """See `jinja2.ext.Extension.parse`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def answer(request: TemplateRequest) -> TemplateAnswer:
    """Compile a template, or render a chat.

    Some templates refuse a system message; its text is then added in front of the user's first message. Some leave out
    content that is a string and expect typed parts; they get those. A template that leaves out the last message in
    every form is refused.
    """
    try:
        template = _compiled(request.source)
        text = "" if isinstance(request, CheckTemplate) else _rendered(template, request)
        return Rendered(text.encode("utf-8", "replace").decode())
    except MemoryError:
        raise
    except _UnusableError as error:
        return error.failure
    except Exception as error:  # a template runs arbitrary code, so anything can be raised
        return TemplateFailed("failed", _line(error))


def _line(error: Exception) -> str:
    """An error in one line of printable characters."""
    name = "" if isinstance(error, jinja2.TemplateSyntaxError) else f"{type(error).__name__}: "
    text = f"{name}{error}"[: _DETAIL_CHARACTERS + 1].encode("utf-8", "replace").decode()
    if len(text) > _DETAIL_CHARACTERS:
        text = text[: _DETAIL_CHARACTERS - 1] + "…"
    return "".join(character if character.isprintable() else "\ufffd" for character in text.replace("\n", " "))


@lru_cache(maxsize=4)
def _compiled(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.globals.update(raise_exception=_raise)
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(source)
    except MemoryError:
        raise
    except Exception as error:  # also SyntaxError: jinja2 turns some mistakes into Python code, such as a stray break
        raise _UnusableError(TemplateFailed("broken", _line(error))) from error


def _rendered(template: jinja2.Template, request: RenderTemplate) -> str:
    variables = {
        "bos_token": request.bos,
        "eos_token": request.eos,
        "add_generation_prompt": True,
        "tools": None,
        "strftime_now": datetime.fromisoformat(request.now).strftime,
    }
    problem: Exception | None = None
    for messages in _forms([{"role": message.role, "content": message.content} for message in request.messages]):
        try:
            text = _written(template.generate(messages=messages, **variables))
        except (MemoryError, _UnusableError):  # the latter if it writes endlessly
            raise
        except Exception as error:
            problem = problem or error
            continue
        if _has_words(text, request.messages[-1].content if request.messages else ""):
            return text
        problem = problem or _UnusableError(TemplateFailed("loses", ""))
    assert problem is not None
    raise problem


def _forms(messages: Messages) -> Iterator[Messages]:
    """The forms to try, one after another, until the template accepts one."""
    forms = [form for form in (messages, _merge_system(messages)) if form]
    yield from forms
    for form in forms:
        yield [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in form]


def _merge_system(messages: Messages) -> Messages:
    if len(messages) < 2 or messages[0]["role"] != "system" or messages[1]["role"] != "user":
        return []
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *messages[2:]]


def _has_words(text: str, content: str) -> bool:
    """Whether the longest word of a message is in the prompt. (Its spaces and symbols may have been changed.)"""
    return max(_WORD.findall(content), key=len, default="") in text


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
    """``tojson`` as in the transformers library, for which templates are written."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
