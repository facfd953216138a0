"""What the tests of chats share."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.ui.chat.transcript import Transcript
from tests.ui.recorded_actions import Recorded


@pytest.fixture
def transcript(qtbot: QtBot, dressed: None) -> Transcript:
    """One that is shown, and still empty."""
    result = Transcript(Recorded())
    qtbot.addWidget(result)
    result.resize(800, 600)
    result.show()
    return result
