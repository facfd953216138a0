"""An answer from the press of Send to its end: where it waits, what the engine is asked, what has arrived of it, how
it ended."""

from __future__ import annotations

import sys
import time
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.attachments import prompt_images, prompt_text
from app.chats.model import (
    PackedPiece,
    Status,
    StoredCall,
    StoredMessage,
    calls_stopped,
    calls_to_json,
    pack,
    to_json,
    unpack,
)
from app.chats.settings import ChatSettings
from app.chats.store import new_id
from app.models.hub.recommended import recommended
from app.protocol.answering import AnswerSettings, with_fields_of
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
from app.protocol.statistics import joined
from app.settings import Settings
from app.ui.chat.footer import CUT, figures_of
from app.ui.engine import pair_names
from app.ui.engine.pair_names import is_author, speaker
from app.ui.engine.queue import Job


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


EXAMPLE = "What is speculative decoding?"


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


@dataclass(frozen=True)
class Conversation:
    """Messages for the engine. ``sources[i]`` is the id of the stored message that message ``i`` begins with, without
    the system prompt."""

    messages: list[Message]
    sources: list[str]

    def under(self, system_prompt: str) -> Conversation:
        """The same with a system prompt, unless that is empty."""
        if not system_prompt.strip():
            return self
        return Conversation([Message(role="system", content=system_prompt), *self.messages], self.sources)

    def first_in_context(self, first_dropped: int, dropped: int) -> str | None:
        """The stored message behind those that were left out: ``dropped`` messages from ``first_dropped`` on.

        Both count as the engine does, the system prompt included.
        """
        after = first_dropped + dropped - (len(self.messages) - len(self.sources))
        return self.sources[after] if dropped and 0 <= after < len(self.sources) else None


def conversation(branch: Sequence[StoredMessage], system_prompt: str = "") -> Conversation:
    """What the engine sees of a branch.

    Many chat templates insist on turns that alternate, so messages of one side that follow each other (after an answer
    that never came) are joined, and empty answers left out.
    """
    turns: list[Message] = []
    sources: list[str] = []
    for message in branch:
        thinking, text = message.thinking, prompt_text(message.text, message.attachments)
        images = prompt_images(message.attachments)
        if message.role == "assistant" and (not text or text.isspace()):
            continue
        if turns and turns[-1].role == message.role:
            last = turns[-1]
            joined = "\n\n".join(filter(None, (last.thinking, thinking)))
            content = f"{last.content}\n\n{text}"
            turns[-1] = msgspec.structs.replace(last, content=content, thinking=joined, images=last.images + images)
        else:
            sent_at = message.created_at
            turns.append(Message(role=message.role, content=text, thinking=thinking, sent_at=sent_at, images=images))
            sources.append(message.id)
    return Conversation(turns, sources).under(system_prompt)


def question_to_measure(branch: Sequence[StoredMessage], system_prompt: str) -> list[Message]:
    """The chat up to its last question, or an example where there is none."""
    last = max((place for place, message in enumerate(branch) if message.role == "user"), default=-1)
    if last < 0:
        return [Message(role="user", content=EXAMPLE)]
    return conversation(branch[: last + 1], system_prompt).messages


_TAIL, _SHARE = 6000, 0.04  # so many characters compress to so little where an answer goes in circles (lists: 0.06)
_LOOK_AGAIN = 200  # pieces: a look takes a fraction of a millisecond


def was_cut(message: StoredMessage) -> bool:
    """Whether this is an answer that was cut before its end."""
    is_cut = message.status in ("stopped", "interrupted") or message.finish_reason in CUT
    has_begun = bool(message.text or message.thinking) or len(message.tokens) > 0
    return message.role == "assistant" and is_cut and has_begun


def can_continue(message: StoredMessage) -> bool:
    """Whether an answer was cut before its end, and its tokens are known."""
    return was_cut(message) and len(message.tokens) >= bool(message.text) + bool(message.thinking)


def _known_pieces(message: StoredMessage) -> list[Piece]:
    """The pieces of an answer that goes on, with the ids of their tokens. Tokens that were found only later may differ
    from those it was written with, so which shows which part isn't known. Tokens without text at the end of an
    interrupted answer are left out: one may end the answer, or begin a character."""
    pieces, ids = unpack(message.text, message.provenance, message.thinking), list(message.tokens)
    if not ids:
        return pieces  # a server wrote it, or goes on with it
    if len(pieces) != len(ids):
        pieces = unpack(message.text, (), message.thinking)
        pieces += [Piece(text="")] * (len(ids) - len(pieces))
        return [msgspec.structs.replace(piece, id=token) for piece, token in zip(pieces, ids, strict=True)]
    pieces = [msgspec.structs.replace(piece, id=token) for piece, token in zip(pieces, ids, strict=True)]
    while message.status == "interrupted" and pieces and not pieces[-1].text:
        pieces.pop()
    return pieces


class LiveAnswer(QObject):
    """One answer. It waits, is asked for, arrives and ends.

    Attributes:
        chat_id: Whose it is.
        branch: The messages it answers, oldest first.
        settings: Those of the chat when it was asked for.
        message: As it is stored: ``None`` while it waits, with its text only when it has ended.
        pieces: Its thinking and its text so far; a continued answer begins with what it had.
        context_start: Id of the first message after those that no longer fit into the context.
        prompt_progress: Tokens of the prompt that are done, and all of them; ``None`` before that is known.
        is_thinking: Whether what arrived last is thinking.
        calls: Its tool calls so far, and what has come of them.
        is_writing_call: Whether the model is writing a call; `calls` has it when it is complete.

    Signals:
        begun: The engine is being asked; `message` is there.
        started: The engine has read the request; seed and `context_start` are known.
        prompt_progressed: Tokens of the prompt done, and all of them.
        thinking_changed: The model begins to think, or to answer.
        rounds_received: More `Round` objects, their pieces in `pieces` already.
        calls_changed: There are others, one has another state or makes progress, or the model begins to write one.
        ended: Its `Figures`, or ``None`` where it came to none. `message` is complete.
        withdrawn: It was given up before the engine was asked.
    """

    begun = Signal()
    started = Signal()
    prompt_progressed = Signal(int, int)
    thinking_changed = Signal(bool)
    rounds_received = Signal(list)
    calls_changed = Signal()
    ended = Signal(object)
    withdrawn = Signal()

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
        """``version``: its place among the answers to the question. ``continued``: the answer that goes on, which
        ``branch`` ends before. ``seed`` overrides that of the settings. ``is_private``: the engine keeps nothing."""
        super().__init__(parent)
        self.branch = list(branch)
        self.chat_id = self.branch[-1].chat_id
        self.settings = settings
        self.message: StoredMessage | None = None
        self.job: Job | None = None
        """With which the engine is asked."""
        self.is_stored = self.repeats = False
        """Whether the store has what it answers, or refused it; and whether the same words come again and again."""
        self.pieces: list[Piece] = []
        self._known = self._judged = 0
        self.context_start: str | None = None
        self.prompt_progress: tuple[int, int] | None = None
        self.is_thinking = self.is_writing_call = False
        self.calls: list[StoredCall] = list(continued.calls) if continued else []
        self.attachments = list(continued.attachments) if continued else []
        """Images that tools returned."""
        self._progress: dict[str, str] = {}
        """By call: what is told of those that run."""
        self.is_private = is_private
        self._version, self._continued, self._seed = version, continued, seed
        self._conversation: Conversation | None = None
        """Of the branch, without a system prompt."""
        self._asked: Conversation | None = None
        self._asked_at = time.monotonic()
        self._first_token_seconds: float | None = None
        self._clock = ThinkingClock()
        self._packed: list[PackedPiece] = []
        self._is_mixed = False
        """Whether another model goes on with it than wrote it."""
        # Of a long chat it takes milliseconds, and there is time until the question is stored.
        QTimer.singleShot(0, self, self._prepare)

    @Slot()
    def _prepare(self) -> Conversation:
        if self._conversation is None:
            self._conversation = conversation(self.branch)
        return self._conversation

    def text(self) -> str:
        """Of the answer, without the thinking."""
        return "".join(piece.text for piece in self.pieces if not piece.thinking)

    def thinking(self) -> str:
        """What the model thought so far."""
        return "".join(piece.text for piece in self.pieces if piece.thinking)

    def thinking_seconds(self) -> float:
        """How long the model has thought so far."""
        return self._clock.seconds()

    @property
    def is_asking(self) -> bool:
        """Whether a call waits for the user. The engine is free then."""
        return not self.is_writing_call and any(call.state == "asked" for call in self.calls)

    def call(self, call_id: str) -> StoredCall | None:
        """The call with this id."""
        return next((one for one in self.calls if one.id == call_id), None)

    def set_call(self, call: StoredCall) -> None:
        """Something has come of this call."""
        self.calls = [call if one.id == call.id else one for one in self.calls]
        self._progress.pop(call.id, None)
        self.calls_changed.emit()

    def progress(self, call_id: str) -> str:
        """How far a running call is, for the user; empty where nothing is known."""
        return self._progress.get(call_id, "")

    def set_progress(self, call_id: str, text: str) -> None:
        """A running call tells how far it is."""
        self._progress[call_id] = text
        self.calls_changed.emit()

    def tokens(self) -> list[int]:
        """The ids of its tokens; empty where the engine does not tell them."""
        ids = [piece.id for piece in self.pieces]
        return [] if -1 in ids else ids

    def stored_tokens(self) -> list[int]:
        """Its tokens, where they are those of the model whose answer it is; else the text alone is what goes on."""
        return [] if self._is_mixed else self.tokens()

    def _cut(self, characters: int) -> None:
        """Take the end of the text away; its tokens stay."""
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

    def begin(self, settings: AnswerSettings, pair: PairLoaded | None) -> Generate:
        """The engine is free: returns what to ask it."""
        stored: dict[str, object] = {
            **msgspec.to_builtins(settings),
            "template": pair.template if pair else "model",
            "draft": pair.draft.name if pair and pair.draft else None,
            "mtp_head": pair is not None and pair.has_head,
            "server": pair.remote.server.address if pair and pair.remote else "",
        }
        before = self._continued
        if before is not None:
            thinking = pair.usable_thinking(before.asked.thinking) if pair else ""
            settings = msgspec.structs.replace(before.asked, thinking=thinking)
        self._asked = self._prepare().under(settings.system_prompt)
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
            self._is_mixed = not is_author(pair, before.pair)
        self.begun.emit()
        command = generate(
            settings,
            self._asked.messages,
            seed=settings.seed if self._seed is None else self._seed,
            private=self.is_private,
            chat="" if self.is_private else self.chat_id,
        )
        if pair is None or pair.remote is None:
            return msgspec.structs.replace(command, continued=self.tokens())
        if before is None:
            return command
        so_far = Message(role="assistant", content=self.text(), thinking=self.thinking())
        return msgspec.structs.replace(command, messages=[*command.messages, so_far], continue_last=True)

    def on_started(self, started: GenerationStarted) -> None:
        """The engine has read the request."""
        assert self._asked is not None
        self._seed = started.seed
        self.context_start = self._asked.first_in_context(started.first_dropped, started.dropped_messages)
        self.started.emit()

    def on_prompt_progressed(self, progress: PromptProgressed) -> None:
        self.prompt_progress = progress.done, progress.total
        self.prompt_progressed.emit(progress.done, progress.total)

    def on_rounds_received(self, event: RoundsReceived) -> None:
        if self._first_token_seconds is None and any(one.tokens for one in event.rounds):
            self._first_token_seconds = time.monotonic() - self._asked_at
        for one in event.rounds:
            self.pieces += one.pieces
        if len(self.pieces) >= self._judged + _LOOK_AGAIN:
            self._look_for_repetition()
        self._clock.add(event.rounds)
        self.rounds_received.emit(event.rounds)
        is_thinking = bool(self.pieces) and self.pieces[-1].thinking
        if is_thinking is not self.is_thinking:
            self.is_thinking = is_thinking
            self.thinking_changed.emit(is_thinking)

    def _look_for_repetition(self) -> None:
        """In what came last, without what a continued answer had before; data and code may well be all alike."""
        self._judged = len(self.pieces)
        if self.settings.format() is not None or self.text().count("```") % 2:
            return
        tail = "".join([piece.text for piece in self.pieces[max(self._known, self._judged - _TAIL) :]])[-_TAIL:]
        self.repeats = len(tail) == _TAIL and len(zlib.compress(tail.encode("utf-8", "replace"))) < _SHARE * _TAIL

    def on_finished(self, finished: GenerationFinished) -> None:
        status: Status = "stopped" if finished.finish_reason == "cancelled" else "complete"
        extra = {"stop_string": finished.stop_string} if finished.stop_string else {}
        if finished.stop_overlap:
            self._cut(finished.stop_overlap)
        if finished.has_only_thought(self.thinking(), self.text()):
            self.pieces = [msgspec.structs.replace(piece, thinking=False) for piece in self.pieces]
            self._packed = []
        reason = "repeats" if status == "stopped" and self.repeats else finished.finish_reason
        self.end(status, reason, finished.figures, extra)

    def end(
        self,
        status: Status,
        reason: str | None = None,
        figures: Figures | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """It is over. Time to first token counts from the press of Send; ``extra`` is stored beside the figures."""
        assert self.message is not None
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
        self.message = replace(
            self.message,
            text=self.text(),
            provenance_json=to_json(self.packed()),
            thinking=self.thinking(),
            tokens=array("i", self.stored_tokens()),
            calls_json=calls_stopped(calls_to_json(self.calls)),
            attachments=tuple(self.attachments),
            status=status,
            finish_reason=reason,
            seed=self._seed,
            figures_json=to_json(stored),
        )
        self.ended.emit(figures)
