"""How much of the context a chat takes, and what would be left out if the typed text were sent now: shown in the top
bar and beside the typed text, and told before it overflows.

The engine counts, on a thread beside the one that computes; it is asked a moment after the last change. What an answer
adds while it is written is counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app import words
from app.chats.attachments import prompt_images, prompt_text
from app.chats.model import Attachment
from app.protocol.commands import CountTokens
from app.protocol.events import Figures, TokensCounted
from app.protocol.options import Overflow
from app.protocol.remote import RemoteModel
from app.protocol.tools import ToolUse
from app.ui import notices
from app.ui.chat.composer import Composer
from app.ui.chat.conversation import Conversation, conversation
from app.ui.chat.footer import figures_of
from app.ui.chat.model import ChatModel, ChatState
from app.ui.context import AppContext
from app.ui.engine import EngineState

DELAY_MS = 300
PAUSE_MS = 20
LIVE_INTERVAL_MS = 1000
"""So often the tokens of an answer that is being written are added."""
PATIENCE_MS = 5000
"""After this the engine will not tell any more: what was counted before may be wrong by now."""
LEAST_ANSWER = 16
"""Tokens that the engine keeps free for an answer."""
NEARLY_FULL = 0.85
_LOAD_LONGER = "load the model with a longer context"
MOST_CHARACTERS = 4_000_000
"""Of attachments that are counted at once."""
SUBJECT = "context"
_Told = tuple[str, str | None, bool]
"""Of which chat, where its context would begin, and whether the message would fit at all."""


@dataclass(frozen=True)
class ContextUse:
    """Tokens of the next prompt, and of the context they go into."""

    system: int
    messages: int
    text: int
    """Typed and attached, and not sent yet."""
    length: int
    overflow: Overflow
    answer: int = 0
    """Of the answer that is being written."""
    dropped: int = 0
    """How many messages would be left out."""
    starts_at: str | None = None
    """Id of the first message behind those."""
    attached: int = 0
    """Of the text: what is attached."""
    is_counted: bool = True
    """Whether ``messages`` was counted for the next prompt; else a server said so with the last answer."""
    is_remote: bool = False
    """Whether it is the context of a model on a server."""
    tools: int = 0
    """What the model is told about its tools."""

    @property
    def total(self) -> int:
        return self.system + self.tools + self.messages + self.answer + self.text

    @property
    def free(self) -> int:
        return max(self.length - self.total, 0)

    @property
    def is_high(self) -> bool:
        """Whether something will be left out, or hardly anything fits any more."""
        return self.dropped > 0 or self.share() >= NEARLY_FULL

    @property
    def too_many(self) -> int:
        """Tokens for which there is no room; 0 or less if it fits."""
        return self.total - (self.length - LEAST_ANSWER)

    def fits(self) -> bool:
        """Whether there is room for an answer."""
        return self.too_many <= 0

    def share(self) -> float:
        """Of the context, 0 to 1."""
        return min(self.total / self.length, 1.0) if self.length else 0.0

    def percent(self) -> str:
        """``41%``; ``<1%`` where there is something."""
        return "<1%" if 0 < self.share() < 0.005 else words.share(self.share())

    def summary(self) -> str:
        """``41% of 32K context``."""
        length = f"{words.number(self.length / 1024)}K" if self.length >= 1024 else f"{self.length}"
        return f"{self.percent()} of {length} context"

    def rows(self) -> list[tuple[str, str]]:
        """What takes how much; without what takes nothing."""
        parts = {
            "System prompt": self.system,
            "Tools": self.tools,
            "Messages" if self.is_counted else "As of the last answer": self.messages,
            "Answer so far": self.answer,
            "What you're typing": self.text - self.attached,
            "Attachments": self.attached,
        }
        taken = [(name, words.tokens(count)) for name, count in parts.items() if count]
        return [*taken, ("Free", words.tokens(self.free)), ("Context", words.tokens(self.length))]

    def details(self) -> str:
        """The same in lines, with the warning."""
        lines = [f"{name}: {count}" for name, count in self.rows()]
        return "\n".join([*lines, self.warning()] if self.warning() else lines)

    def warning(self) -> str:
        """What will happen with the next message, before it does; empty for nothing unusual."""
        if not self.fits():
            if self.tools > self.length // 2:
                return "This chat's tools take up too much of the context. Switch some of them off."
            if self.attached:
                return f"With its attachments, this message is {words.tokens(self.too_many)} too long for the context."
            if self.text:
                return "This message no longer fits in the context. Shorten it or start a new chat."
            longer = "give the model a longer context on its server" if self.is_remote else _LOAD_LONGER
            return f"The context is full. Start a new chat, or {longer}."
        if self.dropped:
            which = "oldest" if self.overflow == "drop_oldest" else "middle"
            number = (
                f"the {which} message" if self.dropped == 1 else f"{words.number(self.dropped)} of the {which} messages"
            )
            return (
                f"This chat is getting too long for the context. The model will no longer see {number}; you still will."
            )
        if self.overflow == "stop" and self.share() >= NEARLY_FULL:
            return "The context is almost full. This chat is set to end when it's full."
        return ""


class ContextMeter(QObject):
    """Counts for the chat that is shown.

    Attributes:
        use: The last count; ``None`` where there is none.
        model: The chat it is about.

    Signals:
        changed: Another count, or none any more.
    """

    changed = Signal()

    def __init__(self, ctx: AppContext, composer: Composer, show_gauge: Callable[[ContextUse | None], object]) -> None:
        super().__init__(composer)
        self._answers = ctx.chats.answers
        self._pair_loader = ctx.loader
        self._notice_list = ctx.notices
        self._composer = composer
        self._show_gauge = show_gauge
        self._told: _Told | None = None
        """What the notice is about that is there, unless the user dismissed it."""
        self.use: ContextUse | None = None
        self.model = ctx.chats.current
        self._engine = ctx.engine
        self._asked = 0
        self._asked_for: tuple[Conversation, Overflow, int] | None = None
        """And the tokens of what is attached."""
        self._asked_parts: list[str] = []
        """The hashes of attachments that are being counted."""
        self._asked_images: list[str] = []
        """The hashes of images that are counted with the text."""
        self._parts: dict[str, int] = {}
        """By hash, the tokens of attachments for the loaded model."""
        self._counted: TokensCounted | None = None
        self._conversation: tuple[str, Conversation] | None = None
        """Of the branch as it is now, with its system prompt: made once, not each time something is typed."""
        self._delay = QTimer(self, singleShot=True, interval=DELAY_MS)
        self._delay.timeout.connect(self._count)
        self._live = QTimer(self, interval=LIVE_INTERVAL_MS)
        self._live.timeout.connect(self._publish)
        self._patience = QTimer(self, singleShot=True, interval=PATIENCE_MS)
        self._patience.timeout.connect(self._hide)
        self._connect(ctx)

    def _connect(self, ctx: AppContext) -> None:
        self.changed.connect(self._tell)
        ctx.engine.tokens_counted.connect(self._on_counted)
        ctx.engine.state_changed.connect(self._on_engine_state_changed)
        ctx.tools.changed.connect(self._delay.start)
        ctx.chats.follow(
            self._show,
            branch_changed=self._on_branch_changed,
            answer_begun=self._on_branch_changed,
            answer_ended=self._on_branch_changed,
            settings_changed=self._delay.start,
            unsent__typed=self._delay.start,
            unsent__attachments_changed=self._delay.start,
            state_changed=self._on_chat_state_changed,
        )

    def _show(self, model: ChatModel) -> None:
        self.model = model
        self._forget()
        self._on_branch_changed()
        self._on_chat_state_changed(model.state)

    def tokens_of(self, attachment: Attachment) -> int | None:
        """How many tokens an attachment takes; ``None`` if that isn't known yet."""
        return self._parts.get(attachment.sha256)

    # ------------------------------------------------------------ what changes

    @Slot()
    def _on_branch_changed(self) -> None:
        self._conversation = None
        self._delay.start()

    @Slot(ChatState)
    def _on_chat_state_changed(self, state: ChatState) -> None:
        if state is ChatState.ANSWERING:
            self._live.start()
        else:
            self._live.stop()
        self._delay.start()

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state.has_pair:
            self._delay.start()
        else:
            self._parts.clear()
            self._forget()
            self.changed.emit()

    def _forget(self) -> None:
        """Drop the count that was asked for."""
        self._asked, self._counted = 0, None
        self._patience.stop()
        self._hide()

    @Slot()
    def _hide(self) -> None:
        self._counted = None
        self._publish()

    # ------------------------------------------------------------ counting

    def _is_answering(self) -> bool:
        return self.model.live is not None and self.model.live.message is not None

    @Slot()
    def _count(self) -> None:
        model = self.model
        if model.state is ChatState.OPENING:
            return
        remote = self._remote()
        if remote is not None and not (remote.can_count and self._may_be_counted(model, remote)):
            self._forget()
            return
        prompt, overflow = model.settings.system_prompt, model.settings.overflow
        if self._conversation is None or self._conversation[0] != prompt:
            # The answer being written is in the branch already, but not its text.
            branch = model.messages[:-1] if self._is_answering() else model.messages
            self._conversation = prompt, conversation(branch, prompt)
            QTimer.singleShot(PAUSE_MS, self, self._count)  # of a long chat both would take too long together
            return
        asked, attachments = self._conversation[1], model.unsent.attachments
        attached = sum(self._parts.get(one.sha256, 0) for one in attachments if one.kind == "text")
        self._asked_for = asked, overflow, attached
        thinking = self._answers.settings(model.settings).thinking
        tools = self._answers.offered(model.settings)
        parts, images, text = self._uncounted(attachments), prompt_images(attachments), model.unsent.text
        if remote is not None and not remote.server.is_loopback:
            parts, images, text, attached = {}, (), "", 0  # what isn't sent stays on this computer
            self._asked_for = asked, overflow, 0
        self._asked_parts, self._asked_images = list(parts), [image.sha256 for image in images]
        self._asked = self._engine.count_tokens(
            CountTokens(
                request=0,
                messages=asked.messages,
                text=text,
                attached=attached,
                parts=list(parts.values()),
                images=images,
                overflow=overflow,
                thinking=thinking,
                tools=ToolUse(tools=[tool.for_model() for tool in tools]) if tools else None,
            )
        )
        if not self._asked:
            self._forget()
        elif not self._patience.isActive():
            self._patience.start()

    def _may_be_counted(self, model: ChatModel, remote: RemoteModel) -> bool:
        """Whether the server may see what is in the chat; on another computer, not before anything was sent."""
        needs_consent = self._answers.consent.is_needed(model.id, model.messages)
        return not needs_consent and (remote.server.is_loopback or bool(model.messages))

    def _uncounted(self, attachments: Sequence[Attachment]) -> dict[str, str]:
        """Attachments whose tokens aren't known: their hashes, and what the model reads of them."""
        found: dict[str, str] = {}
        size = 0
        for one in attachments:
            if one.sha256 not in self._parts and one.kind == "text" and not one.is_missing:
                size += len(one.text)
                if found and size > MOST_CHARACTERS:
                    break
                found[one.sha256] = prompt_text("", [one])
        return found

    @Slot(object)
    def _on_counted(self, counted: TokensCounted) -> None:
        if counted.request == self._asked:
            self._patience.stop()
            self._counted = counted
            new = dict(zip(self._asked_parts, counted.parts, strict=False))
            before = len(self._parts)
            self._parts.update(new | dict(zip(self._asked_images, counted.images, strict=False)))
            if new:
                self._count()  # once more, with all that is attached, which this count lacks
            else:
                self._publish()
            if len(self._parts) > before:
                self.changed.emit()

    @Slot()
    def _publish(self) -> None:
        use = self._use()
        if use != self.use:
            self.use = use
            self.changed.emit()

    # ------------------------------------------------------------ what is told

    @Slot()
    def _tell(self) -> None:
        use, model = self.use, self.model
        self._show_gauge(use)
        self._composer.show_tokens(use.text if use is not None else 0)
        if use is None or not self._is_news(use, model):
            self._told = None
            self._notice_list.remove(SUBJECT)
            return
        told = model.id, use.starts_at, use.fits()
        if told != self._told or SUBJECT in self._notice_list.notices():
            self._told = told
            is_too_long = use.attached > 0 and not use.fits()
            long = notices.too_long(use.warning(), can_raise=self.can_raise())
            self._notice_list.show(SUBJECT, long if is_too_long else notices.told(use.warning()))

    def _is_news(self, use: ContextUse, model: ChatModel) -> bool:
        """Whether there is something to say that was not so with the last answer."""
        if not use.warning() or model.state.is_busy:
            return False
        last = next((one for one in reversed(model.messages) if one.role == "assistant"), None)
        was_so = last is not None and last.figures.get("context_start") == use.starts_at
        return not (use.dropped and was_so and use.fits())

    def can_raise(self) -> bool:
        """Whether the loaded model may have a longer context."""
        pair = self._pair_loader.pair()
        return pair is None or not (pair.remote or 0 < pair.target.training_context <= pair.context_length)

    def _remote(self) -> RemoteModel | None:
        pair = self._pair_loader.pair()
        return pair.remote if pair is not None else None

    def _told_by_server(self) -> ContextUse | None:
        """What the server said with its last answer in this chat, for one that doesn't count."""
        pair, model = self._pair_loader.pair(), self.model
        if pair is None or pair.remote is None or not pair.context_length:
            return None
        live = model.live if self._is_answering() else None
        finished = model.messages[:-1] if live is not None else model.messages
        last = next((one for one in reversed(finished) if one.role == "assistant"), None)
        figures = figures_of(last.figures) if last is not None else Figures()
        if last is None or last.settings.get("server") != pair.remote.server.address or not figures.prompt_tokens:
            return None
        taken = figures.prompt_tokens + figures.completion_tokens
        answer = len(live.pieces) if live is not None else 0
        return ContextUse(
            *(0, taken, 0, pair.context_length, model.settings.overflow, answer), is_counted=False, is_remote=True
        )

    def _use(self) -> ContextUse | None:
        if (remote := self._remote()) is not None and not remote.can_count:
            return self._told_by_server()
        counted, asked = self._counted, self._asked_for
        if counted is None or asked is None:
            return None
        live = self.model.live if self._is_answering() else None
        return ContextUse(
            counted.system,
            counted.messages,
            counted.text,
            counted.context_length,
            asked[1],
            len(live.pieces) if live is not None else 0,
            counted.dropped,
            asked[0].first_in_context(counted.first_dropped, counted.dropped),
            asked[2] + sum(counted.images),
            is_remote=remote is not None,
            tools=counted.tools,
        )
