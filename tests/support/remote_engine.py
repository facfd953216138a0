"""The real process of a remote engine, and what an answer of it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.protocol.commands import Generate, Message
from app.protocol.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LoadFailed,
    PairLoaded,
    PromptProgressed,
    Round,
    RoundsReceived,
)
from app.protocol.remote import Connect
from tests.support.engine_process import EngineProcess

QUESTION = [Message(role="user", content="What happened?")]


@dataclass(frozen=True)
class Answered:
    """All events of one answer."""

    events: list[Event]

    @property
    def last(self) -> GenerationFinished | GenerationFailed:
        end = self.events[-1]
        assert isinstance(end, GenerationFinished | GenerationFailed)
        return end

    @property
    def finished(self) -> GenerationFinished:
        assert isinstance(self.last, GenerationFinished), self.last
        return self.last

    @property
    def failed(self) -> GenerationFailed:
        assert isinstance(self.last, GenerationFailed), self.last
        return self.last

    @property
    def started(self) -> GenerationStarted:
        return next(event for event in self.events if isinstance(event, GenerationStarted))

    @property
    def progress(self) -> list[PromptProgressed]:
        return [event for event in self.events if isinstance(event, PromptProgressed)]

    @property
    def rounds(self) -> list[Round]:
        return [one for event in self.events if isinstance(event, RoundsReceived) for one in event.rounds]

    def text(self, *, thinking: bool = False) -> str:
        pieces = [piece for one in self.rounds for piece in one.pieces]
        return "".join(piece.text for piece in pieces if piece.thinking is thinking)


class RemoteEngine(EngineProcess):
    """One request at a time."""

    def __init__(self, *module: str) -> None:
        super().__init__(*(module or ("app", "--role=remote")))
        self._request = 0

    def connect(self, address: str, **given: Any) -> PairLoaded:
        """Use a server. Fails if that fails."""
        event = self.try_to_connect(address, **given)
        assert isinstance(event, PairLoaded), event
        return event

    def try_to_connect(self, address: str, **given: Any) -> PairLoaded | LoadFailed:
        self._request += 1
        self.send(Connect(request=self._request, address=address, **given))
        return self._until(PairLoaded, LoadFailed)[-1]  # type: ignore[return-value]

    def ask(self, messages: Sequence[Message] = QUESTION, **given: Any) -> int:
        """Send a request; returns its number."""
        self._request += 1
        self.send(Generate(request=self._request, messages=list(messages), **given))
        return self._request

    def answer(self, messages: Sequence[Message] = QUESTION, **given: Any) -> Answered:
        """Everything about one answer."""
        self.ask(messages, **given)
        return self.end()

    def end(self) -> Answered:
        """The rest of the current answer."""
        return Answered(self._until(GenerationFinished, GenerationFailed))

    def _until(self, *kinds: type[Event]) -> list[Event]:
        events: list[Event] = []
        while not events or not isinstance(events[-1], kinds):
            events.append(self.next())
        return events
