"""The app's commands: nothing heavy is imported before it is wanted, and what they make is made once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import SIGNAL, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenuBar
from pytestqt.qtbot import QtBot

from app import paths
from app.models.downloads.item import Item, ItemState
from app.models.downloads.queue_file import FILE_NAME, SavedItem, has_work
from app.models.hub.repository import RemoteFile
from app.ui.shell import commands as commands_module
from app.ui.shell.menus import Menus
from app.ui.widgets.system_notifications import Notifier
from tests.support.saved_queue import write_queue
from tests.ui.shell.running import WAIT_MS, Running

HEAVY = ("httpx2", "huggingface_hub", "keyring", "llama_cpp", "filelock")
OTHERS = (
    "app.ui.models.presenter",
    "app.ui.settings.presenter",
    "app.ui.engine.trial",
    "app.models.hub.network",
    "app.models.downloads.queue",
)


def test_the_window_starts_without_the_network() -> None:
    modules = f"[n for n in {HEAVY + OTHERS} if n in sys.modules]"
    code = f"import json, sys, app.ui.shell.controller; print(json.dumps({modules}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []


def test_downloads_go_on_only_where_there_are_some(user: Path, kept: object) -> None:
    file = paths.data_dir() / FILE_NAME
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


def test_other_windows_are_made_once(qtbot: QtBot, kept: object, running: Running) -> None:
    commands = running.controller.commands
    with qtbot.waitSignal(commands._coordinator.library().scanned, timeout=WAIT_MS):
        models = commands.models()
    assert commands.models() is models
    action = commands._window.menus.action
    action("show_library").trigger()
    assert models.window.isVisible()
    assert models.window.tabs.currentWidget() is models.window.library
    action("get_models").trigger()
    assert models.window.tabs.currentWidget() is models.window.recommended
    action("show_settings").trigger()
    assert commands.settings().window.isVisible()
    commands.close()
    assert not models.window.isVisible()
    assert not commands.settings().window.isVisible()


def test_keys_of_the_app_work_in_its_other_windows(qtbot: QtBot, kept: object, running: Running) -> None:
    commands = running.controller.commands
    models, settings = commands.models().window, commands.settings().window
    commands.models().show_library()
    qtbot.waitUntil(models.isActiveWindow)
    QTest.keyClick(models, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(settings.isActiveWindow)
    QTest.keyClick(settings, Qt.Key.Key_L, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    qtbot.waitUntil(models.isActiveWindow)
    assert models.tabs.currentWidget() is models.recommended
    QTest.keyClick(models, Qt.Key.Key_Q, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: not running.window.isVisible())


def test_what_other_windows_need_is_imported_in_another_thread(
    qtbot: QtBot, kept: object, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(commands_module, "import_models", lambda: threads.append(threading.current_thread()))
    commands = running.controller.commands
    for name in ("show_library", "get_models"):
        commands._window.menus.action(name).trigger()
    assert commands._models is None
    qtbot.waitUntil(lambda: commands._models is not None, timeout=WAIT_MS)
    models = commands.models()
    qtbot.waitUntil(lambda: models.window.tabs.currentWidget() is models.window.recommended, timeout=WAIT_MS)
    assert models.window.isVisible()
    assert threads and threading.main_thread() not in threads


def test_what_is_imported_in_another_thread_is_http_and_nothing_of_qt() -> None:
    code = """if True:
        import sys
        import app.ui.shell.controller
        from app.ui.models.coordinator import import_models
        before = set(sys.modules)
        import_models()
        print(*set(sys.modules) - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    imported = done.stdout.split()
    assert "httpx2" in imported
    assert [name for name in imported if name.startswith(("PySide6", "shiboken6", "app.ui"))] == []


# Connected by what is made for them.
def test_each_action_does_something(running: Running, qtbot: QtBot) -> None:
    menus, bar = running.window.menus, QMenuBar()
    qtbot.addWidget(bar)
    bare = Menus(bar, bar)  # the menus themselves listen to their actions, too

    def receivers(of: Menus, name: str) -> int:
        return of.action(name).receivers(SIGNAL("triggered(bool)"))

    idle = {name for name in menus._actions if receivers(menus, name) == receivers(bare, name)}
    assert not idle
