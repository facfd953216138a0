"""Chooses which pair is used: the last one, a recent one, or one from a dialog (files, a model on a server, or a file
from outside). Remembers what is used and how it was loaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QWidget

from app.models.names import path_of
from app.models.starter import STARTER_NAME, starter_file
from app.settings import Pair, Settings
from app.system import KnownError
from app.ui import notices
from app.ui.actions import Choice
from app.ui.context import AppContext
from app.ui.engine.pair_names import PairFiles, guide_files, is_guide, recent_titles
from app.ui.widgets.tabbed_window import bring_to_front

if TYPE_CHECKING:
    from app.ui.models.fit import PairCheck, PairChecker
    from app.ui.models.library_service import LibraryService
    from app.ui.models.open_dialog import OpenModelsDialog
    from app.ui.models.servers import ServerDialog

_FILE, _DOWNLOADED = "file", "downloaded"
"""Notice subjects: a file to open from outside, and a download."""


class Opening(QObject):
    """One for a main window; dialogs are imported on first use."""

    def __init__(self, ctx: AppContext, window: QWidget, library: LibraryService) -> None:
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
        """The file from outside that is being read."""
        ctx.loader.load_begun.connect(self._on_load_begun)
        ctx.loader.pair_opened.connect(self._on_pair_opened)
        ctx.settings.changed.connect(self._on_settings_changed)

    # ------------------------------------------------------------ without a dialog

    def begin(self) -> None:
        """Load the pair that was loaded last."""
        follow_starter(self._values)
        self._pair_loader.open_at_start(as_remembered(self._values, self._values.last_pair))

    def load_recent(self, pair: Pair) -> None:
        """Load a recent pair, as its target was loaded last."""
        self.load_files(as_remembered(self._values, pair))

    def recent_choices(self) -> list[Choice]:
        """The recent pairs, newest first."""
        pairs = self._values.recent_pairs
        return [Choice(title, (pair,)) for pair, title in zip(pairs, recent_titles(pairs), strict=True)]

    def load_pair(self, target: str, draft: str = "") -> None:
        """Load a target with a draft (empty: without one), as the target was loaded last."""
        self.load_files(as_remembered(self._values, Pair(target, draft or None)))

    def load_downloaded(self, pair: Pair) -> None:
        """Load a finished download, which may belong to the target in use."""
        self._notice_list.remove(_DOWNLOADED)
        files = self._pair_loader.files()
        if files is not None and files.target == pair.target and not pair.draft:
            self._pair_loader.load_again()  # with its previous files, and the new ones beside it
        else:
            self.load_pair(pair.target, pair.draft or "")

    @Slot()
    def _on_load_begun(self) -> None:
        """Remove notices that offer to load what is being loaded."""
        files, notice = self._pair_loader.files(), self._notice_list.notices().get(_DOWNLOADED)
        offered = [pair.target for pair in notice.values if isinstance(pair, Pair)] if notice is not None else []
        if files is not None and files.target in offered:
            self._notice_list.remove(_DOWNLOADED)

    def load_files(self, files: PairFiles) -> None:
        self._pair_loader.load(files)
        bring_to_front(self._window)

    def load_guide(self) -> None:
        self._pair_loader.load(as_remembered(self._values, None))

    def load_starter(self) -> None:
        """Load the starter model, and list and offer it again if it was hidden."""
        self.hide_starter(False)
        self.load_pair(str(starter_file() or STARTER_NAME))

    def hide_starter(self, hidden: bool = True) -> None:
        """Hide the starter model from lists and offers."""
        self._values.starter_hidden = hidden
        self._ctx.settings.apply()

    @Slot(object)
    def _on_pair_opened(self, files: PairFiles) -> None:
        keep_opened(self._values, files)
        self._ctx.actions.refresh()
        self._ctx.settings.save_soon()

    @Slot()
    def _on_settings_changed(self) -> None:
        """Offline mode disconnects servers on other computers; connecting again explains that."""
        remote = self._pair_loader.remote()
        if self._values.offline and remote is not None and not remote.server.is_loopback:
            self._pair_loader.load_again()

    # ------------------------------------------------------------ with a dialog

    @Slot()
    def open_models(self) -> None:
        """Let the user choose another model of the server in use, or files."""
        files = self._pair_loader.refused() or self._pair_loader.files()
        if files is not None and files.server:
            self.open_server()
        else:
            self.open_local_models()

    @Slot()
    def open_server(self, *, for_key: bool = False) -> None:
        """Let the user choose a model on a server; ``for_key``: the chosen one's key is missing."""
        files = self._pair_loader.files()
        address, model = (files.server, files.target) if files is not None and files.server else ("", "")
        if self._servers is None:
            from app.ui.models.servers import ServerDialog

            self._servers = ServerDialog(self._ctx, self._window)
        self._servers.ask(address, model, for_key=for_key)

    @Slot()
    def open_local_models(self) -> None:
        """Let the user choose the files of a pair and how to load them."""
        if self._dialog is None:
            pair_loader = self._pair_loader
            self._open(pair_loader.refused() or pair_loader.files(), is_loaded=pair_loader.refused() is None)
        else:
            self._dialog.activateWindow()

    @Slot(str, str)
    def open_pair(self, target: str, draft: str = "") -> None:
        """Show the dialog with these files preselected; ``draft`` is empty for none."""
        bring_to_front(self._window)
        self._open_files(target, draft)

    @Slot(str)
    def open_file(self, name: str) -> None:
        """Show the dialog for a file from a file manager or a terminal, with its best draft.

        ``name`` is a path or a ``file:`` address. A notice tells if it can't be opened.
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
            self._open_files(self._file).propose("draft")
        else:
            self._notice_list.show(_FILE, notices.not_opened(check.verdict))

    def _open_files(self, target: str, draft: str = "") -> OpenModelsDialog:
        if (dialog := self._dialog) is None:
            dialog = self._open(as_remembered(self._values, Pair(target, draft or None)), is_loaded=False)
            dialog.propose("head")
            return dialog
        dialog.show_files(target, draft)
        dialog.activateWindow()
        return dialog

    def _open(self, files: PairFiles | None, *, is_loaded: bool) -> OpenModelsDialog:
        from app.ui.models.open_dialog import OpenModelsDialog

        if files is None or files.server:  # the dialog only handles local files
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


# ------------------------------------------------------------ settings


def as_remembered(values: Settings, pair: Pair | None) -> PairFiles:
    """This pair, loaded as its target was last, or a model on a server; ``None`` for the bundled pair."""
    if pair is not None and pair.server:
        return PairFiles(pair.target, server=pair.server)
    target, draft = (guide_files().target, guide_files().draft) if pair is None else (pair.target, pair.draft)
    return PairFiles(target, draft, values.load_for(target), values.head_for(target), values.template_for(target))


def follow_starter(values: Settings) -> None:
    """Update paths to the starter model: an AppImage is in a different folder at each start."""
    if (file := starter_file()) is None:
        return
    for was in [Path(pair.target) for pair in (*values.recent_pairs, values.last_pair) if pair is not None]:
        if was.name == file.name and was.parent.name.endswith("starter") and not os.path.isfile(was):  # noqa: PTH113
            values.models_moved(was.parent, file.parent)


def keep_opened(values: Settings, files: PairFiles) -> None:
    """Store the loaded pair and how it was loaded in the settings, for the next start."""
    if files.for_once:
        return
    if files.server:
        values.remember_pair(Pair(files.target, server=files.server))
        return
    values.remember_load(files.target, files.settings)
    values.remember_head(files.target, files.head)
    values.remember_template(files.target, files.template)
    if is_guide(files.target):
        values.last_pair = None
    else:
        values.remember_pair(Pair(files.target, files.draft))
