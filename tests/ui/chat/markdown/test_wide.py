"""What is wider than its place: scrolled sideways, wrapped, copied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QTextTable, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QScrollBar
from pytestqt.qtbot import QtBot

from app.ui.chat.markdown.code_blocks import CodeHeader, code_wrap
from app.ui.chat.markdown.view import MarkdownView
from tests.ui.chat.markdown.test_view import settle, show, write

WORD = "Donaudampfschifffahrtsgesellschaft"
TABLE = f"| name | {WORD} |\n|---|---|\n" + f"| {WORD} | {WORD}{WORD[:20]} |\n" * 3
WIDE = f"words\n\n{TABLE}\nmore words"
CODE = "```python\nx = '" + "long " * 60 + "end'\n```"


@pytest.fixture(autouse=True)
def no_wrap() -> Iterator[None]:
    yield
    code_wrap().set_on(False)


def bars(view: MarkdownView) -> list[QScrollBar]:
    found = [bar for bar in view.viewport().findChildren(QScrollBar) if not bar.isHidden()]
    return sorted(found, key=lambda bar: bar.y())


def header(view: MarkdownView) -> CodeHeader:
    (found,) = [one for one in view.findChildren(CodeHeader) if not one.isHidden()]
    return found


def turn_wheel(view: MarkdownView, y: int, modifiers: Qt.KeyboardModifier, delta: QPoint) -> bool:
    place = QPointF(20, y)
    pressed, phase = Qt.MouseButton.NoButton, Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(place, view.viewport().mapToGlobal(place), QPoint(), delta, pressed, modifiers, phase, False)
    QApplication.sendEvent(view.viewport(), event)
    return event.isAccepted()


def test_a_wide_table_is_scrolled_and_the_view_is_not(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, WIDE)
    view.set_widths(300, 320)
    (bar,) = bars(view)
    assert view.width() == 320
    assert view.horizontalScrollBar().maximum() == 0
    assert bar.maximum() > 300
    (part,) = view.wide.parts
    block = view.document().find(f"{WORD}{WORD[:20]}").block()
    assert block.layout().lineCount() == 1  # no cell is cut or broken
    right = view.document().documentLayout().blockBoundingRect(block).left()
    right += block.layout().lineAt(0).naturalTextWidth()
    assert right <= part.width == bar.maximum() + bar.pageStep()
    before = view.grab().toImage()
    bar.setValue(bar.maximum())
    after = view.grab().toImage()
    above = view.rect().adjusted(0, 0, 0, part.place.top() - 1 - view.rect().bottom())
    assert before.copy(above) == after.copy(above)
    assert before.copy(part.place) != after.copy(part.place)
    view.set_widths(1200, 1200)
    assert bars(view) == [] and view.wide.parts == []
    view.set_widths(300, 320)
    assert len(bars(view)) == 1


@pytest.mark.parametrize("before", ["words\n\n", ""])
@pytest.mark.parametrize("after", ["", "\nmore words", "\n# Heading", "\n```\ncode\n```"])
def test_the_scroll_bar_covers_nothing(qtbot: QtBot, view: MarkdownView, before: str, after: str) -> None:
    show(qtbot, view, f"{before}{TABLE}{after}")
    view.set_widths(300, 320)
    (bar,) = bars(view)
    (part,) = view.wide.parts
    layout, document = view.document().documentLayout(), view.document()
    last, below = document.findBlock(part.end - 1), document.findBlock(part.end + 1)
    assert last.text().startswith(WORD)
    assert bar.y() >= layout.blockBoundingRect(last).bottom()
    assert bar.geometry().bottom() < view.height()
    if after:
        top = header(view).y() if "`" in after else layout.blockBoundingRect(below).top()
        assert bar.geometry().bottom() < top + 1


def test_the_keyboard_scrolls_a_table_and_the_wheel_with_shift_only(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, WIDE)
    view.set_widths(300, 320)
    (bar,), (part,) = bars(view), view.wide.parts
    assert bar.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert bar.accessibleName() == "Scroll this table sideways"
    QTest.keyClick(bar, Qt.Key.Key_Right)
    moved = bar.value()
    assert moved > 0
    QTest.keyClick(bar, Qt.Key.Key_End)
    assert bar.value() == bar.maximum()
    QTest.keyClick(bar, Qt.Key.Key_Left)
    assert bar.value() == bar.maximum() - moved
    bar.setValue(0)
    inside, none = part.place.center().y(), Qt.KeyboardModifier.NoModifier
    assert not turn_wheel(view, inside, none, QPoint(0, -120))
    assert not turn_wheel(view, 2, Qt.KeyboardModifier.ShiftModifier, QPoint(0, -120))
    assert bar.value() == 0
    assert turn_wheel(view, inside, Qt.KeyboardModifier.ShiftModifier, QPoint(0, -120))
    assert bar.value() == 120
    assert turn_wheel(view, inside, none, QPoint(-30, 5))
    assert bar.value() == 150


def test_what_is_seen_is_what_the_mouse_selects(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, f"| name | second | third | fourth |\n|---|---|---|---|\n| {WORD} | {WORD} | {WORD} | target |")
    view.set_widths(300, 320)
    (bar,) = bars(view)
    bar.setValue(bar.maximum())
    cursor = view.document().find("target")
    cursor.setPosition(cursor.selectionStart() + 2)
    place = view.cursorRect(cursor).center() - QPoint(bar.value(), 0)
    assert 0 <= place.x() < 320
    QTest.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    QTest.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, pos=place)  # else it stays pressed for later tests
    assert view.textCursor().selectedText() == "target"
    assert view.grab().toImage() is not None


def test_a_table_that_is_written_keeps_its_place(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_widths(300, 320)
    write(qtbot, view, TABLE)
    bars(view)[0].setValue(100)
    write(qtbot, view, f"| {WORD} | last |\n")
    (bar,) = bars(view)
    assert bar.value() == 100
    assert "last" in view.document().toPlainText()


def test_the_parts_of_a_long_table_move_together(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "| a | b |\n|---|---|\n" + f"| {WORD} | {WORD} |\n" * 100)
    view.set_widths(300, 320)
    first, *others = bars(view)
    assert others
    others[-1].setValue(50)
    assert {bar.value() for bar in (first, *others)} == {50}
    assert len({part.width for part in view.wide.parts}) == 1


def test_a_table_is_copied_with_tabs_and_as_markdown_and_by_its_menu(qtbot: QtBot, view: MarkdownView) -> None:
    table = "| a | **b** |\n|---|---|\n| 1 | 2 |"
    show(qtbot, view, f"before\n\n{table}\n\nafter")
    view.selectAll()
    data = view.createMimeDataFromSelection()
    assert data.text() == "before\n\na\tb\n1\t2\n\nafter"
    assert bytes(data.data("text/markdown").data()).decode() == f"before\n\n{table}\n\nafter"
    assert "<td>2</td>" in data.html() and "<strong>b</strong>" in data.html() and "style" not in data.html()
    place = view.cursorRect(view.document().find("1")).center()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    for text, copied in (("Copy table as Markdown", table), ("Copy table as text", "a\tb\n1\t2")):
        menu = QMenu(view)
        position = view.cursorForPosition(place).position()
        view.add_table_actions(menu, position)
        next(action for action in menu.actions() if action.text() == text).trigger()
        assert QGuiApplication.clipboard().text() == copied
    menu = QMenu(view)
    view.add_table_actions(menu, view.document().find("after").position())
    assert menu.actions() == []


def test_code_behind_a_table_does_not_cover_it(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "| a |\n|---|\n| 1 |\n\n```\nx\n```")
    table = view.document().frameAt(view.document().find("1").position())
    assert isinstance(table, QTextTable)
    bottom = view.document().documentLayout().frameBoundingRect(table).bottom()
    assert header(view).y() >= bottom - 10


def test_long_lines_of_code_are_scrolled_or_wrapped(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "```\nshort\n```")
    assert bars(view) == []
    show(qtbot, view, f"> words\n\n{CODE}")
    one_line = view.content_height()
    (bar,) = bars(view)
    assert bar.accessibleName() == "Scroll this code sideways"
    code_wrap().set_on(True)
    settle(qtbot, view)
    assert bars(view) == [] and view.content_height() > one_line
    show(qtbot, view, CODE)  # what is drawn later follows
    assert bars(view) == []
    code_wrap().set_on(False)
    settle(qtbot, view)
    assert len(bars(view)) == 1 and view.content_height() < one_line
