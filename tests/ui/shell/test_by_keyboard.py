"""What one does every day, in the real window with keys alone: nothing is clicked, triggered or given the focus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QFileDialog, QInputDialog, QMenu, QRadioButton, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import Chat, Folder
from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.ui.chat.model import ChatState
from app.ui.chat.transfers import ExportDialog
from app.ui.engine.client import EngineClient
from app.ui.widgets import theme
from app.ui.widgets.turns import turns
from tests.support.keyrings import MemoryKeyring
from tests.ui.shell.running import WAIT_MS, Running

pytestmark = pytest.mark.usefixtures("guide_pair", "dressed", "usual_settings_later", "user")
_Key = Qt.Key
_NONE = Qt.KeyboardModifier.NoModifier
_CTRL = Qt.KeyboardModifier.ControlModifier
_SHIFT = Qt.KeyboardModifier.ShiftModifier
_ALT = Qt.KeyboardModifier.AltModifier


class Typist(Running):
    """Somebody at the keyboard."""

    FIRST_SETTINGS = None

    def __init__(self, qtbot: QtBot) -> None:
        way = "endless if asked"
        super().__init__(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", way]))
        self.begin()
        self.ready()
        self.window.activateWindow()
        qtbot.waitUntil(self.window.isActiveWindow)

    def press(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = _NONE, times: int = 1) -> None:
        """Where the focus is, or in the menu that is open."""
        for _ in range(times):
            where = QApplication.activePopupWidget() or QApplication.focusWidget()
            assert where is not None
            QTest.keyClick(where, key, modifiers)

    def write(self, text: str) -> None:
        focused = QApplication.focusWidget()
        assert focused is not None
        QTest.keyClicks(focused, text)

    def say(self, text: str) -> None:
        """Send a message, and wait for the answer."""
        self.write(text)
        self.press(_Key.Key_Return)
        self.until(lambda: bool(self.model.messages) and self.model.state is ChatState.IDLE)
        self.until(lambda: self.chat(self.model.id) is not None)
        self.until(turns().is_idle)  # the buttons of the messages come last

    def until(self, condition: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(condition, timeout=WAIT_MS)

    def tab_to(self, name: str) -> QWidget:
        """Press Tab until something with this name has the focus."""
        for _ in range(80):
            focused = QApplication.focusWidget()
            assert focused is not None
            if name in (focused.accessibleName(), focused.property("text")):
                return focused
            self.press(_Key.Key_Tab)
        raise AssertionError(f"Tab leads to nothing called {name}")

    def chat(self, chat_id: str) -> Chat | None:
        return self.window.chat_list.view.chats.chat(chat_id)

    def listed(self) -> Chat:
        """The chat that is shown, as the list has it."""
        found = self.chat(self.model.id)
        assert found is not None
        return found

    def folders(self) -> list[Folder]:
        return list(self.window.chat_list.view.chats.folders())

    def go_to_list(self) -> None:
        """From the composer or the top bar to the list of chats."""
        self.press(_Key.Key_Escape, _SHIFT)
        self.press(_Key.Key_F6, _SHIFT, 2)
        self.tab_to("Chats")

    def popup(self) -> QMenu:
        popup = QApplication.activePopupWidget()
        assert isinstance(popup, QMenu)
        return popup


@pytest.fixture
def typist(qtbot: QtBot, kept: MemoryKeyring) -> Iterator[Typist]:
    made = Typist(qtbot)
    yield made
    made.close()


def test_new_and_temporary_chats_stopping_and_writing_again(typist: Typist) -> None:
    typist.say("First")
    typist.press(_Key.Key_N, _CTRL)
    assert typist.model.is_new
    typist.press(_Key.Key_N, _CTRL | _SHIFT)
    assert typist.model.is_temporary
    typist.write("Off the record")
    typist.press(_Key.Key_Return)
    typist.until(lambda: len(typist.model.messages) == 2 and typist.model.state is ChatState.IDLE)
    assert [title for title in typist.titles() if title != "Today"] == ["First"]

    typist.write("endless")
    typist.press(_Key.Key_Return)
    typist.until(lambda: typist.model.live is not None and bool(typist.model.live.pieces))
    typist.press(_Key.Key_Escape)
    typist.until(lambda: typist.model.state is ChatState.IDLE)
    assert typist.model.messages[-1].status == "stopped"
    typist.press(_Key.Key_N, _CTRL)
    typist.say("Hello")
    typist.press(_Key.Key_R, _CTRL)
    typist.until(lambda: typist.model.state is ChatState.IDLE and typist.model.messages[-1].versions == 2)
    typist.until(turns().is_idle)
    assert QApplication.focusWidget() is typist.window.composer.editor  # nothing was a window for a moment


def test_editing_a_message(typist: Typist) -> None:
    typist.say("Hello")
    typist.press(_Key.Key_F6, _SHIFT)
    typist.tab_to("Edit this message and send it again")
    typist.press(_Key.Key_Space)
    typist.write("Other words")
    typist.press(_Key.Key_Return)
    typist.until(lambda: typist.model.messages[0].text == "Other words" and typist.model.state is ChatState.IDLE)
    assert typist.model.messages[0].version == 2


def test_chats_are_found_renamed_and_pinned(typist: Typist) -> None:
    typist.say("Apples")
    apples = typist.model.id
    typist.press(_Key.Key_N, _CTRL)
    typist.say("Pears")
    pears = typist.model.id
    typist.go_to_list()
    typist.press(_Key.Key_Down)
    assert typist.model.id == apples
    typist.press(_Key.Key_F, _CTRL | _SHIFT)
    typist.write("Pears")
    typist.until(lambda: typist.window.chat_list._count.text() == "1 chat found")
    typist.press(_Key.Key_Return)
    assert typist.model.id == pears
    typist.press(_Key.Key_Escape)

    typist.press(_Key.Key_F2)
    typist.write("Greetings")
    typist.press(_Key.Key_Return)
    typist.until(lambda: typist.listed().title == "Greetings")
    typist.go_to_list()
    typist.press(_Key.Key_P, _CTRL | _SHIFT)
    typist.until(lambda: typist.listed().pinned_at is not None)


def test_chats_go_to_a_folder_to_the_trash_and_back(typist: Typist) -> None:
    typist.say("Hello")
    typist.go_to_list()
    typist.press(_Key.Key_M, _CTRL | _SHIFT)
    typist.press(_Key.Key_F)  # New folder
    dialog = typist.window.chat_list.view.findChild(QInputDialog)
    assert dialog is not None
    typist.until(dialog.isActiveWindow)
    typist.write("Work")
    typist.press(_Key.Key_Return)
    typist.until(lambda: [one.name for one in typist.folders()] == ["Work"])
    typist.until(lambda: typist.listed().folder_id == typist.folders()[0].id)
    typist.window.activateWindow()
    typist.until(typist.window.isActiveWindow)
    typist.go_to_list()
    typist.press(_Key.Key_M, _CTRL | _SHIFT)
    assert "Work" in [one.text() for one in typist.popup().actions()]
    typist.press(_Key.Key_N)
    typist.until(lambda: typist.listed().folder_id is None)

    typist.window.activateWindow()
    typist.until(typist.window.isActiveWindow)
    chat_id = typist.model.id
    typist.go_to_list()
    typist.press(_Key.Key_Delete)
    typist.until(lambda: typist.chat(chat_id) is None)
    typist.press(_Key.Key_Z, _CTRL)
    typist.until(lambda: typist.chat(chat_id) is not None)
    typist.go_to_list()
    typist.press(_Key.Key_Delete)
    typist.until(lambda: typist.chat(chat_id) is None and typist.window.undo_bar.isVisible())
    typist.press(_Key.Key_V, _ALT)
    typist.press(_Key.Key_T)  # Trash
    panel = typist.window.chat_list.trash
    typist.until(lambda: bool(panel.model.rows))
    typist.window.activateWindow()
    typist.until(panel.view.hasFocus)
    typist.press(_Key.Key_Space)
    typist.tab_to("Restore")
    typist.press(_Key.Key_Space)
    typist.until(lambda: typist.chat(chat_id) is not None)
    typist.press(_Key.Key_Escape)


def test_a_preset_a_temperature_theme_and_zoom(typist: Typist) -> None:
    stored = typist.ctx.presets

    def save(presets: Presets) -> None:
        presets.save("Short", ChatSettings(preset="Short", max_tokens=50, sampling=SamplingChoice(top_k=7)))

    stored.change(save)
    typist.until(lambda: "Short" in stored.presets.names())
    typist.press(_Key.Key_I, _CTRL)
    typist.press(_Key.Key_F6)
    preset = typist.tab_to("Preset")
    assert isinstance(preset, QComboBox)
    typist.press(_Key.Key_End)
    typist.until(lambda: typist.model.settings.preset == "Short")
    assert typist.model.settings.sampling.top_k == 7
    typist.tab_to("Sampling, closed")
    typist.press(_Key.Key_Space)
    typist.tab_to("Temperature")
    typist.press(_Key.Key_A, _CTRL)
    typist.write("0.3")
    typist.press(_Key.Key_Return)
    typist.until(lambda: typist.model.settings.sampling.temperature == 0.3)
    typist.tab_to(typist.window.settings_tab.recommended_button.text())
    typist.press(_Key.Key_Space)
    typist.until(lambda: typist.model.settings.sampling == SamplingChoice())

    typist.press(_Key.Key_Plus, _CTRL)
    assert typist.settings.values.zoom == 110
    typist.press(_Key.Key_0, _CTRL)
    assert typist.settings.values.zoom == 100
    was_dark = theme.current().is_dark
    typist.press(_Key.Key_Comma, _CTRL)
    settings = typist.app.windows.settings()
    typist.until(settings.isActiveWindow)
    typist.press(_Key.Key_Tab)
    choice = typist.tab_to("Theme")
    assert isinstance(choice, QComboBox)
    wanted = choice.findText("Light" if was_dark else "Dark")
    typist.press(_Key.Key_Home)
    typist.press(_Key.Key_Down, times=wanted)
    typist.until(lambda: theme.current().is_dark is not was_dark)
    typist.press(_Key.Key_Escape)
    assert not settings.isVisible()


def test_exporting(typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typist.say("Hello")
    target = tmp_path / "chat.md"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(target), ""))
    typist.press(_Key.Key_F, _ALT)
    typist.press(_Key.Key_E)
    [dialog] = typist.window.findChildren(ExportDialog)
    typist.until(dialog.isActiveWindow)
    assert isinstance(QApplication.focusWidget(), QRadioButton)
    typist.press(_Key.Key_Return)
    typist.until(target.is_file)
    assert "Hello" in target.read_text(encoding="utf-8")
