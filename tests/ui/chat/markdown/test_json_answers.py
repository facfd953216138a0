"""Answers that are JSON as a whole."""

from __future__ import annotations

import json

from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage
from app.protocol.events import Piece
from app.ui.chat.markdown.view import MarkdownView

JSON = '{\n  "a_b": "*x* `y` \\"q\\"",\n\n  "list": [1, 2],\n  "```": "<b>"\n}'


def of_json(qtbot: QtBot) -> MarkdownView:
    view = MarkdownView(language="json")
    qtbot.addWidget(view)
    view.set_widths(500, 700)
    view.show()
    return view


def test_they_are_one_block_of_code_as_they_grow_and_when_they_are_whole(qtbot: QtBot) -> None:
    growing, whole = of_json(qtbot), of_json(qtbot)
    whole.set_text(JSON)
    for character in JSON:
        growing.append_pieces([Piece(text=character)])
    growing.finish()
    for view in (growing, whole):
        qtbot.waitUntil(lambda one=view: one.is_drawn)  # type: ignore[misc]
        (run,) = view._rendering.code_runs
        assert (run.language, run.is_closed) == ("json", True)
        assert view.toPlainText() == JSON
        assert view.content == JSON
        assert view.set_find("*x*") == 1 and view.set_find("x `y`") == 0


def test_raw_they_are_the_same_text_without_the_block(qtbot: QtBot) -> None:
    view = of_json(qtbot)
    view.set_text(JSON)
    view.set_raw(True)
    qtbot.waitUntil(lambda: view.is_drawn)
    assert view._rendering.code_runs == [] and view.toPlainText() == JSON


def test_a_message_says_whether_it_is_json() -> None:
    def language(settings: dict[str, object]) -> str:
        message = StoredMessage("a", "c", None, "assistant", "{}", "complete", 0.0, settings_json=json.dumps(settings))
        return message.code_language

    assert language({"format": {"kind": "json_schema", "source": "{}"}}) == "json"
    assert language({"format": {"kind": "regex", "source": '"json_'}}) == ""
    assert language({"format": None, "system_prompt": '"json_'}) == language({}) == ""
