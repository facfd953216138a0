"""Settings → Models with real folders: other folders, those of other apps, and a models folder that moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QLineEdit

from app.protocol.options import LoadSettings
from app.ui.settings.models_page import ModelsPage
from tests.support.hub_faults import Fault
from tests.support.library_parts import small_model
from tests.ui.models.windows import WAIT_MS, Pages, Windows, button, buttons, question, texts


@pytest.fixture
def page(windows: Windows) -> ModelsPage:
    """The page, in front."""
    windows.scanned()
    windows.settings_presenter.show_models()
    windows.library_idle()
    return windows.settings.models


def choose(page: ModelsPage, name: str, folder: Path) -> None:
    """Press a button that asks for a folder, and choose one."""
    button(page, name).click()
    dialog = page.findChild(QFileDialog)
    assert isinstance(dialog, QFileDialog)
    assert dialog.fileMode() is QFileDialog.FileMode.Directory
    dialog.fileSelected.emit(str(folder))
    dialog.reject()


def test_the_folder_is_shown(windows: Windows, page: ModelsPage, pages: Pages) -> None:
    field = page.findChild(QLineEdit)
    assert isinstance(field, QLineEdit)
    assert field.text() == str(windows.models)
    assert field.isReadOnly()
    windows.models.mkdir(parents=True)
    button(page, "Show").click()
    windows.library_idle()
    assert pages.opened == [windows.models.as_uri()]


def test_folders_are_added_and_removed(windows: Windows, page: ModelsPage, tmp_path: Path) -> None:
    extra = tmp_path / "<b>extra</b>" / "folder"
    small_model(extra / "far.gguf")
    with windows.qtbot.waitSignals([windows.commands.settings_changed, windows.library.scanned], timeout=WAIT_MS):
        choose(page, "Add a folder…", extra)
    assert windows.values.extra_folders == [str(extra)]
    windows.until(lambda: windows.titles() == ["far"])
    windows.until(lambda: str(extra) in texts(page))
    choose(page, "Add a folder…", extra)
    choose(page, "Add a folder…", windows.models)
    assert windows.values.extra_folders == [str(extra)]
    with windows.qtbot.waitSignal(windows.library.scanned, timeout=WAIT_MS):
        button(page, f"Remove {extra}").click()
    assert windows.values.extra_folders == []
    windows.until(lambda: windows.titles() == [])
    assert (extra / "far.gguf").exists()


def test_folders_of_other_apps_are_offered(closed_windows: Windows, user: Path) -> None:
    found = user / ".lmstudio" / "models"
    small_model(found / "owner" / "theirs.gguf")
    windows = closed_windows.open()
    windows.settings_presenter.show_models()
    page = windows.settings.models
    windows.until(lambda: "LM Studio" in texts(page))
    assert "Found on this computer" in texts(page)
    with windows.qtbot.waitSignal(windows.library.scanned, timeout=WAIT_MS):
        button(page, f"Add {found}").click()
    assert windows.values.extra_folders == [str(found)]
    windows.library_idle()
    assert "Found on this computer" not in texts(page)
    windows.until(lambda: windows.titles() == ["theirs"])
    button(page, f"Remove {found}").click()
    windows.until(lambda: "LM Studio" in texts(page))


def test_models_are_moved(windows: Windows, page: ModelsPage, tmp_path: Path) -> None:
    new = tmp_path / "other disk" / "models"
    small_model(windows.models / "owner" / "mine.gguf")
    windows.scanned()
    choose(page, "Change the models folder", new)
    windows.library_idle()
    box = question(windows.settings)
    assert f"There are models in {windows.models}. Move them to the new folder?" in box.text()
    with windows.qtbot.waitSignal(windows.commands.settings_changed, timeout=WAIT_MS):
        button(box, "Move models").click()
    assert (new / "owner" / "mine.gguf").is_file()
    assert not windows.models.exists()
    assert windows.values.models_folder == str(new)
    assert [str(entry.path) for entry in windows.scanned()] == [str(new / "owner" / "mine.gguf")]
    assert windows.moves == [(windows.models, new)]
    assert "Stop moving" not in buttons(page)


@pytest.mark.parametrize(("number", "named"), [(1, "1 file"), (2, "2 files")])
def test_files_that_cannot_be_deleted_from_the_old_folder_are_counted(
    windows: Windows, page: ModelsPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, named: str
) -> None:
    new = tmp_path / "other disk" / "models"
    new.mkdir(parents=True)
    (new / "not mine.txt").write_text("here before")  # so that files are copied and then deleted
    locked = [small_model(windows.models / f"mine{place}.gguf", seed=place) for place in range(number)]
    windows.scanned()
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path in locked:
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    choose(page, "Change the models folder", new)
    windows.library_idle()
    button(question(windows.settings), "Move models").click()
    sentence = f"{named} couldn't be deleted from the old folder. All files are in the new one."
    windows.until(lambda: sentence in texts(page))
    assert all((new / path.name).is_file() for path in locked)


@pytest.mark.parametrize("copied", [False, True])
def test_models_stay_where_they_are_if_the_settings_cannot_be_saved(
    windows: Windows, page: ModelsPage, tmp_path: Path, copied: bool
) -> None:
    new = tmp_path / "other disk" / "models"
    mine = small_model(windows.models / "owner" / "mine.gguf")
    if copied:  # else another name is enough
        new.mkdir(parents=True)
        (new / "not mine.txt").write_text("here before")
    windows.scanned()
    windows.values.remember_load(str(mine), LoadSettings(context_length=512))
    windows.saving_fails = True
    choose(page, "Change the models folder", new)
    windows.library_idle()
    button(question(windows.settings), "Move models").click()
    windows.until(lambda: "The disk is full." in texts(page))
    assert mine.is_file()
    assert windows.values.models_folder == str(windows.models)
    assert windows.saved == [str(new), str(windows.models)]
    assert windows.moves == [(windows.models, new), (new, windows.models)]
    assert windows.values.load_for(str(mine)).context_length == 512
    assert [str(entry.path) for entry in windows.scanned()] == [str(mine)]


def test_an_unfinished_download_goes_on_where_it_was_moved_to(
    windows: Windows, page: ModelsPage, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    model = small_model(tmp_path / "hub" / "some.gguf")
    windows.server.add("owner/some", {"some.gguf": model})
    windows.server.faults.add("some.gguf", Fault(stall_at=20_000))
    item = windows.get(("owner/some", "some.gguf"))
    part = windows.models / "owner" / "some" / "some.gguf.part"
    windows.until(lambda: part.exists() and part.stat().st_size > 0)  # else another request would get the stall
    windows.settings_presenter.show_models()
    choose(page, "Change the models folder", new)
    assert "Pause the downloads first: they are being written to this folder." in texts(page)
    assert windows.values.models_folder == str(windows.models)
    button(windows.window.downloads, "Pause").click()
    windows.says("· paused")
    windows.until(lambda: not windows.presenter.downloads.is_active())
    choose(page, "Change the models folder", new)
    windows.library_idle()
    with windows.qtbot.waitSignal(windows.commands.settings_changed, timeout=WAIT_MS):
        button(question(windows.settings), "Move models").click()
    assert (new / "owner" / "some" / "some.gguf.part").exists()
    with windows.qtbot.waitSignal(windows.commands.downloaded, timeout=WAIT_MS):
        button(windows.window.downloads, f"Resume: {item.title}").click()
    assert (new / "owner" / "some" / "some.gguf").read_bytes() == model.read_bytes()
    assert not windows.models.exists()


def test_models_may_stay_where_they_are(windows: Windows, page: ModelsPage, tmp_path: Path) -> None:
    with windows.qtbot.waitSignal(windows.commands.settings_changed):
        choose(page, "Change the models folder", tmp_path / "old")  # an empty folder is just another one
    queue = windows.presenter.downloads._queue
    assert queue is not None and queue.models_folder == tmp_path / "old"
    mine = small_model(tmp_path / "old" / "mine.gguf")
    choose(page, "Change the models folder", tmp_path / "old" / "inside")
    windows.library_idle()
    button(question(windows.settings), "Move models").click()
    windows.until(lambda: any("can't be moved into itself" in text for text in texts(page)))
    assert windows.values.models_folder == str(tmp_path / "old")
    choose(page, "Change the models folder", tmp_path / "new")
    windows.library_idle()
    with windows.qtbot.waitSignal(windows.commands.settings_changed):
        button(question(windows.settings), "Leave them there").click()
    assert mine.exists()
    assert windows.values.models_folder == str(tmp_path / "new")
    page.show_moving(0.25)
    assert not button(page, "Change the models folder").isEnabled()
    with windows.qtbot.waitSignal(page.cancel.clicked):
        button(page, "Stop moving").click()
    page.show_moving(None)
    assert "Stop moving" not in buttons(page)
    windows.presenter.downloads.is_held = True
    windows.server.add("owner/some", {"some.gguf": mine})
    windows.get(("owner/some", "some.gguf"))
    assert "is being moved" in question(windows.window.downloads).text()
    assert windows.presenter.downloads.progress() == []
