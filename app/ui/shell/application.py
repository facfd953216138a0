"""The window's process: from the command line to the event loop, and its end."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QObject, Qt, QTimer, QtMsgType, Slot, qInstallMessageHandler
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMessageBox

from app import logs, paths
from app.errors import KnownError
from app.models.opened_file import path_of
from app.models.text import visible
from app.program import CLOSE_WHEN_READY, has_display, write_line
from app.settings import SettingsFile
from app.ui import notices
from app.ui.notices import Notice
from app.ui.shell.end_signals import EndSignals
from app.ui.shell.main_window import MainWindow
from app.ui.shell.qt_application import Application, make_application
from app.ui.shell.single_instance import SingleInstance, announce_running
from app.ui.widgets.tabbed_window import bring_to_front

if TYPE_CHECKING:
    from app.ui.shell.controller import Controller
    from app.ui.shell.start_check import TrialStart

_log = logging.getLogger(__name__)
_qt_log = logging.getLogger("qt")

NO_DISPLAY = "Slipstream found no display for its window; “slipstream generate” talks to a model in the terminal."
PAINT_OVERDUE_MS = 1000
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


@dataclass(frozen=True)
class _Wanted:
    """What the command line asks of the window."""

    file: str = ""
    """A model file to be opened, as it was named; empty for none."""
    is_trial: bool = False
    """The window closes itself (`TrialStart`), and nobody is there to press a button."""
    for_qt: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, arguments: Sequence[str]) -> _Wanted:
        has_file = bool(arguments) and not arguments[0].startswith("-")
        rest = list(arguments[1:] if has_file else arguments)
        for_qt = [argument for argument in rest if argument != CLOSE_WHEN_READY]
        return cls(arguments[0] if has_file else "", len(for_qt) < len(rest), for_qt)


def run(arguments: Sequence[str]) -> int:
    """Open the window and stay until it is closed; returns the exit status.

    ``arguments`` are the file to be opened, if any, and options of ours and of Qt.
    """
    if not has_display(os.environ):
        write_line(sys.stderr, NO_DISPLAY)
        return 1
    wanted = _Wanted.of(arguments)
    application = make_application(wanted.for_qt)
    try:
        instance = SingleInstance(paths.data_dir())
        if not instance.acquire():
            return _raise_first(instance, wanted)
        return _run_first(application, instance, wanted)
    except KnownError as error:
        _say(str(error), wanted)
        return 1


def _raise_first(instance: SingleInstance, wanted: _Wanted) -> int:
    file = path_of(wanted.file) if wanted.file else None
    if file is not None:
        from app.models.gguf import read_header

        read_header(file)
    if instance.raise_first(file):
        return 0
    _say("Slipstream is running already, but it does not answer. End it, then start it again.", wanted)
    return 1


def _run_first(application: Application, instance: SingleInstance, wanted: _Wanted) -> int:
    found = _start_log()
    announce_running()
    qInstallMessageHandler(_on_qt_message)
    settings = SettingsFile(paths.settings_file())
    if settings.notice:
        found["settings"] = notices.plain_text(settings.notice)
    window = MainWindow(settings.values)
    beginning = _Beginning(window, settings, found, wanted)
    instance.raise_requested.connect(lambda: bring_to_front(window))
    instance.file_requested.connect(beginning.show_file)
    application.file_requested.connect(beginning.show_file)
    signals = EndSignals(application)
    signals.end_requested.connect(window.close)
    window.show()
    try:
        application.exec()
        status = beginning.end()
    finally:
        signals.close()
        instance.release()
        qInstallMessageHandler(None)
    logs.stop()
    return status


class _Beginning(QObject):
    """What starts once the window has been painted: engine, chats, and what there is to say about the last time."""

    def __init__(self, window: MainWindow, settings: SettingsFile, found: dict[str, Notice], wanted: _Wanted) -> None:
        super().__init__(window)
        self._window = window
        self._found = found
        self._settings = settings
        self._file = wanted.file
        self._is_trial = wanted.is_trial
        self._trial: TrialStart | None = None
        self._controller: Controller | None = None
        window.first_painted.connect(self._begin)
        # A window that starts minimised is not painted.
        QTimer.singleShot(PAINT_OVERDUE_MS, self, self._begin)

    def end(self) -> int:
        """Returns the exit status."""
        if self._controller is not None:
            self._controller.shut_down()
        return self._trial.status if self._trial is not None else int(self._is_trial)

    @Slot(str)
    def show_file(self, name: str) -> None:
        """Open a model file, as soon as there is what opens it."""
        if self._controller is None:
            self._file = name
        else:
            self._controller.commands.open_file(name)

    def _begin(self) -> None:
        if self._controller is not None:
            return
        _log.info("window painted")
        from app.ui.engine.local_engine import LocalEngine

        engine = LocalEngine(parent=self._window)
        engine.start()
        # While the engine's process starts there is time for the imports the first picture could do without.
        from app.chats.worker import ChatWorker
        from app.ui.shell.controller import Controller

        worker = ChatWorker(paths.chat_file())
        self._controller = Controller(self._window, self._settings, engine, worker)
        if self._is_trial:
            from app.ui.shell.start_check import TrialStart

            self._trial = TrialStart(self._window, self._controller)
        self._controller.begin(self._found)
        if self._file:
            self._controller.commands.open_file(self._file)
        gc.freeze()  # what is there now stays: a full collection would go through all of it, for some 40 ms each time


def _start_log() -> dict[str, Notice]:
    """Start the log; what there is to say about the last time, or about a log that cannot be written."""
    try:
        logs.start()
    except KnownError as error:
        return {"log": notices.plain_text(str(error))}
    return {"crash": notices.previous_crash()} if logs.previous_crash() else {}


def _say(text: str, wanted: _Wanted) -> None:
    """Tell the user what keeps the window from opening, wherever they look."""
    write_line(sys.stderr, visible(text))
    if wanted.is_trial or QGuiApplication.platformName() == "offscreen":
        return
    box = QMessageBox(QMessageBox.Icon.Warning, "Slipstream", visible(text))
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.exec()


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    category = getattr(context, "category", None) or "default"
    _qt_log.log(_LEVELS.get(kind, logging.WARNING), "%s: %s", category, message)
