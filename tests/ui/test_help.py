"""The About and Keyboard shortcuts dialogs."""

from __future__ import annotations

import platform

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QMenuBar, QPushButton
from pytestqt.qtbot import QtBot

from app import __version__
from app.ui.help import AboutDialog, ShortcutsDialog
from app.ui.menus import Menus


def test_about_names_every_version_and_copies_them(qtbot: QtBot) -> None:
    dialog = AboutDialog("llama.cpp (llama-cpp-python 0.3.36)", ["NVIDIA <b>H200</b>"])
    qtbot.addWidget(dialog)
    dialog.show()
    texts = [label.text() for label in dialog.findChildren(QLabel)]
    assert {__version__, "llama.cpp (llama-cpp-python 0.3.36)", platform.python_version()} <= set(texts)
    assert "NVIDIA <b>H200</b>" in texts
    assert all(label.textFormat() is Qt.TextFormat.PlainText for label in dialog.findChildren(QLabel))
    focused = dialog.focusWidget()
    assert isinstance(focused, QPushButton)
    assert focused.text() == "Close"
    copy = next(button for button in dialog.findChildren(QPushButton) if button.text() == "Copy versions")
    QTest.mouseClick(copy, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == dialog.versions()
    assert f"Slipstream: {__version__}\nEngine: llama.cpp" in dialog.versions()


def test_about_without_an_engine(qtbot: QtBot) -> None:
    dialog = AboutDialog("")
    qtbot.addWidget(dialog)
    assert "Engine: not running" in dialog.versions()


def test_shortcuts_lists_what_the_menus_have(qtbot: QtBot) -> None:
    bar = QMenuBar()
    qtbot.addWidget(bar)
    shortcuts = Menus(bar).shortcuts()
    dialog = ShortcutsDialog(shortcuts)
    qtbot.addWidget(dialog)
    dialog.show()
    texts = [label.text() for label in dialog.findChildren(QLabel)]
    for name, keys in [*shortcuts, ("Send the message", "Enter"), ("New line in the message", "Shift+Enter")]:
        assert texts[texts.index(name) + 1] == keys or keys in texts
    with qtbot.waitSignal(dialog.rejected):
        QTest.keyClick(dialog, Qt.Key.Key_Escape)
