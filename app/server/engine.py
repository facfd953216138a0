"""What the server needs of an engine: one answer at a time, and questions beside it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from app.protocol.commands import CheckText, CountPrompt, Generate, Tokenize
from app.protocol.events import (
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    PromptCounted,
    PromptProgressed,
    RoundsReceived,
    TextChecked,
    Tokenized,
)

AnswerEvent = GenerationStarted | PromptProgressed | RoundsReceived | GenerationFinished


class Engine(Protocol):
    """Where answers come from. Every method raises `KnownError` where the engine can't do it."""

    @property
    def pair(self) -> PairLoaded | None:
        """What is loaded; ``None`` while nothing is."""

    def generate(self, command: Generate) -> AsyncGenerator[AnswerEvent, None]:
        """Answer; nobody else asks until the iterator is closed, which cancels the answer within one verify pass."""

    async def check_text(self, question: CheckText) -> TextChecked: ...

    async def count_prompt(self, question: CountPrompt) -> PromptCounted: ...

    async def tokenize(self, question: Tokenize) -> Tokenized: ...
