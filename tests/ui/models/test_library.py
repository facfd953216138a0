"""Models → Library with real files: the list, the page of a model, and what can be done with a file."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QMessageBox

from app import system, words
from app.models.library.folders import FolderKind, ModelFolder
from app.models.origins import Origin, origins_file
from app.system import KnownError
from app.ui.models.library_list import COLUMNS, when
from app.ui.models.library_tab import offer
from app.ui.widgets import theme
from tests.support.library_parts import small_model
from tests.ui.models.windows import WAIT_MS, Windows, button, buttons, column, question, texts

NOTHING = "Select a model to see its details and the drafts that fit it."


@pytest.fixture
def stocked(windows: Windows) -> Windows:
    """Three models, one of another vocabulary, and a file that is none."""
    small_model(
        windows.models / "a" / "big.gguf", name="Big One", feed_forward=4096, context_length=4096, architecture="qwen3"
    )
    small_model(windows.models / "b" / "small.gguf", name="Small One")
    small_model(windows.models / "c" / "other.gguf", vocab_size=700, weights="Q8_0")
    (windows.models / "broken.gguf").write_bytes(b"not a model")
    windows.scanned()
    return windows


def path(windows: Windows, name: str) -> Path:
    return next(windows.models.rglob(f"{name}.gguf"))


def file_menu(windows: Windows) -> dict[str, object]:
    menu = windows.model_page.findChild(QMenu)
    assert isinstance(menu, QMenu)
    return {action.text(): action for action in menu.actions() if action.text() and action.isVisible()}


def choose_entry(windows: Windows, text: str) -> None:
    """An entry of the File menu that begins so."""
    next(action for name, action in file_menu(windows).items() if name.startswith(text)).trigger()  # type: ignore[attr-defined]


# ------------------------------------------------------------ the list


def test_rows(stocked: Windows) -> None:
    stocked.models_list.sortByColumn(0, Qt.SortOrder.AscendingOrder)
    assert stocked.titles() == ["big", "other", "small", "broken"]
    assert column(stocked.models_list, 1) == ["F16", "Q8_0", "F16", "–"]
    assert column(stocked.models_list, 3) == ["4,096", "512", "512", "–"]
    assert column(stocked.models_list, 4) == ["never"] * 4
    assert column(stocked.models_list, 5) == ["Runs on GPU"] * 3 + ["Can't be loaded"]
    sizes = [words.size(path(stocked, name).stat().st_size) for name in stocked.titles()]
    assert column(stocked.models_list, 2) == sizes
    summary = f"4 models, {words.size(sum(file.stat().st_size for file in stocked.models.rglob('*.gguf')))} · "
    assert any(
        text.startswith(summary) and text.endswith("free in the models folder")
        for text in texts(stocked.window.library)
    )
    for name in ("broken", "small"):
        stocked.models_list.select(str(path(stocked, name)))
        stocked.models_list.activated.emit(stocked.models_list.currentIndex())
    assert stocked.actions.done == [("open_pair", str(path(stocked, "small")))]  # what can be loaded, by a double click


def test_sorted_by_each_column_and_what_cannot_be_used_last(stocked: Windows) -> None:
    stocked.library.ask(lambda library: library.note_use([path(stocked, "other")]))
    stocked.scanned()
    stocked.choose(path(stocked, "small"))
    for place, ascending in enumerate(
        (
            ["big", "other", "small"],
            ["big", "small", "other"],
            ["other", "small", "big"],
            ["other", "small", "big"],
            ["big", "small", "other"],
        )
    ):
        stocked.models_list.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        stocked.models_list.sortByColumn(place, Qt.SortOrder.AscendingOrder)
        first = stocked.titles()
        stocked.models_list.sortByColumn(place, Qt.SortOrder.DescendingOrder)
        last = stocked.titles()
        assert first[-1] == last[-1] == "broken"
        keys = {row.cells[0]: row.sort_keys[place] for row in stocked.models_list.rows._all}
        assert [keys[name] for name in first[:-1]] == [keys[name] for name in ascending]
        assert [keys[name] for name in last[:-1]] == [keys[name] for name in reversed(ascending)]
        assert stocked.models_list.path() == str(path(stocked, "small"))  # it stays selected
    small_model(stocked.models / "z" / "another.gguf")
    stocked.scanned()
    assert stocked.models_list.path() == stocked.model_page.path() == str(path(stocked, "small"))
    assert "another" in stocked.titles()


def test_words_filter_and_the_selection_stays(stocked: Windows) -> None:
    stocked.choose(path(stocked, "small"))
    search = stocked.window.library._search
    search.setText("ONE")
    assert sorted(stocked.titles()) == ["big", "small"]
    assert stocked.models_list.path() == str(path(stocked, "small"))
    search.setText("one qwen3")
    assert stocked.titles() == ["big"]
    search.setText("nowhere")
    assert stocked.titles() == []
    assert "No models found." in texts(stocked.window.library)
    search.clear()
    assert len(stocked.titles()) == 4
    assert "No models found." not in texts(stocked.window.library)


def test_a_folder_that_is_gone_grays_and_forgets_nothing(stocked: Windows, tmp_path: Path) -> None:
    extra, away = tmp_path / "extra", tmp_path / "away"
    small_model(extra / "far.gguf")
    stocked.values.extra_folders = [str(extra)]
    stocked.scanned()
    extra.rename(away)
    stocked.scanned()
    place = stocked.titles().index("far")
    index = stocked.models_list.model().index(place, 0)
    for chosen in (theme.LIGHT, theme.DARK):
        theme.override(chosen)
        assert index.data(Qt.ItemDataRole.ForegroundRole).color() == chosen.quiet
    theme.override(None)
    assert column(stocked.models_list, 5)[place] == "Folder missing"
    assert any("1 in folders that aren't available" in text for text in texts(stocked.window.library))
    stocked.models_list.select(str(extra / "far.gguf"))
    assert "This folder isn't available right now." in texts(stocked.model_page)
    assert not button(stocked.model_page, "Open…").isEnabled()
    away.rename(extra)
    stocked.scanned()
    assert column(stocked.models_list, 5)[stocked.titles().index("far")] == "Runs on GPU"
    assert button(stocked.model_page, "Open…").isEnabled()


def test_columns_make_room_in_a_narrow_list(dressed: None, stocked: Windows) -> None:
    def shown() -> list[str]:
        return [name for place, name in enumerate(COLUMNS) if not stocked.models_list.isColumnHidden(place)]

    stocked.window.resize(1400, 600)
    stocked.scanned()
    assert shown() == list(COLUMNS)
    model = stocked.models_list.model()
    for row in range(model.rowCount()):
        for place in range(1, len(COLUMNS)):
            needed = stocked.models_list.sizeHintForIndex(model.index(row, place)).width()
            assert stocked.models_list.columnWidth(place) >= needed  # no figure is cut
    stocked.window.resize(620, 420)
    stocked.window.library.list.resize(280, 300)
    assert shown() == ["Model", "Size"]


# ------------------------------------------------------------ the page


def test_facts(stocked: Windows) -> None:
    file = path(stocked, "big")
    stocked.choose(file)
    verify = file_menu(stocked)["Verify checksum"]
    assert not verify.isEnabled()  # type: ignore[attr-defined]
    assert verify.toolTip() == "Slipstream didn't download this file, so its checksum isn't known."  # type: ignore[attr-defined]
    choose_entry(stocked, "Copy path")
    assert QGuiApplication.clipboard().text() == str(file)
    origin = Origin(
        repository="owner/Big-GGUF", commit="abcdef12" * 5, path="big.gguf", sha256="0" * 64, size=1, license="mit"
    )
    origins_file(system.data_dir()).put(file, origin)
    stocked.scanned()
    stocked.choose(file)
    shown = texts(stocked.model_page)
    for fact in ("Big One", "mit", "owner/Big-GGUF, commit abcdef12", "4,096 tokens in training", "512 tokens (SPM)"):
        assert fact in shown
    assert str(file) in shown
    assert "none (ChatML is used)" in shown
    assert "Fits" in shown
    stocked.models_list.select(str(path(stocked, "broken")))
    shown = texts(stocked.model_page)
    assert "broken.gguf is not a GGUF model file." in shown
    assert "Drafts for this model" not in shown
    assert "Fits" not in shown
    assert not button(stocked.model_page, "Open…").isEnabled()


def test_drafts_with_their_reasons(stocked: Windows) -> None:
    stocked.choose(path(stocked, "big"))
    shown = texts(stocked.model_page)
    assert any(text.startswith("Compatible: same vocabulary of 512 tokens.") for text in shown)
    reason = (
        "The vocabularies differ in size: 512 tokens in the target and 700 in the draft. "
        "At most 128 tokens of difference are allowed."
    )
    assert reason in shown
    assert "broken.gguf is not a GGUF model file." in shown
    assert buttons(stocked.model_page).count("Load together") == 1
    for name in ("Load together", "Open…"):
        button(stocked.model_page, name).click()
    big, small = str(path(stocked, "big")), str(path(stocked, "small"))
    assert stocked.actions.done == [("load_pair", big, small), ("open_pair", big)]


# ------------------------------------------------------------ files


def downloaded(windows: Windows, file: Path) -> None:
    """Make it known where a file came from."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    size = file.stat().st_size
    origin = Origin(repository="owner/x", commit="0" * 40, path=file.name, sha256=digest, size=size)
    origins_file(system.data_dir()).put(file, origin)
    windows.scanned()
    windows.choose(file)


def test_a_check_is_stopped(stocked: Windows) -> None:
    file = path(stocked, "big")
    downloaded(stocked, file)
    stopped = threading.Event()
    stocked.library._slow_lane.submit(stopped.wait)  # the check waits until the user has said stop
    choose_entry(stocked, "Verify checksum")
    button(stocked.model_page, "Stop").click()
    stopped.set()
    stocked.until(lambda: "Stopped." in texts(stocked.model_page))
    assert stocked.model_page._bar.isHidden()


def test_pieces_are_joined(windows: Windows) -> None:
    whole = small_model(windows.models / "tea.gguf")
    data = whole.read_bytes()
    whole.unlink()
    first = whole.with_name("tea.gguf.part1of2")
    first.write_bytes(data[:1000])
    whole.with_name("tea.gguf.part2of2").write_bytes(data[1000:-1])
    windows.scanned()
    windows.models_list.select(str(first))
    assert "tea.gguf is in 2 pieces. They must be joined before it can be used." in texts(windows.model_page)
    assert "Open…" not in buttons(windows.model_page)
    for ending in (b"", data[-1:]):
        with whole.with_name("tea.gguf.part2of2").open("ab") as file:
            file.write(ending)
        button(windows.model_page, "Join…").click()
        button(question(windows.window.library), "Join").click()
        if not ending:
            windows.until(lambda: any("is incomplete" in text for text in texts(windows.model_page)))
    windows.until(lambda: windows.models_list.rows.place(str(whole)) is not None)
    assert whole.read_bytes() == data and windows.titles() == ["tea"]
    windows.choose(whole)
    assert "Join…" not in buttons(windows.model_page)


def test_the_starter_model_cannot_be_deleted_but_hidden(starter_model: Path, stocked: Windows) -> None:
    title = next(entry.title for entry in stocked.library.entries() if entry.path == starter_model)
    assert title.startswith("SmolLM2-135M-Instruct") and title in stocked.titles()
    stocked.choose(starter_model)
    assert {"starter model", "apache-2.0"} <= set(texts(stocked.model_page))
    assert "Hide" in file_menu(stocked) and not any(name.startswith("Delete") for name in file_menu(stocked))
    with pytest.raises(KnownError, match="starter model"):
        stocked.library._library.delete(next(one for one in stocked.library.entries() if one.path == starter_model))
    choose_entry(stocked, "Hide")
    stocked.until(lambda: title not in stocked.titles())
    assert "The starter model is hidden now. File → Starter model brings it back." in texts(stocked.window.library)
    assert starter_model.exists() and stocked.values.starter_hidden
    stocked.choose(path(stocked, "small"))
    assert "Hide" not in file_menu(stocked)
    stocked.values.starter_hidden = False
    stocked.scanned()
    assert title in stocked.titles()


def test_delete(stocked: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, tab = path(stocked, "small"), stocked.window.library
    freed = words.size(file.stat().st_size)
    stocked.choose(file)
    assert f"Delete (frees {freed})…" in file_menu(stocked)
    monkeypatch.setattr(stocked.ctx.loader, "is_loaded", lambda path: path == str(file))
    choose_entry(stocked, "Delete")
    assert "This model is loaded. Open another model first, then delete this one." in texts(stocked.model_page)
    assert not tab.findChildren(QMessageBox)
    monkeypatch.undo()
    choose_entry(stocked, "Delete")
    box = question(tab)
    assert box.text() == f"Delete small? This frees {freed} and can't be undone."
    assert box.defaultButton() is box.button(QMessageBox.StandardButton.Cancel)
    button(box, "Cancel").click()
    stocked.until(lambda: not tab.findChildren(QMessageBox))
    assert file.exists()
    choose_entry(stocked, "Delete")
    button(question(tab), "Delete").click()
    stocked.until(lambda: "small" not in stocked.titles())
    assert not file.parent.exists()
    assert f"small was deleted. {freed} of disk space was freed." in texts(tab)
    stocked.choose(path(stocked, "big"))
    stocked.models_list.clearSelection()
    assert NOTHING in texts(tab)
    far = small_model(tmp_path / "extra" / "far.gguf")
    stocked.values.extra_folders = [str(tmp_path / "extra")]
    stocked.scanned()
    stocked.choose(far)  # nothing is deleted in other folders
    assert not [name for name in file_menu(stocked) if name.startswith("Delete")]
    assert "extra folder" in texts(stocked.model_page)


def test_when() -> None:
    now = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
    said = [when(now - days * 86_400, now) for days in (0, 1, 5, 13, 400)]
    assert said == ["today", "yesterday", "5 days ago", "13 days ago", "Oct 18, 2025"]
    assert when(0.0, now) == "never"


def test_what_came_of_a_check_is_said_of_the_model_it_was(stocked: Windows) -> None:
    """Also where another model is looked at, or checked, meanwhile."""
    big, small = path(stocked, "big"), path(stocked, "small")
    downloaded(stocked, big)
    downloaded(stocked, small)
    small.write_bytes(small.read_bytes()[:-1] + b"?")
    may_go_on = threading.Event()
    stocked.library._slow_lane.submit(may_go_on.wait)
    stocked.choose(big)
    choose_entry(stocked, "Verify checksum")
    stocked.choose(small)
    assert stocked.model_page._bar.isHidden()
    choose_entry(stocked, "Verify checksum")
    may_go_on.set()
    stocked.until(stocked.model_page._bar.isHidden)
    assert any(text.startswith("The checksum doesn't match") for text in texts(stocked.model_page))
    stocked.choose(big)
    assert any(text.startswith("✓ Complete · checksum verified") for text in texts(stocked.model_page))


def test_a_look_is_not_undone_by_a_judgement_of_what_was_there_before(stocked: Windows) -> None:
    file = path(stocked, "big")
    new = file.with_name("another.gguf")
    new.write_bytes(file.read_bytes())
    stocked.library.scan()
    stocked.library.judge_again()  # asked for before the look has ended
    with stocked.qtbot.waitSignals([stocked.library.scanned] * 2, timeout=WAIT_MS):
        pass
    assert stocked.library.entry(str(new)) is not None


def test_folders_of_other_apps_are_offered() -> None:
    assert offer([]) == ""
    found = [ModelFolder(Path("/lm"), FolderKind.LM_STUDIO), ModelFolder(Path("/ollama"), FolderKind.OLLAMA)]
    assert offer(found).startswith("Models from LM Studio and Ollama were found")
