"""The window's process: from the command line to the event loop, and its end."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QObject, Qt, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication, QMessageBox

from app import __version__, logs, paths
from app.errors import KnownError
from app.settings import SettingsFile
from app.ui import icons, notices, theme
from app.ui.main_window import MainWindow
from app.ui.notices import Notice
from app.ui.signals import EndSignals
from app.ui.single_instance import SingleInstance, announce_running

if TYPE_CHECKING:
    from app.ui.controller import Controller

_log = logging.getLogger(__name__)
_qt_log = logging.getLogger("qt")

NO_DISPLAY = "Slipstream found no display for its window; “slipstream generate” talks to a model in the terminal.\n"
PAINT_OVERDUE_MS = 1000
SWITCH_INTERVAL_S = 0.001
"""The window's thread waits so long at most for one that works something out; Python's own value is five times that."""
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether Qt will find something to draw on; it ends the process where it does not."""
    if not platform.startswith(("linux", "freebsd", "openbsd", "netbsd")):
        return True
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def run(arguments: Sequence[str]) -> int:
    """Open the window and stay until it is closed; returns the exit status."""
    if not has_display(os.environ):
        sys.stderr.write(NO_DISPLAY)
        return 1
    application = make_application(arguments)
    try:
        instance = SingleInstance(paths.data_dir())
        if not instance.acquire():
            return _raise_first(instance)
        return _run_first(application, instance)
    except KnownError as error:
        _say(str(error))
        return 1


def make_application(arguments: Sequence[str]) -> QApplication:
    """The QApplication with name, icon and theme."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    application = QApplication([sys.argv[0], *arguments])
    application.setApplicationName("Slipstream")
    application.setApplicationDisplayName("Slipstream")
    application.setApplicationVersion(__version__)
    application.setDesktopFileName("slipstream")
    application.setWindowIcon(icons.application())
    theme.apply(application)
    return application


def _raise_first(instance: SingleInstance) -> int:
    if instance.raise_first():
        return 0
    _say("Slipstream is running already, but it does not answer. End it, then start it again.")
    return 1


def _run_first(application: QApplication, instance: SingleInstance) -> int:
    found = _start_log()
    announce_running()
    qInstallMessageHandler(_on_qt_message)
    settings = SettingsFile(paths.settings_file())
    if settings.notice:
        found["settings"] = notices.plain_text(settings.notice)
    window = MainWindow(settings.values)
    beginning = _Beginning(window, settings, found)
    instance.raise_requested.connect(window.raise_window)
    signals = EndSignals(application)
    signals.end_requested.connect(window.close)
    window.show()
    try:
        status = application.exec()
        beginning.end()
    finally:
        signals.close()
        instance.release()
        qInstallMessageHandler(None)
    logs.stop()
    return status


class _Beginning(QObject):
    """What starts once the window has been painted: engine, chats, and what there is to say about the last time."""

    def __init__(self, window: MainWindow, settings: SettingsFile, found: dict[str, Notice]) -> None:
        super().__init__(window)
        self._window = window
        self._found = found
        self._settings = settings
        self._controller: Controller | None = None
        window.first_painted.connect(self._begin)
        # A window that starts minimised is not painted.
        QTimer.singleShot(PAINT_OVERDUE_MS, self, self._begin)

    def end(self) -> None:
        if self._controller is not None:
            self._controller.shut_down()

    def _begin(self) -> None:
        if self._controller is not None:
            return
        _log.info("window painted")
        from app.ui.local_engine import LocalEngine

        engine = LocalEngine(parent=self._window)
        engine.start()
        # While the engine's process starts there is time for the imports the first picture could do without.
        from app.chats.worker import ChatWorker
        from app.ui.controller import Controller

        worker = ChatWorker(paths.chat_file())
        self._controller = Controller(self._window, self._settings, engine, worker)
        self._controller.begin(self._found)
        gc.freeze()  # what is there now stays: a full collection would go through all of it, for some 40 ms each time


def _start_log() -> dict[str, Notice]:
    """Start the log; what there is to say about the last time, or about a log that cannot be written."""
    try:
        logs.start()
    except KnownError as error:
        return {"log": notices.plain_text(str(error))}
    return {"crash": notices.previous_crash()} if logs.previous_crash() else {}


def _say(text: str) -> None:
    """Tell the user what keeps the window from opening, wherever they look."""
    sys.stderr.write(f"{text}\n")
    if os.environ.get("QT_QPA_PLATFORM") == "offscreen":
        return
    box = QMessageBox(QMessageBox.Icon.Warning, "Slipstream", text)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.exec()


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    category = getattr(context, "category", None) or "default"
    _qt_log.log(_LEVELS.get(kind, logging.WARNING), "%s: %s", category, message)
