"""How much a model can be asked to think, and what stands between its thinking and its answer, found by rendering its
chat template with and without.

There is no standard for it: templates read a switch, a level or both, under several names (`_SWITCHES`, `_EFFORTS`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from app.engine.decoding.chat_template import TemplateInputs
from app.errors import KnownError
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables

Levels = dict[str, TemplateVariables]
"""By their names, the variables that ask for them; ``off`` and ``on`` first."""
_Value = bool | int | str

_SWITCHES: dict[str, tuple[_Value, _Value]] = {
    "enable_thinking": (False, True),
    "thinking": (False, True),
    "thinking_mode": ("disabled", "enabled"),  # MiniMax
    "thinking_option": ("off", "on"),  # Ling
    "skip_thinking": (True, False),  # Cohere
    "reasoning": (False, True),
    "thinking_budget": (0, -1),  # Seed
}
"""Variables, and their values for off and on."""
_EFFORTS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_NO_EFFORT = ("none", "no_think")
_EFFORT_LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
_USUAL_LEVELS = ("low", "medium", "high")
"""Of templates that write down whatever they are told (gpt-oss)."""
_PATIENCE_SECONDS = 3.0
"""A load must not wait for a template that is slow on purpose."""
_NOW = datetime(2026, 1, 1)
_QUESTION, _THOUGHT, _ANSWER, _WORD = "questionword", "thoughtword", "answerword", "levelword"


class Template(Protocol):
    """What is needed of `app.engine.decoding.chat_template.ChatTemplate`."""

    @property
    def source(self) -> str: ...
    @property
    def variables(self) -> frozenset[str]: ...
    def render(self, chat: Sequence[Message], inputs: TemplateInputs | None = None) -> str: ...


class _Patient:
    """A template that is asked no more once its answers have taken too long together."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self.source, self.variables = template.source, template.variables
        self._ends = time.monotonic() + _PATIENCE_SECONDS

    def render(self, chat: Sequence[Message], inputs: TemplateInputs | None = None) -> str:
        """See `ChatTemplate.render`."""
        if time.monotonic() > self._ends:
            raise KnownError("The model's chat template takes too long.")
        return self._template.render(chat, inputs)


def levels(template: Template) -> Levels:
    """What ``template`` accepts: names, and the variables that ask for them. Empty where it has no choice."""
    template, found = _Patient(template), Levels()
    for name, (off, on) in _SWITCHES.items():
        if name in template.variables and not found:
            texts = _rendered(template, {name: off}), _rendered(template, {name: on})
            if None not in texts and texts[0] != texts[1]:
                found = {"off": {name: off}, "on": {name: on}}
    switched = found.get("on", {})
    for name in _EFFORTS:
        if name in template.variables:
            quoted = [value for value in _NO_EFFORT if _is_known(template, {name: value}, value)]
            if quoted and not found:
                found["off"] = {name: quoted[0]}
            found |= {value: {**switched, name: value} for value in _efforts(template, name, switched)}
    return found


def between(template: Template, variables: TemplateVariables) -> str:
    """What ``template`` writes between the thinking and the answer of an earlier turn; empty where it leaves the
    thinking out."""
    chat = [
        Message(role="user", content=_QUESTION),
        Message(role="assistant", content=_ANSWER, thinking=_THOUGHT),
    ]
    text = _rendered(template, variables, chat) or ""
    _, found, behind = text.partition(_THOUGHT)
    text, answered, _ = behind.partition(_ANSWER)
    return text if found and answered else ""


def _efforts(template: Template, name: str, switched: TemplateVariables) -> Iterator[str]:
    written = _rendered(template, {**switched, name: _WORD})
    takes_any = written is not None and _WORD in written
    for value in _EFFORT_LEVELS:
        if (takes_any and value in _USUAL_LEVELS) or _is_known(template, {**switched, name: value}, value):
            yield value


def _is_known(template: Template, variables: TemplateVariables, value: str) -> bool:
    """Whether the template takes ``value`` and names it. (That its prompt is another one proves nothing: a default has
    the prompt of no value.)"""
    is_named = f"'{value}'" in template.source or f'"{value}"' in template.source
    return is_named and _rendered(template, variables) is not None


def _rendered(template: Template, variables: TemplateVariables, chat: Sequence[Message] = ()) -> str | None:
    """``None`` where the template refuses."""
    try:
        return template.render(chat or [Message(role="user", content=_QUESTION)], TemplateInputs(_NOW, variables))
    except KnownError:
        return None
