"""Very long messages, of which only the beginning is shown."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.protocol.events import Piece
from app.ui.chat.markdown.code_blocks import CodeHeader
from app.ui.chat.markdown.fold_button import FOLD_CHARACTERS, FOLD_LINES, SHOWN_CHARACTERS, SHOWN_LINES, folded_length
from app.ui.chat.markdown.view import MarkdownView
from tests.ui.chat.markdown.test_view import settle

LONG = "\n\n".join(f"Paragraph **{number}** has a few words." for number in range(600)) + "\n\nthe end"


def fold_button(view: MarkdownView) -> QPushButton | None:
    buttons = view.viewport().findChildren(QPushButton)
    found = [one for one in buttons if one.parent() is view.viewport() and not one.isHidden()]
    return found[0] if found else None


@pytest.mark.parametrize(
    "text",
    ["", "short", "x" * FOLD_CHARACTERS, "line\n" * (FOLD_LINES - 1), "paragraph\n\n" * 99],
)
def test_what_is_not_long_is_not_folded(text: str) -> None:
    assert folded_length(text) is None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("x" * 20_000, "x"),
        ("words " * 4000, " "),
        ("one line\n" * 500, "\n"),
        ("paragraph of\nlines\n\n" * 1000, "\n"),
        ("\n" * 300, "\n"),
        ("😀" * 20_000, "😀"),
    ],
)
def test_the_beginning_of_a_long_text_ends_where_one_would_pause(text: str, ends: str) -> None:
    length = folded_length(text)
    assert length is not None
    assert 0 < length <= SHOWN_CHARACTERS
    assert text[:length].count("\n") <= SHOWN_LINES
    assert text[:length].endswith(ends)


def test_the_button_shows_all_and_less(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_text(LONG, folds=True)
    settle(qtbot, view)
    folded, button = view.content_height(), fold_button(view)
    assert button is not None and button.text() == f"Show all ({len(LONG):,} characters)"
    assert "the end" not in view.document().toPlainText()
    assert button.geometry().bottom() <= folded and button.geometry().top() > folded - 60
    button.click()
    settle(qtbot, view)
    assert button.text() == "Show less"
    assert "the end" in view.document().toPlainText()
    assert view.content_height() > 2 * folded
    button.click()
    settle(qtbot, view)
    assert view.content_height() == folded
    view.set_text("another", folds=True)
    assert fold_button(view) is None


def test_all_is_copied(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_text(LONG, folds=True)
    settle(qtbot, view)
    view.selectAll()
    view.copy()
    copied = QGuiApplication.clipboard().text()
    assert copied.startswith("Paragraph 0 has") and copied.endswith("the end")
    assert view.content == LONG


def test_code_that_is_cut_is_copied_as_a_whole(qtbot: QtBot, view: MarkdownView) -> None:
    code = "\n".join(f"x = {number}" for number in range(400))
    view.set_text(f"```python\n{code}\n```", folds=True)
    settle(qtbot, view)
    assert "x = 399" not in view.document().toPlainText()
    header = view.findChild(CodeHeader)
    assert header is not None
    header.copy_button.click()
    assert QGuiApplication.clipboard().text() == code


def test_nothing_is_folded_while_it_is_written(qtbot: QtBot, view: MarkdownView) -> None:
    view.append_pieces([Piece(text=LONG)])
    view.finish()
    settle(qtbot, view)
    assert fold_button(view) is None
    assert "the end" in view.document().toPlainText()
