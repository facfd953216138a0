"""Asking where to save."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.ui.widgets.questions import ask_where_to_save


@pytest.fixture
def parent(qtbot: QtBot) -> QWidget:
    widget = QWidget()
    qtbot.addWidget(widget)
    return widget


def asked(parent: QWidget, folder: Path, typed: str, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    chosen = str(folder / typed) if typed else ""
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (chosen, ""))
    saved: list[Path] = []
    ask_where_to_save(parent, "Export chat", folder / "chat.md", "Markdown", saved.append)
    return saved


def boxes(parent: QWidget) -> list[QMessageBox]:
    return [box for box in parent.findChildren(QMessageBox) if box.isVisible()]


@pytest.mark.parametrize(("typed", "saved"), [("new", ["new.md"]), ("there.md", ["there.md"]), ("", [])])
def test_what_the_dialog_has_asked_about_is_not_asked_again(
    parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, saved: list[str]
) -> None:
    (tmp_path / "there.md").touch()
    assert [path.name for path in asked(parent, tmp_path, typed, monkeypatch)] == saved
    assert not boxes(parent)


@pytest.mark.parametrize("pressed", ["Replace", "Cancel"])
def test_a_file_that_gets_in_the_way_by_the_suffix_is_asked_about(
    parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pressed: str
) -> None:
    (tmp_path / "there.md").touch()
    saved = asked(parent, tmp_path, "there", monkeypatch)
    assert not saved
    (box,) = boxes(parent)
    assert box.text() == "there.md already exists. Replace it?"
    assert box.defaultButton().text().endswith("Cancel")
    next(button for button in box.buttons() if button.text().endswith(pressed)).click()
    assert saved == ([tmp_path / "there.md"] if pressed == "Replace" else [])
