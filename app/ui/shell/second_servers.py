"""Chooses a second server for the Compare window, in the dialog for servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.protocol.events import PairLoaded
from app.settings import Settings
from app.ui.engine.pair_files import PairFiles
from app.ui.engine.server_keys import ServerKeys

if TYPE_CHECKING:
    from app.ui.models.server_presenter import ServerPresenter


class SecondServers(QObject):
    """One for a main window. The dialog is imported when it is first needed."""

    def __init__(self, values: Settings, keys: ServerKeys, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._values = values
        self._keys = keys
        self._chosen: Callable[[str, str], object] = lambda _model, _address: None
        self.presenter: ServerPresenter | None = None

    def choose(self, window: QWidget, pair: PairLoaded, chosen: Callable[[str, str], object]) -> None:
        """Let the user choose one for the model in use, which is on a server; ``chosen`` gets its model and address."""
        from app.ui.models.server_presenter import ServerPresenter
        from app.ui.models.server_text import TO_COMPARE

        assert pair.remote is not None
        self._chosen = chosen
        if self.presenter is None:
            self.presenter = ServerPresenter(self._values, self._keys, self._on_chosen, None, self, purpose=TO_COMPARE)
        self.presenter.prefers = pair.remote.model
        before = self._values.plain_servers.get(pair.remote.server.address)
        self.presenter.open(window, before.server if before else "", before.target if before else "")

    def _on_chosen(self, files: PairFiles) -> None:
        self._chosen(files.target, files.server)

    def close(self) -> None:
        """The main window is closed."""
        if self.presenter is not None:
            self.presenter.close()
