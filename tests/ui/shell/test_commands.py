"""The app's commands: nothing heavy is imported before it is wanted, and what they make is made once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pytestqt.qtbot import QtBot

from app import paths
from app.models.downloads.item import Item, ItemState
from app.models.downloads.queue_file import FILE_NAME, SavedItem, has_work
from app.models.hub.repository import RemoteFile
from app.ui.widgets.system_notifications import Notifier
from tests.support.saved_queue import write_queue

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
