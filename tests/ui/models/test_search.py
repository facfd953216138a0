"""Models → Search and Recommended against a hub on loopback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PySide6.QtGui import QBrush
from PySide6.QtWidgets import QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.models.hub.catalog import CatalogPair, load_catalog
from app.models.machine_memory import MachineMemory
from app.ui.widgets import theme
from tests.support.gguf_files import make_model
from tests.support.hub_faults import Fault
from tests.support.library_parts import small_model
from tests.ui.models.windows import GB, Pages, Windows, button, buttons, cell, rows, texts, tree

TARGET, DRAFT, OTHER = "owner/Mistral-Small-24B-GGUF", "owner/Mistral-Small-DRAFT-GGUF", "b/Mistral-Small-DRAFT-B"
TARGET_FILE, LARGE_FILE = "Mistral-Small-24B-Q4_K_M.gguf", "Mistral-Small-24B-Q8_0.gguf"
SMALL = {"width": 16, "heads": 1, "layers": 1}
START = "Select a repository to see its files."


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hub")
    return {
        "target": make_model(folder / TARGET_FILE, name="Mistral Small 24B", width=256, layers=4),
        "draft": make_model(folder / "draft-Q8_0.gguf", **SMALL),  # type: ignore[arg-type]
        "other": make_model(folder / "other-Q8_0.gguf", vocab_size=900, **SMALL),  # type: ignore[arg-type]
    }


@pytest.fixture
def hub(windows: Windows, files: dict[str, Path]) -> Windows:
    """A target with a large file beside it, a draft that fits and one that does not."""
    add = windows.server.add
    add(TARGET, {TARGET_FILE: files["target"], LARGE_FILE: os.urandom(20_000_000)}, downloads=812_345, likes=42)
    add(DRAFT, {"draft-Q8_0.gguf": files["draft"]}, downloads=20)
    add(OTHER, {"other-Q8_0.gguf": files["other"]}, downloads=10)
    return windows


def find_drafts(windows: Windows) -> None:
    """Choose the target's small file and look for drafts."""
    windows.search("24B")
    windows.until(lambda: windows.results() == [TARGET])
    windows.show_repository(TARGET)
    files = tree(windows.page, "Files")
    files.setCurrentItem(rows(files)[0])
    button(windows.page, "Find a draft for this model").click()
    windows.until(lambda: any("checked" in text for text in texts(windows.page)))


def test_nothing_is_asked_before_the_user_asks(hub: Windows) -> None:
    hub.window.show_tab(hub.window.search)
    assert "Type what you're looking for. Nothing is sent before you press Search." in texts(hub.window.search)
    hub.search("  ")
    hub.hub_idle()
    assert hub.server.requests == []


def test_results_files_and_badges(hub: Windows, pages: Pages) -> None:
    hub.search("mistral small")
    hub.until(lambda: len(hub.results()) == 3)
    first = rows(tree(hub.window, "Repositories found"))[0]
    assert [cell(first, place) for place in range(4)] == [TARGET, "812 K", "42", "2026-01-02"]
    hub.machine = MachineMemory(memory_total=2 * GB, memory_free=1_010_000_000)
    hub.show_repository(TARGET)
    shown = [[cell(row, place) for place in range(3)] for row in rows(tree(hub.page, "Files"))]
    assert [(row[0], row[2]) for row in shown] == [("Q4_K_M", "Runs on CPU"), ("Q8_0", "Too large")]
    assert shown[1][1] == "20 MB"
    commit = hub.server.repositories[TARGET].commit[:8]
    assert texts(hub.page)[:2] == [TARGET, f"License: apache-2.0 · commit {commit}"]
    button(hub.page, "Open page").click()
    assert pages.opened == [f"{hub.server.endpoint}/{TARGET}"]


def test_the_order_is_the_users(hub: Windows) -> None:
    hub.search("mistral")
    hub.until(lambda: len(hub.results()) == 3)
    sort = hub.window.search._sort
    sort.setCurrentIndex(1)
    sort.activated.emit(1)
    hub.hub_idle()
    asked = [request.path for request in hub.server.requests]
    assert "sort=downloads" in asked[-1]
    assert "sort=downloads" not in asked[0]


def test_a_file_is_downloaded(hub: Windows) -> None:
    hub.search("24B")
    hub.until(lambda: hub.results() == [TARGET])
    hub.show_repository(TARGET)
    assert not button(hub.page, "Get").isEnabled()
    files = tree(hub.page, "Files")
    files.setCurrentItem(rows(files)[0])
    button(hub.page, "Get").click()
    assert hub.window.tabs.currentWidget() is hub.window.downloads
    hub.says("Complete · checksum verified")
    assert (hub.models / TARGET / TARGET_FILE).is_file()
    assert "Mistral-Small-24B Q4_K_M" in texts(hub.window.downloads)


def test_drafts_that_fit_and_that_do_not(hub: Windows) -> None:
    find_drafts(hub)
    drafts = tree(hub.page, "Drafts found")
    good, bad = rows(drafts)
    assert (cell(good, 0), cell(good, 2)) == ("draft-Q8_0.gguf", "yes")
    assert (cell(bad, 0), cell(bad, 2)) == ("other-Q8_0.gguf", "no")
    assert "2 checked, 1 fits. Their vocabularies were compared, not just their names." in texts(hub.page)
    quiet = theme.current().quiet
    assert [bad.foreground(place).color() for place in range(3)] == [quiet] * 3
    assert good.foreground(0) == QBrush()
    assert drafts.selectedItems() == [good]
    drafts.setCurrentItem(bad)
    assert (
        f"{OTHER}: The vocabularies differ in size: 512 tokens in the target and 900 in the draft"
        in texts(hub.page)[-1]
    )
    assert "Get" in buttons(hub.page)
    drafts.setCurrentItem(good)
    button(hub.page, "Get with draft (+50 KB)").click()
    hub.says("Complete · checksum verified")
    (progress,) = hub.presenter.downloads.progress()
    assert progress.item.title == "Mistral-Small-24B Q4_K_M with draft"
    assert [file.repository for file in progress.item.files] == [TARGET, DRAFT]


def test_colors_follow_the_theme(hub: Windows, dressed: None) -> None:
    find_drafts(hub)
    bad = rows(tree(hub.page, "Drafts found"))[1]
    assert bad.foreground(0).color() == theme.LIGHT.quiet
    theme.override(theme.DARK)
    assert bad.foreground(0).color() == theme.DARK.quiet


def test_drafts_for_another_file_are_not_shown(hub: Windows) -> None:
    """The search for drafts is still on when another file is chosen."""
    hub.server.faults.add(f"/api/models/{DRAFT}", Fault(stall_at=0), at="api")
    hub.search("24B")
    hub.until(lambda: hub.results() == [TARGET])
    hub.show_repository(TARGET)
    files = tree(hub.page, "Files")
    files.setCurrentItem(rows(files)[0])
    button(hub.page, "Find a draft for this model").click()
    hub.server.wait_for(lambda: any(DRAFT in request.path for request in hub.server.requests))
    files.setCurrentItem(rows(files)[1])
    hub.server.release()
    hub.hub_idle()
    assert rows(tree(hub.page, "Drafts found")) == []
    assert not [text for text in texts(hub.page) if "draft" in text.lower() or "Stopped" in text]


def test_drafts_for_a_model_of_the_library(hub: Windows, files: dict[str, Path]) -> None:
    path = hub.models / TARGET_FILE
    hub.models.mkdir()
    path.write_bytes(files["target"].read_bytes())
    hub.scanned()
    hub.choose(path)
    button(hub.model_page, "Find a draft on Hugging Face…").click()
    assert hub.window.tabs.currentWidget() is hub.window.search
    assert "Drafts for Mistral-Small-24B-Q4_K_M, which is in your library." in texts(hub.page)
    hub.until(lambda: any("checked" in text for text in texts(hub.page)))
    button(hub.page, "Get this draft (50 KB)").click()
    hub.says("Complete · checksum verified")
    assert (hub.models / DRAFT / "draft-Q8_0.gguf").is_file()


def test_nothing_found(hub: Windows) -> None:
    hub.search("no such model")
    hub.until(lambda: "No models found. Try fewer or different words." in texts(hub.window.search))


def test_offline(hub: Windows) -> None:
    hub.values.offline = True
    hub.presenter.hub.apply_settings()
    hub.search("mistral")
    hub.until(lambda: any("offline" in text.lower() for text in texts(hub.window.search)))
    hub.hub_idle()
    assert hub.server.requests == []


def test_a_repository_that_is_gone(hub: Windows) -> None:
    hub.search("24B")
    hub.until(lambda: hub.results() == [TARGET])
    del hub.server.repositories[TARGET]
    found = tree(hub.window, "Repositories found")
    found.setCurrentItem(rows(found)[0])
    hub.until(lambda: f"Looking up {TARGET}…" not in texts(hub.page))
    assert TARGET in texts(hub.page)[0]
    assert buttons(hub.page) == []


def test_an_empty_repository(hub: Windows) -> None:
    hub.server.add("owner/nothing", {"README.md": b"text"})
    hub.search("nothing")
    hub.until(lambda: hub.results() == ["owner/nothing"])
    found = tree(hub.window, "Repositories found")
    found.setCurrentItem(rows(found)[0])
    hub.until(lambda: any("It has no GGUF models." in text for text in texts(hub.page)))
    assert not button(hub.page, "Get").isEnabled()


def test_a_slow_search_does_not_overwrite_a_later_one(hub: Windows) -> None:
    hub.server.faults.add("/api/models", Fault(stall_at=0), at="api")
    hub.search("24B")
    hub.server.wait_for(lambda: len(hub.server.requests) == 1)
    hub.search("DRAFT-GGUF")
    hub.until(lambda: hub.results() == [DRAFT])
    hub.server.release()
    hub.hub_idle()
    assert hub.results() == [DRAFT]
    assert START in texts(hub.window.search)


def test_a_repository_may_be_chosen_while_a_search_is_on(hub: Windows) -> None:
    hub.search("24B")
    hub.until(lambda: hub.results() == [TARGET])
    hub.server.faults.add("/api/models", Fault(stall_at=0), at="api")
    hub.search("DRAFT-GGUF")
    hub.server.wait_for(lambda: len(hub.server.requests) == 2)
    hub.show_repository(TARGET)
    hub.server.release()
    hub.until(lambda: hub.results() == [DRAFT])
    assert "Searching…" not in texts(hub.window.search)


def test_a_slow_repository_does_not_overwrite_a_later_one(hub: Windows) -> None:
    hub.search("mistral")
    hub.until(lambda: len(hub.results()) == 3)
    hub.server.faults.add(f"/api/models/{TARGET}", Fault(stall_at=0), at="api")
    found = tree(hub.window, "Repositories found")
    found.setCurrentItem(rows(found)[0])
    hub.server.wait_for(lambda: any(f"/api/models/{TARGET}" in request.path for request in hub.server.requests))
    hub.show_repository(DRAFT)
    hub.server.release()
    hub.hub_idle()
    assert texts(hub.page)[0] == DRAFT


def test_a_gated_repository_says_so(hub: Windows) -> None:
    hub.server.add("owner/closed", {"closed-Q4_0.gguf": b"x"}, gated="manual")
    hub.search("closed")
    hub.until(lambda: hub.results() == ["owner/closed  (gated)"])
    hub.show_repository("owner/closed  (gated)")
    assert (
        "Gated: the owner decides who may download it. Ask on the model's page, then enter an access token."
        in texts(hub.page)
    )
    assert "Enter token…" in buttons(hub.page)
    assert "Enter token…" not in start_buttons(hub)


def start_buttons(windows: Windows) -> list[str]:
    windows.page.clear()
    return buttons(windows.page)


# ------------------------------------------------------------ recommended


def card(windows: Windows, title: str) -> QWidget:
    """The card of a pair."""
    tab = windows.window.recommended
    windows.until(lambda: title in texts(tab))
    heading = next(label for label in tab.findChildren(QLabel) if label.text() == title and label.isVisibleTo(tab))
    parent = heading.parentWidget()
    assert parent is not None
    return parent


def host(windows: Windows, pair: CatalogPair, folder: Path) -> None:
    """Small models in place of those of a pair."""
    for model in (pair.target, pair.draft):
        name = model.file.replace("*", "x")
        path = small_model(folder / name, seed=len(windows.server.repositories))
        windows.server.add(model.repository, {name: path})


def test_the_best_pair_for_this_machine_comes_first(windows: Windows) -> None:
    windows.presenter.show_recommended()
    best = load_catalog().propose(windows.machine)
    assert best is not None
    shown = texts(windows.window.recommended)
    assert shown[0] == "Some GPU, 7.6 GB of 8.6 GB free · memory: 11 GB of 16 GB free"
    assert "Best for this computer" in shown
    assert shown.count(best.title) == 1
    primary = [one for one in card(windows, best.title).findChildren(QPushButton) if one.property("role") == "primary"]
    assert len(primary) == 1
    assert all(pair.title in shown for pair in load_catalog().pairs)
    windows.machine = MachineMemory(memory_total=GB, memory_free=GB // 2)
    windows.presenter.show_recommended()
    alone = "None of the recommended pairs fits in this computer's memory. The Slipstream Guide works everywhere."
    windows.until(lambda: alone in texts(windows.window.recommended))
    assert windows.server.requests == []


def test_a_pair_is_got_as_one_item_and_then_in_the_library(windows: Windows, tmp_path: Path) -> None:
    pair = load_catalog().propose(windows.machine)
    assert pair is not None
    host(windows, pair, tmp_path / "hub")
    windows.server.faults.add(pair.target.file, Fault(stall_at=1000))
    windows.presenter.show_recommended()
    get = next(text for text in buttons(card(windows, pair.title)) if text.startswith("Get with draft ("))
    button(card(windows, pair.title), get).click()
    assert f"Looking up the files of {pair.title}…" in texts(windows.window.recommended)
    windows.until(lambda: windows.window.tabs.currentWidget() is windows.window.downloads)
    assert [progress.item.title for progress in windows.presenter.downloads.progress()] == [pair.title]
    windows.presenter.show_recommended()
    state = button(card(windows, pair.title), "In Downloads")
    assert not state.isEnabled()
    windows.server.release()
    windows.until(lambda: windows.presenter._state_of_pair(pair) == "In your library")
    windows.presenter.show_recommended()
    assert not button(card(windows, pair.title), "In your library").isEnabled()


def test_a_pair_that_is_not_there_any_more(windows: Windows, qtbot: QtBot) -> None:
    pair = load_catalog().propose(windows.machine)
    assert pair is not None
    windows.presenter.get_pair(pair)
    status = windows.window.recommended._status
    qtbot.waitUntil(lambda: pair.target.repository in status.text())
    assert status.property("role") == "bad"


def test_other_files_of_a_pair(windows: Windows, tmp_path: Path) -> None:
    pair = load_catalog().propose(windows.machine)
    assert pair is not None
    host(windows, pair, tmp_path / "hub")
    windows.presenter.show_recommended()
    button(card(windows, pair.title), "Other files…").click()
    assert windows.window.tabs.currentWidget() is windows.window.search
    windows.until(lambda: bool(rows(tree(windows.page, "Files"))))
    assert texts(windows.page)[0] == pair.target.repository
