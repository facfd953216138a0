"""Objects and arrays of JSON code are folded, by mouse and by keyboard, and nothing of the text is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.protocol.events import Piece
from app.ui.chat.markdown.code_blocks import MAX_CHARACTERS
from app.ui.chat.markdown.json_folds import Gutter, parts_of
from app.ui.chat.markdown.view import MarkdownView
from tests.ui.chat.markdown.test_view import settle, write

CODE = """{
  "a": "} ] { [ \\" {",
  "list": [
    1,
    {
      "b": 2
    }
  ],
  "c": {}
}"""


def view_of(qtbot: QtBot, text: str, pieces: list[Piece] | None = None, **options: Any) -> MarkdownView:
    view = MarkdownView(**options)
    qtbot.addWidget(view)
    view.set_widths(500, 700)
    view.show()
    view.set_text(text, (lambda: pieces) if pieces else None)
    settle(qtbot, view)
    return view


def gutter_of(view: MarkdownView) -> Gutter:
    (gutter,) = (one for one in view.viewport().findChildren(Gutter) if one.isVisible())
    return gutter


def shown(view: MarkdownView) -> list[str]:
    block, lines = view.document().begin(), []
    while block.isValid():
        if block.isVisible():
            lines.append(block.text())
        block = block.next()
    return lines


def click(gutter: Gutter, number: int) -> None:
    place = gutter.places()[number][1]
    QTest.mouseClick(gutter, Qt.MouseButton.LeftButton, pos=QPoint(5, place.center().y()))


def test_parts_are_those_with_lines_inside() -> None:
    assert parts_of(CODE) == [(0, 9), (2, 7), (4, 6)]
    assert parts_of("[{\n1\n},\n{\n2}]") == [(0, 4)]
    assert parts_of('{"a": [\n]}') == parts_of("") == parts_of('"{\n[\n') == parts_of("]}\n]\n") == []
    assert parts_of('[\n"unfinished\n,1\n]') == [(0, 3)]
    assert len(parts_of(json.dumps([[[1]]] * 500, indent=1))) == 1001


def test_a_click_folds_and_the_whole_text_is_copied(qtbot: QtBot) -> None:
    view = view_of(qtbot, CODE, language="json")
    gutter, height = gutter_of(view), view.content_height()
    assert len(gutter.places()) == 3
    click(gutter, 1)
    assert shown(view) == [*CODE.split("\n")[:3], *CODE.split("\n")[7:]]
    assert view.content_height() < height and len(gutter.places()) == 2
    assert view.toPlainText() == CODE == view._code(0)[1]
    view.selectAll()
    view.copy()
    assert QGuiApplication.clipboard().text() == CODE
    view.grab()
    click(gutter, 1)
    assert shown(view) == CODE.split("\n") and view.content_height() == height


def test_the_corners_stay_round_beside_the_marks(qtbot: QtBot) -> None:
    view = view_of(qtbot, CODE, language="json")
    gutter_of(view)
    frame = view._frames.frame(view._rendering.code_runs[0]).toRect()
    image = view.grab().toImage()
    bottom = min(frame.bottom(), image.height() - 1)
    assert image.pixelColor(frame.left(), bottom) == image.pixelColor(min(frame.right(), image.width() - 1), bottom)


def test_the_keyboard_reaches_all_parts(qtbot: QtBot) -> None:
    view = view_of(qtbot, CODE, language="json")
    gutter = gutter_of(view)
    assert gutter.accessibleDescription() == "Lines 1 to 10, shown"
    gutter.clearFocus()
    plain = gutter.grab().toImage()
    view.activateWindow()
    gutter.setFocus()
    qtbot.waitUntil(gutter.hasFocus)
    assert gutter.grab().toImage() != plain
    for key, lines, description in (
        (Qt.Key.Key_Down, 10, "Lines 3 to 8, shown"),
        (Qt.Key.Key_Down, 10, "Lines 5 to 7, shown"),
        (Qt.Key.Key_Left, 9, "Lines 5 to 7, folded"),
        (Qt.Key.Key_Left, 9, "Lines 5 to 7, folded"),
        (Qt.Key.Key_Up, 9, "Lines 3 to 8, shown"),
        (Qt.Key.Key_Return, 6, "Lines 3 to 8, folded"),
        (Qt.Key.Key_Right, 9, "Lines 3 to 8, shown"),
        (Qt.Key.Key_Up, 9, "Lines 1 to 10, shown"),
        (Qt.Key.Key_Space, 2, "Lines 1 to 10, folded"),
        (Qt.Key.Key_Space, 9, "Lines 1 to 10, shown"),
    ):
        QTest.keyClick(gutter, key)
        assert (len(shown(view)), gutter.accessibleDescription()) == (lines, description)


def test_what_is_found_is_shown(qtbot: QtBot) -> None:
    view = view_of(qtbot, CODE, language="json")
    click(gutter_of(view), 0)
    assert shown(view) == ["{", "}"]
    assert view.set_find('"b"') == 1
    assert view.show_find(0) is not None
    assert shown(view) == CODE.split("\n")


def test_it_stays_folded_when_the_text_is_drawn_anew(qtbot: QtBot) -> None:
    view = view_of(qtbot, f"Text.\n\n```json\n{CODE}\n```\n\nMore text.")
    click(gutter_of(view), 1)
    folded = shown(view)
    font = view.font()
    font.setPointSizeF(font.pointSizeF() + 4)
    view.setFont(font)
    settle(qtbot, view)
    assert shown(view) == folded and len(folded) == 8
    view.set_raw(True)
    settle(qtbot, view)
    assert not [one for one in view.viewport().findChildren(Gutter) if one.isVisible()]
    view.set_text(f"```json\n{CODE}\n```")
    view.set_raw(False)
    settle(qtbot, view)
    assert shown(view) == CODE.split("\n")


@pytest.mark.parametrize("text", ["```json\n{\n1\n", "```python\n{\n1\n}\n```", '```json\n{"a": [1, 2]}\n```'])
def test_other_code_and_short_values_have_no_arrows(qtbot: QtBot, text: str) -> None:
    view = MarkdownView()
    qtbot.addWidget(view)
    view.set_widths(500, 700)
    view.show()
    write(qtbot, view, text)
    assert not [one for one in view.viewport().findChildren(Gutter) if one.isVisible()]


def test_very_long_code_has_none(qtbot: QtBot) -> None:
    view = view_of(qtbot, json.dumps(["x" * 80] * (MAX_CHARACTERS // 80), indent=1), language="json")
    assert not view.viewport().findChildren(Gutter)


def test_lines_that_are_too_long_for_the_document(qtbot: QtBot) -> None:
    code = '{\n "a": [ "' + "x" * 9000 + '",\n  1,\n  2\n ],\n "b": 1\n}'
    view = view_of(qtbot, code, language="json")
    gutter = gutter_of(view)
    click(gutter, 1)
    assert "".join(shown(view)) == code.replace("\n", "").replace("  1,  2", "")
    assert view.toPlainText().replace("\n", "") == code.replace("\n", "")


def test_tokens_under_folded_code_are_painted(qtbot: QtBot) -> None:
    code = json.dumps([{"a": number} for number in range(60)], indent=1)
    pieces = [Piece(text=code[at : at + 5], drafter="model") for at in range(0, len(code), 5)]
    view = view_of(qtbot, code, pieces, language="json")
    view.set_show_drafted(True)
    click(gutter_of(view), 3)
    view.grab()
    bottom = view.document().findBlockByNumber(view.document().blockCount() - 1)
    piece = view.piece_at(bottom.position())
    assert piece is not None and piece.text.endswith("]")
