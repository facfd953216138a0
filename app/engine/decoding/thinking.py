"""What of an answer is thinking, and how much a model can be asked to think.

| how the model marks it | who does |
|---|---|
| tags around the thinking, written by the model or at the end of the prompt | `FORMATS`: most |
| channels: each message of an answer has a header that names its channel | gpt-oss ("harmony") |

The marks themselves are hidden. Where a vocabulary has a token for one, only that token counts, not its text: a model
that writes about ``<think>`` letter by letter is not thinking. Tags open thinking at the beginning of an answer only,
and those that are quoted don't end it (`app.engine.decoding.thinking_splitters`). Of the tags that neither the template
nor the vocabulary has, only ``<think>`` counts: the others are elements of XML that any model may write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from app.engine.decoding.chat_template import TemplateInputs
from app.engine.decoding.thinking_splitters import (
    ANALYSIS,
    FINAL,
    FORMATS,
    HARMONY,
    Channels,
    ChannelSplitter,
    Format,
    Splitter,
    TagSplitter,
)
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables
from app.system import KnownError

_PROMPT_END = 32
"""Tokens at the end of the prompt in which a chat template may open or close the thinking."""
_FIRST_SYMBOL, _LAST_SYMBOL = 0xDC80, 0xDCFF
"""A token that is a mark is one character from here on while marks are searched; decoded text has no such ones."""


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.model.Model`."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def mark(self, token: int) -> str: ...


class Marks:
    """The marks of thinking that one model can write."""

    def __init__(self, vocabulary: Vocabulary, template: str) -> None:
        """``template``, Jinja source, says whether the model writes marks around its answer: others may be asked to."""
        self._vocabulary = vocabulary
        self.symbols: dict[int, str] = {}
        """The character that stands for a token while marks are searched."""
        self.shown: dict[int, str] = {}
        """What that token adds to a text where it is no mark, by the number of the character."""
        self._formats: list[Format] = []
        for known in FORMATS:
            is_told = any(mark in template for mark in (known.opening, known.closing))
            wraps = known.tokens_only or any(mark in template for mark in known.around)
            one = replace(
                known,
                around=known.around if wraps else (),
                between=known.between or f"\n{known.closing}\n\n",
                spelled=known.closing,
                openings=(known.opening,),
            )
            found = replace(
                one,
                opening=self._encoded(one.opening),
                closing=self._encoded(one.closing),
                around=tuple(map(self._encoded, one.around)),
                is_spelled=False,
            )
            has_tokens = found.opening != one.opening and found.closing != one.closing
            if has_tokens:
                self._formats.append(replace(found, openings=(found.opening, one.opening)))
            if not one.tokens_only and (has_tokens or is_told or one.is_usual):
                # Also where there are tokens: some models spell their tags all the same.
                self._formats.append(replace(one, token=found.closing) if has_tokens else one)
        harmony = Channels(*(self._encoded(mark) for mark in vars(HARMONY).values()))
        has_channels = all(len(mark) == 1 for mark in vars(harmony).values())
        self._channels = harmony if has_channels else None
        usual = next((known.opening for known in FORMATS if known.opening in template), FORMATS[0].opening)
        self.opening = ANALYSIS if has_channels else usual
        """What the model writes in front of its thinking, with its control tokens."""
        self.answer_opening = FINAL if has_channels else ""
        """What it writes in front of an answer without thinking."""
        is_told = any(mark in template for known in FORMATS for mark in (known.opening, known.closing))
        self.are_expected = has_channels or is_told
        """Whether the model is known to write marks."""

    @property
    def opening_tokens(self) -> frozenset[int]:
        """Tokens that open thinking on their own."""
        openings = {one.opening for one in self._formats}
        return frozenset(token for token, symbol in self.symbols.items() if symbol in openings)

    def splitter(self, prompt: Sequence[int], piece: Callable[[int], bytes], *, by_grammar: bool = False) -> Splitter:
        """For an answer behind ``prompt``, which a grammar may rule; ``piece`` gives the bytes of a token."""
        end = "".join(self._symbols_of(prompt[-_PROMPT_END:], piece))
        if self._channels:
            return ChannelSplitter(self._channels, end)
        return TagSplitter(self._formats, end, by_grammar=by_grammar)

    def _symbols_of(self, tokens: Sequence[int], piece: Callable[[int], bytes]) -> Iterator[str]:
        data = b""
        for token in tokens:
            if symbol := self.symbols.get(token):
                yield data.decode("utf-8", "replace") + symbol
                data = b""
            else:
                data += piece(token)
        yield data.decode("utf-8", "replace")

    def _encoded(self, mark: str) -> str:
        """``mark`` with symbols for those parts of it that are tokens of their own."""
        encoded, rest = "", mark
        for token in self._vocabulary.tokenize(mark, special=True, bos=False):
            name = self._vocabulary.mark(token)
            if name and name in rest:
                before, _, rest = rest.partition(name)
                encoded += before + self._symbol(token)
        return encoded + rest

    def _symbol(self, token: int) -> str:
        if token not in self.symbols:
            number = _FIRST_SYMBOL + len(self.symbols)
            assert number <= _LAST_SYMBOL
            self.symbols[token] = chr(number)
            self.shown[number] = self._vocabulary.piece(token).decode("utf-8", "replace")
        return self.symbols[token]


# How much a model can be asked to think, and what stands between its thinking and its answer, found by rendering its
# chat template with and without.
#
# There is no standard for it: templates read a switch, a level or both, under several names (`_SWITCHES`, `_EFFORTS`).

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
