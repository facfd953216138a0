"""The window goes on while disks, drives and processes take their time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app import system
from app.protocol.options import LoadSettings
from app.settings import Settings, SettingsFile
from app.ui.context import WindowSettings
from app.ui.engine import load_planner
from app.ui.engine.load_planner import AT_ONCE
from app.ui.engine.pair_names import PairFiles
from app.ui.models import library_service
from app.ui.models.library_service import LibraryService
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.notices import NoticeList
from app.ui.widgets import questions
from app.ui.widgets.questions import open_in_folder
from tests.support.gguf_files import make_model
from tests.ui.models.windows import MACHINE
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.stalled import Stalled


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stalled]:
    with monkeypatch.context() as patch:
        stalled = Stalled(patch)
        yield stalled
        stalled.release()


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """A folder with two models."""
    folder = tmp_path / "drive"
    folder.mkdir()
    make_model(folder / "target.gguf", layers=8)
    make_model(folder / "draft.gguf", layers=1)
    return folder


@pytest.fixture
def owner(qtbot: QtBot) -> Iterator[QObject]:
    owner = QObject()
    yield owner
    owner.deleteLater()


def goes_on(qtbot: QtBot, stalled: Stalled) -> None:
    """A task waits, and the window's event loop turns."""
    qtbot.waitUntil(stalled.reached.is_set, timeout=WAIT_MS)
    turned: list[bool] = []
    QTimer.singleShot(0, lambda: turned.append(True))
    qtbot.waitUntil(lambda: bool(turned), timeout=WAIT_MS)
    assert stalled.in_window == []


def saved() -> dict[str, object]:
    content = json.loads(system.settings_file().read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_settings_are_saved_and_the_last_value_wins(qtbot: QtBot, owner: QObject, stalled: Stalled) -> None:
    file = SettingsFile(system.settings_file())
    saver = WindowSettings(file, NoticeList(owner), owner)
    stalled.syncing()
    file.values.draft_length = 1
    first = saver.save()
    goes_on(qtbot, stalled)
    for length in (2, 3):
        file.values.draft_length = length
        last = saver.save()
    file.values.draft_length = 4  # not saved yet, so not written either
    assert not first.done()
    stalled.release()
    qtbot.waitUntil(last.done, timeout=WAIT_MS)
    assert saved()["draft_length"] == 3
    for length in range(5):
        file.values.draft_length = length
        saver.save()
    saver.close()
    assert saved()["draft_length"] == 4
    assert saver.save().cancelled()


@pytest.mark.allow_logs
def test_a_disk_that_hangs_does_not_keep_the_app_and_is_not_written_to_later(
    owner: QObject, stalled: Stalled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.ui.context.PATIENCE_SECONDS", 0.01)
    file = SettingsFile(system.settings_file())
    saver = WindowSettings(file, NoticeList(owner), owner)
    stalled.syncing()
    file.values.draft_length = 1
    first = saver.save()
    stalled.reached.wait()
    file.values.draft_length = 2
    second = saver.save()
    saver.close()
    assert "could not be saved in time" in caplog.text
    assert second.cancelled()
    stalled.release()
    first.result(WAIT_MS / 1000)
    assert saved()["draft_length"] == 1


def test_a_failure_to_save_is_told(qtbot: QtBot, owner: QObject, home: Path) -> None:
    file = SettingsFile(system.settings_file())
    notice_list = NoticeList(owner)
    saver = WindowSettings(file, notice_list, owner)
    system.settings_file().parent.parent.mkdir(parents=True, exist_ok=True)
    in_the_way = system.settings_file()
    in_the_way.mkdir(parents=True)
    (in_the_way / "file").write_text("so that it stays")
    saver.save()
    qtbot.waitUntil(lambda: "settings" in notice_list.notices(), timeout=WAIT_MS)
    assert "Settings couldn't be saved" in notice_list.notices()["settings"].text
    in_the_way.rename(in_the_way.with_name("moved away"))
    saver.save()
    saver.close()
    assert saved()


def test_a_pair_on_such_a_drive_is_opened_while_another_can_be(
    qtbot: QtBot, tmp_path: Path, drive: Path, stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_planner, "SLOW_MS", 0)
    rig = Rig(qtbot, tmp_path, "ordinary")
    for path in (rig.target, rig.draft):
        path.write_bytes((drive / path.name).read_bytes())
    stalled.drive(drive)
    rig.pair_loader.load(PairFiles(str(drive / "target.gguf"), str(drive / "draft.gguf"), LoadSettings()))
    goes_on(qtbot, stalled)
    qtbot.waitUntil(lambda: "drive" in rig.notice_list.notices(), timeout=WAIT_MS)
    rig.load()  # another pair, on this computer
    assert "drive" not in rig.notice_list.notices()
    stalled.release()
    rig.close()
    assert stalled.in_window == []


def test_the_library_looks_into_such_a_drive_and_the_end_does_not_wait(
    qtbot: QtBot, tmp_path: Path, user: Path, drive: Path, stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_service, "_PATIENCE_SECONDS", 0.01)
    values = Settings(models_folder=str(tmp_path / "models"), extra_folders=[str(drive)])
    library = LibraryService(values, lambda: MACHINE)
    stalled.drive(drive)
    with qtbot.assertNotEmitted(library.scanned):
        library.scan()
        goes_on(qtbot, stalled)
        library.close()
        stalled.release()
        qtbot.waitUntil(library._lane.is_idle, timeout=WAIT_MS)
    library.deleteLater()


def test_the_open_models_dialog_shows_and_takes_files_of_such_a_drive(
    qtbot: QtBot, drive: Path, stalled: Stalled
) -> None:
    stalled.drive(drive)
    dialog = OpenModelsDialog(PairFiles(target=str(drive / "target.gguf")), Settings())
    qtbot.addWidget(dialog)
    dialog.show()
    goes_on(qtbot, stalled)
    assert dialog._check.verdict == "Reading the files…"
    for number in range(AT_ONCE):  # what was asked before holds nothing up, up to a point
        dialog.show_files(str(drive / f"{number}.gguf"), "")
    stalled.release()
    dialog.show_files(str(drive / "target.gguf"), str(drive / "draft.gguf"))
    qtbot.waitUntil(lambda: dialog._check.verdict.startswith("Compatible"), timeout=WAIT_MS)
    assert stalled.in_window == []


@pytest.mark.parametrize("answers", [True, False])
def test_a_file_dialog_does_not_wait_for_its_folder(
    qtbot: QtBot, drive: Path, stalled: Stalled, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    if not answers:
        monkeypatch.setattr(questions, "PATIENCE_MS", 0)
        stalled.drive(drive)
    dialog = QFileDialog()
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    open_in_folder(dialog, str(drive))
    qtbot.waitUntil(dialog.isVisible, timeout=WAIT_MS)
    assert (Path(dialog.directory().absolutePath()) == drive) is answers
    assert stalled.in_window == []
    dialog.reject()
    qtbot.waitUntil(lambda: not isValid(dialog), timeout=WAIT_MS)
