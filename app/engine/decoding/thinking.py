"""What of an answer is thinking, and how much a model can be asked to think.

| how the model marks it | who does |
|---|---|
| tags around the thinking, written by the model or at the end of the prompt | `FORMATS`: most |
| channels: each message of an answer has a header that names its channel | gpt-oss ("harmony") |

The marks are hidden. If a vocabulary has a token for a mark, only that token counts: a model that writes about
``<think>`` letter by letter isn't thinking. Tags open thinking only at the beginning of an answer, and quoted ones
don't end it (`app.engine.decoding.thinking_splitters`). Of tags that are neither in the template nor in the
vocabulary, only ``<think>`` counts: the others are XML that any model may write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from app.engine.decoding import Vocabulary
from app.engine.decoding.chat_template import ChatTemplate
from app.engine.decoding.thinking_splitters import (
    ANALYSIS,
    FINAL,
    FORMATS,
    HARMONY,
    ChannelSplitter,
    Format,
    Splitter,
    TagSplitter,
)
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables

_PROMPT_END = 32
"""Tokens at the end of the prompt in which a chat template may open or close the thinking."""
_FIRST_SYMBOL, _LAST_SYMBOL = 0xDC80, 0xDCFF
"""While marks are searched, a token that is a mark is one of these characters, which decoded text can't contain."""


class Marks:
    """The marks of thinking that one model can write."""

    def __init__(self, vocabulary: Vocabulary, template: str) -> None:
        """``template``, Jinja source, says which marks the model writes of itself."""
        self._vocabulary = vocabulary
        self.symbols: dict[int, str] = {}
        """The character that stands for a token while marks are searched."""
        self.shown: dict[int, str] = {}
        """What that token adds to a text if it isn't a mark, by the number of the character."""
        self._formats: list[Format] = []
        told = {known.opening for known in FORMATS if known.opening in template or known.closing in template}
        for known in FORMATS:
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
            if not one.tokens_only and (has_tokens or one.opening in told or one.is_usual):
                # Also where there are tokens: some models spell their tags all the same.
                self._formats.append(replace(one, token=found.closing) if has_tokens else one)
        self._channels = list(map(self._encoded, HARMONY))
        has_channels = all(len(mark) == 1 for mark in self._channels)
        usual = next((known.opening for known in FORMATS if known.opening in template), FORMATS[0].opening)
        self.opening = ANALYSIS if has_channels else usual
        """What the model writes before its thinking, with its control tokens."""
        self._has_channels = has_channels
        self.answer_opening = FINAL if has_channels else ""
        """What it writes before an answer without thinking."""
        self.are_expected = has_channels or bool(told)
        """Whether the model is known to write marks."""

    @property
    def opening_tokens(self) -> frozenset[int]:
        """Tokens that open thinking on their own."""
        openings = {one.opening for one in self._formats}
        return frozenset(token for token, symbol in self.symbols.items() if symbol in openings)

    def splitter(self, prompt: Sequence[int], piece: Callable[[int], bytes], *, by_grammar: bool = False) -> Splitter:
        """For an answer to ``prompt`` (``by_grammar``: see `TagSplitter`); ``piece`` gives the bytes of a token."""
        end = "".join(self._symbols_of(prompt[-_PROMPT_END:], piece))
        if self._has_channels:
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
        """``mark`` with symbols for the parts of it that are tokens."""
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


# How much a model can be asked to think, and what separates its thinking from its answer, found by rendering its chat
# template. There is no standard: templates read a switch, a level or both, by various names (`_SWITCHES`, `_EFFORTS`).

Levels = dict[str, TemplateVariables]
"""The variables that ask for each level, by its name; ``off`` and ``on`` first."""
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
"""Of templates that repeat whatever they are told (gpt-oss)."""
_PATIENCE_SECONDS = 3.0
"""A load must not wait for a template that is slow on purpose."""
_QUESTION, _THOUGHT, _ANSWER, _WORD = "questionword", "thoughtword", "answerword", "levelword"


def levels(template: ChatTemplate) -> Levels:
    """What ``template`` accepts: names, and the variables that ask for them. Empty where it has no choice."""
    ends, found = time.monotonic() + _PATIENCE_SECONDS, Levels()

    def asked(variables: TemplateVariables) -> str | None:
        if time.monotonic() > ends:
            return None
        return template.attempt(Message(role="user", content=_QUESTION), variables=variables)

    def is_known(variables: TemplateVariables, value: str) -> bool:
        """Whether the template takes ``value`` and names it. (That its prompt is another one proves nothing: a default
        has the prompt of no value.)"""
        is_named = f"'{value}'" in template.source or f'"{value}"' in template.source
        return is_named and asked(variables) is not None

    for name, (off, on) in _SWITCHES.items():
        if name in template.variables and not found:
            texts = asked({name: off}), asked({name: on})
            if None not in texts and texts[0] != texts[1]:
                found = {"off": {name: off}, "on": {name: on}}
    switched = found.get("on", {})
    for name in filter(template.variables.__contains__, _EFFORTS):
        quoted = [value for value in _NO_EFFORT if is_known({name: value}, value)]
        if quoted:
            found = found or {"off": {name: quoted[0]}}
        asking = {value: {**switched, name: value} for value in _EFFORT_LEVELS}
        usual = _USUAL_LEVELS if _WORD in (asked({**switched, name: _WORD}) or "") else ()
        found |= {value: how for value, how in asking.items() if value in usual or is_known(how, value)}
    return found


def between(template: ChatTemplate, variables: TemplateVariables) -> str:
    """What ``template`` writes between the thinking and the answer of an earlier turn; empty where it leaves the
    thinking out."""
    answer = Message(role="assistant", content=_ANSWER, thinking=_THOUGHT)
    text = template.attempt(Message(role="user", content=_QUESTION), answer, variables=variables) or ""
    _, found, behind = text.partition(_THOUGHT)
    text, answered, _ = behind.partition(_ANSWER)
    return text if found and answered else ""
