"""The dialogs of the Help menu, keyboard shortcuts among them."""

from __future__ import annotations

import platform
import sys
import sysconfig
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QLabel, QPlainTextEdit, QPushButton
from pytestqt.qtbot import QtBot

from app import __version__, system
from app.protocol.events import Device, Hello
from app.ui.actions import plain
from app.ui.chat import footer
from app.ui.chat.composer import send_key
from app.ui.compare import prompt_set, tab
from app.ui.shell.all_actions import ELSEWHERE, MENUS, all_actions
from app.ui.shell.help import AboutDialog, FiguresDialog, LicensesDialog, ShortcutsDialog, figures
from app.ui.speed.wording import HELP


def test_about_names_every_version_and_copies_them(qtbot: QtBot) -> None:
    gpu = Device(name="CUDA0", description="NVIDIA <b>H200</b>")
    dialog = AboutDialog(Hello(protocol=3, engine="llama.cpp (llama-cpp-python 0.3.36)", devices=[gpu]))
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
    assert f"Slipstream: {__version__}\nEngine: llama.cpp" in QGuiApplication.clipboard().text()


def test_about_shows_slipstreams_license_from_source(qtbot: QtBot) -> None:
    dialog = AboutDialog(None)
    qtbot.addWidget(dialog)
    dialog.show()
    _click(dialog, "Licenses")
    licenses = dialog.findChild(LicensesDialog)
    assert licenses is not None
    text = licenses.findChild(QPlainTextEdit)
    assert text is not None and text.toPlainText().startswith("MIT License")
    words = [label.text() for label in licenses.findChildren(QLabel)]
    assert any(sysconfig.get_path("purelib") in said for said in words)
    assert all(button.text() != "Open folder" for button in licenses.findChildren(QPushButton))


def test_licenses_of_a_package_show_the_index_and_open_their_folder(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "licences" / "README.txt"
    index.parent.mkdir()
    index.write_text("Qt  6.11  LGPL-3.0-only", "utf-8")
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    assert system.licenses() == index
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", opened.append)
    dialog = LicensesDialog(system.licenses())
    qtbot.addWidget(dialog)
    dialog.show()
    _click(dialog, "Open folder")
    assert [Path(url.toLocalFile()) for url in opened] == [index.parent]
    text = dialog.findChild(QPlainTextEdit)
    assert text is not None and text.toPlainText() == "Qt  6.11  LGPL-3.0-only"


def _click(dialog: QDialog, words: str) -> None:
    button = next(button for button in dialog.findChildren(QPushButton) if button.text() == words)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def test_every_figure_is_defined_for_the_keyboard_too(qtbot: QtBot) -> None:
    dialog = FiguresDialog()
    qtbot.addWidget(dialog)
    dialog.show()
    field = dialog.findChild(QPlainTextEdit)
    assert field is not None
    shown = field.toPlainText()
    for text in (*HELP.values(), footer.HELP, tab.SPEED_HELP, *prompt_set.COLUMNS.values()):
        assert text in shown
    for name in ("Temperature", "Repetition penalty", "System prompt", "Speed-up"):
        assert f"\n{name}\n" in shown
    assert all("\n" in one for one in figures()["Chat settings"])
    assert field.focusPolicy() & Qt.FocusPolicy.TabFocus


def opened(qtbot: QtBot) -> ShortcutsDialog:
    dialog = ShortcutsDialog(all_actions().shortcuts())
    qtbot.addWidget(dialog)
    dialog.show()
    return dialog


def shown(dialog: ShortcutsDialog) -> dict[str, str]:
    return {
        row.text(0): row.text(1)
        for heading, rows in dialog._rows
        for row in rows
        if not row.isHidden() and not heading.isHidden()
    }


def test_every_action_with_keys_is_listed(qtbot: QtBot) -> None:
    listed = shown(opened(qtbot))
    actions = all_actions()
    lines = [one for menu in MENUS.values() for one in menu if one is not None and actions.keys(one.name)]
    assert len(lines) > 25
    for one in lines:
        assert listed[plain(one.text)] == actions.keys(one.name)
    assert listed["Pin the chat"] == "Ctrl+Shift+P" and listed["Delete the chat"] == "Del"
    assert (listed["Find next"], listed["Speed panel"], listed["Stop"]) == ("F3 or Ctrl+G", "Ctrl+.", "Esc")
    assert "" not in listed.values()


def test_the_keys_for_writing_are_those_that_were_chosen(qtbot: QtBot, usual_settings_later: None) -> None:
    listed = shown(opened(qtbot))
    assert (listed["Send the message"], listed["Start a new line"]) == ("Enter", "Shift+Enter")
    send_key().choose(needs_ctrl=True)
    listed = shown(opened(qtbot))
    assert (listed["Send the message"], listed["Start a new line"]) == ("Ctrl+Enter", "Enter")


def test_the_filter_takes_names_and_keys(qtbot: QtBot) -> None:
    dialog = opened(qtbot)
    assert dialog.focusWidget() is dialog.filter
    QTest.keyClicks(dialog.filter, "zoom in")
    assert set(shown(dialog)) == {"Zoom in"}
    dialog.filter.setText("ctrl+shift+n")
    assert set(shown(dialog)) == {"New temporary chat"}
    dialog.filter.setText("no such thing")
    assert shown(dialog) == {}
    assert dialog.list.isHidden()
    dialog.filter.clear()
    assert len(shown(dialog)) > 30
    assert dialog.list.isVisible()
    with qtbot.waitSignal(dialog.rejected):
        QTest.keyClick(dialog.filter, Qt.Key.Key_Escape)


def test_no_shortcut_takes_what_keyboards_write_with_altgr_or_alone() -> None:
    """AltGr is Ctrl+Alt on Windows, where Ctrl+Alt+Q is @ in Germany and Ctrl+Alt+E is € in most of Europe."""
    alt, none = Qt.KeyboardModifier.AltModifier, Qt.KeyboardModifier.NoModifier
    places = (*MENUS.values(), *ELSEWHERE.values())
    every = [keys for place in places for action in place if action is not None for keys in action.key_sequences()]
    keys = [one[0] for one in every if not one.isEmpty()]  # type: ignore[index]  # PySide's stubs don't know it
    assert len(keys) > 25
    written = range(Qt.Key.Key_Space, Qt.Key.Key_ydiaeresis + 1)
    for one in keys:
        if one.key() in written:
            shift = Qt.KeyboardModifier.ShiftModifier
            assert not one.keyboardModifiers() & alt and one.keyboardModifiers() & ~shift != none
