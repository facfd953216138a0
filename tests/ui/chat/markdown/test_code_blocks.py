"""Colors that come after the text of code, in the view."""

from __future__ import annotations

import threading
from typing import TypeVar

import pytest
from PySide6.QtCore import QRect
from PySide6.QtGui import QTextBlock, QTextCursor
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.helper import Helper, shared
from app.helper.messages import Request
from app.protocol.events import Piece
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.markdown import code_blocks
from app.ui.chat.markdown import view as markdown_view
from app.ui.chat.markdown.code_blocks import Highlighter
from app.ui.chat.markdown.formats import code_color
from app.ui.chat.markdown.view import MarkdownView
from app.ui.chat.transcript import Transcript
from app.ui.widgets import theme
from app.ui.widgets.turns import turns
from tests.ui.chat import stored
from tests.ui.recorded_actions import Recorded

CODE = "Look:\n\n```python\ndef f():\n    return '😀'  # x\n```\n\nand\n\n- item\n\n  ```json\n  [1]\n  ```\n\nend"


@pytest.fixture
def view(view: MarkdownView, monkeypatch: pytest.MonkeyPatch) -> MarkdownView:
    # However slow the machine is, a text is drawn in one go, and its code highlighted.
    monkeypatch.setattr(markdown_view, "_BUDGET", 60.0)
    monkeypatch.setattr(shared(), "seconds", 100)
    return view


def line_of(view: MarkdownView, text: str) -> QTextBlock:
    block = view.document().begin()
    while block.isValid():
        if text in block.text():
            return block
        block = block.next()
    raise AssertionError(f"no line with {text!r}")


def colored(view: MarkdownView, text: str) -> list[tuple[str, str]]:
    """The parts of the line with this text that have a color, and which one."""
    block = line_of(view, text)
    units = block.text().encode("utf-16-le")
    return [
        (
            units[2 * part.start : 2 * (part.start + part.length)].decode("utf-16-le"),
            part.format.foreground().color().name(),
        )
        for part in block.layout().formats()
    ]


def name(role: str) -> str:
    return code_color(theme.current(), role).name()


def settle(qtbot: QtBot, view: MarkdownView) -> None:
    """Wait until nothing is being drawn, highlighted or colored. Colors come in turns after the answer with them."""
    qtbot.waitUntil(lambda: view.is_drawn and code_blocks.highlighter().is_idle and turns().is_idle())


def test_colors_come_and_the_text_stays_as_it_was(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_text(CODE)
    text, html = view.document().toPlainText(), view.document().toHtml()
    cursor = QTextCursor(line_of(view, "def"))
    cursor.select(QTextCursor.SelectionType.LineUnderCursor)
    view.setTextCursor(cursor)
    assert colored(view, "def") == []
    settle(qtbot, view)
    light = colored(view, "def")
    assert light == [("def", name("keyword")), ("f", name("name"))]
    assert ("'😀'", name("string")) in colored(view, "return") and ("# x", name("comment")) in colored(view, "return")
    assert colored(view, "[1]") == [("1", name("number"))]
    assert colored(view, "Look") == []
    assert (view.document().toPlainText(), view.document().toHtml()) == (text, html)
    assert view.textCursor().selectedText() == view.createMimeDataFromSelection().text() == "def f():"
    theme.override(theme.DARK)
    settle(qtbot, view)
    assert colored(view, "def") == [("def", name("keyword")), ("f", name("name"))] != light


def test_a_growing_block_is_colored_before_it_is_complete(qtbot: QtBot, view: MarkdownView) -> None:
    view.append_pieces([Piece(text="```python\ndef f():\n    ret")])
    qtbot.waitUntil(lambda: view.is_drawn and colored(view, "def") != [])
    assert colored(view, "ret") == []
    view.append_pieces([Piece(text="urn 1\n    # done\n")])
    view.append_pieces([Piece(text="```\n\nend")])
    view.finish()
    settle(qtbot, view)
    assert colored(view, "def") == [("def", name("keyword")), ("f", name("name"))]
    assert colored(view, "return") == [("return", name("keyword")), ("1", name("number"))]
    assert colored(view, "done") == [("# done", name("comment"))]


def test_what_is_found_later_corrects_what_was_colored(qtbot: QtBot, view: MarkdownView) -> None:
    view.append_pieces([Piece(text="```html\n<!-- a\n<b>c</b>\n")])
    qtbot.waitUntil(lambda: view.is_drawn and colored(view, "<b>") != [])
    view.append_pieces([Piece(text="-->\n```\n")])
    view.finish()
    settle(qtbot, view)
    assert colored(view, "<b>") == [("<b>c</b>", name("comment"))]


def test_overlong_lines_and_blocks_stay_plain_and_the_rest_keeps_its_place(
    qtbot: QtBot, view: MarkdownView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_blocks, "MAX_CHARACTERS", 5000)
    long = "while\n" * 1000
    view.set_text("```python\nimport a\n" + "x = 1 " * 500 + "\nreturn\n```\n\n```python\n" + long + "```\n")
    settle(qtbot, view)
    assert colored(view, "import") == [("import", name("keyword"))]
    assert colored(view, "x = 1") == []
    assert colored(view, "return") == [("return", name("keyword"))]
    assert colored(view, "while") == []


T = TypeVar("T")


class Late(Helper):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__(seconds=100)
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def ask(self, request: Request[T]) -> T:
        self.asked.set()
        assert self.may_answer.wait(100)
        return super().ask(request)


def test_an_answer_for_a_view_that_the_column_freed_is_dropped(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    own = Highlighter(late)
    monkeypatch.setattr(code_blocks, "highlighter", lambda: own)
    transcript = Transcript(Recorded())
    qtbot.addWidget(transcript)
    transcript.resize(700, 200)
    transcript.show()
    transcript.add_all([stored.answer("a", CODE)])
    qtbot.waitUntil(late.asked.is_set)
    (entry,) = transcript.column.entries
    widget = entry.widget
    assert widget is not None
    transcript.add_all([stored.answer("b", "word\n\n" * 300)])
    qtbot.waitUntil(lambda: not isValid(widget))
    assert transcript.column.entries[0].widget is None
    assert late.asked.is_set() and not late.may_answer.is_set()
    late.may_answer.set()
    qtbot.waitUntil(lambda: own.is_idle)
    transcript.column.follows = False
    transcript.column.verticalScrollBar().setValue(0)
    qtbot.waitUntil(lambda: entry.is_drawn() and own.is_idle and turns().is_idle())
    assert isinstance(entry.widget, AnswerMessage) and colored(entry.widget.view, "def") != []
    own.close()


def test_a_part_of_the_header_is_painted_as_when_all_is(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_text("```python\nx = 1\n```")
    settle(qtbot, view)
    whole = view.grab().toImage()
    part = QRect(0, 0, whole.width(), 6)  # above the first line of the code
    assert view.grab(part).toImage() == whole.copy(part) != whole.copy(part.translated(0, whole.height() - 6))
