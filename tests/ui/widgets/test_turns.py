"""Views that draw in turns."""

from __future__ import annotations

import gc
import weakref

import pytest
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import delete

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


class Picture(QWidget):
    def __init__(self, log: list[str], name: str) -> None:
        super().__init__()
        self._log, self._name = log, name

    def take_turn(self) -> None:
        self._log.append(self._name)


@pytest.mark.parametrize("later", [False, True])
def test_what_is_on_the_screen_comes_first(qtbot: QtBot, later: bool) -> None:
    parent = QObject()
    turns, log = Turns(parent), list[str]()
    hidden, seen = Picture(log, "hidden"), Picture(log, "seen")
    for picture in (hidden, seen):
        qtbot.addWidget(picture)
        turns.want(picture, later=later)
    with qtbot.waitExposed(seen):
        seen.show()
    qtbot.waitUntil(turns.is_idle)
    assert log == ["seen", "hidden"]


def test_what_is_gone_is_let_go_of_while_others_come() -> None:
    """Hundreds of messages that were scrolled away would else be destroyed together, at the end."""
    parent = QObject()
    turns, log = Turns(parent), list[str]()
    gone = [Widget(turns, 1, log, "gone") for _ in range(10)]
    held = [weakref.ref(widget) for widget in gone]
    for widget in gone:
        turns.want(widget, later=True)
    for widget in gone:
        delete(widget)
    del gone, widget
    gc.collect()
    assert all(one() is not None for one in held)
    stays = [Widget(turns, 1, log, str(number)) for number in range(5)]
    for count, one in enumerate(stays, start=1):
        turns.want(one, later=True)
        gc.collect()
        assert sum(ref() is not None for ref in held) == 10 - 2 * count
    while not turns.is_idle():
        turns._on_turn()
    assert log == ["0", "1", "2", "3", "4"]


def test_nobody_is_left_where_all_are_gone() -> None:
    parent = QObject()
    turns, log = Turns(parent), list[str]()
    one, other = Widget(turns, 1, log, "one"), Widget(turns, 1, log, "other")
    turns.want(one)
    turns.want(other, later=True)
    delete(one)
    delete(other)
    turns._on_turn()
    assert turns.is_idle() and log == []
