"""Messages that were freed are gone with all that their Python objects had: nothing waits for the collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.protocol.events import Piece
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.markdown.code_blocks import CodeColors, highlighter
from app.ui.chat.markdown.fold_button import Fold
from app.ui.chat.markdown.rendering import Rendering
from app.ui.chat.markdown.underlay import FindMarks, TokenTints
from app.ui.chat.markdown.view import Frames
from app.ui.chat.markdown.wide import WidePlaces
from app.ui.chat.messages import MessageWidget
from app.ui.chat.transcript import Transcript
from app.ui.widgets import theme
from app.ui.widgets.turns import turns
from tests.ui.chat import stored

HELPERS = (Rendering, Frames, CodeColors, FindMarks, Fold, WidePlaces, TokenTints)
TEXT = f"Look:\n\n```python\nreturn '{'long ' * 60}'\n```\n\n- item\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
LONG = "Many words.\n\n" * 2000


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(0, 0, 0)
    yield
    gc.set_threshold(*before)


def settle(qtbot: QtBot, transcript: Transcript) -> None:
    """Wait until everything is built, drawn and colored."""
    qtbot.waitUntil(lambda: transcript.column.is_complete() and highlighter().is_idle and turns().is_idle())


def parts(transcript: Transcript) -> list[weakref.ref[object]]:
    """What the widgets of the messages consist of."""
    owned: list[object] = []
    for entry in transcript.column.built():
        assert entry.widget is not None
        widgets = [entry.widget, *entry.widget.findChildren(QWidget)]
        owned += widgets
        for widget in widgets:
            owned += [value for value in vars(widget).values() if isinstance(value, HELPERS)]
    return [weakref.ref(one) for one in owned]


def assert_gone(qtbot: QtBot, widgets: list[QWidget], kept: list[weakref.ref[object]]) -> None:
    qtbot.waitUntil(lambda: not any(isValid(widget) for widget in widgets))
    widgets.clear()
    qtbot.waitUntil(turns().is_idle)
    assert [one() for one in kept if one() is not None] == []


def widgets_of(transcript: Transcript) -> list[QWidget]:
    return [entry.widget for entry in transcript.column.built() if entry.widget is not None]


def test_messages_that_were_shown_and_used(qtbot: QtBot, transcript: Transcript) -> None:
    pieces = [Piece(text=TEXT, round=0, drafter="model", rejected=None)]
    transcript.add_all([stored.question("q", LONG, 1, 2)])
    transcript.add_all([stored.answer("a", TEXT, 2, 3, pieces=pieces, note="It was stopped.")])
    transcript.set_show_drafted(True)
    transcript.set_find("item")
    settle(qtbot, transcript)
    kept, widgets = parts(transcript), widgets_of(transcript)
    assert set(HELPERS) <= {type(one()) for one in kept}
    for widget in widgets:
        assert isinstance(widget, MessageWidget)
        widget.start_editing()
        if isinstance(widget, AnswerMessage):
            widget.stop_editing()
            widget.set_raw(True)
            widget.set_raw(False)
            widget.view.selectAll()
            widget.open_menu()
    theme.override(theme.DARK)
    theme.notifier().set_zoom(125)
    settle(qtbot, transcript)
    kept += parts(transcript)
    del widget
    transcript.clear()
    assert_gone(qtbot, widgets, kept)


def test_messages_that_were_scrolled_away(qtbot: QtBot, transcript: Transcript) -> None:
    for number in range(12):
        transcript.add_all([stored.answer(str(number), f"{TEXT}\n\n{LONG[:4000]}")])
    settle(qtbot, transcript)
    kept, widgets = parts(transcript), widgets_of(transcript)
    transcript.column.follows = False
    transcript.column.verticalScrollBar().setValue(0)
    assert_gone(qtbot, widgets, kept)
    assert transcript.column.entries[-1].widget is None
