"""How much of the context a chat takes, and what would be left out if the typed text were sent now.

The engine counts, on a thread beside the one that computes; it is asked a moment after the last change.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QMetaObject, QObject, QTimer, Signal, Slot

from app.chats.settings import ChatSettings
from app.protocol.messages import Overflow, TokensCounted
from app.ui.chat.conversation import conversation
from app.ui.chat.model import ChatModel, ChatState
from app.ui.engine.interface import Engine, EngineState

DELAY_MS = 300


@dataclass(frozen=True)
class ContextUse:
    """Tokens of the next prompt, and of the context they go into."""

    system: int
    messages: int
    text: int
    """Typed, and not sent yet."""
    length: int
    dropped: int
    """How many messages would be left out."""
    overflow: Overflow

    @property
    def total(self) -> int:
        return self.system + self.messages + self.text

    def share(self) -> float:
        """Of the context, 0 to 1."""
        return min(self.total / self.length, 1.0) if self.length else 0.0

    def summary(self) -> str:
        """``41% of 32K context``."""
        length = f"{self.length / 1024:.0f}K" if self.length >= 1024 else f"{self.length}"
        return f"{100 * self.share():.0f}% of {length} context"

    def details(self) -> str:
        """Several lines."""
        lines = [
            f"System prompt: {self.system:,} tokens" if self.system else "",
            f"Messages: {self.messages:,} tokens",
            f"What you are typing: {self.text:,} tokens" if self.text else "",
            f"Free for the answer: {max(self.length - self.total, 0):,} of {self.length:,} tokens",
            self.warning(),
        ]
        return "\n".join(line for line in lines if line)

    def warning(self) -> str:
        """What will be left out, before it happens; empty for nothing."""
        if not self.dropped:
            return ""
        if self.overflow == "stop":
            return "This no longer fits into the context, so it can’t be answered. Shorten it or start a new chat."
        which = "oldest" if self.overflow == "drop_oldest" else "middle"
        number, them = ("one", "it") if self.dropped == 1 else (str(self.dropped), "them")
        return (
            f"The context is full: {number} of the {which} messages will be left out of what the model sees. "
            f"You can still read {them} here."
        )


class ContextMeter(QObject):
    """Counts for the chat that is shown.

    Attributes:
        use: The last count; ``None`` where there is none.

    Signals:
        changed: Another count, or none any more.
    """

    changed = Signal()

    def __init__(self, engine: Engine, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.use: ContextUse | None = None
        self._engine = engine
        self._model: ChatModel | None = None
        self._asked = 0
        self._overflow: Overflow = "drop_oldest"
        self._connections: list[QMetaObject.Connection] = []
        self._timer = QTimer(self, singleShot=True, interval=DELAY_MS)
        self._timer.timeout.connect(self._count)
        engine.tokens_counted.connect(self._on_counted)
        engine.state_changed.connect(self._on_engine_state_changed)

    def show(self, model: ChatModel) -> None:
        """Count for another chat from now on."""
        for connection in self._connections:
            QObject.disconnect(connection)
        self._model = model
        self._connections = [
            model.branch_changed.connect(self._timer.start),
            model.answer_ended.connect(self._timer.start),
            model.settings_changed.connect(self._timer.start),
            model.typed.connect(self._timer.start),
            model.state_changed.connect(self._timer.start),
        ]
        self._forget()
        self._timer.start()

    def _forget(self) -> None:
        self._asked = 0
        if self.use is not None:
            self.use = None
            self.changed.emit()

    @Slot()
    def _count(self) -> None:
        model = self._model
        if model is None or model.state is ChatState.OPENING:
            return
        settings: ChatSettings = model.settings
        asked = conversation(model.messages, settings.system_prompt)
        self._overflow = settings.overflow
        self._asked = self._engine.count_tokens(asked.messages, model.unsent, settings.overflow)
        if not self._asked:
            self._forget()

    @Slot(object)
    def _on_counted(self, counted: TokensCounted) -> None:
        if counted.request != self._asked:
            return
        self.use = ContextUse(
            counted.system,
            counted.messages,
            counted.text,
            counted.context_length,
            counted.dropped,
            self._overflow,
        )
        self.changed.emit()

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state in (EngineState.READY, EngineState.ANSWERING):
            self._timer.start()
        else:
            self._forget()
