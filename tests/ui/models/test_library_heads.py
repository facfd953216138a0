"""MTP heads in Models → Library: inside a model, beside it, and those that can't be used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app.models import heads as model_heads
from app.ui.widgets import theme
from tests.support.mtp_models import make_head_file, make_table_model
from tests.ui.models.windows import Windows, button, buttons, column, texts

SMALL = "Models with fewer than 3 billion parameters usually answer faster without it."
INSIDE = "MTP head inside. Measured here: "


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    make_table_model(folder / "inside.gguf", "glm4moe")
    make_table_model(folder / "without.gguf", "qwen35", without=("blk.2.",))
    make_head_file(folder / "mtp-without.gguf", "qwen35")
    make_head_file(folder / "mtp-inside.gguf", "glm4moe")
    make_table_model(
        folder / "images.gguf",
        "glm4moe",
        edit=lambda writer: writer.add_array("glm4moe.rope.dimension_sections", [8, 12, 12, 0]),
    )
    return folder


@pytest.fixture
def stocked(windows: Windows, files: Path) -> Windows:
    shutil.copytree(files, windows.models)
    windows.scanned()
    return windows


def fact(windows: Windows, name: str) -> str:
    """What the page says of the model that is chosen."""
    named = (label.accessibleName() for label in windows.model_page.findChildren(QLabel))
    return next((text.removeprefix(f"{name}: ") for text in named if text.startswith(f"{name}: ")), "")


def choose(windows: Windows, name: str) -> None:
    windows.choose(windows.models / f"{name}.gguf")


def test_a_head_by_itself_is_listed_last_and_cannot_be_opened(stocked: Windows) -> None:
    stocked.models_list.sortByColumn(0, Qt.SortOrder.AscendingOrder)
    assert stocked.titles() == ["images", "inside", "without", "mtp-inside", "mtp-without"]
    assert column(stocked.models_list, 5)[3:] == ["MTP head"] * 2
    index = stocked.models_list.model().index(3, 5)
    assert index.data(Qt.ItemDataRole.ForegroundRole).color() == theme.current().quiet
    tip = "This file has only the head of a model. It drafts for that model, and can&#x27;t be chatted with."
    assert tip in index.data(Qt.ItemDataRole.ToolTipRole)
    choose(stocked, "mtp-without")
    assert fact(stocked, "MTP head") == "only this, without the model it belongs to"
    assert not button(stocked.model_page, "Open…").isEnabled()
    assert stocked.model_page._problem.property("role") == "quiet"  # nothing is wrong with it
    assert "Drafts for this model" not in texts(stocked.model_page)
    assert stocked.model_page._delete.isVisible()


def test_a_head_inside_says_whether_it_is_used(stocked: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(stocked, "inside")
    assert fact(stocked, "MTP head") == f"inside the file, off unless you turn it on. {SMALL}"
    choose(stocked, "images")
    assert fact(stocked, "MTP head") == (
        "The MTP head in images.gguf isn't used, because llama.cpp can't compute heads of models for images."
    )
    choose(stocked, "without")
    assert fact(stocked, "MTP head") == ""
    monkeypatch.setattr(model_heads, "_LEAST_PARAMETERS", 0)
    choose(stocked, "inside")
    assert fact(stocked, "MTP head") == "inside the file; drafts without a second model"


def test_a_head_beside_a_model_is_loaded_with_it(stocked: Windows) -> None:
    choose(stocked, "without")
    stocked.until(lambda: "Load together" in buttons(stocked.model_page))
    shown = texts(stocked.model_page)
    assert len([text for text in shown if text.startswith("MTP head in a separate file · mtp-without · F32 · ")]) == 1
    assert "Compatible: the MTP head in this file belongs to the target." in shown
    assert not any("mtp-inside" in text for text in shown)  # that of another model isn't listed
    button(stocked.model_page, "Load together").click()
    files = [str(stocked.models / f"{name}.gguf") for name in ("without", "mtp-without")]
    assert stocked.actions.done == [("load_pair", *files)]
