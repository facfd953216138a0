"""One answer for another program, in as many parts as the window's chats interrupt it."""

from __future__ import annotations

import time
from collections import deque

import msgspec

from app.protocol.commands import Generate
from app.protocol.events import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Piece,
    PromptProgressed,
    Round,
    RoundsReceived,
)
from app.protocol.options import FinishReason
from app.protocol.statistics import Statistics

_LIVE_SECONDS = 3.0


class ServedAnswer:
    """What the engine is asked for the next part, and what the program is told of all parts together.

    A part continues behind the tokens of those before it, with the same seed: under ``coupled`` the text is the same as
    if nothing had happened. The program sees one answer: its rounds are numbered through, their times leave out the
    pauses, and the figures are those of all parts.

    Attributes:
        client: The program, by its own name.
        request: The number under which the program's server knows it.
    """

    def __init__(self, client: str, command: Generate) -> None:
        self.client = client
        self.request = command.request
        self._command = _dated(command)
        self._tokens: list[int] = []
        self._statistics = Statistics()
        self._first: Figures | None = None
        """Of the first part that came to a token, once that is over."""
        self._has_started = False
        self._prompt_done = 0
        self._next_index = 0
        """Of the first round of the next part."""
        self._index_shift = 0
        self._time_shift = 0.0
        """Seconds from the beginning of the whole, without the pauses, to that of this part."""
        self._time = 0.0
        """Of the last round."""
        self._is_resuming = False
        """This part has no tokens yet, but others have."""
        self._total_seconds = 0.0
        """Of earlier parts."""
        self._held: list[Piece] = []
        """What an interruption brought to light: it may be the beginning of a stop string."""
        self._latest: deque[tuple[float, int]] = deque()
        """Times and tokens of the last seconds."""

    @property
    def tokens(self) -> int:
        """How many there are so far."""
        return self._statistics.tokens

    def tokens_per_second(self) -> float | None:
        """The tokens of the last 3 s ÷ that time; ``None`` at the beginning."""
        if len(self._latest) < 2:
            return None
        seconds = self._latest[-1][0] - self._latest[0][0]
        return sum(tokens for _, tokens in list(self._latest)[1:]) / seconds if seconds > 0 else None

    def command(self) -> Generate:
        """What to ask the engine for now."""
        left = self._command.max_tokens
        return msgspec.structs.replace(
            self._command,
            continued=[*self._command.continued, *self._tokens],
            max_tokens=None if left is None else max(left - len(self._tokens), 1),
        )

    # ------------------------------------------------------------ what the engine says of this part

    def started(self, event: GenerationStarted) -> GenerationStarted | None:
        """What the program hears of it; ``None``: nothing, because it has heard of an earlier part."""
        self._command = msgspec.structs.replace(self._command, seed=event.seed)
        if self._has_started:
            return None
        self._has_started = True
        self._statistics.prompt_tokens = event.prompt_tokens
        self._statistics.cached_tokens = event.cached_tokens
        return msgspec.structs.replace(event, request=self.request)

    def progressed(self, event: PromptProgressed) -> PromptProgressed | None:
        """The same for the prompt: it is only processed once, as far as the program is concerned."""
        if self._tokens or event.done <= self._prompt_done:
            return None
        self._prompt_done = event.done
        return msgspec.structs.replace(event, request=self.request)

    def advanced(self, event: RoundsReceived) -> RoundsReceived:
        """The rounds as the program gets them."""
        return RoundsReceived(request=self.request, rounds=list(map(self._taken, event.rounds)))

    def interrupted(self, event: GenerationFinished) -> None:
        """This part is over; there will be another one."""
        self._end_part(event.figures)
        self._is_resuming = self._statistics.tokens > 0
        if not self._is_resuming:
            self._time_shift = self._total_seconds
        self._index_shift = self._next_index

    def finished(self, event: GenerationFinished) -> list[RoundsReceived | GenerationFinished]:
        """What the program hears at the end: text that was held back, and the figures of all parts."""
        self._cut(event.stop_overlap)
        self._end_part(event.figures)
        return self._end(event)

    def ended(self, reason: FinishReason) -> list[RoundsReceived | GenerationFinished]:
        """The same where no further part comes to its end."""
        return self._end(GenerationFinished(request=0, finish_reason=reason, figures=Figures()))

    def failed(self, event: GenerationFailed) -> list[GenerationFailed | RoundsReceived | GenerationFinished]:
        """What the program hears when a part fails. Behind an interruption the context has no room for the last few
        tokens: the engine wants some free before it begins. Then the answer ends as if the context were full.
        """
        if self._tokens and event.prompt_tokens:
            return [*self.ended("context")]
        return [msgspec.structs.replace(event, request=self.request)]

    # ------------------------------------------------------------ inside

    def _end(self, event: GenerationFinished) -> list[RoundsReceived | GenerationFinished]:
        told: list[RoundsReceived | GenerationFinished] = []
        if self._held:
            last = Round(index=self._next_index, verify_passes=0, pieces=self._held, time=self._time)
            told.append(RoundsReceived(request=self.request, rounds=[last]))
        figures = self._statistics.figures(self._total_seconds)
        if self._first is not None:
            figures = msgspec.structs.replace(figures, prompt_tokens_per_second=self._first.prompt_tokens_per_second)
        whole = msgspec.structs.replace(event, request=self.request, figures=figures, stop_overlap=0, curve=[])
        return [*told, whole]

    def _end_part(self, figures: Figures) -> None:
        self._total_seconds += figures.total_seconds
        if self._first is None and self._statistics.tokens:
            self._first = figures

    def _taken(self, round_: Round) -> Round:
        statistics = self._statistics
        if self._is_resuming and round_.tokens:  # its prompt was processed again; the wait isn't decoding either
            self._is_resuming = False
            self._time_shift = self._time - round_.time
            statistics.first_tokens += round_.tokens
        round_ = msgspec.structs.replace(
            round_,
            index=round_.index + self._index_shift,
            time=round_.time + self._time_shift,
            pieces=[self._renumbered(piece) for piece in round_.pieces],
        )
        self._next_index, self._time = round_.index + 1, round_.time
        self._tokens += (piece.id for piece in round_.pieces)
        statistics.add(round_)
        self._count(round_)
        is_closing = not (round_.tokens or round_.verify_passes)
        return msgspec.structs.replace(round_, pieces=self._released(round_.pieces, is_closing=is_closing))

    def _renumbered(self, piece: Piece) -> Piece:
        return msgspec.structs.replace(piece, round=piece.round + self._index_shift) if self._index_shift else piece

    def _released(self, pieces: list[Piece], *, is_closing: bool) -> list[Piece]:
        """Of text that an interruption brought to light, the next part may find that it begins a stop string; text
        behind it shows that it doesn't."""
        if not (self._held or is_closing):
            return pieces
        self._held += pieces
        if is_closing or not any(piece.text for piece in pieces):
            return []
        released, self._held = self._held, []
        return released

    def _cut(self, characters: int) -> None:
        """Take the beginning of a stop string from what is held."""
        for place in range(len(self._held) - 1, -1, -1):
            piece = self._held[place]
            if piece.thinking or characters <= 0:
                continue
            self._held[place] = msgspec.structs.replace(piece, text=piece.text[: max(len(piece.text) - characters, 0)])
            characters -= len(piece.text)

    def _count(self, round_: Round) -> None:
        if round_.tokens:
            self._latest.append((round_.time, round_.tokens))
            while len(self._latest) > 2 and self._latest[-1][0] - self._latest[0][0] > _LIVE_SECONDS:
                self._latest.popleft()


def _dated(command: Generate) -> Generate:
    """A chat without a time has that of its first part: a template may write the time into the prompt."""
    messages = command.messages
    if not messages or any(message.sent_at is not None for message in messages):
        return command
    first = msgspec.structs.replace(messages[0], sent_at=time.time())
    return msgspec.structs.replace(command, messages=[first, *messages[1:]])
