"""What the menu bar and the buttons of notices do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Qt, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QApplication, QDialog

from app import paths
from app.ui.chat.operations import ChatOperations
from app.ui.chat.session import ChatSession
from app.ui.engine.interface import Engine, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.models.coordinator import ModelsCoordinator
from app.ui.shell.main_window import MainWindow
from app.ui.shell.notices import Action, NoticeList
from app.ui.widgets.questions import ask_where_to_save


class Commands(QObject):
    """Carries out what is asked for by name; what changes settings it passes on.

    Signals:
        models_requested: Show the Open models dialog.
        measurement_requested: Measure the plain speed.
        drafted_toggled: Tint drafted tokens or not.
        last_comparison_requested: Compare the last answer of the shown chat.
        prompts_comparison_requested: Show what compares a set of prompts.
    """

    models_requested = Signal()
    measurement_requested = Signal()
    drafted_toggled = Signal(bool)
    last_comparison_requested = Signal()
    prompts_comparison_requested = Signal()

    def __init__(
        self,
        window: MainWindow,
        engine: Engine,
        pair_loader: PairLoader,
        session: ChatSession,
        operations: ChatOperations,
        notice_list: NoticeList,
        models: ModelsCoordinator,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._engine = engine
        self._pair_loader = pair_loader
        self._session = session
        self._operations = operations
        self._notice_list = notice_list
        self._models = models
        self._entries = self._make_entries()
        self._buttons = self._make_buttons()

    @Slot(str)
    def on_menu(self, name: str) -> None:
        """Carry out the menu entry of this name."""
        self._entries[name]()

    @Slot(Action, str)
    def on_notice(self, action: Action, subject: str) -> None:
        """Carry out the button of the notice about this subject."""
        if action in (Action.WAIT, Action.DISMISS):
            self._notice_list.remove(subject)
        else:
            self._buttons[action]()

    @Slot()
    def new_chat(self) -> None:
        self._window.chat_list.set_current(None)
        self._session.new_chat()
        self._window.composer.focus()

    @Slot(str)
    def delete_chat(self, chat_id: str) -> None:
        """Delete a chat, whichever is shown; it can be undone for a while.

        It is left at once, so that nothing can be written to it while the store is at it.
        """
        self._session.stop_chat(chat_id)
        self._window.chat_list.hide_chat(chat_id)
        if chat_id == self._session.chat_id():
            self.new_chat()
        self._operations.delete(chat_id)

    @Slot()
    def export_chat(self) -> None:
        """Ask for a file and write the shown chat to it as Markdown."""
        chat_id = self._session.chat_id()
        if chat_id is None:
            return
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        proposal = Path(folder) / file_name(self._operations.title(chat_id))
        ask_where_to_save(
            self._window, "Export chat", proposal, "Markdown", lambda path: self._operations.export(chat_id, path)
        )

    # ------------------------------------------------------------ inside

    def _make_entries(self) -> dict[str, Callable[[], object]]:
        window = self._window
        return {
            "new_chat": self.new_chat,
            "open_models": self.models_requested.emit,
            "load_guide": self._pair_loader.load_guide,
            "show_library": self._models.launcher.show_library,
            "get_models": self._models.launcher.show_recommended,
            "show_settings": self._models.launcher.show_settings,
            "export_chat": self.export_chat,
            "quit": window.close,
            "copy": _copy,
            "search_chats": self._search_chats,
            "rename_chat": self._rename_chat,
            "delete_chat": self._delete_shown_chat,
            "toggle_chats": lambda: window.toggle_panel("chats"),
            "toggle_speed": lambda: window.toggle_panel("speed"),
            "show_drafted": lambda: self.drafted_toggled.emit(window.menus.action("show_drafted").isChecked()),
            "stop": self._stop,
            "regenerate": self._session.regenerate,
            "compare_last": self.last_comparison_requested.emit,
            "compare_prompts": self.prompts_comparison_requested.emit,
            "measure_plain": self.measurement_requested.emit,
            "show_shortcuts": self._show_shortcuts,
            "show_figures": self._show_figures,
            "open_logs": open_log_folder,
            "show_about": self._show_about,
        }

    def _make_buttons(self) -> dict[Action, Callable[[], object]]:
        return {
            Action.RESTART: self._pair_loader.restart,
            Action.RESTART_PLAIN: lambda: self._pair_loader.restart(with_draft=False),
            Action.COPY_REPORT: lambda: QGuiApplication.clipboard().setText(self._pair_loader.report()),
            Action.OPEN_MODELS: self.models_requested.emit,
            Action.LOAD_GUIDE: self._pair_loader.load_guide,
            Action.LOAD_AGAIN: self._pair_loader.load_again,
            Action.LOAD_ANYWAY: self._pair_loader.load_anyway,
            Action.OPEN_LOGS: open_log_folder,
            Action.ANSWER: self._session.regenerate,
            Action.SAVE_AGAIN: self._session.save_again,
            Action.MEASURE: self.measurement_requested.emit,
            Action.LOAD_DOWNLOADED: self._models.load_downloaded,
            Action.SHOW_DOWNLOADS: self._models.show_downloads,
        }

    def _stop(self) -> None:
        if self._engine.state() is EngineState.MEASURING:
            self._engine.cancel()
        else:
            self._session.stop()

    def _search_chats(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.focus_search()

    def _rename_chat(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.rename_current()

    def _delete_shown_chat(self) -> None:
        if (chat_id := self._session.chat_id()) is not None:
            self.delete_chat(chat_id)

    def _show_shortcuts(self) -> None:
        from app.ui.shell.help import ShortcutsDialog

        open_dialog(ShortcutsDialog(self._window.menus.shortcuts(), self._window))

    def _show_figures(self) -> None:
        from app.ui.shell.help import FiguresDialog

        open_dialog(FiguresDialog(self._window))

    def _show_about(self) -> None:
        from app.ui.shell.help import AboutDialog

        engine = self._engine
        about = AboutDialog(engine.description(), engine.devices(), engine.processor_features(), self._window)
        open_dialog(about)


def open_dialog(dialog: QDialog) -> None:
    """Show a dialog that takes care of itself."""
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.open()


def open_log_folder() -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(paths.log_dir())))


def file_name(title: str) -> str:
    """A name for a Markdown file that every system accepts."""
    kept = "".join(character if character.isalnum() or character in " -_" else " " for character in title)
    return f"{' '.join(kept.split())[:60] or 'chat'}.md"


def _copy() -> None:
    """Copy what is selected where the focus is."""
    copy = getattr(QApplication.focusWidget(), "copy", None)
    if callable(copy):
        copy()
