"""An answer from the press of Send to its end: whether it waits, what the engine is asked, what has arrived so far, and
how it ended."""

from __future__ import annotations

import sys
import time
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import PackedPiece, Status, StoredCall, StoredMessage, calls_to_json, pack, to_json, unpack
from app.chats.settings import ChatSettings
from app.chats.store import new_id
from app.models.hub.recommended import recommended
from app.protocol.answering import AnswerSettings, with_fields_of
from app.protocol.calls import CallReader
from app.protocol.commands import Generate, Message, generate
from app.protocol.events import (
    Figures,
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    Piece,
    PromptProgressed,
    Round,
    RoundsReceived,
)
from app.protocol.options import AnswerFormat
from app.protocol.statistics import joined
from app.protocol.tools import FORMATS, Tool, ToolCall, ToolFormat, ToolUse
from app.settings import Settings
from app.ui.chat.conversation import BETWEEN, Conversation, Place, conversation, ends_with_calls, last_turn, turns_of
from app.ui.chat.footer import figures_of
from app.ui.engine import pair_names
from app.ui.engine.pair_names import is_author, speaker
from app.ui.engine.queue import Job

if TYPE_CHECKING:
    from app.tools.offered import OfferedTool
    from app.ui.tools.service import ToolJob


class ThinkingClock:
    """Counts as `Figures.thinking_seconds` does: from the first token of the answer to the last of its thinking."""

    def __init__(self, before: float = 0.0) -> None:
        """``before``: seconds that the model had thought for this answer when it was cut."""
        self._before = before
        self._first: tuple[float, float] | None = None
        """When the first token came, by the engine's clock and by ours."""
        self._until = 0.0
        self._is_thinking = False

    def add(self, rounds: Iterable[Round]) -> None:
        """More of the answer."""
        for one in rounds:
            if one.tokens and self._first is None:
                self._first = one.time, time.monotonic()
            if self._first is None or not one.pieces:
                continue
            self._is_thinking = one.pieces[-1].thinking
            if any(piece.thinking for piece in one.pieces):
                self._until = one.time - self._first[0]

    def seconds(self) -> float:
        """So far; goes on between two rounds while the model thinks."""
        if self._is_thinking and self._first is not None:
            return self._before + max(self._until, time.monotonic() - self._first[1])
        return self._before + self._until


def answer_settings(chat: ChatSettings, values: Settings, pair: PairLoaded | None) -> AnswerSettings:
    """How the next answer of a chat is written; the automatic choice or the model's default
    replaces what the pair doesn't have."""
    found = recommended(pair, chat.thinking)
    settings = with_fields_of(
        AnswerSettings,
        chat,
        sampling=chat.sampling.over(found.sampling),
        draft_length="auto" if values.draft_length is None else values.draft_length,
        drafter=pair_names.usable(chat.drafter, pair),
        propose=values.propose,
        accept=values.accept,
        thinking=found.thinking,
        format=chat.format(),
    )
    if pair is None or pair.remote is None:
        return settings
    # The server decides how it drafts, and what the user didn't choose is left to it.
    can_switch, wanted = pair.remote.can_switch_drafting, settings.format
    return msgspec.structs.replace(
        settings,
        draft_length="auto",
        drafter="none" if settings.drafter == "none" and can_switch else "auto",
        format=wanted if wanted is not None and wanted.kind in pair.remote.formats else None,
        chosen=list(chat.sampling.chosen()),
    )


def tool_use(wanted: AnswerFormat | None, pair: PairLoaded | None, tools: Sequence[OfferedTool]) -> ToolUse | None:
    """The tools for an answer in this format; ``None`` if there are none or they can't be called."""
    if not tools or pair_names.why_no_tools(wanted.kind if wanted else "text", pair):
        return None
    return ToolUse(tools=[tool.for_model() for tool in tools])


def _call_format(wanted: AnswerFormat | None, pair: PairLoaded | None) -> ToolFormat | None:
    """How calls are written in the text; ``None`` for a remote server, which sends calls separately."""
    if pair is None or pair.remote is not None:
        return None
    known = FORMATS[pair.tool_format]
    return known if wanted is None else replace(known, anywhere=False)  # then no text comes before calls


_TAIL, _SHARE = 6000, 0.04  # so many characters compress to so little where an answer goes in circles (lists: 0.06)
_LOOK_AGAIN = 200  # pieces: a look takes a fraction of a millisecond


def _known_pieces(message: StoredMessage) -> list[Piece]:
    """The pieces of an answer that is continued, with their token ids. Tokens that were only found later belong to the
    last turn and may differ from the original ones, so it isn't known which token has which part of the text. Tokens
    without text at the end of an interrupted answer are left out: one may end the answer, or begin a character."""
    text, thinking, ids = message.text, message.thinking, list(message.tokens)
    start = Place.behind(message.calls[-1]) if message.calls else Place()
    pieces = unpack(text, message.provenance, thinking)
    if len(pieces) == len(ids) >= start.tokens:
        pieces = [msgspec.structs.replace(piece, id=token) for piece, token in zip(pieces, ids, strict=True)]
        while message.status == "interrupted" and len(pieces) > start.tokens and not pieces[-1].text:
            pieces.pop()
        return pieces
    if not ids and len(pieces) >= start.tokens:
        return pieces  # a server wrote it or continues it
    earlier = unpack(text[: start.text], (), thinking[: start.thinking])
    earlier += [Piece(text="")] * (start.tokens - len(earlier))
    later = unpack(text[start.text :], (), thinking[start.thinking :])
    later += [Piece(text="")] * (len(ids) - len(later))
    known = zip(later, ids or [-1] * len(later), strict=True)
    return earlier + [msgspec.structs.replace(piece, id=token) for piece, token in known]


class _Turn:
    """What the model writes until it ends or waits for its calls. Text that may belong to a call is held back, and
    tokens that belong to calls get no text."""

    def __init__(self, known: ToolFormat | None, tools: Sequence[Tool] = (), begun: Sequence[Piece] = ()) -> None:
        """``known``: the form of calls; ``None`` if there can't be any. ``begun``: what has been written so far."""
        self._reader = CallReader(known, tools) if known else None
        if self._reader:
            self._reader.go_on("".join(piece.text for piece in begun if not piece.thinking))
        self._held: list[Piece] = []
        self._certain = 0
        """How many of the characters held back are known not to be part of a call."""
        self.calls: list[ToolCall] = []
        self.has_text = any(piece.text and not piece.thinking for piece in begun)
        self.has_thought = any(piece.text and piece.thinking for piece in begun)

    @property
    def is_in_calls(self) -> bool:
        """Whether only calls can follow."""
        return self._reader is not None and self._reader.in_calls

    def read(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Add pieces; returns those that are certain, one for each token."""
        if self._reader is None:
            return list(pieces)
        self._held += pieces
        shown, calls = self._reader.read("".join(piece.text for piece in pieces if not piece.thinking))
        self._certain += len(shown)
        self.calls += calls
        return self._released()

    def end(self, *, cut: bool) -> list[Piece]:
        """Returns the rest. If the turn was ``cut``, an incomplete call is dropped."""
        if self._reader is None:
            return []
        self._certain += len(self._reader.end(cut=cut))
        found = self._released()
        if self.is_in_calls and not cut:
            found += [self._cut(piece) for piece in self._held]
        self._held = []
        return found

    def _released(self) -> list[Piece]:
        found: list[Piece] = []
        for piece in self._held:
            length = 0 if piece.thinking else len(piece.text)
            if length > self._certain or (self.is_in_calls and not self._certain):
                break
            self._certain -= length
            found.append(piece)
        del self._held[: len(found)]
        return found

    def _cut(self, piece: Piece) -> Piece:
        """A piece with only its text before a call that begins in the same token."""
        if piece.thinking:
            return piece
        text = piece.text[: self._certain]
        self._certain -= len(text)
        return msgspec.structs.replace(piece, text=text)


class LiveAnswer(QObject):
    """One answer: it waits, the engine is asked for it, it arrives, and it ends.

    Attributes:
        chat_id: The chat that it belongs to.
        branch: The messages that it answers, oldest first.
        settings: The chat's settings when it was asked for.
        message: The stored message: ``None`` while it waits; gets its text only when the answer has ended.
        pieces: Its thinking and its text so far; a continued answer begins with what it already had.
        context_start: Id of the first message after those that no longer fit into the context.
        prompt_progress: How many prompt tokens are done, and how many there are; ``None`` until that is known.
        is_thinking: Whether what arrived last is thinking.
        calls: Its tool calls so far, with their states and results.
        progress: The progress of running calls, by id, where it is known.
        is_writing_call: Whether the model is writing a call; it is in `calls` once it is complete.
        attachments: Images that tools returned.
        offered: The tools that the model was last offered, by the names that it knows.
        tool_jobs: The jobs of running calls, by id.
        is_over_limit: Whether it has made more calls than allowed; the model then gets one more turn, without calls.

    Signals:
        begun: The engine is being asked; `message` is set.
        started: The engine has read the request; seed and `context_start` are known.
        prompt_progressed: How many prompt tokens are done, and how many there are.
        thinking_changed: The model begins to think, or to answer.
        rounds_received: More `Round` objects; their pieces are already in `pieces`.
        calls_changed: Calls were added, changed state or made progress, or the model began to write one.
        images_returned: The `ResultImage`s of a call, to be stored, and a function to call with their attachments and
            with sentences about the images that can't be stored.
        ended: Its `Figures`, or ``None`` if there are none. `message` is complete.
        withdrawn: It was canceled before the engine was asked.
    """

    begun = Signal()
    started = Signal()
    prompt_progressed = Signal(int, int)
    thinking_changed = Signal(bool)
    rounds_received = Signal(list)
    calls_changed = Signal()
    images_returned = Signal(object, object)
    ended = Signal(object)
    withdrawn = Signal()

    message: StoredMessage | None = None
    job: Job | None = None
    """The job that asks the engine."""
    is_stored = repeats = False
    """Whether the store has what it answers, or refused it; and whether the same words come again and again."""
    _known = _judged = 0
    context_start: str | None = None
    prompt_progress: tuple[int, int] | None = None
    is_thinking = is_writing_call = False
    is_over_limit = False
    _figures: Figures | None = None
    """The figures of earlier turns, without those from before the answer was continued."""
    _is_mixed = False
    """Whether a different model continues it than the one that began it."""

    def __init__(
        self,
        branch: Sequence[StoredMessage],
        settings: ChatSettings,
        *,
        version: int = 1,
        continued: StoredMessage | None = None,
        seed: int | None = None,
        is_private: bool = False,
        parent: QObject | None = None,
    ) -> None:
        """``version``: its place among the answers to the question. ``continued``: the answer to continue; ``branch``
        ends before it. ``seed`` overrides the seed in the settings. ``is_private``: the engine keeps nothing."""
        super().__init__(parent)
        self.branch = list(branch)
        self.chat_id = self.branch[-1].chat_id
        self.settings = settings
        self.pieces: list[Piece] = []
        self.calls: list[StoredCall] = list(continued.calls) if continued else []
        self.attachments = list(continued.attachments) if continued else []
        self.progress: dict[str, str] = {}
        self.is_private = is_private
        self._version, self._continued, self._seed = version, continued, seed
        self.offered: dict[str, OfferedTool] = {}
        self.tool_jobs: dict[str, ToolJob] = {}
        self._new_turn = partial(_Turn, None, ())
        self._turn = self._new_turn()
        self._conversation: Conversation | None = None
        """The conversation of the branch, without a system prompt."""
        self._asked: Conversation | None = None
        self._settings = AnswerSettings()
        self._asked_at = time.monotonic()
        self._first_token_seconds: float | None = None
        self._clock = ThinkingClock()
        self._packed: list[PackedPiece] = []
        # For a long chat this takes milliseconds, and there is time until the question is stored.
        QTimer.singleShot(0, self, self._prepare)

    @Slot()
    def _prepare(self) -> Conversation:
        if self._conversation is None:
            self._conversation = conversation(self.branch)
        return self._conversation

    def text(self) -> str:
        """The text of the answer, without the thinking."""
        return "".join(piece.text for piece in self.pieces if not piece.thinking)

    def thinking(self) -> str:
        """What the model has thought so far."""
        return "".join(piece.text for piece in self.pieces if piece.thinking)

    def thinking_seconds(self) -> float:
        """How long the model has thought so far."""
        return self._clock.seconds()

    @property
    def is_asking(self) -> bool:
        """Whether a call waits for the user. The engine is free meanwhile."""
        return not self.is_writing_call and any(call.state == "asked" for call in self.calls)

    @property
    def has_open_calls(self) -> bool:
        """Whether a call waits or runs."""
        return any(not call.has_ended for call in self.calls)

    @property
    def asks_again(self) -> bool:
        """Whether it continues with stopped calls, which the user has to allow first."""
        before = self._continued
        is_first = self.message is None and before is not None and ends_with_calls(before)
        return is_first and any(call.state == "stopped" for call in self.calls)

    def call(self, call_id: str) -> StoredCall | None:
        """The call with this id."""
        return next((one for one in self.calls if one.id == call_id), None)

    def set_call(self, call: StoredCall) -> None:
        """Update this call."""
        self.calls = [call if one.id == call.id else one for one in self.calls]
        self.progress.pop(call.id, None)
        self.calls_changed.emit()

    def set_progress(self, call_id: str, text: str) -> None:
        """Update the progress of a running call."""
        self.progress[call_id] = text
        self.calls_changed.emit()

    def tokens(self) -> list[int]:
        """The ids of its tokens; empty if the engine doesn't send them."""
        ids = [piece.id for piece in self.pieces]
        return [] if -1 in ids else ids

    def stored_tokens(self) -> list[int]:
        """Its tokens, if all come from the model that the answer belongs to; otherwise only the text is continued."""
        return [] if self._is_mixed else self.tokens()

    def _cut(self, characters: int) -> None:
        """Remove the end of the text, but keep its tokens."""
        for place in range(len(self.pieces) - 1, -1, -1):
            piece = self.pieces[place]
            if piece.thinking:
                continue
            kept = piece.text[: max(len(piece.text) - characters, 0)]
            self.pieces[place] = msgspec.structs.replace(piece, text=kept)
            characters -= len(piece.text)
            if characters <= 0:
                break
        self._packed = []

    def packed(self) -> list[PackedPiece]:
        """The provenance so far. Only what came since the last call is packed: this is called about once a second."""
        self._packed += pack(self.pieces[len(self._packed) :])
        return list(self._packed)

    # ------------------------------------------------------------ the way of an answer

    def begin(self, settings: AnswerSettings, pair: PairLoaded | None, tools: Sequence[OfferedTool] = ()) -> Generate:
        """The engine is free: returns what to ask it. Called again when all calls of a turn have ended. ``tools``: the
        tools that the model may call, if this model and these settings allow it."""
        if self.message is None:
            self.prepare(settings, pair, tools)
        thinking = pair.usable_thinking(self._settings.thinking) if pair else ""
        settings, start = msgspec.structs.replace(self._settings, thinking=thinking), self._start
        self.offered = {tool.name: tool for tool in tools}
        self._is_mixed |= self.message is not None and not is_author(pair, self.message.pair)
        use = tool_use(settings.format, pair, tools)
        known = _call_format(settings.format, pair) if use and not self.is_over_limit else None
        if use and self.is_over_limit:
            use = msgspec.structs.replace(use, none=True)
        self._new_turn = partial(_Turn, known, use.tools if use else ())
        begun = self.pieces[start.tokens :]
        self._turn = self._new_turn(begun)
        self._clock = ThinkingClock(self._clock.seconds())
        written = len(self.pieces) - self._known
        command = generate(
            settings,
            self._messages(pair),
            seed=self._seed_of_turn(settings.seed if self._seed is None else self._seed),
            private=self.is_private,
            chat="" if self.is_private else self.chat_id,
            tools=use,
        )
        if settings.max_tokens is not None:
            command = msgspec.structs.replace(command, max_tokens=max(settings.max_tokens - written, 1))
        if pair is None or pair.remote is None:
            ids = [piece.id for piece in begun]
            return msgspec.structs.replace(command, continued=[] if -1 in ids else ids)
        text, thinking = last_turn(self._so_far())
        if not (text or thinking):
            return command
        so_far = Message(role="assistant", content=text, thinking=thinking)
        return msgspec.structs.replace(command, messages=[*command.messages, so_far], continue_last=True)

    def prepare(self, settings: AnswerSettings, pair: PairLoaded | None, tools: Sequence[OfferedTool] = ()) -> None:
        """Create the message before the engine is asked. If a continued answer ends with stopped calls, these wait for
        the user again."""
        stored: dict[str, object] = {
            **msgspec.to_builtins(settings),
            "template": pair.template if pair else "model",
            "draft": pair.draft.name if pair and pair.draft else None,
            "head": pair.head_drafter if pair else None,
            "server": pair.remote.server.address if pair and pair.remote else "",
        }
        before, asks_again = self._continued, self.asks_again
        self._settings = settings = settings if before is None else before.asked
        self._asked = self._prepare().under(settings.system_prompt)
        self.offered = {tool.name: tool for tool in tools}
        if before is None:
            question = self.branch[-1]
            self.message = StoredMessage(
                new_id(),
                self.chat_id,
                question.id,
                "assistant",
                "",
                "streaming",
                time.time(),
                pair=speaker(pair),
                settings_json=to_json(stored),
                version=self._version,
                versions=self._version,
            )
        else:
            self.message = replace(before, status="streaming")
            self.pieces = _known_pieces(before)
            self._known = self._judged = len(self.pieces)
            if before.finish_reason == "repeats":
                self._judged = sys.maxsize  # whoever continues it may want a table of zeros
            self._clock = ThinkingClock(figures_of(before.figures).thinking_seconds)
            if asks_again:
                self.calls = [
                    msgspec.structs.replace(call, state="asked") if call.state == "stopped" else call
                    for call in self.calls
                ]
        self.begun.emit()

    def _so_far(self) -> StoredMessage:
        """The message with everything so far."""
        assert self.message is not None
        return replace(
            self.message,
            text=self.text(),
            provenance_json=to_json(self.packed()),
            thinking=self.thinking(),
            tokens=array("i", self.stored_tokens()),
            calls_json=calls_to_json(self.calls),
            attachments=tuple(self.attachments),
        )

    def _messages(self, pair: PairLoaded | None) -> list[Message]:
        """What the engine is asked, and the turns of this answer up to its last call."""
        assert self._asked is not None
        if not self.calls:
            return self._asked.fit_for(pair).messages
        so_far, end = self._so_far(), self._start
        own = replace(so_far, text=so_far.text[: end.text], thinking=so_far.thinking[: end.thinking])
        turns = list(turns_of(own))
        asked = Conversation([*self._asked.messages, *turns], [*self._asked.sources, *[own] * len(turns)])
        return asked.fit_for(pair).messages

    @property
    def _start(self) -> Place:
        """Where the turn that is being written begins."""
        return Place.behind(self.calls[-1]) if self.calls else Place()

    def _seed_of_turn(self, seed: int | None, step: int = 1) -> int | None:
        """Each turn has its own seed; otherwise all would draw the same random numbers."""
        turns = len({call.tokens for call in self.calls})
        return None if seed is None else (seed + step * turns) % 2**63

    def on_started(self, started: GenerationStarted) -> None:
        """The engine has read the request."""
        assert self._asked is not None
        self._seed = self._seed_of_turn(started.seed, -1)
        self.context_start = self._asked.first_in_context(started.first_dropped, started.dropped_messages)
        self.started.emit()

    def on_prompt_progressed(self, progress: PromptProgressed) -> None:
        self.prompt_progress = progress.done, progress.total
        self.prompt_progressed.emit(progress.done, progress.total)

    def on_rounds_received(self, event: RoundsReceived) -> None:
        if self._first_token_seconds is None and any(one.tokens for one in event.rounds):
            self._first_token_seconds = time.monotonic() - self._asked_at
        self._clock.add(event.rounds)
        earlier = self._figures.total_seconds if self._figures else 0.0
        self._tell(
            [
                msgspec.structs.replace(one, pieces=self._turn.read(one.pieces), time=one.time + earlier)
                for one in event.rounds
            ]
        )
        if len(self.pieces) >= self._judged + _LOOK_AGAIN:
            self._look_for_repetition()
        is_thinking = bool(self.pieces) and self.pieces[-1].thinking
        if is_thinking is not self.is_thinking:
            self.is_thinking = is_thinking
            self.thinking_changed.emit(is_thinking)
        if self._turn.is_in_calls and not self.is_writing_call:
            self.is_writing_call = True
            self.calls_changed.emit()

    def _tell(self, rounds: list[Round]) -> None:
        """Add these rounds to the answer."""
        told = [msgspec.structs.replace(one, pieces=list(map(self._parted, one.pieces))) for one in rounds]
        for one in told:
            self.pieces += one.pieces
        self.rounds_received.emit(told)

    def _parted(self, piece: Piece) -> Piece:
        """Text or thinking after a call starts a new paragraph."""
        turn, start = self._turn, self._start
        had_some, before = (turn.has_thought, start.thinking) if piece.thinking else (turn.has_text, start.text)
        if not piece.text or had_some:
            return piece
        turn.has_thought, turn.has_text = turn.has_thought or piece.thinking, turn.has_text or not piece.thinking
        return msgspec.structs.replace(piece, text=BETWEEN + piece.text) if before else piece

    def _look_for_repetition(self) -> None:
        """Look at what came last, but not at what a continued answer already had; data and code may well repeat."""
        self._judged = len(self.pieces)
        if self.settings.format() is not None or self.text().count("```") % 2:
            return
        tail = "".join([piece.text for piece in self.pieces[max(self._known, self._judged - _TAIL) :]])[-_TAIL:]
        self.repeats = len(tail) == _TAIL and len(zlib.compress(tail.encode("utf-8", "replace"))) < _SHARE * _TAIL

    def takes_calls(self, finished: GenerationFinished) -> bool:
        """The model has ended its turn. Returns whether it made calls; the answer goes on when these have ended."""
        self._finish_turn(finished)
        calls = finished.tool_calls or self._turn.calls
        if finished.finish_reason != "end" or not calls or self.is_over_limit:
            return False
        self._figures = joined(self._figures, finished.figures) if self._figures else finished.figures
        self._add_calls(calls)
        return True

    def on_finished(self, finished: GenerationFinished) -> None:
        """The answer is over."""
        self._finish_turn(finished)
        status: Status = "stopped" if finished.finish_reason == "cancelled" else "complete"
        extra = {"stop_string": finished.stop_string} if finished.stop_string else {}
        if finished.stop_overlap and not self._turn.is_in_calls:
            self._cut(finished.stop_overlap)
        reason = "repeats" if status == "stopped" and self.repeats else finished.finish_reason
        self.end(status, reason, finished.figures, extra)

    def _finish_turn(self, finished: GenerationFinished) -> None:
        self._end_turn(cut=finished.finish_reason != "end")
        place = self._start.tokens
        thought, text = (
            "".join(piece.text for piece in self.pieces[place:] if piece.thinking is kind) for kind in (True, False)
        )
        if not self._turn.calls and finished.has_only_thought(thought, text):
            pieces = [msgspec.structs.replace(piece, thinking=False) for piece in self.pieces[place:]]
            del self.pieces[place:]
            self._turn, self._packed = self._new_turn(), []
            self.pieces += [*self._turn.read(pieces), *self._turn.end(cut=False)]

    def _end_turn(self, *, cut: bool) -> None:
        if rest := self._turn.end(cut=cut):
            self._tell([Round(index=0, verify_passes=0, pieces=rest)])
        self.is_writing_call = False

    def _add_calls(self, written: Sequence[ToolCall]) -> None:
        if len(self.pieces) == self._start.tokens:  # a server doesn't send the calls' text; this keeps its place
            self.pieces.append(Piece(text=""))
        text, thinking, tokens = len(self.text()), len(self.thinking()), len(self.pieces)
        known = {call.id for call in self.calls}
        for call in written:
            tool = self.offered.get(call.name)
            one = StoredCall(
                id=new_id() if call.id in known else call.id,
                name=call.name,
                arguments=call.arguments,
                server=tool.server if tool else "",
                tool=tool.tool.name if tool and tool.tool.name != call.name else "",
                text=text,
                thinking=thinking,
                tokens=tokens,
            )
            known.add(one.id)
            self.calls = [*self.calls, one]
        self.calls_changed.emit()

    def end(
        self,
        status: Status,
        reason: str | None = None,
        figures: Figures | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """It is over. Time to first token counts from the press of Send; ``extra`` is stored beside the figures."""
        assert self.message is not None
        self._end_turn(cut=True)
        if self._figures is not None:
            figures = joined(self._figures, figures) if figures is not None else self._figures
        if figures is not None and self._first_token_seconds is not None:
            figures = msgspec.structs.replace(figures, time_to_first_token_seconds=self._first_token_seconds)
        shown = figures
        if self._continued is not None:
            before = figures_of(self._continued.figures)
            shown = joined(before, figures) if figures is not None else before
        stored: dict[str, object] = {**(msgspec.to_builtins(shown) if shown else {}), **(extra or {})}
        if figures is None and (seconds := self.thinking_seconds()):
            stored["thinking_s"] = seconds
        if self.context_start is not None:
            stored["context_start"] = self.context_start
        self.calls = [call.ended for call in self.calls]
        self.message = replace(
            self._so_far(), status=status, finish_reason=reason, seed=self._seed, figures_json=to_json(stored)
        )
        self.ended.emit(figures)
