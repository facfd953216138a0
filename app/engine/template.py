"""Chat templates: Jinja source from an untrusted file, rendered in a sandbox with a time and a size limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from types import FrameType
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.engine.protocol import Message
from app.errors import KnownError

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_STOPS = ["<|im_end|>", "<|im_start|>"]
"""ChatML's markers are plain text for a model that was not made for it, so they have to stop the answer as strings."""

TIME_LIMIT_SECONDS = 2.0
SIZE_LIMIT = 16 * 1024 * 1024


_LARGE = 1000


class _TooSlowError(Exception):
    pass


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also refuses sums that take for ever inside one operation, where no deadline reaches."""

    intercepted_binops = frozenset({"**", "*"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """See `jinja2.sandbox.SandboxedEnvironment.call_binop`."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and numbers and (abs(left) > _LARGE or abs(right) > _LARGE):
            raise jinja2.TemplateRuntimeError("a power is too large")
        if operator == "*" and not numbers and _size(left) * _size(right) > SIZE_LIMIT:
            raise jinja2.TemplateRuntimeError("a repetition is too long")
        return super().call_binop(context, operator, left, right)


def _size(value: Any) -> int:
    return value if isinstance(value, int) else len(value) if isinstance(value, str | list | tuple) else 0


class ChatTemplate:
    """Renders messages to the text a model expects."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        """Raises `KnownError` when ``source`` is no valid template."""
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.globals.update(raise_exception=_raise, strftime_now=_strftime_now)
        self._variables = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True, "tools": None}
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise KnownError(f"The chat template of this model is broken ({error}). Try another file of it.") from error

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt for ``messages``, up to where the answer begins.

        Some templates refuse a system message; its text then goes in front of the first message of the user.
        Raises `KnownError` when the template fails, takes longer than two seconds or writes more than 16 MB.
        """
        plain = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._render(plain)
        except jinja2.TemplateError as error:
            merged = _merge_system(plain)
            if merged is None:
                raise self._failed(error) from error
            try:
                return self._render(merged)
            except Exception as again:
                raise self._failed(again) from again
        except KnownError:
            raise
        except Exception as error:  # a template runs code of its own choice: anything can come out
            raise self._failed(error) from error

    @staticmethod
    def _failed(error: Exception) -> KnownError:
        if isinstance(error, KnownError):
            return error
        return KnownError(f"The chat template of this model failed ({type(error).__name__}: {error}).")

    def _render(self, messages: list[dict[str, str]]) -> str:
        def render() -> str:
            parts, size = [], 0
            for part in self._template.generate(messages=messages, **self._variables):
                parts.append(part)
                size += len(part)
                if size > SIZE_LIMIT:
                    raise KnownError("The chat template of this model writes without end, so it cannot be used.")
            return "".join(parts)

        try:
            return _with_deadline(render, TIME_LIMIT_SECONDS)
        except _TooSlowError:
            raise KnownError(
                f"The chat template of this model did not finish within {TIME_LIMIT_SECONDS:.0f} seconds, "
                "so it cannot be used. Try another file of this model."
            ) from None


def _with_deadline(function: Callable[[], str], seconds: float) -> str:
    """Call ``function``; raise `_TooSlowError` from inside it after ``seconds``.

    A trace function sees every line of a template's loops, on all systems and without a thread; templates are short, so
    that its cost does not matter.
    """
    deadline = time.monotonic() + seconds

    def trace(_frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > deadline:
            raise _TooSlowError
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        return function()
    finally:
        sys.settrace(previous)


def _merge_system(messages: list[dict[str, str]]) -> list[dict[str, str]] | None:
    if len(messages) < 2 or messages[0]["role"] != "system" or messages[1]["role"] != "user":
        return None
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *messages[2:]]


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
