"""A widget that is shown before it has a parent is a window for a moment, which flashes and takes the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.settings import Settings
from app.tools.messages import ServerEntry, UserAsked
from app.ui.engine.pair_names import PairFiles
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.tools.questions import QuestionDialog
from tests.ui.models.windows import Windows


class Watcher(QObject):
    """Notes what is shown as a window."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self.shown.append(type(watched).__name__)
        return False


@pytest.fixture
def watcher(qapp: QApplication) -> Iterator[Watcher]:
    watcher = Watcher()
    qapp.installEventFilter(watcher)
    yield watcher
    qapp.removeEventFilter(watcher)


def test_a_widget_that_is_shown_too_early_is_found(watcher: Watcher) -> None:
    early = QWidget()
    early.setVisible(True)
    early.deleteLater()
    assert watcher.shown == ["QWidget"]


def test_windows_show_nothing_before_themselves(watcher: Watcher, closed_windows: Windows) -> None:
    closed_windows.open()
    closed_windows.window.show()
    for place in range(closed_windows.window.tabs.count()):
        closed_windows.window.tabs.setCurrentIndex(place)
    closed_windows.settings.show_page("API server")
    assert watcher.shown == ["ModelsWindow", "SettingsWindow"]


def test_tools_show_nothing_before_themselves(watcher: Watcher, closed_windows: Windows) -> None:
    closed_windows.open()
    page, service = closed_windows.settings.tools, closed_windows.ctx.tools
    closed_windows.settings.show_page("Tools")
    for command in ("time", "fails"):
        service.put(ServerEntry(name=command, command=command))
    closed_windows.until(lambda: [one.state for one in service.servers.values()] == ["ready", "failed"])
    page.rows["time"]._tools.button.click()
    page.rows["fails"]._log.button.click()
    page.add("time a\n{")
    page.add('{"x": {"command": "${input:folder}", "env": {"A": "b"}}}')
    fields = {"properties": {"a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"enum": ["d"]}}}
    kinds: tuple[Literal["elicitation", "sampling"], ...] = ("elicitation", "sampling")
    for kind in kinds:
        asked = UserAsked(question=1, server="time", kind=kind, message="Who?", fields=fields)
        QuestionDialog(asked, closed_windows.settings).show()
    assert watcher.shown == ["SettingsWindow", "ServerDialog", "ServerDialog", "QuestionDialog", "QuestionDialog"]


def test_open_models_shows_nothing_before_itself(watcher: Watcher, qtbot: QtBot) -> None:
    dialog = OpenModelsDialog(PairFiles(""), Settings())
    qtbot.addWidget(dialog)
    dialog.show()
    assert watcher.shown == ["OpenModelsDialog"]


def test_recommended_models_show_nothing_before_themselves(watcher: Watcher, closed_windows: Windows) -> None:
    closed_windows.open().window.recommended.refresh()
    assert watcher.shown == []
