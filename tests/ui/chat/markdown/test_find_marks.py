"""Matches of a search, marked in the view."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRectF
from pytestqt.qtbot import QtBot

from app.markdown.find import count_matches
from app.ui.chat.markdown.formats import code_color
from app.ui.chat.markdown.underlay import mark_colors
from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme
from tests.ui.chat.markdown.test_view import SAMPLE, cut, settle, show, write

LONG = "\n\n".join(f"Paragraph {number} has a few words." for number in range(600)) + "\n\nneedle in **hay** and needle"


def word_at(view: MarkdownView, box: QRectF) -> str:
    """What stands in this box of the document."""
    middle = round(box.center().y())
    cursor = view.cursorForPosition(QPoint(round(box.left()), middle))
    end = view.cursorForPosition(QPoint(round(box.right()), middle))
    cursor.setPosition(end.position(), cursor.MoveMode.KeepAnchor)
    return cursor.selectedText()


@pytest.mark.parametrize("chosen", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("current", [False, True])
def test_marks_can_be_seen_and_text_on_them_read(chosen: theme.Theme, current: bool) -> None:
    line, ground = mark_colors(chosen, current=current)
    for surface in (chosen.surface, chosen.raised, chosen.code_surface, *chosen.tints.values()):
        assert theme.contrast(line, surface) >= theme.MINIMUM_SHAPE_CONTRAST
    assert theme.contrast(chosen.text, ground) >= theme.MINIMUM_CONTRAST
    for role in ("comment", "keyword", "string", "number", "name"):
        assert theme.contrast(code_color(chosen, role), ground) >= theme.MINIMUM_SHAPE_CONTRAST


@pytest.mark.parametrize("query", ["bold word", "code", "first", "INSIDE", "return", "text", "one", "quoted", "Last"])
def test_each_match_is_marked_where_it_stands(qtbot: QtBot, view: MarkdownView, query: str) -> None:
    show(qtbot, view, SAMPLE)
    count = view.set_find(query)
    assert count == count_matches(SAMPLE, query) > 0
    for index in range(count):
        box = view.show_find(index)
        assert box is not None
        assert word_at(view, box).lower() == query.lower()


def test_marks_change_neither_layout_nor_text(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, SAMPLE, cut(SAMPLE))
    plain, markup, height = view.grab().toImage(), view.document().toHtml(), view.content_height()
    view.set_find("o")
    marked = view.grab().toImage()
    assert marked != plain
    view.show_find(1)
    assert view.grab().toImage() not in (plain, marked)
    assert (view.document().toHtml(), view.content_height()) == (markup, height)
    view.set_find("")
    assert view.find_box() is None
    assert view.grab().toImage() == plain


def test_a_match_in_the_folded_part_is_counted_and_unfolds_it(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_text(LONG, folds=True)
    settle(qtbot, view)
    assert "needle" not in view.document().toPlainText()
    assert view.set_find("needle") == 2
    view.show_find(1)
    qtbot.waitUntil(lambda: view.is_drawn and view.find_box() is not None)
    box = view.find_box()
    assert box is not None
    assert word_at(view, box) == "needle"


def test_a_match_in_code_scrolls_it_sideways(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "```\n" + "x" * 300 + " needle\n```")
    view.set_find("needle")
    box = view.show_find(0)
    assert box is not None
    (part,) = view.wide.parts
    assert view.wide.offset(part) > 0
    assert part.place.left() <= box.left() and box.right() <= part.place.right() + 1


def test_a_growing_text_is_searched_again_and_the_raw_one(qtbot: QtBot, view: MarkdownView) -> None:
    write(qtbot, view, "one two **bold** words ")
    assert view.set_find("two") == 1
    write(qtbot, view, "two")
    view.grab()
    assert view.set_find("two") == 2
    assert view.set_find("bold words") == 1
    view.finish()
    view.set_raw(True)
    settle(qtbot, view)
    assert view.set_find("bold words") == 1
    box = view.show_find(0)
    assert box is not None
    assert word_at(view, box) == "bold** words"
