"""What PySide does wrong, and what the app does about it."""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QPushButton, QTextBrowser, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import delete, isValid

import app
from app.ui.widgets.focus import next_in_focus_order


def test_void_calls_do_not_use_up_none() -> None:
    """PySide6 6.12.0 drops a reference to None with each of them, which kills a process on Python 3.11."""
    thing = QObject()
    before = sys.getrefcount(None)
    for _ in range(2000):
        thing.setObjectName("x")
    assert sys.getrefcount(None) > before - 1000


def test_what_follows_a_destroyed_widget_in_the_focus_order_lives_on(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    button, view = QPushButton(window), QTextBrowser(window)
    document = view.document()
    assert next_in_focus_order(button) is view
    delete(button)
    assert isValid(view) and isValid(document) and view.document() is document


def test_nothing_else_asks_for_the_focus_order() -> None:
    files = [file for file in Path(app.__path__[0]).rglob("*.py") if "InFocusChain" in file.read_text("utf-8")]
    assert [file.name for file in files] == ["focus.py"]
