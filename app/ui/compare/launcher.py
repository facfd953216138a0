"""Opens Compare from the main window. Everything else is imported when it is first needed, not at startup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.ui.chat.open_chats import OpenChats
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader
from app.ui.engine.queue import EngineQueue

if TYPE_CHECKING:
    from app.ui.compare.presenter import ComparePresenter


class CompareLauncher(QObject):
    """One for a main window."""

    def __init__(
        self,
        engine: EngineClient,
        queue: EngineQueue,
        pair_loader: PairLoader,
        chats: OpenChats,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._queue = queue
        self._pair_loader = pair_loader
        self._chats = chats
        self._shows_drafted = False
        self._presenter: ComparePresenter | None = None

    def presenter(self) -> ComparePresenter:
        """The presenter of the Compare window, created if there is none yet."""
        if self._presenter is None:
            from app.ui.compare.presenter import ComparePresenter

            self._presenter = ComparePresenter(self._engine, self._queue, self._pair_loader, self._chats, self)
            self._presenter.window.one.set_show_drafted(self._shows_drafted)
        return self._presenter

    def forget_chat(self, chat_id: str) -> None:
        """The chat was deleted."""
        if self._presenter is not None:
            self._presenter.forget_chat(chat_id)

    def set_show_drafted(self, shown: bool) -> None:
        """Tint drafted tokens or not."""
        self._shows_drafted = shown
        if self._presenter is not None:
            self._presenter.window.one.set_show_drafted(shown)

    def close(self) -> None:
        """The main window is closed."""
        if self._presenter is not None:
            self._presenter.close()
            self._presenter = None
