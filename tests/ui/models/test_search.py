"""Models → Search and Recommended against a hub on loopback."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from PySide6.QtGui import QBrush
from PySide6.QtWidgets import QCheckBox, QLabel, QPushButton, QWidget

from app import words
from app.models import heads as model_heads
from app.models.hub.catalog import Offer, Sidecar, load_catalog
from app.models.machine_memory import MachineMemory
from app.settings import Pair
from app.ui.widgets import theme
from tests.support.gemma4_models import make_assistant
from tests.support.gguf_files import make_model
from tests.support.hub_faults import Fault
from tests.support.hub_models import write_hub_models
from tests.support.library_parts import small_model
from tests.support.vision_models import Encoder, make_projector, make_seeing_model
from tests.ui.models.windows import GB, GPU, Pages, Windows, button, buttons, cell, rows, texts, tree

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


def test_results_files_and_badges(hub: Windows, pages: Pages) -> None:
    assert "Type what you're looking for. Nothing is sent before you press Search." in texts(hub.window.search)
    hub.search("  ")
    hub.hub_idle()
    assert hub.server.requests == []
    hub.search("mistral small")
    hub.until(lambda: len(hub.results()) == 3)
    assert "sort=downloads" not in hub.server.requests[-1].path
    first = rows(tree(hub.window, "Repositories found"))[0]
    assert [cell(first, place) for place in range(4)] == [TARGET, "812K", "42", "2026-01-02"]
    hub.machine = MachineMemory(memory_total=2 * GB, memory_free=1_010_000_000)
    hub.show_repository(TARGET)
    shown = [[cell(row, place) for place in range(3)] for row in rows(tree(hub.page, "Files"))]
    assert [(row[0], row[2]) for row in shown] == [("Q4_K_M", "Runs on CPU"), ("Q8_0", "Too large")]
    assert shown[1][1] == "20 MB"
    commit = hub.server.repositories[TARGET].commit[:8]
    assert texts(hub.page)[:2] == [TARGET, f"License: apache-2.0 · commit {commit}"]
    assert not button(hub.page, "Get").isEnabled()  # before a file is chosen
    button(hub.page, "Open page").click()
    assert pages.opened == [f"{hub.server.endpoint}/{TARGET}"]
    sort = hub.window.search._sort
    sort.setCurrentIndex(1)
    sort.activated.emit(1)
    hub.hub_idle()
    assert "sort=downloads" in hub.server.requests[-1].path
    hub.search("DRAFT")
    hub.until(lambda: DRAFT in hub.results() and TARGET not in hub.results())
    hub.show_repository(DRAFT)
    hub.until(button(hub.page, "Get").isEnabled)  # a file alone needs no choice


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
    (progress,) = hub.window.downloads.progress()
    assert progress.item.title == "Mistral-Small-24B Q4_K_M with draft"
    assert [file.repository for file in progress.item.files] == [TARGET, DRAFT]


def test_drafts_for_a_model_of_the_library(hub: Windows, files: dict[str, Path]) -> None:
    path = hub.models / TARGET_FILE
    hub.models.mkdir()
    path.write_bytes(files["target"].read_bytes())
    hub.scanned()
    hub.choose(path)
    button(hub.model_page, "Find a draft on Hugging Face…").click()
    assert hub.window.tabs.currentWidget() is hub.window.search
    assert "Drafts for Mistral-Small-24B, which is in your library." in texts(hub.page)
    hub.until(lambda: any("checked" in text for text in texts(hub.page)))
    button(hub.page, "Get this draft (50 KB)").click()
    hub.says("Complete · checksum verified")
    assert (hub.models / DRAFT / "draft-Q8_0.gguf").is_file()


def test_nothing_found(hub: Windows) -> None:
    hub.window.show()
    hub.window.show_tab(hub.window.search)
    hub.qtbot.waitExposed(hub.window)
    start = next(label for label in hub.page.findChildren(QLabel) if label.text() == START)
    hub.until(lambda: 0 < start.y() < hub.page.height() // 4)  # without a list the page is filled from the top
    hub.search("no such model")
    hub.until(lambda: "No models found. Try fewer or different words." in texts(hub.window.search))
    hub.server.add("owner/nothing", {"README.md": b"text"})
    hub.search("nothing")
    hub.until(lambda: hub.results() == ["owner/nothing"])
    found = tree(hub.window, "Repositories found")
    found.setCurrentItem(rows(found)[0])
    hub.until(lambda: any("has no GGUF models to download." in text for text in texts(hub.page)))
    hub.server.add("owner/blocks", {"Qwen3-8B-DFlash-Q8_0.gguf": b"1", "dspark-qwen3.gguf": b"2"})
    hub.page.look_up("owner/blocks")
    only = "owner/blocks has only DFlash and DSpark drafters, which this version of Slipstream can't use."
    hub.until(lambda: any(only in text for text in texts(hub.page)))
    hub.server.add("owner/cut", {"m.gguf.part1of2": b"1", "m.gguf.part2of2": b"2"})
    hub.page.look_up("owner/cut")
    hub.until(lambda: any("Some models are in pieces" in text for text in texts(hub.page)))
    assert not button(hub.page, "Get").isEnabled()
    hub.search("24B")
    hub.until(lambda: hub.results() == [TARGET])
    del hub.server.repositories[TARGET]
    found.setCurrentItem(rows(found)[0])
    hub.until(lambda: f"Looking up {TARGET}…" not in texts(hub.page))
    assert TARGET in texts(hub.page)[0]
    assert buttons(hub.page) == []


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


# ------------------------------------------------------------ recommended


def card(windows: Windows, title: str) -> QWidget:
    """The card of a pair."""
    tab = windows.window.recommended
    windows.until(lambda: title in texts(tab))
    heading = next(label for label in tab.findChildren(QLabel) if label.text() == title and label.isVisibleTo(tab))
    parent = heading.parentWidget()
    assert parent is not None
    return parent


def host(windows: Windows, offer: Offer, folder: Path) -> None:
    """A small model in place of a recommended one, with its head."""
    files = {offer.file.file: small_model(folder / offer.file.file)}
    if isinstance(offer.accelerator, Sidecar):
        files[offer.accelerator.file] = make_assistant(folder / offer.accelerator.file)
    windows.server.add(offer.file.repository, dict(files))


def proposed(windows: Windows) -> Offer:
    offer = load_catalog().propose(windows.machine)
    assert offer is not None
    return offer


@pytest.fixture
def with_sidecar(windows: Windows) -> Windows:
    """A machine for which a model with a head beside it is best."""
    gpu = msgspec.structs.replace(GPU, total_bytes=12 * 2**30, free_bytes=12 * GB)
    windows.machine = MachineMemory(memory_total=32 * GB, memory_free=20 * GB, devices=[gpu])
    return windows


def test_the_best_model_for_this_machine_comes_first(windows: Windows) -> None:
    windows.window.show_recommended()
    best = proposed(windows).model
    shown = texts(windows.window.recommended)
    assert shown[0] == "Some GPU, 7.6 GB of 8.6 GB free · memory: 11 GB of 16 GB free"
    assert "Best for this computer" in shown
    assert shown.count(best.title) == 1
    primary = [one for one in card(windows, best.title).findChildren(QPushButton) if one.property("role") == "primary"]
    assert len(primary) == 1
    assert all(model.title in shown for model in load_catalog().models)
    windows.machine = MachineMemory(memory_total=GB, memory_free=GB // 2)
    windows.window.show_recommended()
    alone = "None of the recommended models fits in this computer's memory. The Slipstream Guide works everywhere."
    windows.until(lambda: alone in texts(windows.window.recommended))
    assert windows.server.requests == []


def test_a_card_says_what_accelerates_a_model(with_sidecar: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = with_sidecar
    windows.window.show_recommended()
    shown = texts(card(windows, "Gemma 4 12B"))
    assert "Its MTP head drafts: a file of 254 MB that comes with it." in shown
    assert "Get (7 GB)" in buttons(card(windows, "Gemma 4 12B"))
    assert any("RTX 4070 Super, 12 GB: 60 to 120 tok/s with its head (bittide" in text for text in shown)
    assert any(text.startswith("Needs about 8.3 GB with 16,384 tokens of context") for text in shown)
    assert "Its MTP head drafts: it is inside the file." in texts(card(windows, "Qwen3.5 9B"))
    assert "Qwen3 0.6B drafts for it: a model of 639 MB that comes with it." in texts(card(windows, "Qwen3 8B"))
    ngrams = "Text that comes up again is drafted from the chat itself (n-grams)."
    assert ngrams in texts(card(windows, "gpt-oss 20B"))
    assert any("LFM Open License" in text for text in texts(card(windows, "LFM2.5 8B-A1B")))
    monkeypatch.setattr(model_heads, "ASSISTANTS", {})
    windows.window.show_recommended()
    shown = texts(card(windows, "Gemma 4 12B"))
    assert f"Answers without its MTP head in this version. {ngrams}" in shown


def test_a_model_and_its_head_are_one_item_and_then_in_the_library(with_sidecar: Windows, tmp_path: Path) -> None:
    windows = with_sidecar
    offer = proposed(windows)
    title = offer.model.title
    assert isinstance(offer.accelerator, Sidecar)
    host(windows, offer, tmp_path / "hub")
    windows.server.faults.add(offer.file.file, Fault(stall_at=1000))
    windows.window.show_recommended()
    get = next(text for text in buttons(card(windows, title)) if text.startswith("Get ("))
    button(card(windows, title), get).click()
    assert f"Looking up the files of {title}…" in texts(windows.window.recommended)
    windows.until(lambda: windows.window.tabs.currentWidget() is windows.window.downloads)
    (progress,) = windows.window.downloads.progress()
    assert progress.item.title == f"{title} {offer.file.quantization} with MTP head"
    windows.window.show_recommended()
    state = button(card(windows, title), "In Downloads")
    assert not state.isEnabled()
    windows.server.release()
    windows.until(lambda: windows.window.recommended.whereabouts(offer) == "library")
    windows.window.show_recommended()
    assert not button(card(windows, title), "In your library").isEnabled()
    assert (windows.models / offer.file.repository / offer.accelerator.file).is_file()


def test_a_head_that_is_missing_in_the_library_is_offered(with_sidecar: Windows, tmp_path: Path) -> None:
    windows = with_sidecar
    offer = proposed(windows)
    title, head = offer.model.title, offer.accelerator
    assert isinstance(head, Sidecar)
    host(windows, offer, tmp_path / "hub")
    windows.window.get_offer(offer)
    windows.until(lambda: windows.window.recommended.whereabouts(offer) == "library")
    file = windows.models / offer.file.repository / head.file
    windows.says("Complete · checksum verified")
    file.unlink()
    windows.scanned()
    windows.window.show_recommended()
    missing = "The model is in your library, but its MTP head, which drafts for it, isn't."
    assert missing in texts(card(windows, title))
    button(card(windows, title), f"Get its MTP head ({words.size(head.size)})").click()
    windows.until(lambda: windows.window.recommended.whereabouts(offer) == "library")
    assert file.is_file()
    assert len(windows.server.bodies(offer.file.file)) == 1  # the model isn't downloaded again
    windows.window.show_recommended()
    assert missing not in texts(card(windows, title))


# ------------------------------------------------------------ MTP heads


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_hub_models(tmp_path_factory.mktemp("heads"))


def choose_first(windows: Windows, files: dict[str, Path]) -> None:
    """Show a repository with these files, choose its smallest model and wait for its header."""
    windows.server.add("owner/m-GGUF", dict(files))
    windows.page.look_up("owner/m-GGUF")
    windows.window.show_tab(windows.window.search)
    windows.until(lambda: bool(rows(tree(windows.page, "Files"))))
    tree(windows.page, "Files").setCurrentItem(rows(tree(windows.page, "Files"))[0])
    windows.hub_idle()


def test_a_head_inside_is_said_and_one_that_cannot_be_used(
    windows: Windows, heads: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_first(windows, {"m-Q4_0.gguf": heads["inside"]})
    assert "MTP head inside. It drafts, without a second model." in texts(windows.page)
    assert "Get" in buttons(windows.page)
    monkeypatch.setattr(model_heads, "ARCHITECTURES", ())
    choose_first(windows, {"m-Q4_0.gguf": heads["inside"]})
    assert "MTP head inside. This version can't use it yet." in texts(windows.page)
    choose_first(windows, {"m-Q4_0.gguf": heads["plain"], "mtp-m.gguf": heads["head"]})
    assert any("which this version can't use yet" in text for text in texts(windows.page))
    button(windows.page, "Get").click()
    (progress,) = windows.window.downloads.progress()
    assert progress.item.head == ()
    windows.says("Complete · checksum verified")


def test_a_head_beside_a_model_is_offered_with_it(windows: Windows, heads: dict[str, Path]) -> None:
    choose_first(windows, {"m-Q4_0.gguf": heads["plain"], "MTP/mtp-m.gguf": heads["head"]})
    box = windows.page.findChild(QCheckBox)
    assert box is not None
    size = words.size(heads["head"].stat().st_size)
    assert box.text() == f"With its MTP head, {size}" and box.isVisibleTo(windows.page) and box.isChecked()
    assert [cell(row, 0) for row in rows(tree(windows.page, "Files"))] == ["Q4_0"]
    box.click()
    assert "Get" in buttons(windows.page)
    box.click()
    button(windows.page, f"Get with MTP head (+{size})").click()
    windows.says("Complete · checksum verified")
    assert "m Q4_0 with MTP head" in texts(windows.window.downloads)
    assert (windows.models / "owner/m-GGUF/mtp-m.gguf").is_file()
    pair = windows.window.downloads.pair_of(windows.window.downloads.progress()[0].item)
    assert pair == Pair(*(str(windows.models / "owner/m-GGUF" / name) for name in ("m-Q4_0.gguf", "mtp-m.gguf")))


def test_nothing_is_downloaded_before_it_is_known_whether_there_is_a_head(
    windows: Windows, heads: dict[str, Path]
) -> None:
    windows.server.add("owner/m-GGUF", {"m-Q4_0.gguf": heads["plain"], "mtp-m.gguf": heads["head"]})
    windows.page.look_up("owner/m-GGUF")
    windows.until(lambda: bool(rows(tree(windows.page, "Files"))))
    windows.server.faults.add("mtp-m.gguf", Fault(status=404), at="resolve")
    tree(windows.page, "Files").setCurrentItem(rows(tree(windows.page, "Files"))[0])
    assert "Looking for what belongs to it…" in texts(windows.page)
    assert not button(windows.page, "Get").isEnabled()
    windows.hub_idle()
    windows.until(button(windows.page, "Get").isEnabled)
    assert "Looking for what belongs to it…" not in texts(windows.page)


def test_a_head_alone_is_nothing_to_chat_with(windows: Windows, heads: dict[str, Path]) -> None:
    choose_first(windows, {"m-Q4_0.gguf": heads["assistant"]})
    assert any("nothing to chat with" in text for text in texts(windows.page))
    assert cell(rows(tree(windows.page, "Files"))[0], 2) == "MTP head only"
    assert "Find a draft for this model" not in buttons(windows.page)


def test_a_repository_of_heads_offers_them_for_the_models_they_belong_to(
    windows: Windows, heads: dict[str, Path]
) -> None:
    choose_first(windows, {"Q-27B-EAGLE3-Q8_0.gguf": heads["eagle3"]})
    assert any("It has only heads, without the models they belong to." in text for text in texts(windows.page))
    assert cell(rows(tree(windows.page, "Files"))[0], 2) == "EAGLE-3 head only"
    assert any("It drafts for the model it belongs to." in text for text in texts(windows.page))
    button(windows.page, "Get").click()
    windows.says("Complete · checksum verified")
    assert (windows.models / "owner/m-GGUF/Q-27B-EAGLE3-Q8_0.gguf").is_file()


def test_an_eagle3_head_beside_a_model_is_offered_with_it(windows: Windows, heads: dict[str, Path]) -> None:
    choose_first(windows, {"m-Q4_0.gguf": heads["llama"], "eagle3-m.gguf": heads["eagle3"]})
    size = words.size(heads["eagle3"].stat().st_size)
    boxes = windows.page.findChildren(QCheckBox)
    assert f"With its EAGLE-3 head, {size}" in [box.text() for box in boxes if box.isVisibleTo(windows.page)]
    button(windows.page, f"Get with EAGLE-3 head (+{size})").click()
    windows.says("Complete · checksum verified")
    assert "m Q4_0 with EAGLE-3 head" in texts(windows.window.downloads)
    pair = windows.window.downloads.pair_of(windows.window.downloads.progress()[0].item)
    folder = windows.models / "owner/m-GGUF"
    assert pair == Pair(str(folder / "m-Q4_0.gguf"), str(folder / "eagle3-m.gguf"))


# ------------------------------------------------------------ projectors


def test_a_projector_beside_a_model_is_offered_with_it(windows: Windows, tmp_path: Path) -> None:
    own, other = (
        make_projector(tmp_path / f"{width}.gguf", "llava", target_width=width, encoder=Encoder(size=size))
        for width, size in ((64, 48), (128, 64))
    )
    model = make_seeing_model(tmp_path / "m.gguf", "llava")
    choose_first(windows, {"m-Q4_0.gguf": model, "mmproj-F16.gguf": other, "mmproj-BF16.gguf": own})
    box = next(box for box in windows.page.findChildren(QCheckBox) if box.isVisibleTo(windows.page))
    assert box.text() == f"With images: its projector, {words.size(own.stat().st_size)}" and box.isChecked()
    button(windows.page, "Get").click()
    windows.says("Complete · checksum verified")
    folder = windows.models / "owner/m-GGUF"
    assert sorted(path.name for path in folder.iterdir()) == ["m-Q4_0.gguf", "mmproj-BF16.gguf"]
    pair = windows.window.downloads.pair_of(windows.window.downloads.progress()[0].item)
    assert pair == Pair(str(folder / "m-Q4_0.gguf"), None)
