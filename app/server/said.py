"""What an answer says, read off its pieces: thinking, text, and tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.protocol.events import GenerationFinished, PairLoaded, Piece
from app.protocol.tools import FORMATS, ToolCall, ToolUse
from app.server.call_reader import CallReader


@dataclass(frozen=True)
class Said:
    """A part of an answer, or all of it."""

    thinking: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    """Those of the text, where the request asked how likely they were."""

    def __bool__(self) -> bool:
        return bool(self.thinking or self.text or self.calls or self.pieces)


class Reader:
    """Reads one answer.

    Attributes:
        has_calls: Whether there was a call.
    """

    def __init__(
        self,
        pair: PairLoaded,
        tools: ToolUse | None = None,
        *,
        begun: str = "",
        alone: bool = False,
        logprobs: bool = False,
    ) -> None:
        """``tools``: what the model may call. ``begun``: the answer so far. ``alone``: no text stands before calls.
        ``logprobs``: whether pieces have them."""
        known = FORMATS[pair.tool_format] if tools else None
        known = replace(known, anywhere=False) if known and alone else known
        self._calls = CallReader(known, tools.tools) if known and tools else None
        if self._calls:
            self._calls.go_on(begun)
        self._names = {tool.name for tool in tools.tools} if tools else set()
        self._logprobs = logprobs
        self._thought: list[str] = []
        self._has_text = False
        self.has_calls = False

    def read(self, pieces: Sequence[Piece]) -> Said:
        """The answer goes on with ``pieces``."""
        thinking = "".join(piece.text for piece in pieces if piece.thinking)
        text = "".join(piece.text for piece in pieces if not piece.thinking)
        calls: list[ToolCall] = []
        if self._calls:
            text, calls = self._calls.read(text)
            self.has_calls |= bool(calls)
        self._thought.append(thinking)
        self._has_text |= bool(text.strip())
        likely = [piece for piece in pieces if piece.logprobs and not piece.thinking] if self._logprobs else []
        return Said(thinking, text, calls, likely)

    def end(self, finished: GenerationFinished) -> Said:
        """What was held back, when the answer ends. What a model thought that said nothing else is its answer, also a
        call in it."""
        held = self._calls.end(cut=finished.finish_reason != "end") if self._calls else ""
        thought = "".join(self._thought)
        said = "said" if self._has_text or self.has_calls else held
        if not finished.has_only_thought(thought, said):
            return Said(text=held)
        text, calls = self._calls.read(thought) if self._calls else (thought, [])
        self.has_calls = bool(calls) and all(call.name in self._names for call in calls)
        return Said(text=text, calls=calls) if self.has_calls else Said(text=thought)

    def whole(self, pieces: Sequence[Piece], finished: GenerationFinished) -> Said:
        """All of an answer."""
        said, last = self.read(pieces), self.end(finished)
        return Said(said.thinking, said.text + last.text, said.calls + last.calls, said.pieces)
