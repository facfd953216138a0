"""The panel, shown and dressed as in the application."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui import theme
from app.ui.speed.panel import SpeedPanel


@pytest.fixture
def panel(qtbot: QtBot, qapp: QApplication) -> Iterator[SpeedPanel]:
    theme.override(theme.LIGHT)
    theme.apply(qapp)
    made = SpeedPanel()
    qtbot.addWidget(made)
    made.resize(280, 720)
    made.show()
    yield made
    theme.override(None)
    qapp.setStyleSheet("")
