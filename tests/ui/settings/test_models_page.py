"""Settings → Models with real folders: other folders, those of other apps, and a models folder that moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QLineEdit

from app.ui.settings.models_page import ModelsPage
from tests.support.hub_faults import Fault
from tests.support.library_parts import small_model
from tests.ui.models.windows import WAIT_MS, Pages, Rooms, button, buttons, question, texts


@pytest.fixture
def page(rooms: Rooms) -> ModelsPage:
    """The page, in front."""
    rooms.scanned()
    rooms.desk.show_folders()
    rooms.library_idle()
    return rooms.settings.models


def choose(page: ModelsPage, name: str, folder: Path) -> None:
    """Press a button that asks for a folder, and choose one."""
    button(page, name).click()
    dialog = page.findChild(QFileDialog)
    assert isinstance(dialog, QFileDialog)
    assert dialog.fileMode() is QFileDialog.FileMode.Directory
    dialog.fileSelected.emit(str(folder))
    dialog.reject()


def test_the_folder_is_shown(rooms: Rooms, page: ModelsPage, pages: Pages) -> None:
    field = page.findChild(QLineEdit)
    assert isinstance(field, QLineEdit)
    assert field.text() == str(rooms.models)
    assert field.isReadOnly()
    rooms.models.mkdir(parents=True)
    button(page, "Show").click()
    rooms.library_idle()
    assert pages.opened == [rooms.models.as_uri()]


def test_folders_are_added_and_removed(rooms: Rooms, page: ModelsPage, tmp_path: Path) -> None:
    extra = tmp_path / "<b>extra</b>" / "folder"
    small_model(extra / "far.gguf")
    with rooms.qtbot.waitSignals([rooms.desk.settings_changed, rooms.library.scanned], timeout=WAIT_MS):
        choose(page, "Add a folder…", extra)
    assert rooms.values.extra_folders == [str(extra)]
    rooms.until(lambda: rooms.titles() == ["far"])
    rooms.until(lambda: str(extra) in texts(page))
    choose(page, "Add a folder…", extra)
    choose(page, "Add a folder…", rooms.models)
    assert rooms.values.extra_folders == [str(extra)]
    with rooms.qtbot.waitSignal(rooms.library.scanned, timeout=WAIT_MS):
        button(page, f"Remove {extra}").click()
    assert rooms.values.extra_folders == []
    rooms.until(lambda: rooms.titles() == [])
    assert (extra / "far.gguf").exists()


def test_folders_of_other_apps_are_offered(closed_rooms: Rooms, user: Path) -> None:
    found = user / ".lmstudio" / "models"
    small_model(found / "owner" / "theirs.gguf")
    rooms = closed_rooms.open()
    rooms.desk.show_folders()
    page = rooms.settings.models
    rooms.until(lambda: "LM Studio" in texts(page))
    assert "Found on this computer" in texts(page)
    with rooms.qtbot.waitSignal(rooms.library.scanned, timeout=WAIT_MS):
        button(page, f"Add {found}").click()
    assert rooms.values.extra_folders == [str(found)]
    rooms.library_idle()
    assert "Found on this computer" not in texts(page)
    rooms.until(lambda: rooms.titles() == ["theirs"])
    button(page, f"Remove {found}").click()
    rooms.until(lambda: "LM Studio" in texts(page))


def test_an_empty_folder_is_just_another_one(rooms: Rooms, page: ModelsPage, tmp_path: Path) -> None:
    with rooms.qtbot.waitSignal(rooms.desk.settings_changed):
        choose(page, "Change the models folder", tmp_path / "new")
    assert rooms.values.models_folder == str(tmp_path / "new")
    assert rooms.desk.downloads._queue is not None
    assert rooms.desk.downloads._queue.models_folder == tmp_path / "new"


def test_models_are_moved(rooms: Rooms, page: ModelsPage, tmp_path: Path) -> None:
    new = tmp_path / "other disk" / "models"
    small_model(rooms.models / "owner" / "mine.gguf")
    rooms.scanned()
    choose(page, "Change the models folder", new)
    rooms.library_idle()
    box = question(rooms.settings)
    assert f"There are models in {rooms.models}. Move them to the new folder?" in box.text()
    with rooms.qtbot.waitSignal(rooms.desk.settings_changed, timeout=WAIT_MS):
        button(box, "Move them").click()
    assert (new / "owner" / "mine.gguf").is_file()
    assert not rooms.models.exists()
    assert rooms.values.models_folder == str(new)
    assert [str(entry.path) for entry in rooms.scanned()] == [str(new / "owner" / "mine.gguf")]
    assert "Stop moving" not in buttons(page)


@pytest.mark.parametrize("copied", [False, True])
def test_models_stay_where_they_are_if_the_settings_cannot_be_saved(
    rooms: Rooms, page: ModelsPage, tmp_path: Path, copied: bool
) -> None:
    new = tmp_path / "other disk" / "models"
    mine = small_model(rooms.models / "owner" / "mine.gguf")
    if copied:  # else another name is enough
        new.mkdir(parents=True)
        (new / "not mine.txt").write_text("here before")
    rooms.scanned()
    rooms.saving_fails = True
    choose(page, "Change the models folder", new)
    rooms.library_idle()
    button(question(rooms.settings), "Move them").click()
    rooms.until(lambda: "The disk is full." in texts(page))
    assert mine.is_file()
    assert rooms.values.models_folder == str(rooms.models)
    assert rooms.saved == [str(new), str(rooms.models)]
    assert [str(entry.path) for entry in rooms.scanned()] == [str(mine)]


def test_an_unfinished_download_goes_on_where_it_was_moved_to(rooms: Rooms, page: ModelsPage, tmp_path: Path) -> None:
    new = tmp_path / "new"
    model = small_model(tmp_path / "hub" / "some.gguf")
    rooms.server.add("owner/some", {"some.gguf": model})
    rooms.server.faults.add("some.gguf", Fault(stall_at=20_000))
    item = rooms.get(("owner/some", "some.gguf"))
    part = rooms.models / "owner" / "some" / "some.gguf.part"
    rooms.until(lambda: part.exists() and part.stat().st_size > 0)  # else another request would get the stall
    rooms.desk.show_folders()
    choose(page, "Change the models folder", new)
    assert "Pause the downloads first: they are written to this folder." in texts(page)
    assert rooms.values.models_folder == str(rooms.models)
    button(rooms.window.downloads, "Pause").click()
    rooms.says("· paused")
    rooms.until(lambda: not rooms.desk.downloads.is_active())
    choose(page, "Change the models folder", new)
    rooms.library_idle()
    with rooms.qtbot.waitSignal(rooms.desk.settings_changed, timeout=WAIT_MS):
        button(question(rooms.settings), "Move them").click()
    assert (new / "owner" / "some" / "some.gguf.part").exists()
    with rooms.qtbot.waitSignal(rooms.desk.downloaded, timeout=WAIT_MS):
        button(rooms.window.downloads, f"Resume: {item.title}").click()
    assert (new / "owner" / "some" / "some.gguf").read_bytes() == model.read_bytes()
    assert not rooms.models.exists()


def test_no_download_starts_into_a_folder_that_is_being_moved(rooms: Rooms) -> None:
    rooms.desk.downloads.hold(True)
    rooms.server.add("owner/some", {"some.gguf": small_model(rooms.folder / "some.gguf")})
    rooms.get(("owner/some", "some.gguf"))
    assert "is being moved" in question(rooms.window.downloads).text()
    assert rooms.desk.downloads.progress() == []


def test_models_may_stay_where_they_are(rooms: Rooms, page: ModelsPage, tmp_path: Path) -> None:
    mine = small_model(rooms.models / "mine.gguf")
    choose(page, "Change the models folder", tmp_path / "new")
    rooms.library_idle()
    with rooms.qtbot.waitSignal(rooms.desk.settings_changed):
        button(question(rooms.settings), "Leave them there").click()
    assert mine.exists()
    assert rooms.values.models_folder == str(tmp_path / "new")


def test_a_move_that_cannot_be(rooms: Rooms, page: ModelsPage) -> None:
    small_model(rooms.models / "mine.gguf")
    choose(page, "Change the models folder", rooms.models / "inside")
    rooms.library_idle()
    button(question(rooms.settings), "Move them").click()
    rooms.until(lambda: any("cannot be moved into itself" in text for text in texts(page)))
    assert rooms.values.models_folder == str(rooms.models)
    assert button(page, "Change the models folder").isEnabled()


def test_moving_shows_how_far_it_is(page: ModelsPage, rooms: Rooms) -> None:
    page.show_moving(0.25)
    assert "Stop moving" in buttons(page)
    assert not button(page, "Change the models folder").isEnabled()
    with rooms.qtbot.waitSignal(page.move_cancelled):
        button(page, "Stop moving").click()
    page.show_moving(None)
    assert "Stop moving" not in buttons(page)
