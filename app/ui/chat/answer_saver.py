"""Saves an answer from time to time while it is being written, so that little of it is lost if the app ends badly."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Slot

from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.saver import ChatSaver

SAVE_INTERVAL_MS = 1000
TOKENS_PER_INTERVAL = 5000
"""A long answer is saved less often, as all of it is written each time: every two seconds from so many tokens on, …"""
MOST_INTERVALS = 5


class AnswerSaver(QObject):
    """One for each open chat."""

    def __init__(self, saver: ChatSaver, parent: QObject) -> None:
        super().__init__(parent)
        self._saver = saver
        self._live: LiveAnswer | None = None
        self._intervals = 0
        """Since it was saved last."""
        self._timer = QTimer(self, interval=SAVE_INTERVAL_MS)
        self._timer.timeout.connect(self._on_due)

    def begin(self, live: LiveAnswer) -> None:
        """This answer is being written from now on."""
        self._live, self._intervals = live, 0
        self._timer.start()

    def end(self) -> None:
        """No answer is written any more."""
        self._live = None
        self._timer.stop()

    @Slot()
    def _on_due(self) -> None:
        live = self._live
        self._intervals += 1
        if live is None or live.message is None or not live.pieces or not self._saver.is_idle():
            return
        if self._intervals >= min(MOST_INTERVALS, 1 + len(live.pieces) // TOKENS_PER_INTERVAL):
            self._intervals = 0
            message_id, tokens = live.message.id, live.stored_tokens()
            text, packed, thinking = live.text(), live.packed(), live.thinking()
            self._saver.write(
                lambda store: store.update_answer(message_id, text, packed, tokens, thinking), replaces="answer"
            )
