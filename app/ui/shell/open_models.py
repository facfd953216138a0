"""Lets the user choose what is used: the files of a pair, a model on a server, or a file that comes from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot

from app.errors import KnownError
from app.models.opened_file import path_of
from app.ui import notices
from app.ui.context import AppContext
from app.ui.engine.pair_files import PairFiles
from app.ui.settings import in_use
from app.ui.shell.main_window import MainWindow
from app.ui.widgets.tabbed_window import bring_to_front

if TYPE_CHECKING:
    from app.ui.models.fit import PairCheck, PairChecker
    from app.ui.models.library_service import LibraryService
    from app.ui.models.open_dialog import OpenModelsDialog
    from app.ui.models.servers import ServerDialog

_FILE = "file"
"""Subject of the notice about a file that was to be opened from outside."""


class OpenModels(QObject):
    """One for a main window; the dialogs are imported when they are first wanted."""

    def __init__(self, ctx: AppContext, window: MainWindow, library: LibraryService) -> None:
        super().__init__(window)
        self._ctx = ctx
        self._window = window
        self._pair_loader = ctx.loader
        self._notice_list = ctx.notices
        self._library = library
        self._values = ctx.settings.values
        self._dialog: OpenModelsDialog | None = None
        self._servers: ServerDialog | None = None
        self._checker: PairChecker | None = None
        self._file = ""
        """The file that another program asked to open, while it is being read."""

    @Slot()
    def open_models(self) -> None:
        """Let the user choose what is used: another model on the server in use, or files."""
        files = self._pair_loader.refused() or self._pair_loader.files()
        if files is not None and files.server:
            self.open_server()
        else:
            self.open_local_models()

    @Slot()
    def open_server(self, *, for_key: bool = False) -> None:
        """Let the user choose a model on a server; ``for_key``: the key of the one that is to be used is missing."""
        files = self._pair_loader.files()
        address, model = (files.server, files.target) if files is not None and files.server else ("", "")
        if self._servers is None:
            from app.ui.models.servers import ServerDialog

            self._servers = ServerDialog(self._ctx, self._window)
        self._servers.ask(address, model, for_key=for_key)

    @Slot()
    def open_local_models(self) -> None:
        """Let the user choose the files of a pair and how they are used."""
        if self._dialog is None:
            pair_loader = self._pair_loader
            self._open(pair_loader.refused() or pair_loader.files(), is_loaded=pair_loader.refused() is None)
        else:
            self._dialog.activateWindow()

    @Slot(str, str)
    def open_pair(self, target: str, draft: str = "") -> None:
        """The same with these files chosen; ``draft`` is empty for none."""
        bring_to_front(self._window)
        self._open_files(target, draft)

    @Slot(str)
    def open_file(self, name: str) -> None:
        """The same with a file from a file manager or a terminal, and the draft that suits it best.

        ``name`` is a path or a ``file:`` address. Why it cannot be opened appears as a notice.
        """
        bring_to_front(self._window)
        self._notice_list.remove(_FILE)
        try:
            self._file = str(path_of(name))
        except KnownError as error:
            self._notice_list.show(_FILE, notices.not_opened(str(error)))
            return
        if self._checker is None:
            from app.ui.models.fit import PairChecker

            self._checker = PairChecker(self)
            self._checker.checked.connect(self._on_file_checked)
        self._checker.check(self._file, None)

    @Slot(object)
    def _on_file_checked(self, check: PairCheck) -> None:
        if check.can_load:
            self._open_files(self._file).propose_draft()
        else:
            self._notice_list.show(_FILE, notices.not_opened(check.verdict))

    def _open_files(self, target: str, draft: str = "") -> OpenModelsDialog:
        if (dialog := self._dialog) is None:
            dialog = self._open(in_use.files_to_load(self._values, target, draft or None), is_loaded=False)
            dialog.propose_head()
            return dialog
        dialog.show_files(target, draft)
        dialog.activateWindow()
        return dialog

    def _open(self, files: PairFiles | None, *, is_loaded: bool) -> OpenModelsDialog:
        from app.ui.models.open_dialog import OpenModelsDialog

        if files is None or files.server:  # the files of a server are none of the dialog's business
            files = PairFiles("", settings=self._values.load)
        self._dialog = dialog = OpenModelsDialog(
            files,
            self._values,
            gpus=self._pair_loader.planner.memory.devices(),
            is_loaded=is_loaded and self._pair_loader.pair() is not None and not self._pair_loader.is_remote(),
            library=self._library,
            memory=self._pair_loader.planner.memory,
            parent=self._window,
        )
        dialog.accepted.connect(self._on_accepted)
        dialog.server_button.clicked.connect(self._on_server_instead)
        dialog.finished.connect(self._on_dialog_finished)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
        return dialog

    @Slot()
    def _on_accepted(self) -> None:
        if (dialog := self._dialog) is not None:
            self._values.accept = dialog.accept_rule()
            self._ctx.settings.apply()
            if dialog.needs_reload:
                self._pair_loader.load(dialog.files(), anyway=dialog.does_not_fit)

    @Slot()
    def _on_server_instead(self) -> None:
        if (dialog := self._dialog) is not None:
            dialog.reject()
        self.open_server()

    @Slot()
    def _on_dialog_finished(self) -> None:
        self._dialog = None
