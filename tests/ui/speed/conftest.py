"""The panel, shown."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.ui.speed.panel import SpeedPanel


@pytest.fixture
def panel(qtbot: QtBot) -> SpeedPanel:
    made = SpeedPanel()
    qtbot.addWidget(made)
    made.resize(280, 720)
    made.show()
    return made
