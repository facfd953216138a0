"""What the tests of the Markdown view share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme


@pytest.fixture
def view(qtbot: QtBot) -> Iterator[MarkdownView]:
    """An empty view that is shown, in the light theme."""
    theme.override(theme.LIGHT)
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(720, 600)
    result = MarkdownView(parent=host)
    result.set_widths(500, 700)
    host.show()
    yield result
    theme.override(None)
