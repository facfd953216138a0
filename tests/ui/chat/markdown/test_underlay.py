"""A stretch of a text that stands out."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRectF
from pytestqt.qtbot import QtBot

from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme

TEXT = "Some **bold** words 😀 here.\n\n```python\ndef first():\n    return 1\n```\n\nThe end"


def show(qtbot: QtBot, view: MarkdownView, text: str = TEXT) -> None:
    view.set_text(text)
    qtbot.waitUntil(lambda: view.is_drawn)


def mark(view: MarkdownView, word: str) -> QRectF:
    """Mark this word and give back where that is drawn."""
    start = TEXT.index(word)
    view.set_mark((start, start + len(word)))
    box = view.mark_box()
    assert box is not None
    return box


@pytest.mark.parametrize("word", ["bold", "words", "here", "first", "return", "end"])
def test_the_mark_is_under_its_characters(qtbot: QtBot, view: MarkdownView, word: str) -> None:
    show(qtbot, view)
    box = mark(view, word)
    middle = round(box.center().y())
    cursor = view.cursorForPosition(QPoint(round(box.left()), middle))
    end = view.cursorForPosition(QPoint(round(box.right()), middle))
    cursor.setPosition(end.position(), cursor.MoveMode.KeepAnchor)
    assert cursor.selectedText() == word


def test_the_mark_is_painted_and_taken_away(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view)
    box = mark(view, "words")
    spot = QPoint(round(box.left()) + 2, round(box.bottom()) - 3)
    assert view.grab().toImage().pixelColor(spot).name() == theme.LIGHT.differs.name()
    view.set_mark(None)
    assert view.grab().toImage().pixelColor(spot).name() != theme.LIGHT.differs.name()
    assert view.mark_box() is None
    show(qtbot, view, "")  # in an empty text it does no harm
    view.set_mark((0, 1))
    view.mark_box()
    view.grab()


def test_the_mark_stays_with_a_new_width_and_theme_and_goes_with_the_text(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view)
    before = mark(view, "end")
    view.set_widths(120, 300)
    narrow = view.mark_box()
    assert narrow is not None
    assert narrow.top() > before.top()
    theme.override(theme.DARK)
    qtbot.waitUntil(lambda: view.is_drawn)
    assert view.mark_box() == narrow
    show(qtbot, view, "Another text")
    assert view.mark_box() is None


def test_what_is_not_shown_is_marked_behind_what_stands_before_it(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view)
    line_break = TEXT.index("\n\n```python")
    view.set_mark((line_break, line_break + 2))
    at_break, last = view.mark_box(), mark(view, "here.")
    assert at_break is not None
    assert at_break.width() < 8
    assert abs(at_break.left() - last.right()) < 4
    view.set_mark((len(TEXT), len(TEXT) + 1))
    at_end, end = view.mark_box(), mark(view, "end")
    assert at_end is not None
    assert abs(at_end.left() - end.right()) < 4
