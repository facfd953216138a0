"""The style sheet: Qt understands it, and widgets look as it says."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPalette
from PySide6.QtWidgets import QApplication, QCompleter, QLabel, QLineEdit, QPlainTextEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.ui.widgets import stylesheet, theme
from app.ui.widgets.theme import DARK, LIGHT, Theme

THEMES = pytest.mark.parametrize("chosen", [LIGHT, DARK], ids=["light", "dark"])

pytestmark = pytest.mark.usefixtures("no_style_later")


@THEMES
def test_style_sheet_names_no_placeholder_and_is_understood(chosen: Theme, qtbot: QtBot, qapp: QApplication) -> None:
    sheet = stylesheet.build(chosen)
    assert "$" not in sheet
    theme.override(chosen)
    stylesheet.apply(qapp)  # Qt warns about a sheet it cannot parse, and a warning fails the test
    window = QWidget()
    qtbot.addWidget(window)
    button = QPushButton("press", window)
    theme.set_role(button, "primary")
    window.show()
    assert button.grab().toImage().pixelColor(8, button.height() // 2) == chosen.accent


def test_role_changes_color_of_a_shown_label(qtbot: QtBot, qapp: QApplication) -> None:
    theme.override(LIGHT)
    stylesheet.apply(qapp)
    label = QLabel("text")
    qtbot.addWidget(label)
    label.show()
    theme.set_role(label, "bad")
    assert label.palette().color(QPalette.ColorRole.WindowText) == LIGHT.bad


@THEMES
@pytest.mark.parametrize("kind", [QLineEdit, QPlainTextEdit])
def test_what_stands_in_an_empty_field_can_be_read(
    qtbot: QtBot, qapp: QApplication, chosen: Theme, kind: type[QLineEdit | QPlainTextEdit]
) -> None:
    theme.override(chosen)
    stylesheet.apply(qapp)
    field = kind()
    qtbot.addWidget(field)
    field.setPlaceholderText("Search")
    field.show()
    assert field.palette().color(QPalette.ColorRole.PlaceholderText) == chosen.quiet


@THEMES
def test_a_list_that_is_a_window_has_a_ground(qtbot: QtBot, qapp: QApplication, chosen: Theme) -> None:
    """What a field proposes. Lists in windows stand on the ground of these."""
    theme.override(chosen)
    stylesheet.apply(qapp)
    field = QLineEdit()
    qtbot.addWidget(field)
    completer = QCompleter(["draft", "target"], field)
    field.setCompleter(completer)
    field.show()
    completer.complete()
    popup = completer.popup()
    assert popup is not None
    image = QImage(popup.size(), QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    popup.render(image, renderFlags=QWidget.RenderFlag.DrawChildren)
    assert image.pixelColor(popup.width() - 4, popup.height() // 2) == chosen.surface
    popup.hide()
