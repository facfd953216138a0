"""A chat to tokens: template, control tokens, and what leaves when the chat outgrows the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from app.engine.protocol import Message
from app.engine.template import CHATML, CHATML_STOPS, ChatTemplate
from app.errors import KnownError

MINIMAL_ROOM = 16
"""Tokens that must be left for an answer, or the message is refused."""


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.Model`."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]: ...
    def chat_template(self) -> str | None: ...
    def special_text(self, which: str) -> str: ...
    def control_texts(self) -> list[str]: ...


@dataclass(frozen=True)
class Prompt:
    """Token ids to feed, and what was left out of the chat to make them fit."""

    tokens: list[int]
    dropped_messages: int = 0
    stops: list[str] = field(default_factory=list)


class PromptBuilder:
    """Builds prompts for one loaded target."""

    def __init__(self, vocabulary: Vocabulary, context_length: int) -> None:
        """``context_length`` in tokens. Raises `KnownError` for a broken chat template."""
        self._vocabulary = vocabulary
        self._context_length = context_length
        source = vocabulary.chat_template()
        self.template: Literal["model", "chatml"] = "model" if source else "chatml"
        self._bos = vocabulary.special_text("bos")
        self._template = ChatTemplate(source or CHATML, self._bos, vocabulary.special_text("eos"))
        self._controls = vocabulary.control_texts()
        self._dropped: tuple[str, int] = ("", 0)

    def raw(self, text: str) -> Prompt:
        """``text`` as it is, with the BOS token where the model wants one. Raises `KnownError` when it is too long."""
        tokens = self._vocabulary.tokenize(text, special=True, bos=True)
        if not tokens:
            raise KnownError("The prompt is empty: this model needs at least one token to go on from.")
        self._check_length(len(tokens))
        return Prompt(tokens)

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """The prompt for a chat whose last message is the user's.

        The oldest turns, never the system prompt, leave when a quarter of the context would not be free for the answer;
        half of the context is then made free at once, so that the next turns can go on from the KV cache. Raises
        `KnownError` when the system prompt and the last message alone are too long.
        """
        system = [messages[0]] if messages and messages[0].role == "system" else []
        turns = list(messages[len(system) :])
        if not turns:
            raise KnownError("There is no message to answer.")
        drop = self._remembered(turns)
        tokens = self._tokens([*system, *turns[drop:]])
        room = self._context_length * 3 // 4
        if len(tokens) > room:
            room = self._context_length // 2
        while len(tokens) > room and drop < len(turns) - 1:
            drop = _next_turn(turns, drop)
            tokens = self._tokens([*system, *turns[drop:]])
        self._check_length(len(tokens))
        self._dropped = (turns[0].content, drop)
        return Prompt(tokens, drop, CHATML_STOPS if self.template == "chatml" else [])

    def _remembered(self, turns: list[Message]) -> int:
        """Start where the last prompt of this chat started: only then is its KV cache of use."""
        first, drop = self._dropped
        return drop if turns[0].content == first and drop < len(turns) else 0

    def _check_length(self, count: int) -> None:
        if count > self._context_length - MINIMAL_ROOM:
            raise KnownError(
                f"This message needs {count:,} tokens, but the context holds {self._context_length:,}. "
                "Shorten the message or choose a longer context."
            )

    def _tokens(self, messages: Sequence[Message]) -> list[int]:
        text = self._template.render(messages)
        bos = not (self._bos and text.startswith(self._bos))
        tokens: list[int] = []
        for part, special in self._split(text, messages):
            tokens += self._vocabulary.tokenize(part, special=special, bos=bos and not tokens)
        return tokens

    def _split(self, text: str, messages: Sequence[Message]) -> list[tuple[str, bool]]:
        """Parts of a rendered prompt, and whether control tokens are read in them.

        What looks like a control token inside a message is the user's text, not a control token.
        """
        parts: list[tuple[str, bool]] = []
        start = 0
        for message in messages:
            content = message.content.strip()
            if not any(control in content for control in self._controls):
                continue
            found = text.find(content, start)
            if found >= 0:
                parts += [(text[start:found], True), (content, False)]
                start = found + len(content)
        parts.append((text[start:], True))
        return [(part, special) for part, special in parts if part]


def _next_turn(turns: list[Message], start: int) -> int:
    """The index of the next user message behind ``start``: an answer never stands first."""
    for index in range(start + 1, len(turns)):
        if turns[index].role == "user":
            return index
    return len(turns) - 1
