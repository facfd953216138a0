"""File → Open models…: the dialog, one at a time, and what becomes of the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.errors import KnownError
from app.models.opened_file import path_of
from app.settings import Settings
from app.ui.engine.interface import Engine
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import PairFiles
from app.ui.models.choice import OpenModelsChoice
from app.ui.models.coordinator import ModelsCoordinator
from app.ui.settings import in_use
from app.ui.shell import notices
from app.ui.shell.actions import open_dialog
from app.ui.shell.main_window import MainWindow
from app.ui.shell.notices import NoticeList

if TYPE_CHECKING:
    from app.ui.models.fit import PairCheck, PairChecker
    from app.ui.models.open_dialog import OpenModelsDialog

_NOTICE = "file"


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
        pair_loader: PairLoader,
        models: ModelsCoordinator,
        notice_list: NoticeList,
        values: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._engine = engine
        self._pair_loader = pair_loader
        self._models = models
        self._notice_list = notice_list
        self._values = values
        self._dialog: OpenModelsDialog | None = None
        self._checker: PairChecker | None = None
        self._file = ""
        """The one named from outside that is being read."""

    @Slot()
    def show(self) -> None:
        """Let the user choose the pair and how it is used."""
        if self._dialog is None:
            pair_loader = self._pair_loader
            self._open(pair_loader.refused() or pair_loader.files(), is_loaded=pair_loader.refused() is None)
        else:
            self._dialog.activateWindow()

    @Slot(str, str)
    def show_pair(self, target: str, draft: str) -> None:
        """The same with these files chosen; ``draft`` is empty for none."""
        self._window.raise_window()
        self._show_files(target, draft)

    @Slot(str)
    def show_file(self, name: str) -> None:
        """The same with a file that a file manager or a terminal named, and the draft that suits it best.

        ``name`` is a path or a ``file:`` address. Why it cannot be opened appears as a notice.
        """
        self._window.raise_window()
        self._notice_list.remove(_NOTICE)
        try:
            self._file = str(path_of(name))
        except KnownError as error:
            self._notice_list.show(_NOTICE, notices.not_opened(str(error)))
        else:
            self._make_checker().check(self._file, None)

    def _make_checker(self) -> PairChecker:
        if self._checker is None:
            from app.ui.models.fit import PairChecker

            self._checker = PairChecker(self)
            self._checker.checked.connect(self._on_checked)
        return self._checker

    @Slot(object)
    def _on_checked(self, check: PairCheck) -> None:
        if check.can_load:
            self._show_files(self._file).propose_draft()
        else:
            self._notice_list.show(_NOTICE, notices.not_opened(check.verdict))

    def _show_files(self, target: str, draft: str = "") -> OpenModelsDialog:
        if (dialog := self._dialog) is None:
            return self._open(PairFiles(target, draft or None, self._values.load), is_loaded=False)
        dialog.show_files(target, draft)
        dialog.activateWindow()
        return dialog

    def _open(self, files: PairFiles | None, *, is_loaded: bool) -> OpenModelsDialog:
        from app.ui.models.open_dialog import OpenModelsDialog  # not needed at the start

        pair = self._pair_loader.pair()
        self._dialog = dialog = OpenModelsDialog(
            in_use.choice_in_use(self._values, files, pair),
            self._values.recent_pairs,
            has_gpu=bool(self._engine.devices()),
            is_loaded=is_loaded and pair is not None,
            own_sampling=in_use.own_sampling(pair),
            library=self._models.launcher.library(),
            memory=self._models.memory,
            parent=self._window,
        )
        dialog.accepted.connect(self._on_accepted)
        dialog.finished.connect(self._on_finished)
        open_dialog(dialog)
        return dialog

    @Slot()
    def _on_accepted(self) -> None:
        if (dialog := self._dialog) is not None:
            self._use(dialog.choice(), reload=dialog.needs_reload, anyway=dialog.does_not_fit)

    @Slot()
    def _on_finished(self) -> None:
        self._dialog = None

    def _use(self, choice: OpenModelsChoice, *, reload: bool, anyway: bool) -> None:
        files = in_use.keep_choice(self._values, choice, self._pair_loader.pair())
        self.settings_changed.emit()
        if reload:
            self._pair_loader.load(files, anyway=anyway)
