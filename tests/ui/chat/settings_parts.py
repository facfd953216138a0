"""The chat settings tab with real chats, presets in a file, and a scripted engine."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chats.presets import FILE_NAME
from app.chats.settings import ChatSettings
from app.settings import Settings
from app.ui.chat.live_answer import answer_settings
from app.ui.chat.settings_tab import ChatSettingsTab
from tests.ui.parts import WAIT_MS, Rig


class SettingsRig(Rig):
    """Chats whose settings are shown in a tab."""

    def __init__(self, qtbot: QtBot, folder: Path, behavior: str = "") -> None:
        super().__init__(qtbot, folder, behavior)
        self.answers.resolve = lambda chat, pair: answer_settings(chat, Settings(), pair)
        self.preset_file = folder / FILE_NAME
        self.stored_presets = self.ctx.presets
        self.presets = self.stored_presets.presets
        self.tab = ChatSettingsTab()
        qtbot.addWidget(self.tab)
        self.tab.begin(self.ctx)
        self.tab.show()
        qtbot.waitExposed(self.tab)
        self.tab.activateWindow()

    @property
    def chosen(self) -> ChatSettings:
        return self.model.settings

    def save(self, name: str, settings: ChatSettings) -> None:
        with self.qtbot.waitSignal(self.stored_presets.changed, timeout=WAIT_MS):
            self.stored_presets.change(lambda presets: presets.save(name, settings))

    def choose(self, name: str) -> None:
        """Choose a preset as a user does."""
        box = self.tab.preset
        box.setCurrentIndex(box.findData(name))
        box.activated.emit(box.currentIndex())

    def entries(self) -> dict[str, QAction]:
        """What the menu of the presets offers now."""
        self.tab.preset_menu.aboutToShow.emit()
        return {action.text(): action for action in self.tab.preset_menu.actions()}

    def do(self, entry: str) -> None:
        """Choose an entry, and wait until the presets are written."""
        with self.qtbot.waitSignal(self.stored_presets.changed, timeout=WAIT_MS):
            self.entries()[entry].trigger()

    def write(self, key: str, text: str) -> None:
        """Type a number over what stands in the field of a parameter, and do not leave it."""
        field = self.tab.parameters[key].field
        field.setFocus()
        field.selectAll()
        QTest.keyClicks(field, text)

    def enter(self, key: str, text: str) -> None:
        """The same, with Enter."""
        self.write(key, text)
        QTest.keyClick(self.tab.parameters[key].field, Qt.Key.Key_Return)
