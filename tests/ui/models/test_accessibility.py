"""For everybody: each control of the new windows has a name, and text from outside is never taken for markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QLabel, QMenu, QTabBar, QWidget

from app import system
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.library.folders import FolderKind, ModelFolder
from app.models.origins import Origin, origins_file
from app.ui.models.library_list import COLUMNS
from app.ui.settings.network_page import TokenDialog
from tests.support.gguf_files import make_model
from tests.support.library_parts import small_model
from tests.ui.models.windows import Windows, cell, rows, texts, tree

HOSTILE = "<b>bold<img src=x>&amp;"


@pytest.fixture
def full(dressed: None, windows: Windows, tmp_path: Path) -> Windows:
    """Something in every list, with names nobody should give."""
    target = small_model(windows.models / "target.gguf", name=HOSTILE)
    small_model(windows.models / f"{HOSTILE}.gguf", name=HOSTILE, vocab_size=700)
    small_model(windows.models / "draft.gguf", name=HOSTILE)
    origin = Origin(repository=HOSTILE, commit="0" * 40, path=HOSTILE, sha256="0" * 64, size=1, license=HOSTILE)
    origins_file(system.data_dir()).put(target, origin)
    windows.values.extra_folders = [str(tmp_path / HOSTILE)]
    windows.scanned()
    windows.choose(target)
    windows.settings.show_page("Models")
    windows.settings.models.show_found([ModelFolder(Path(f"/{HOSTILE}"), FolderKind.LM_STUDIO)])
    model = make_model(tmp_path / "x-Q4_0.gguf", width=16, heads=1, layers=1, name=HOSTILE)
    windows.server.add("owner/x", {"x-Q4_0.gguf": model}, license=HOSTILE)
    windows.search("x")
    windows.until(lambda: windows.results() == ["owner/x"])
    windows.show_repository("owner/x")
    files = (windows.server.remote_file("owner/x", "x-Q4_0.gguf"),)
    states = [ItemState.RUNNING, ItemState.PAUSED, ItemState.FAILED, ItemState.DONE]
    items = [Item(id=str(number), title=f"{number} {HOSTILE}", target=files) for number in range(len(states))]
    windows.window.downloads.show_progress(
        [
            ItemProgress(item=item, state=state, message=HOSTILE, page="https://x")
            for item, state in zip(items, states, strict=True)
        ]
    )
    windows.window.recommended.refresh()
    return windows


@pytest.fixture
def every_window(full: Windows) -> Iterator[list[QWidget]]:
    dialog = TokenDialog("https://huggingface.co")
    yield [full.window, full.settings, dialog]
    dialog.deleteLater()


def test_every_control_has_a_name_and_nothing_is_taken_for_markup(full: Windows, every_window: list[QWidget]) -> None:
    controls = [
        widget
        for window in every_window
        for widget in window.findChildren(QWidget)
        if widget.window() is window and widget.focusPolicy() & Qt.FocusPolicy.TabFocus and not is_of_qt(widget)
    ]
    assert len(controls) > 60
    assert [widget for widget in controls if not name_of(widget)] == []
    for window in (full.window.downloads, full.window.recommended, full.settings.models):
        shown = [one for one in window.findChildren(QAbstractButton) if one.isVisibleTo(window)]
        names = [one.accessibleName() or one.text() for one in shown]  # each is told apart
        assert len(names) > 3
        assert len(set(names)) == len(names)
    labels = [label for window in every_window for label in window.findChildren(QLabel)]
    assert len([label for label in labels if HOSTILE in label.text()]) > 8
    rich = [label for label in labels if label.text() and label.textFormat() is not Qt.TextFormat.PlainText]
    assert [label for label in rich if not is_of_qt(label)] == []
    tooltips = tooltips_of(full)
    assert len([text for text in tooltips if "&lt;b&gt;" in text]) > 5
    assert [text for text in tooltips if "<b>" in text or "<img" in text] == []
    assert any(HOSTILE in text for text in texts(full.page))  # what a repository calls itself
    assert [cell(row, 0) for row in rows(tree(full.page, "Files"))] == ["Q4_0"]
    for narrow in (full.window, full.settings):
        narrow.resize(narrow.minimumSize())
    full.window.show()
    for tab in (full.window.library, full.window.recommended, full.window.search, full.window.downloads):
        full.window.show_tab(tab)
        full.qtbot.waitUntil(lambda tab=tab: not cut(tab))  # type: ignore[misc]
    for page in (full.settings.models, full.settings.network):
        full.settings.show_tab(page)
        full.qtbot.waitUntil(lambda page=page: not cut(page))  # type: ignore[misc]


def is_of_qt(widget: QWidget) -> bool:
    return widget.objectName().startswith("qt_")


def name_of(widget: QWidget) -> str:
    text = widget.text() if isinstance(widget, QAbstractButton) else ""
    # A tab bar's tabs have their texts, a scroll area what is in it.
    is_part = type(widget).__name__ in ("QScrollArea", "QTabWidget") or isinstance(widget, QTabBar)
    return widget.accessibleName() or text or ("part" if is_part else "")


def tooltips_of(full: Windows) -> list[str]:
    tooltips = [widget.toolTip() for window in (full.window, full.settings) for widget in window.findChildren(QWidget)]
    model = full.models_list.model()
    for row in range(model.rowCount()):
        tooltips += [model.index(row, place).data(Qt.ItemDataRole.ToolTipRole) for place in range(len(COLUMNS))]
    for name in ("Repositories found", "Files"):
        tooltips += [row.toolTip(place) for row in rows(tree(full.window, name)) for place in range(3)]
    return tooltips + [action.toolTip() for menu in full.window.findChildren(QMenu) for action in menu.actions()]


def cut(parent: QWidget) -> list[str]:
    """Labels that have less room than their text takes, or end outside of ``parent``."""
    labels = [label for label in parent.findChildren(QLabel) if label.text() and label.isVisible()]
    return [label.text() for label in labels if has_no_room(label) or right_end(label, parent) > parent.width()]


def has_no_room(label: QLabel) -> bool:
    if label.wordWrap():
        return label.height() < label.heightForWidth(label.width())
    return label.width() < label.fontMetrics().horizontalAdvance(label.text())


def right_end(label: QLabel, parent: QWidget) -> int:
    return label.mapTo(parent, label.rect().topRight()).x()
