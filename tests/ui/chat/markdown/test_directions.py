"""Text from right to left, Chinese and Japanese, task lists, and text without marks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QTextBlock
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.protocol.events import Piece
from app.ui.chat.markdown.plain_text import plain_text
from app.ui.chat.markdown.view import MarkdownView
from tests.ui.chat.markdown.test_view import settle, show, tool_tip, write

RTL, LTR = Qt.LayoutDirection.RightToLeft, Qt.LayoutDirection.LeftToRight


def block_with(view: MarkdownView, text: str) -> QTextBlock:
    cursor = view.document().find(text)
    assert not cursor.isNull(), text
    return cursor.block()


def text_left(view: MarkdownView, text: str) -> float:
    """How far from the left edge the first line of this block begins."""
    block = block_with(view, text)
    rect = view.document().documentLayout().blockBoundingRect(block)
    line = block.layout().lineAt(0)
    return rect.left() + line.naturalTextRect().left()


@pytest.mark.parametrize(
    "source",
    ["# {}", "{}", "- {}", "1. {}", "> {}", "- [x] {}", "- item\n  - {}", "**{}** with English words", "123 {}"],
)
@pytest.mark.parametrize("word", ["שלום", "مرحبا"])
def test_each_block_takes_the_direction_of_its_first_letter(
    qtbot: QtBot, view: MarkdownView, source: str, word: str
) -> None:
    show(qtbot, view, f"English first\n\n{source.format(word)}\n\nlast {word}")
    assert block_with(view, word).textDirection() is RTL
    assert text_left(view, word) > 200
    assert block_with(view, "last").textDirection() is LTR
    assert text_left(view, "English first") < 10


def test_code_is_always_left_to_right(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "```python\n# שלום\n```\n\n- שלום\n\n  ```\n  מה\n  ```")
    assert block_with(view, "# שלום").textDirection() is LTR
    assert block_with(view, "מה").textDirection() is LTR


def test_the_bar_of_a_quote_stands_where_its_text_begins(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "> שלום\n> עולם")
    view.set_widths(400, 600)
    form = block_with(view, "שלום").blockFormat()
    assert form.rightMargin() == 200 + 16 and form.leftMargin() == 0
    image = view.grab().toImage()
    y = view.height() // 2
    ground = image.pixelColor(300, 1)
    assert image.pixelColor(398, y) != ground
    assert image.pixelColor(1, y) == ground


def test_a_table_begins_on_the_right(qtbot: QtBot, view: MarkdownView) -> None:
    table = "| שם | ערך | מחיר |\n|---|---|---|\n| אחת | one | 1 |"
    show(qtbot, view, table, [Piece(text=table[:-4], round=1), Piece(text=table[-4:], round=2, drafter="model")])
    first, second, third = (view.cursorRect(view.document().find(text)).x() for text in ("שם", "ערך", "מחיר"))
    assert first > second > third
    block = block_with(view, "שם")
    place = view.document().documentLayout().blockBoundingRect(block)
    assert abs(place.left() + block.layout().lineAt(0).naturalTextRect().right() - 500) < 3  # in line with prose
    view.selectAll()
    assert view.createMimeDataFromSelection().text() == "שם\tערך\tמחיר\nאחת\tone\t1"
    view.set_show_drafted(True)
    assert tool_tip(view, "1").startswith("Drafted by the draft model")
    assert tool_tip(view, "אחת") == ""
    assert view.set_find("one") == 1
    assert view.show_find(0) is not None


def test_chinese_and_japanese_break_anywhere_and_keep_their_lines_apart(qtbot: QtBot, view: MarkdownView) -> None:
    text = "これは長い文章なので折り返しが必要です。" * 40
    show(qtbot, view, f"{text}\n\n{'这是一个很长的句子，需要换行。' * 40}")
    for start in ("これ", "这是"):
        layout = block_with(view, start).layout()
        lines = [layout.lineAt(number) for number in range(layout.lineCount())]
        assert len(lines) > 3
        assert all(line.naturalTextWidth() > 400 for line in lines[:-1])
        steps = {round(below.y() - line.y()) for line, below in pairwise(lines)}
        assert max(steps) - min(steps) <= 1
        assert min(steps) >= lines[0].ascent() + lines[0].descent()


def test_emphasis_is_closed_while_it_is_written_between_chinese_letters(qtbot: QtBot, view: MarkdownView) -> None:
    write(qtbot, view, "这是**强")
    assert view.document().toPlainText() == "这是强"


def test_tasks_have_check_marks_that_cannot_be_clicked(qtbot: QtBot, view: MarkdownView) -> None:
    source = "- [ ] open\n- [x] done\n- plain\n  - [x] below"
    shown = show(qtbot, view, source)
    assert shown == "☐ open\n☑ done\nplain\n☑ below"
    for word in ("☐", "☑"):
        place = view.cursorRect(view.document().find(word)).center()
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert view.document().toPlainText() == shown
    assert view.content == source
    view.selectAll()
    view.copy()
    assert QGuiApplication.clipboard().text() == source
    assert show(qtbot, view, "- [X] capital") == "☑ capital"


def test_plain_text_has_no_marks(qtbot: QtBot) -> None:
    source = (
        "# Title\n\nSome **bold** `code` and a [link](https://example.org).\n\n- one\n- two\n  1. three\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n\ny = 2\n```\n\n> said\n\n---\n\nend"
    )
    assert plain_text(source) == (
        "Title\n\nSome bold code and a link.\n\n- one\n- two\n  1. three\n\na\tb\n1\t2\n\nx = 1\n\ny = 2\n\nsaid\n\nend"
    )
    assert plain_text("") == ""


def test_raw_text_is_the_source_in_the_fixed_width_font(qtbot: QtBot, view: MarkdownView) -> None:
    source = "# Title\n\n**bold** [link](https://example.org)\n\n```py\nx\n```"
    shown = show(qtbot, view, source)
    view.set_raw(True)
    settle(qtbot, view)
    assert view.document().toPlainText() == source
    assert view.document().begin().begin().fragment().charFormat().font().fixedPitch()
    assert view.content == source
    view.set_raw(False)
    settle(qtbot, view)
    assert view.document().toPlainText() == shown
