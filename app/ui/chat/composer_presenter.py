"""Between the open chat and the composer: what stands in it, what is sent, what it says."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Slot

from app.ui import notices
from app.ui.chat.answer_queue import SERVER
from app.ui.chat.composer import Composer
from app.ui.chat.model import ChatModel, ChatState
from app.ui.chat.open_chats import OpenChats
from app.ui.engine.client import EngineClient, EngineState
from app.ui.notices import NoticeList

_HINTS = {
    EngineState.STARTING: "Your message will be sent once the model is loaded.",
    EngineState.LOADING: "Your message will be sent once the model is loaded.",
    EngineState.ANSWERING: "Your message will be sent after the answer in the other chat.",
    EngineState.MEASURING: "Your message will be sent once the measurement is done.",
    EngineState.COMPARING: "Your message will be sent once the current comparison is done.",
    EngineState.SERVING: "Your message will be sent in a moment.",
    EngineState.EMPTY: "Your message will be sent once a model is loaded.",
    EngineState.STOPPED: "Your message will be sent once a model is loaded.",
    EngineState.DIED: "Your message will be sent once the engine is running again.",
}


class ComposerPresenter(QObject):
    """One for a window."""

    def __init__(
        self,
        composer: Composer,
        chats: OpenChats,
        engine: EngineClient,
        notice_list: NoticeList,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._composer = composer
        self._engine = engine
        self._notice_list = notice_list
        self._model = chats.current
        composer.message_sent.connect(self.send)
        composer.stop_requested.connect(self._on_stop_requested)
        composer.text_changed.connect(self._on_text_changed)
        engine.state_changed.connect(self._refresh)
        chats.follow(
            self._show, unsent__replaced=self._fill, state_changed=self._refresh, branch_changed=self._on_branch_changed
        )

    def _show(self, model: ChatModel) -> None:
        self._model = model
        self._notice_list.remove(SERVER)  # it is about the chat that was shown
        self._fill(model.unsent.text)
        self._refresh()

    @Slot(str)
    def send(self, text: str) -> None:
        """Send this in the chat that is shown; what stands in the composer stays if that cannot be done now."""
        self._notice_list.remove(*notices.PASSING)
        self._model.send(text)
        self._fill(self._model.unsent.text)

    @Slot()
    def _on_stop_requested(self) -> None:
        self._model.stop()

    @Slot()
    def _on_text_changed(self) -> None:
        self._model.unsent.type(self._composer.text())

    @Slot()
    def _on_branch_changed(self) -> None:
        QTimer.singleShot(0, self, self._refresh)  # the answer to a message that is sent is asked for behind it

    @Slot(str)
    def _fill(self, text: str) -> None:
        if self._composer.text() != text:
            self._composer.set_text(text)

    @Slot()
    def _refresh(self) -> None:
        """Bring button, hint and the notice of a message without an answer to what is true now."""
        model = self._model
        self._composer.set_busy(model.state.is_busy)
        waits = model.state is ChatState.WAITING
        self._composer.set_hint(_HINTS.get(self._engine.state(), "") if waits else "")
        if model.is_unanswered():
            self._notice_list.show("unanswered", notices.unanswered())
        else:
            self._notice_list.remove("unanswered")
