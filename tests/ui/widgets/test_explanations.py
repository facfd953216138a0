"""Shift+F1: what tooltips say, by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.ui.widgets.controls import explain, label, scrolling, stacked
from app.ui.widgets.explanations import NOTHING, Explanation, ExplanationKeys, explained_in
from app.ui.widgets.layouts import column
from tests.ui.shell.hearing import listening

_Key = Qt.Key


class Dialog(QDialog):
    """Two fields with explanations, one without, and a figure far down that takes no focus."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.first, self.second, self.plain = QLineEdit(), QLineEdit(), QPushButton("Close")
        self.first.setAccessibleName("First")
        self.second.setAccessibleName("Second")
        heading = label("Second")
        for part, text in ((self.first, "Of the first."), (heading, "Of the second."), (self.second, "Of the second.")):
            explain(part, text)
        self.figure = label("74 tok/s")
        explain(self.figure, "Decode speed." * 30)
        space = QWidget()
        space.setFixedHeight(2000)
        self.area = scrolling(stacked(self.first, heading, self.second, space, self.figure))
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        column((self.area, 1), self.plain, on=self)
        self.resize(400, 300)


@pytest.fixture
def window(qtbot: QtBot) -> Iterator[QWidget]:
    made = QWidget()
    qtbot.addWidget(made)
    made.show()
    ExplanationKeys(made)
    yield made


@pytest.fixture
def dialog(qtbot: QtBot, window: QWidget) -> Dialog:
    made = Dialog(window)
    made.open()
    made.activateWindow()
    qtbot.waitUntil(made.isActiveWindow)
    return made


def ask(widget: QWidget) -> Explanation:
    widget.setFocus()
    QTest.keyClick(widget, _Key.Key_F1, Qt.KeyboardModifier.ShiftModifier)
    popup = QApplication.activePopupWidget()
    assert isinstance(popup, Explanation)
    return popup


def test_what_is_focused_is_explained_and_the_focus_comes_back(dialog: Dialog, monkeypatch: pytest.MonkeyPatch) -> None:
    popup = ask(dialog.second)
    assert popup.text.text() == "Of the second."
    assert popup.text.height() >= popup.text.heightForWidth(popup.text.width())
    assert popup.about is dialog.second
    QTest.keyClick(popup, _Key.Key_Escape)
    assert QApplication.activePopupWidget() is None
    assert QApplication.focusWidget() is dialog.second
    popup = ask(dialog.plain)  # without one of its own, what stands behind is explained
    assert popup.about is dialog.first or popup.about is dialog.figure
    QTest.keyClick(popup, _Key.Key_Escape)
    assert explained_in(dialog) == [dialog.first, dialog.second, dialog.figure]
    with listening(monkeypatch) as hearing:
        popup = ask(dialog.first)
        QTest.keyClick(popup, _Key.Key_Down)
        QTest.keyClick(popup, _Key.Key_Escape)
    assert hearing.said == ["First. Of the first.", "Second. Of the second."]


def test_the_arrow_keys_go_on_to_what_takes_no_focus(dialog: Dialog) -> None:
    popup = ask(dialog.first)
    assert popup.accessibleName() == "First. Of the first."
    QTest.keyClick(popup, _Key.Key_Down)
    QTest.keyClick(popup, _Key.Key_Down)
    assert popup.accessibleName() == "74 tok/s. " + "Decode speed." * 30
    assert popup.text.height() >= popup.text.heightForWidth(popup.text.width())
    assert not dialog.figure.visibleRegion().isEmpty()  # it was scrolled to
    QTest.keyClick(popup, _Key.Key_Down)
    assert popup.text.text() == "Of the first."
    QTest.keyClick(popup, _Key.Key_Up)
    assert popup.text.text() == "Decode speed." * 30
    QTest.keyClick(popup, _Key.Key_Escape)


def test_where_there_is_nothing_that_is_said(qtbot: QtBot, window: QWidget) -> None:
    dialog = QDialog(window)
    button = QPushButton("Close")
    column(button, on=dialog)
    dialog.open()
    dialog.activateWindow()
    qtbot.waitUntil(dialog.isActiveWindow)
    popup = ask(button)
    assert (popup.about, popup.text.text()) == (None, NOTHING)
    QTest.keyClick(popup, _Key.Key_Down)
    assert QApplication.activePopupWidget() is None
