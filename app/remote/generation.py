"""Requests one answer from a server, reads it as it streams, and counts it, with the server's figures if it has any."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from app.protocol.commands import Generate
from app.protocol.events import (
    DraftFigures,
    Event,
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
from app.protocol.tools import ToolCall
from app.remote import figures as counters
from app.remote.connecting import Session
from app.remote.figures import ServerFigures
from app.remote.http import RemoteError, mapping
from app.remote.replies import DONE, Calls, Lines, Part, ThinkMarks, part_of
from app.remote.requests import request_for

# llama-server sends one token at a time, each with the counters and the decoding time so far. Those are the same for
# all tokens of a verify pass, so the tokens can be grouped into rounds of one pass each.

_NOTHING = ServerFigures(drafted=0, accepted=0, tested=0)


class Rounds:
    """Groups parts into rounds.

    Attributes:
        figures: The server's latest drafting figures for this answer.
        count: The number of rounds.
        passes: The number of verify passes, if the server's parts tell them apart.
        are_passes: Whether each round with a draft is one verify pass, so that positions can be counted.
    """

    def __init__(self) -> None:
        self.figures: ServerFigures | None = None
        self.count = self.passes = 0
        self.are_passes = True
        self._marks = ThinkMarks()
        self._tokens = 0
        """In the answer so far, by the server's count, or else one for each part."""
        self._before = _NOTHING
        """The server's figures when the last round began."""
        self._pass_mark: float | None = None
        self._open: Round | None = None
        """A pass that isn't complete."""

    def of(self, parts: list[Part], seconds: float) -> list[Round]:
        """The rounds completed by these parts, which arrived ``seconds`` after the request."""
        return [one for part in parts for one in self._of(part, seconds)]

    def rest(self, seconds: float) -> list[Round]:
        """The last rounds: an incomplete pass, and text that was held back as a possible mark."""
        rounds = list(self._close())
        if pieces := _shown(*self._marks.rest(), round_=self.count):
            rounds.append(Round(index=self.count, verify_passes=0, pieces=pieces, time=seconds))
            self.count += 1
        return rounds

    def _of(self, part: Part, seconds: float) -> Iterator[Round]:
        self.figures = part.figures or self.figures
        is_same = part.pass_mark is not None and part.pass_mark == self._pass_mark
        is_new_pass = part.pass_mark is not None and not is_same and self._pass_mark is not None
        self.passes += is_new_pass  # the first token comes from the prompt
        self._pass_mark = self._pass_mark if part.pass_mark is None else part.pass_mark
        if not (part.text or part.thinking or is_new_pass):  # a pass may yield only a token without text
            return
        if not is_same:
            yield from self._close()
        found = self._round(part, seconds, is_same_pass=is_same)
        self._open = found if self._open is None else _joined(self._open, found)
        if part.pass_mark is None or self._open.tokens > self._open.accepted:
            yield from self._close()

    def _close(self) -> Iterator[Round]:
        if self._open is not None:
            yield self._open
            self.count += 1
            self._open = None

    def _round(self, part: Part, seconds: float, *, is_same_pass: bool) -> Round:
        counted = part.usage.get("completion")
        tokens = 1 if counted is None else max(counted - self._tokens, 0)
        is_first, drafted, tested, accepted, passes = not self._tokens, 0, 0, 0, 0
        self._tokens += tokens
        if part.figures is not None and part.figures.source == "live":
            drafted = max(part.figures.drafted - self._before.drafted, 0)
            tested = max(part.figures.tested - self._before.tested, 0)
            accepted = max(part.figures.accepted - self._before.accepted, 0)
            self._before = part.figures
            passes = 0 if is_same_pass else max(tokens - accepted, 1)
            self.are_passes &= passes <= 1
        thought, answer = self._marks.split(part.text) if part.text else ("", "")
        return Round(
            index=self.count,
            verify_passes=max(passes - is_first, 0),  # the first token comes from the prompt
            pieces=_shown(part.thinking + thought, answer, round_=self.count),
            tokens=tokens,
            drafted=drafted,
            tested=tested,
            accepted=accepted,
            kind="thinking" if part.thinking or thought else "prose",
            time=seconds,
        )


def _shown(thinking: str, answer: str, round_: int) -> list[Piece]:
    pieces = [Piece(text=thinking, thinking=True, round=round_)] if thinking else []
    return [*pieces, *([Piece(text=answer, round=round_)] if answer else [])]


def _joined(first: Round, second: Round) -> Round:
    """Two parts of the same verify pass."""
    return msgspec.structs.replace(
        first,
        pieces=[*first.pieces, *second.pieces],
        tokens=first.tokens + second.tokens,
        drafted=first.drafted + second.drafted,
        tested=first.tested + second.tested,
        accepted=first.accepted + second.accepted,
        time=second.time,
    )


_FLUSH_SECONDS = 1 / 60
_MAX_SEED = 2**31 - 1
"""Accepted by every server."""
_REASONS: dict[str, FinishReason] = {"length": "length", "max_tokens": "length"}
_BROKEN = ("abort", "error", "unload")
"""Finish reasons of an aborted answer."""

Send = Callable[[Event], None]


class Answering:
    """Requests one answer and sends its events."""

    def __init__(self, command: Generate, session: Session, send: Send, received: Callable[[], None]) -> None:
        """``received`` is called whenever something arrives from the server."""
        if session.dialect.kind == "vllm" and 0 < session.pair.context_length <= (command.max_tokens or 0):
            command = msgspec.structs.replace(command, max_tokens=None)  # vLLM would refuse the unreachable limit
        self._command = command
        self._session = session
        self._send = send
        self._received = received
        self._begun = time.monotonic()
        self._seed = secrets.randbelow(_MAX_SEED) if command.seed is None else command.seed
        self._rounds = Rounds()
        self._calls = Calls()
        self._statistics = Statistics()
        self._usage: dict[str, int] = {}
        self._prompt_speed: float | None = None
        self._called: list[ToolCall] = []
        self._finish = self._stop = ""
        self._is_done = self._is_started = False
        self._unsent: list[Round] = []
        self._sent_at = 0.0
        self._before: counters.Counters | None = None

    async def run(self) -> None:
        """Send the request and all events; the last one is `GenerationFinished` or `GenerationFailed`."""
        try:
            self._before = await self._counters()
            await self._read(*request_for(self._command, self._session, self._seed))
            self._check_end()
            used = {call.id for message in self._command.messages for call in message.tool_calls}
            self._called = [] if self._finish in _REASONS else self._calls.all(used)
        except asyncio.CancelledError:
            self._finished("cancelled", None)
            raise
        except RemoteError as error:
            self._failed(error)
        else:
            await self._finish_with_counters()

    async def _finish_with_counters(self) -> None:
        try:
            after = await self._counters() if self._before is not None else None
        except asyncio.CancelledError:
            self._finished(self._reason(), None)
            raise
        self._finished(self._reason(), after)

    async def _read(self, path: str, body: dict[str, Any]) -> None:
        http = self._session.http
        lines = Lines(http.limits.line, http.address.host)
        async with http.stream(path, body) as response:
            self._received()
            async with contextlib.aclosing(http.pieces(response, self._patience)) as pieces:
                async for piece in pieces:
                    self._received()
                    self._take(lines.feed(piece))
                    if self._is_done:
                        return
            self._take(lines.end())

    def _patience(self) -> float:
        """Seconds that the server may be silent."""
        limits = self._session.http.limits
        return limits.stall if self._rounds.count else limits.first_answer

    # ------------------------------------------------------------ reading

    def _take(self, contents: list[bytes]) -> None:
        """Process several lines; those before an error count."""
        parts: list[Part] = []
        error = None
        for content in contents:
            if content == DONE:
                self._is_done = True
                break
            part = part_of(content, self._session.http.address.host)
            if part is not None and part.error is not None:
                error = part.error
                break
            if part is not None:
                parts.append(part)
        for part in parts:
            self._note(part)
        self._add(self._rounds.of(parts, self._seconds()))
        if error is not None:
            raise error

    def _note(self, part: Part) -> None:
        self._finish = part.finish or self._finish
        self._stop = part.stop or self._stop
        self._prompt_speed = part.prompt_speed or self._prompt_speed
        self._usage |= part.usage
        for piece in part.calls:
            self._calls.add(mapping(piece))
        if not self._is_started:
            self._start(part)
        if part.progress is not None and not self._rounds.count:
            done, total = part.progress
            self._send(PromptProgressed(request=self._command.request, done=done, total=total))

    def _start(self, part: Part) -> None:
        self._is_started = True
        total = part.progress[1] if part.progress else self._usage.get("prompt")
        self._send(
            GenerationStarted(
                request=self._command.request,
                seed=self._seed,
                prompt_tokens=total or 0,
                cached_tokens=part.cached or self._usage.get("cached", 0),
                template="none" if self._command.raw else "model",
            )
        )

    def _add(self, rounds: list[Round]) -> None:
        for one in rounds:
            self._statistics.add(one)
        self._unsent += rounds
        if self._unsent and (not self._sent_at or self._seconds() - self._sent_at >= _FLUSH_SECONDS):
            self._flush()

    def _flush(self) -> None:
        if self._unsent:
            self._send(RoundsReceived(request=self._command.request, rounds=self._unsent))
            self._unsent, self._sent_at = [], self._seconds()

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    # ------------------------------------------------------------ the end

    def _check_end(self) -> None:
        """Raise `RemoteError` if the answer is incomplete."""
        host = self._session.http.address.host
        if self._finish in _BROKEN:
            raise RemoteError("cut", f"{host} stopped in the middle of the answer.")
        if self._finish or (self._is_done and (self._rounds.count or self._calls)):
            return
        if self._is_started:
            raise RemoteError("cut", f"The connection to {host} was cut in the middle of the answer.")
        raise RemoteError("not_a_server", f"{host} accepted the request, but its answer has an unknown format.")

    def _reason(self) -> FinishReason:
        if self._stop and self._stop in self._command.stop:
            return "stop_string"
        reason = _REASONS.get(self._finish, "end")
        most, tokens = self._command.max_tokens, self._usage.get("completion")
        is_full = most is None or (tokens is not None and tokens < most)  # the context, not the limit
        return "context" if reason == "length" and is_full else reason

    def _finished(self, reason: FinishReason, after: counters.Counters | None) -> None:
        figures = self._all_figures(after)
        self._send(
            GenerationFinished(
                request=self._command.request,
                finish_reason=reason,
                figures=figures,
                stop_string=self._stop if reason == "stop_string" else None,
                tool_calls=[] if reason == "cancelled" else self._called,
            )
        )

    def _failed(self, error: RemoteError) -> None:
        figures = self._all_figures(None)
        message = f"{error} The part that had arrived was kept." if figures.completion_tokens else str(error)
        self._send(
            GenerationFailed(
                request=self._command.request,
                message=message,
                prompt_tokens=error.prompt_tokens,
                cause="cut" if error.cause == "timeout" and figures.completion_tokens else error.cause,
                figures=figures if figures.completion_tokens else None,
            )
        )

    def _all_figures(self, after: counters.Counters | None) -> Figures:
        """Send the rest of the text; returns all figures: times measured here, token counts from the server."""
        self._add(self._rounds.rest(self._seconds()))
        self._flush()
        own, usage = self._statistics.figures(self._seconds()), self._usage
        tokens = usage.get("completion", own.completion_tokens)
        return msgspec.structs.replace(
            own,
            prompt_tokens=usage.get("prompt", 0),
            cached_tokens=usage.get("cached", 0),
            completion_tokens=tokens,
            prompt_tokens_per_second=self._prompt_speed,
            decode_tokens_per_second=self._statistics.decode_speed(tokens),
            draft=self._draft_figures(after, tokens),
            thinking_tokens=usage.get("thinking", own.thinking_tokens),
        )

    def _draft_figures(self, after: counters.Counters | None, tokens: int) -> DraftFigures:
        figures = self._rounds.figures
        if figures is not None:
            self._session.has_figures = True
        else:
            figures = counters.between(self._before, after)
        if figures is None:
            return DraftFigures(source="none")
        found, own = figures.draft_figures(tokens, self._rounds.passes), self._statistics
        if self._rounds.are_passes and (own.tested, own.accepted) == (found.tested, found.accepted):
            positions = {name: list(getattr(own, name)) for name in ("accepted_per_position", "tested_per_position")}
            found = msgspec.structs.replace(found, **positions)
        return found

    async def _counters(self) -> counters.Counters | None:
        """The server's counters, if its answers have no figures of their own."""
        if self._session.remote.figures != "counters" or self._session.has_figures:
            return None
        return await counters.read(self._session.http, self._session.dialect.kind)
