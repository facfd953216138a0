"""The app's commands: nothing heavy is imported before it is wanted, and what they make is made once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app import system
from app.models.downloads.item import FILE_NAME, Item, ItemState, SavedItem, has_work
from app.models.hub.repository import RemoteFile
from app.ui.shell import other_windows
from app.ui.widgets.questions import Notifier
from tests.support.saved_queue import write_queue
from tests.ui.shell.running import WAIT_MS, Running

HEAVY = ("httpx2", "huggingface_hub", "keyring", "llama_cpp", "numpy", "filelock")
OTHERS = (
    "app.ui.models.window",
    "app.ui.settings.window",
    "app.ui.compare.runner",
    "app.models.library.library",
    "app.models.hub.network",
    "app.models.downloads.queue",
)
IMPORTING_CODE = """
import sys
import app.ui.shell.application, app.ui.app
print(*sys.modules)
from app.ui.shell.other_windows import import_models
before = set(sys.modules)
import_models()
print(*set(sys.modules) - before)
"""


def test_the_window_starts_without_engine_and_network_and_imports_http_beside_it_without_qt() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING_CODE], capture_output=True, text=True, check=True)
    at_start, later = (line.split() for line in done.stdout.splitlines())
    assert "app.ui.app" in at_start
    assert set(at_start).isdisjoint({*HEAVY, *OTHERS})
    assert "httpx2" in later
    assert [name for name in later if name.startswith(("PySide6", "shiboken6", "app.ui"))] == []


def test_downloads_go_on_only_where_there_are_some(user: Path, kept: object) -> None:
    file = system.data_dir() / FILE_NAME
    assert not has_work(file)
    write_queue(file, [saved(ItemState.DONE), saved(ItemState.PAUSED), saved(ItemState.FAILED)])
    assert not has_work(file)
    write_queue(file, [saved(ItemState.DONE), saved(ItemState.QUEUED)])
    assert has_work(file)
    file.write_text("broken")
    assert has_work(file)  # there is something to tell


def saved(state: ItemState) -> SavedItem:
    file = RemoteFile(repository="owner/name", commit="c" * 40, path="a.gguf", size=1, sha256="a" * 64)
    return SavedItem(item=Item(id=state.value, title="A model", target=(file,)), folder="models", state=state)


def test_where_the_system_has_no_notifications_nothing_happens(qtbot: QtBot) -> None:
    notifier = Notifier()
    notifier.tell("Download complete", "<b>It</b>", lambda: None)
    notifier.clear()
    assert notifier._icon is None


def test_other_windows_are_imported_in_another_thread_made_once_and_have_the_keys_of_the_app(
    qtbot: QtBot, kept: object, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(other_windows, "import_models", lambda: threads.append(threading.current_thread()))
    others, ctrl = running.app.windows, Qt.KeyboardModifier.ControlModifier
    for name in ("show_library", "get_models"):
        running.choose(name)
    assert others._models is None
    qtbot.waitUntil(lambda: others._models is not None, timeout=WAIT_MS)
    models = others.models()
    tabs = models.tabs
    qtbot.waitUntil(lambda: tabs.currentWidget() is models.recommended, timeout=WAIT_MS)
    assert threads and threading.main_thread() not in threads
    running.choose("show_library")
    assert others.models() is models and models.isVisible() and tabs.currentWidget() is models.library
    qtbot.waitUntil(models.isActiveWindow)
    QTest.keyClick(models, Qt.Key.Key_Comma, ctrl)
    settings = others.settings()
    qtbot.waitUntil(settings.isActiveWindow)
    QTest.keyClick(settings, Qt.Key.Key_L, ctrl | Qt.KeyboardModifier.ShiftModifier)
    qtbot.waitUntil(models.isActiveWindow)
    assert tabs.currentWidget() is models.recommended
    running.choose("show_settings")
    assert settings.isVisible() and others.settings() is settings
    QTest.keyClick(models, Qt.Key.Key_Q, ctrl)
    qtbot.waitUntil(lambda: not running.window.isVisible())
    assert not models.isVisible() and not settings.isVisible()
