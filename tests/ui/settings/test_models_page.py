"""Settings → Models with real folders: other folders, those of other apps, and another models folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog

from app.ui.settings.window import ModelsPage
from tests.support.hub_faults import Fault
from tests.support.library_parts import small_model
from tests.ui.models.windows import WAIT_MS, Pages, Windows, button, question, texts


@pytest.fixture
def page(windows: Windows) -> ModelsPage:
    """The page, in front."""
    windows.scanned()
    windows.settings.show_page("Models")
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
    windows.models.mkdir(parents=True)
    button(page, "Show").click()
    windows.library_idle()
    assert pages.opened == [windows.models.as_uri()]


def test_folders_are_added_and_removed(windows: Windows, page: ModelsPage, tmp_path: Path) -> None:
    extra = tmp_path / "<b>extra</b>" / "folder"
    small_model(extra / "far.gguf")
    with windows.qtbot.waitSignal(windows.library.scanned, timeout=WAIT_MS):
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
    windows.settings.show_page("Models")
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


def test_another_models_folder_is_used_and_the_old_one_stays_in_the_library(
    windows: Windows, page: ModelsPage, tmp_path: Path
) -> None:
    old, new = windows.models, tmp_path / "other disk" / "models"
    mine = small_model(old / "owner" / "mine.gguf")
    windows.scanned()
    choose(page, "Change the models folder", new)
    windows.library_idle()
    box = question(windows.settings)
    assert f"There are models in {old}, and they stay there." in box.text()
    with windows.qtbot.waitSignal(windows.library.scanned, timeout=WAIT_MS):
        button(box, "Keep them in the library").click()
    assert (windows.values.models_folder, windows.values.extra_folders) == (str(new), [str(old)])
    queue = windows.window.downloads._queue
    assert queue is not None and queue.models_folder == new
    (entry,) = windows.library.entries()
    assert entry.path == mine and entry.read_only
    choose(page, "Change the models folder", old)  # back: it is no longer one of the others
    windows.library_idle()
    assert (windows.values.models_folder, windows.values.extra_folders) == (str(old), [])
    assert not windows.scanned()[0].read_only


def test_the_old_models_folder_may_be_left_out(windows: Windows, page: ModelsPage, tmp_path: Path) -> None:
    choose(page, "Change the models folder", tmp_path / "old")  # nothing is in the one before
    windows.until(lambda: windows.values.models_folder == str(tmp_path / "old"))
    mine = small_model(tmp_path / "old" / "mine.gguf")
    choose(page, "Change the models folder", tmp_path / "new")
    windows.library_idle()
    button(question(windows.settings), "Leave them out").click()
    assert (windows.values.models_folder, windows.values.extra_folders) == (str(tmp_path / "new"), [])
    windows.until(lambda: windows.titles() == [])
    assert mine.exists()
    choose(page, "Change the models folder", tmp_path)  # whoever chooses a folder above need not be asked
    assert windows.values.models_folder == str(tmp_path)
    windows.until(lambda: windows.titles() == ["mine"])


def test_an_unfinished_download_continues_in_the_folder_where_it_began(
    windows: Windows, page: ModelsPage, tmp_path: Path
) -> None:
    model = small_model(tmp_path / "hub" / "some.gguf")
    windows.server.add("owner/some", {"some.gguf": model})
    windows.server.faults.add("some.gguf", Fault(stall_at=20_000))
    old = windows.models
    windows.get(("owner/some", "some.gguf"))
    part = old / "owner" / "some" / "some.gguf.part"
    windows.until(lambda: part.exists() and part.stat().st_size > 0)
    windows.settings.show_page("Models")
    choose(page, "Change the models folder", tmp_path / "new")
    windows.library_idle()
    button(question(windows.settings), "Keep them in the library").click()
    windows.server.release()
    windows.notice("downloaded")
    assert (old / "owner" / "some" / "some.gguf").read_bytes() == model.read_bytes()
    windows.until(lambda: windows.titles() == ["some"])
