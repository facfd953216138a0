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
def test_the_style_sheet_is_understood_and_obeyed(chosen: Theme, qtbot: QtBot, qapp: QApplication) -> None:
    assert "$" not in stylesheet.build(chosen)
    theme.override(chosen)
    stylesheet.apply(qapp)  # Qt warns about a sheet it cannot parse, and a warning fails the test
    button, label, line, text = QPushButton("press"), QLabel("text"), QLineEdit(), QPlainTextEdit()
    theme.set_role(button, "primary")
    for field in (line, text):
        field.setPlaceholderText("Search")
    for widget in (button, label, line, text):
        qtbot.addWidget(widget)
        widget.show()
    assert button.grab().toImage().pixelColor(8, button.height() // 2) == chosen.accent
    theme.set_role(label, "bad")
    assert label.palette().color(QPalette.ColorRole.WindowText) == chosen.bad
    for field in (line, text):
        assert field.palette().color(QPalette.ColorRole.PlaceholderText) == chosen.quiet
    # What a field proposes has a ground of its own. Lists in windows stand on the ground of these.
    completer = QCompleter(["draft", "target"], line)
    line.setCompleter(completer)
    completer.complete()
    popup = completer.popup()
    assert popup is not None
    image = QImage(popup.size(), QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    popup.render(image, renderFlags=QWidget.RenderFlag.DrawChildren)
    assert image.pixelColor(popup.width() - 4, popup.height() // 2) == chosen.surface
    popup.hide()
