"""The way to the windows: nothing heavy is imported before it is opened, and what it makes is made once."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

from pytestqt.qtbot import QtBot

from app import paths
from app.models.downloads.item import Item, ItemState
from app.models.downloads.queue_file import FILE_NAME, SavedItem
from app.models.hub.repository import RemoteFile
from app.settings import Settings
from app.ui.models.launcher import ModelsDoor
from app.ui.shell.system_notifications import Notifier
from tests.support.saved_queue import write_queue
from tests.ui.models.windows import MACHINE, WAIT_MS

HEAVY = ("httpx2", "huggingface_hub", "keyring", "llama_cpp", "filelock")
OTHERS = ("app.ui.models.presenter", "app.ui.engine.trial", "app.models.hub.network", "app.models.downloads.queue")


def test_the_window_starts_without_the_network() -> None:
    modules = f"[n for n in {HEAVY + OTHERS} if n in sys.modules]"
    code = f"import json, sys, app.ui.shell.controller; print(json.dumps({modules}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []


def make() -> ModelsDoor:
    return ModelsDoor(Settings(), Future, lambda: MACHINE, lambda _path: False)


def test_the_desk_is_made_once(qtbot: QtBot, user: Path, kept: object) -> None:
    door = make()
    assert door.library() is door.library()
    with qtbot.waitSignal(door.library().scanned, timeout=WAIT_MS):
        desk = door.desk()
    assert door.desk() is desk
    door.show_library()
    assert desk.window.isVisible()
    assert desk.window.current_tab() is desk.window.library
    door.show_recommended()
    assert desk.window.current_tab() is desk.window.recommended
    door.show_settings()
    assert desk.settings_window.isVisible()
    door.close()
    assert not desk.window.isVisible()
    assert not desk.settings_window.isVisible()


def test_the_signals_of_the_desk_come_through(qtbot: QtBot, user: Path, kept: object) -> None:
    door = make()
    desk = door.desk()
    with qtbot.waitSignals([door.open_requested, door.pair_requested, door.settings_changed, door.needs_user]):
        desk.open_requested.emit("a", "")
        desk.pair_requested.emit("a", "b")
        desk.settings_changed.emit()
        desk.needs_user.emit("a", "why")
    door.close()


def test_downloads_go_on_only_where_there_are_some(user: Path, kept: object) -> None:
    door, file = make(), paths.data_dir() / FILE_NAME
    assert not door.has_downloads()
    write_queue(file, [saved(ItemState.DONE), saved(ItemState.PAUSED), saved(ItemState.FAILED)])
    assert not door.has_downloads()
    write_queue(file, [saved(ItemState.DONE), saved(ItemState.QUEUED)])
    assert door.has_downloads()
    file.write_text("broken")
    assert door.has_downloads()  # there is something to tell
    assert not made(door)
    door.go_on_downloading()
    assert made(door)
    door.close()


def saved(state: ItemState) -> SavedItem:
    file = RemoteFile(repository="owner/name", commit="c" * 40, path="a.gguf", size=1, sha256="a" * 64)
    return SavedItem(item=Item(id=state.value, title="A model", target=(file,)), folder="models", state=state)


def made(door: ModelsDoor) -> bool:
    return door._desk is not None


def test_closing_a_door_that_was_never_opened() -> None:
    make().close()


def test_where_the_system_has_no_notifications_nothing_happens(qtbot: QtBot) -> None:
    notifier = Notifier()
    notifier.tell("Download complete", "<b>It</b>")
    notifier.clear()
    assert notifier._icon is None
