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
from app.ui.models.launcher import ModelsLauncher
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


def make() -> ModelsLauncher:
    return ModelsLauncher(Settings(), Future, lambda: MACHINE, lambda _path: False)


def test_the_desk_is_made_once(qtbot: QtBot, user: Path, kept: object) -> None:
    launcher = make()
    assert launcher.library() is launcher.library()
    with qtbot.waitSignal(launcher.library().scanned, timeout=WAIT_MS):
        presenter = launcher.presenter()
    assert launcher.presenter() is presenter
    launcher.show_library()
    assert presenter.window.isVisible()
    assert presenter.window.tabs.currentWidget() is presenter.window.library
    launcher.show_recommended()
    assert presenter.window.tabs.currentWidget() is presenter.window.recommended
    launcher.show_settings()
    assert presenter.settings_window.isVisible()
    launcher.close()
    assert not presenter.window.isVisible()
    assert not presenter.settings_window.isVisible()


def test_the_signals_of_the_desk_come_through(qtbot: QtBot, user: Path, kept: object) -> None:
    launcher = make()
    presenter = launcher.presenter()
    with qtbot.waitSignals(
        [launcher.open_requested, launcher.pair_requested, launcher.settings_changed, launcher.needs_user]
    ):
        presenter.open_requested.emit("a", "")
        presenter.pair_requested.emit("a", "b")
        presenter.settings_changed.emit()
        presenter.needs_user.emit("a", "why")
    launcher.close()


def test_downloads_go_on_only_where_there_are_some(user: Path, kept: object) -> None:
    launcher, file = make(), paths.data_dir() / FILE_NAME
    assert not launcher.has_downloads()
    write_queue(file, [saved(ItemState.DONE), saved(ItemState.PAUSED), saved(ItemState.FAILED)])
    assert not launcher.has_downloads()
    write_queue(file, [saved(ItemState.DONE), saved(ItemState.QUEUED)])
    assert launcher.has_downloads()
    file.write_text("broken")
    assert launcher.has_downloads()  # there is something to tell
    assert not made(launcher)
    launcher.go_on_downloading()
    assert made(launcher)
    launcher.close()


def saved(state: ItemState) -> SavedItem:
    file = RemoteFile(repository="owner/name", commit="c" * 40, path="a.gguf", size=1, sha256="a" * 64)
    return SavedItem(item=Item(id=state.value, title="A model", target=(file,)), folder="models", state=state)


def made(launcher: ModelsLauncher) -> bool:
    return launcher._presenter is not None


def test_closing_what_was_never_opened() -> None:
    make().close()


def test_where_the_system_has_no_notifications_nothing_happens(qtbot: QtBot) -> None:
    notifier = Notifier()
    notifier.tell("Download complete", "<b>It</b>")
    notifier.clear()
    assert notifier._icon is None
