"""Views that draw in turns."""

from __future__ import annotations

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.ui.widgets.turns import Turns


class Widget(QObject):
    def __init__(self, turns: Turns, wants: int, log: list[str], name: str) -> None:
        super().__init__()
        self._turns, self._wants, self._log, self._name = turns, wants, log, name

    def take_turn(self) -> None:
        self._log.append(self._name)
        self._wants -= 1
        if self._wants:
            self._turns.want(self)


def test_each_gets_a_turn_and_one_that_is_gone_none(qtbot: QtBot) -> None:
    parent = QObject()
    turns, log = Turns(parent), list[str]()
    first, second, gone = (Widget(turns, 2, log, name) for name in ("a", "b", "gone"))
    for widget in (first, gone, second, first):
        turns.want(widget)
    assert turns.is_waiting(first) and log == []
    gone.deleteLater()
    qtbot.waitUntil(lambda: len(log) == 4)
    assert log == ["a", "b", "a", "b"]
    assert not turns.is_waiting(first)


def test_what_one_can_read_without_comes_after_all_else(qtbot: QtBot) -> None:
    parent = QObject()
    turns, log = Turns(parent), list[str]()
    buttons, text = Widget(turns, 1, log, "buttons"), Widget(turns, 3, log, "text")
    turns.want(buttons, later=True)
    turns.want(text)
    assert turns.is_waiting(buttons)
    qtbot.waitUntil(turns.is_idle)
    assert log == ["text", "text", "text", "buttons"]
