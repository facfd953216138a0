"""File → Open models…: the dialog, one at a time, and what becomes of the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.settings import Settings
from app.ui import settings_in_use
from app.ui.commands import open_dialog
from app.ui.engine_client import Engine
from app.ui.main_window import MainWindow
from app.ui.models.choice import OpenModelsChoice
from app.ui.models.in_window import ModelsInWindow
from app.ui.pair import PairFiles, PairKeeper

if TYPE_CHECKING:
    from app.ui.models.open_dialog import OpenModelsDialog


class OpenModels(QObject):
    """One for a main window.

    Signals:
        settings_changed: The choice is in the settings now.
    """

    settings_changed = Signal()

    def __init__(
        self,
        window: MainWindow,
        engine: Engine,
        keeper: PairKeeper,
        models: ModelsInWindow,
        values: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._engine = engine
        self._keeper = keeper
        self._models = models
        self._values = values
        self._dialog: OpenModelsDialog | None = None

    @Slot()
    def show(self) -> None:
        """Let the user choose the pair and how it is used."""
        if self._dialog is None:
            keeper = self._keeper
            self._open(keeper.refused() or keeper.files(), is_loaded=keeper.refused() is None)
        else:
            self._dialog.activateWindow()

    @Slot(str, str)
    def show_pair(self, target: str, draft: str) -> None:
        """The same with these files chosen; ``draft`` is empty for none."""
        self._window.raise_window()
        if self._dialog is None:
            self._open(PairFiles(target, draft or None, self._values.load), is_loaded=False)
        else:
            self._dialog.show_files(target, draft)
            self._dialog.activateWindow()

    def _open(self, files: PairFiles | None, *, is_loaded: bool) -> None:
        from app.ui.models.open_dialog import OpenModelsDialog  # not needed at the start

        pair = self._keeper.pair()
        self._dialog = OpenModelsDialog(
            settings_in_use.choice_in_use(self._values, files, pair),
            self._values.recent_pairs,
            has_gpu=bool(self._engine.devices()),
            is_loaded=is_loaded and pair is not None,
            own_sampling=settings_in_use.own_sampling(pair),
            library=self._models.door.library(),
            memory=self._models.memory,
            parent=self._window,
        )
        self._dialog.accepted.connect(self._on_accepted)
        self._dialog.finished.connect(self._on_finished)
        open_dialog(self._dialog)

    @Slot()
    def _on_accepted(self) -> None:
        if (dialog := self._dialog) is not None:
            self._use(dialog.choice(), reload=dialog.needs_reload, anyway=dialog.does_not_fit)

    @Slot()
    def _on_finished(self) -> None:
        self._dialog = None

    def _use(self, choice: OpenModelsChoice, *, reload: bool, anyway: bool) -> None:
        files = settings_in_use.keep_choice(self._values, choice, self._keeper.pair())
        self.settings_changed.emit()
        if reload:
            self._keeper.load(files, anyway=anyway)
