"""The chats that are open: the one that is shown, and those where something still goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from PySide6.QtCore import QMetaObject, QObject, QTimer, Signal, Slot

from app.chats.settings import ChatSettings
from app.system import KnownError
from app.ui import notices
from app.ui.chat.answers import SERVER, Answers
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.model import ChatModel, ChatState
from app.ui.chat.writer import StoredChats
from app.ui.notices import Notice, NoticeList


class OpenChats(QObject):
    """One for a window.

    Attributes:
        current: The chat that is shown; there always is one.
        answers: Has their answers written.

    Signals:
        current_changed: Another `ChatModel` is shown. Its messages may still be on their way.
        created: A chat has its first message.
        opened: A `ChatModel` that was not open before, but for the first one.
    """

    current_changed = Signal(object)
    created = Signal(object)
    opened = Signal(object)

    def __init__(
        self,
        chat_store: StoredChats,
        answers: Answers,
        notice_list: NoticeList,
        default_settings: Callable[[], ChatSettings],
        temporary_store: Callable[[], StoredChats],
        parent: QObject | None = None,
    ) -> None:
        """``default_settings``: for chats that chose nothing. ``temporary_store``: one that leaves nothing behind."""
        super().__init__(parent)
        self.answers = answers
        self._default_settings = default_settings
        self._chat_store = chat_store
        self._temporary_store = temporary_store
        self._notice_list = notice_list
        self._open: dict[str, ChatModel] = {}
        self._has_begun = False
        """Whether what the store has for the chat to come was asked for."""
        self._new = self._made()
        self.current = self._new
        answers.not_finished.connect(self._on_not_finished)

    # ------------------------------------------------------------ which one is shown

    def follow(self, shown: Callable[[ChatModel], object], **slots: Callable[..., object]) -> None:
        """Call ``shown`` with the chat that is shown, now and at each change. ``slots`` are connected, while it is
        shown, to its signals of these names (``unsent__typed`` for ``unsent.typed``)."""
        connections: list[QMetaObject.Connection] = []

        def show(model: ChatModel) -> None:
            while connections:
                QObject.disconnect(connections.pop())
            for name, slot in slots.items():
                connections.append(attrgetter(name.replace("__", "."))(model).connect(slot))
            shown(model)

        self.current_changed.connect(show)
        show(self.current)

    def begin(self, chat_id: str | None) -> None:
        """The store is there: show this chat, unless something was written meanwhile, which is to be seen then."""
        self._has_begun = True
        unsent = self._new.unsent
        is_untouched = self.current is self._new and not (unsent.text or unsent.attachments)
        self._new.open_new()
        if chat_id is not None and is_untouched:
            self.open(chat_id)

    def open(self, chat_id: str) -> ChatModel:
        """Show a stored chat. What goes on in others goes on."""
        model = self._open.get(chat_id)
        if model is None:
            model = self._made(chat_id)
            model.open()
        elif model.state is ChatState.IDLE and model.must_open:
            model.open()
        self._show(model)
        return model

    @Slot()
    def new(self) -> None:
        """Show the new chat, which is created with its first message."""
        self._show(self._new)

    def new_temporary(self) -> None:
        """Show a chat that is never stored, and that is gone when it is left."""
        self._show(self._made(is_temporary=True))

    def use_defaults(self) -> None:
        """Another model is loaded, or the presets were changed: chats where nothing was chosen follow."""
        for model in {*self._models(), self.current}:
            model.follow(self._default_settings())

    def _made(self, chat_id: str = "", *, is_temporary: bool = False) -> ChatModel:
        store = self._temporary_store() if is_temporary else self._chat_store
        model = ChatModel(
            store, self.answers, self._default_settings(), chat_id, is_temporary=is_temporary, parent=self
        )
        if chat_id:
            self._open[chat_id] = model
        elif not is_temporary and not self._has_begun:
            model.unsent.is_known = False  # the store may have some, which is read in `begin`
        if is_temporary:
            store.setParent(model)
        else:
            model.created.connect(self._on_created)
            model.state_changed.connect(self._tidy_soon)
            model.writer.changed.connect(self._on_written)
        model.failed.connect(self._on_failed)
        self.opened.emit(model)
        return model

    def _show(self, model: ChatModel) -> None:
        before = self.current
        if model is before:
            return
        self.current = model
        before.unsent.save_if_changed()
        if before.is_temporary:
            self._end_temporary(before)
        self._tidy_soon()
        self._notice_list.remove(SERVER)  # it is about the chat that was shown
        self.current_changed.emit(model)

    # ------------------------------------------------------------ what ends

    def forget(self, chat_ids: Iterable[str]) -> None:
        """These were deleted: what goes on in them is stopped, and another one is shown."""
        for chat_id in chat_ids:
            model = self._open.get(chat_id)
            if model is not None:
                model.stop()
            if chat_id == self.current.id:
                self.new()

    def save_again(self) -> None:
        """Try to store what the store refused."""
        for model in self._models():
            model.writer.save_again()

    def shut_down(self) -> None:
        """The window closes; call before the engine and the store are closed."""
        self.answers.clear()
        for model in self._models():
            model.shut_down()
        if self.current.is_temporary:
            self._end_temporary(self.current)

    def _end_temporary(self, model: ChatModel) -> None:
        model.close_store()
        model.deleteLater()

    def _models(self) -> list[ChatModel]:
        models = [*self._open.values(), self._new]
        return models if self.current in models or self.current.is_temporary else [*models, self.current]

    @Slot()
    def _tidy_soon(self) -> None:
        QTimer.singleShot(0, self, self._tidy)

    def _tidy(self) -> None:
        """Close chats that aren't shown and have nothing left to do or to save."""
        for chat_id, model in list(self._open.items()):
            if model is not self.current and model.is_settled():
                del self._open[chat_id]
                model.deleteLater()

    # ------------------------------------------------------------ what the chats tell

    @Slot()
    def _on_created(self) -> None:
        model, self._new = self._new, self._made()
        self._open[model.id] = model
        self.created.emit(model)

    @Slot()
    def _on_written(self) -> None:
        failure = next((model.writer.failure for model in self._models() if model.writer.failure is not None), None)
        if failure is None:
            self._notice_list.remove("save")
        else:
            self._notice_list.show("save", notices.not_saved(f"Your latest changes haven't been saved yet. {failure}"))
        self._tidy_soon()

    @Slot(object, object)
    def _on_not_finished(self, live: LiveAnswer, notice: Notice) -> None:
        if live is self.current.live:
            self._notice_list.show(SERVER, notice)

    @Slot(object)
    def _on_failed(self, error: KnownError) -> None:
        """What was written in a chat that cannot be read is not lost: it stands where a new one begins."""
        self._chat_store.tell(error)
        for model in self._models():
            if model.must_open and (model.unsent.text or model.unsent.attachments):
                self._new.unsent.give_back(*model.unsent.take())
        if self.current.must_open:
            self.new()
        self._tidy_soon()
