"""The window's process: from the command line through the event loop to its end."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from PySide6.QtCore import (
    QEvent,
    QLibraryInfo,
    QMessageLogContext,
    QObject,
    QSocketNotifier,
    Qt,
    QTimer,
    QtMsgType,
    Signal,
    Slot,
    qInstallMessageHandler,
)
from PySide6.QtGui import QFileOpenEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QMessageBox

from app import APPLICATION_ID, __version__, system
from app.models.names import path_of
from app.settings import SettingsFile
from app.system import CLOSE_WHEN_READY, KnownError, has_display, write_line
from app.ui import notices
from app.ui.actions import Actions
from app.ui.settings import general_page
from app.ui.shell.all_actions import all_actions
from app.ui.shell.main_window import MainWindow
from app.ui.shell.single_instance import SingleInstance, announce_running
from app.ui.widgets import icons, stylesheet
from app.ui.widgets.garbage import GarbageCollector
from app.ui.widgets.tabbed_window import bring_to_front
from app.words import visible

if TYPE_CHECKING:
    from app.ui.app import App

_log = logging.getLogger(__name__)
_qt_log = logging.getLogger("qt")

NO_DISPLAY = "Slipstream found no display to open its window on. In the terminal, “slipstream generate” runs a model."
PAINT_OVERDUE_MS = 1000
SWITCH_INTERVAL_SECONDS = 0.001
"""The longest the window's thread waits for another Python thread that computes; Python's default is five times this.
"""
_WINDOWS_POLL_MS = 500
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


class Application(QApplication):
    """The QApplication with name, icon and theme. Passes on requests of the system. Signal ``file_requested``: a path
    or an address to open; only macOS sends these.
    """

    file_requested = Signal(str)

    def __init__(self, arguments: Sequence[str]) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        use_input_method(os.environ, input_methods(os.environ))
        super().__init__([sys.argv[0], *arguments])
        self.setApplicationName("Slipstream")
        self.setApplicationDisplayName("Slipstream")
        self.setApplicationVersion(__version__)
        self.setDesktopFileName(APPLICATION_ID)
        self.setWindowIcon(icons.application())
        stylesheet.apply(self)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent):
            self.file_requested.emit(event.file() or event.url().toString())
            return True
        return super().event(event)


def input_methods(environment: Mapping[str, str]) -> set[str]:
    """The names of Qt's input method plugins: its own, and those in configured folders."""
    folders = [QLibraryInfo.path(QLibraryInfo.LibraryPath.PluginsPath)]
    folders += filter(None, environment.get("QT_PLUGIN_PATH", "").split(os.pathsep))
    found = (path.name for folder in folders for path in Path(folder, "platforminputcontexts").glob("*"))
    return {name.removeprefix("lib").partition("platforminputcontextplugin")[0] for name in found}


def use_input_method(environment: MutableMapping[str, str], installed: Collection[str]) -> None:
    """If Qt is configured for fcitx but has no plugin for it, use ibus, which fcitx5 also answers. Otherwise nobody
    could write Chinese, Japanese or Korean.
    """
    if "ibus" not in installed or any("fcitx" in name for name in installed):
        return
    for variable in ("QT_IM_MODULE", "QT_IM_MODULES"):  # Qt prefers the second one, a list
        names = environment.get(variable, "").split(";")
        if any(name.startswith("fcitx") for name in names):
            kept = ["ibus" if name.startswith("fcitx") else name for name in names]
            environment[variable] = ";".join(dict.fromkeys(kept))


@dataclass(frozen=True)
class _Wanted:
    """The command-line options of the window."""

    file: str = ""
    """A model file to open, as named by the user; empty for none."""
    is_trial: bool = False
    """``--close-when-ready``: open the window, check it and close it, without a user."""
    for_qt: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, arguments: Sequence[str]) -> _Wanted:
        has_file = bool(arguments) and not arguments[0].startswith("-")
        rest = list(arguments[1:] if has_file else arguments)
        for_qt = [argument for argument in rest if argument != CLOSE_WHEN_READY]
        return cls(arguments[0] if has_file else "", len(for_qt) < len(rest), for_qt)


def run(arguments: Sequence[str]) -> int:
    """Show the window until it is closed; returns the exit status.

    ``arguments``: the file to open, if any, and options of ours and of Qt.
    """
    if not has_display(os.environ):
        write_line(sys.stderr, NO_DISPLAY)
        return 1
    wanted = _Wanted.of(arguments)
    application = Application(wanted.for_qt)
    try:
        instance = SingleInstance(system.data_dir())
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
    _say("Slipstream is already running but isn't responding. Quit it, then start it again.", wanted)
    return 1


def _run_first(application: Application, instance: SingleInstance, wanted: _Wanted) -> int:
    log, found = _start_log()
    announce_running()
    qInstallMessageHandler(_on_qt_message)
    settings = SettingsFile(system.settings_file())
    if settings.notice:
        found["settings"] = notices.plain_text(settings.notice)
    general_page.apply(settings.values)
    actions = all_actions()
    window = MainWindow(settings.values, actions)
    beginning = _Beginning(window, actions, settings, found, wanted)
    instance.raise_requested.connect(lambda: bring_to_front(window))
    instance.file_requested.connect(beginning.show_file)
    application.file_requested.connect(beginning.show_file)
    signals = EndSignals(application)
    signals.end_requested.connect(window.close)
    # By default Qt waits until no window is visible, and one may be open that nobody sees or closes.
    window.closed.connect(application.quit)
    window.show()
    try:
        application.exec()
        status = beginning.end()
    finally:
        from app.ui.widgets.tasks import end_delivery  # not needed before the first picture

        end_delivery()
        signals.close()
        instance.release()
        qInstallMessageHandler(None)
    if log is not None:
        log.close()
    return status


class _Beginning(QObject):
    """Starts what waits for the first picture: the engine, the chats, and notices about the previous session."""

    def __init__(
        self,
        window: MainWindow,
        actions: Actions,
        settings: SettingsFile,
        found: dict[str, notices.Notice],
        wanted: _Wanted,
    ) -> None:
        super().__init__(window)
        self._window = window
        self._actions = actions
        self._found = found
        self._settings = settings
        self._file = wanted.file
        self._is_trial = wanted.is_trial
        self._status = int(wanted.is_trial)
        """The exit status; a trial succeeds once a pair is loaded."""
        self._app: App | None = None
        window.first_painted.connect(self._begin)
        # A window that starts minimized is never painted.
        QTimer.singleShot(PAINT_OVERDUE_MS, self, self._begin)

    def end(self) -> int:
        """Returns the exit status."""
        if self._app is not None:
            self._app.shut_down()
        return self._status

    @Slot(str)
    def show_file(self, name: str) -> None:
        """Open a model file once everything needed for that exists."""
        if self._app is None:
            self._file = name
        else:
            self._app.opening.open_file(name)

    def _begin(self) -> None:
        if self._app is not None:
            return
        _log.info("window painted")
        from app.ui.engine.client import EngineClient

        engine = EngineClient(parent=self._window)
        last = self._settings.values.last_pair
        if last is None or not last.server:
            engine.start()
        # While the engine's process starts, import what the first picture didn't need.
        from app.chats.worker import ChatWorker
        from app.ui.app import App
        from app.ui.context import make_context

        worker = ChatWorker(system.chat_file())
        self._app = App(make_context(self._settings, engine, worker, self._actions, self._window), self._window)
        if self._is_trial:
            self._app.ctx.loader.pair_changed.connect(self._on_trial_pair_changed)
            self._app.ctx.notices.changed.connect(self._on_trial_notices_changed)
        self._app.begin(self._found)
        if self._file:
            self._app.opening.open_file(self._file)
        tune_garbage_collection()

    # ------------------------------------------------------------ a trial run, for ``slipstream selftest``

    @Slot(object)
    def _on_trial_pair_changed(self, pair: object) -> None:
        if pair is not None:
            self._status = 0
            write_line(sys.stdout, QGuiApplication.platformName())
            self._close_soon()

    @Slot(object)
    def _on_trial_notices_changed(self, shown: dict[str, notices.Notice]) -> None:
        # A fresh home gives no reason for notices.
        if shown and self._status:
            write_line(sys.stderr, " ".join(notice.text for notice in shown.values()))
            self._close_soon()

    def _close_soon(self) -> None:
        QTimer.singleShot(0, self._window, self._window.close)  # the caller isn't finished yet


def tune_garbage_collection() -> None:
    """Keep garbage collection from being noticed: a full collection of everything takes about 40 ms.

    Existing objects are excluded, because they stay anyway; collecting the rest takes 1 to 10 ms. Full collections
    happen when the user switches to another app, and otherwise half as often as usual; partial ones happen more often,
    so that each is short.
    """
    gc.freeze()
    gc.set_threshold(700, 2, 100)
    application = QGuiApplication.instance()
    assert isinstance(application, QGuiApplication)
    GarbageCollector(application)  # Python's own is off since the start, see `app.__main__`
    application.applicationStateChanged.connect(_on_application_state_changed)


def _on_application_state_changed(state: Qt.ApplicationState) -> None:
    if state is not Qt.ApplicationState.ApplicationActive:
        QTimer.singleShot(0, gc.collect)  # Qt is in the middle of something


class EndSignals(QObject):
    """Emits `end_requested` at the first SIGINT, SIGTERM or SIGHUP; the second one ends the process at once.

    SIGHUP means that the terminal that started the app was closed; if ``nohup`` has it ignored, it stays ignored.
    """

    end_requested = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._wanted = [signal.SIGINT, signal.SIGTERM]
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._wanted.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._on_signal) for number in self._wanted}
        self._was_requested = False
        if sys.platform == "win32":
            # Python only handles signals while Python code runs.
            self._timer = QTimer(self, interval=_WINDOWS_POLL_MS)
            self._timer.timeout.connect(lambda: None)
            self._timer.start()
        else:
            self._reader, self._writer = socket.socketpair()
            self._reader.setblocking(False)
            self._writer.setblocking(False)
            signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            self._notifier = QSocketNotifier(self._reader.fileno(), QSocketNotifier.Type.Read, self)
            self._notifier.activated.connect(self._on_woken)

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if sys.platform != "win32":
            signal.set_wakeup_fd(-1)
            self._notifier.setEnabled(False)
            self._reader.close()
            self._writer.close()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        for number in self._wanted:
            signal.signal(number, signal.SIG_DFL)
        if not self._was_requested:
            self._was_requested = True
            # Later: Python may be in the middle of anything now, holding locks that an orderly end would wait for.
            QTimer.singleShot(0, self, self.end_requested.emit)

    @Slot()
    def _on_woken(self) -> None:
        # Running any Python code lets Python call the handler.
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(64)


def _start_log() -> tuple[system.Logs | None, dict[str, notices.Notice]]:
    """Set up the log; returns notices about the previous session, or about a log that can't be written."""
    try:
        log = system.start_log()
    except KnownError as error:
        return None, {"log": notices.plain_text(str(error))}
    return log, {"crash": notices.previous_crash()} if log.previous_crash else {}


def _say(text: str, wanted: _Wanted) -> None:
    """Tell the user why the window can't open, in a dialog or in the terminal."""
    write_line(sys.stderr, visible(text))
    if wanted.is_trial or QGuiApplication.platformName() == "offscreen":
        return
    box = QMessageBox(QMessageBox.Icon.Warning, "Slipstream", visible(text))
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.exec()


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    category = getattr(context, "category", None) or "default"
    _qt_log.log(_LEVELS.get(kind, logging.WARNING), "%s: %s", category, message)
