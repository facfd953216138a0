"""When Python's garbage collector runs, and where: it destroys widgets."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.ui.widgets import stylesheet, theme

ENOUGH = 100_000
"""So many new objects let Python's own collector run, whatever its thresholds are."""


class Litter(QLabel):
    """A widget that only the collector can destroy."""

    destroyed_in: list[threading.Thread]

    def __init__(self, destroyed_in: list[threading.Thread]) -> None:
        super().__init__("text")
        self._me = self
        self.destroyed.connect(lambda: destroyed_in.append(threading.current_thread()))


@pytest.fixture
def destroyed_in(qapp: QApplication) -> Iterator[list[threading.Thread]]:
    """The threads in which ten widgets that are garbage were destroyed."""
    gc.collect()
    threads: list[threading.Thread] = []
    for _ in range(10):
        Litter(threads)
    yield threads
    gc.collect()


def make_objects() -> list[list[int]]:
    return [[] for _ in range(ENOUGH)]


def turn_the_event_loop(qtbot: QtBot, threads: list[threading.Thread]) -> None:
    made = make_objects()
    qtbot.waitUntil(lambda: len(threads) == 10)
    assert set(threads) == {threading.main_thread()}
    del made


def test_the_event_loop_collects(qtbot: QtBot, destroyed_in: list[threading.Thread]) -> None:
    made = make_objects()
    assert destroyed_in == []
    del made
    turn_the_event_loop(qtbot, destroyed_in)


def test_other_threads_do_not(qtbot: QtBot, destroyed_in: list[threading.Thread]) -> None:
    thread = threading.Thread(target=make_objects)
    thread.start()
    thread.join()
    assert destroyed_in == []
    turn_the_event_loop(qtbot, destroyed_in)


class Busy(QLabel):
    """Makes objects wherever Qt lets it."""

    def __init__(self) -> None:
        super().__init__("text")
        self.heard: set[QEvent.Type] = set()

    def event(self, event: QEvent) -> bool:
        if event.type() not in self.heard:
            self.heard.add(event.type())
            make_objects()
        return super().event(event)


@pytest.mark.usefixtures("no_style_later")
def test_nothing_is_collected_while_qt_goes_through_its_widgets(
    qtbot: QtBot, qapp: QApplication, destroyed_in: list[threading.Thread]
) -> None:
    """Qt crashes where a widget of the list that it goes through is gone."""
    busy = Busy()
    qtbot.addWidget(busy)
    stylesheet.apply(qapp)
    theme.override(theme.DARK)
    theme.notifier().set_zoom(150)
    assert {QEvent.Type.StyleChange, QEvent.Type.PaletteChange, QEvent.Type.FontChange} <= busy.heard
    assert destroyed_in == []
    turn_the_event_loop(qtbot, destroyed_in)


CODE = """
import gc
from PySide6.QtCore import QTimer
from app.ui.shell.application import Application, tune_garbage_collection
gc.disable()
application = Application([])
tune_garbage_collection()


class Litter:
    def __init__(self):
        self.me = self

    def __del__(self):
        print("collected in the event loop" if is_turning else "collected too soon")
        application.quit()


is_turning = False
Litter()
made = [[] for _ in range(100000)]
is_turning = True
QTimer.singleShot(30000, application.quit)
application.exec()
"""


def test_so_it_is_in_the_app() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "collected in the event loop"
