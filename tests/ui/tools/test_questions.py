"""What servers ask: the user sees who asks, answers or not, and is never asked two things at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QCheckBox, QComboBox, QLabel, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.tools.messages import UserAsked
from app.ui.tools.questions import QuestionDialog, ToolQuestions
from app.ui.tools.service import ToolService
from tests.support.keyrings import MemoryKeyring
from tests.support.scripted_tools import COMMAND
from tests.ui.parts import Rig

FIELDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number"},
        "color": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]},
        "mails": {"type": "boolean", "default": True},
    },
    "required": ["name", "size"],
}


class Asked:
    """A service that only notes what is replied, and what asks."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.rig = Rig(qtbot, folder, "stream")
        self.window = QWidget()
        qtbot.addWidget(self.window)
        self.service = ToolService(folder, self.rig.values, self.rig.notice_list, command=COMMAND)
        self.questions = ToolQuestions(self.service, self.rig.queue, self.window)
        self.replies: list[tuple[int, str, dict[str, Any]]] = []
        self.service.reply = lambda question, action, **content: self.replies.append((question, action, content))  # type: ignore[method-assign]

    def ask(self, number: int = 1, **more: Any) -> None:
        given = {"server": "time", "kind": "elicitation", "message": "Who?", "fields": FIELDS} | more
        self.questions.ask(UserAsked(question=number, **given))

    @property
    def dialog(self) -> QuestionDialog:
        assert self.questions.dialog is not None
        return self.questions.dialog


@pytest.fixture
def asked(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[Asked]:
    made = Asked(qtbot, tmp_path)
    yield made
    made.service.close()
    made.rig.close()


def fill(dialog: QuestionDialog, **values: Any) -> None:
    for name, value in values.items():
        widget = dialog.fields[name].widget
        match widget:
            case QLineEdit():
                widget.setText(value)
            case QCheckBox():
                widget.setChecked(value)
            case QComboBox():
                widget.setCurrentIndex(widget.findText(value))


def test_it_says_which_server_asks(asked: Asked) -> None:
    asked.ask(server="ti\u202eme", message="<b>Who?</b>\u202e")
    said = [one.text() for one in asked.dialog.findChildren(QLabel)]
    assert said[0] == "The MCP server “ti\\u202eme” asks you:"
    assert asked.dialog._text.toPlainText() == "<b>Who?</b>\\u202e"


def test_a_form_gives_values_of_its_types(asked: Asked) -> None:
    asked.ask()
    fill(asked.dialog, name="Ann", age="30", height="1.7", color="Green", size="Small", mails=False)
    asked.dialog.accept_button.click()
    content = {"name": "Ann", "age": 30, "height": 1.7, "color": "g", "size": "s", "mails": False}
    assert asked.replies == [(1, "accept", content)]


def test_what_is_optional_may_be_left_out(asked: Asked) -> None:
    asked.ask()
    assert not asked.dialog.accept_button.isEnabled()
    fill(asked.dialog, name="Ann")
    asked.dialog.accept_button.click()
    assert asked.replies == [(1, "accept", {"name": "Ann", "size": "s", "mails": True})]


@pytest.mark.parametrize(
    "wrong", [{"age": "x"}, {"age": "-1"}, {"age": "151"}, {"age": "1.5"}, {"height": "tall"}, {"name": "A"}]
)
def test_what_does_not_fit_can_not_be_sent(asked: Asked, wrong: dict[str, str]) -> None:
    asked.ask()
    fill(asked.dialog, name="Ann")
    assert asked.dialog.accept_button.isEnabled()
    fill(asked.dialog, **wrong)
    assert not asked.dialog.accept_button.isEnabled()


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space])
@pytest.mark.parametrize("kind", ["elicitation", "sampling", "login"])
def test_who_is_typing_when_it_appears_answers_nothing(asked: Asked, kind: str, key: Qt.Key) -> None:
    asked.ask(kind=kind, fields={}, url="https://example.org")
    QTest.keyClick(asked.dialog, key)
    QTest.keyClick(asked.dialog.focusWidget(), key)
    assert asked.dialog.isVisible() and not asked.replies


def test_declining_and_closing(asked: Asked) -> None:
    asked.ask()
    asked.dialog.decline_button.click()
    asked.ask(2)
    QTest.keyClick(asked.dialog, Qt.Key.Key_Escape)
    assert asked.replies == [(1, "decline", {}), (2, "cancel", {})]


def test_one_question_after_the_other_and_none_that_was_withdrawn(asked: Asked) -> None:
    for number in (1, 2, 3, 4):
        asked.ask(number)
    asked.service.withdrawn.emit(3)
    assert asked.dialog.asked.question == 1
    asked.dialog.decline_button.click()
    assert asked.dialog.asked.question == 2
    asked.service.withdrawn.emit(2)
    assert asked.dialog.asked.question == 4
    asked.dialog.decline_button.click()
    assert asked.questions.dialog is None
    assert [number for number, action, _ in asked.replies if action == "decline"] == [1, 4]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"properties": 3},
        {"properties": {"a": 3, "b": {}, "c": {"type": ["string"]}, "d": {"type": "string", "enum": [1, {}]}}},
        {"properties": {"a": {"type": "integer", "default": {}, "title": [], "description": 7, "minimum": "x"}}},
        {"properties": {str(number): {"type": "boolean"} for number in range(500)}, "required": "all"},
        {"properties": {"a": {"type": "string", "oneOf": [3, {"const": 4}], "enumNames": ["x"], "maxLength": None}}},
    ],
)
def test_a_hostile_schema_is_a_form_or_none(asked: Asked, fields: dict[str, Any]) -> None:
    asked.ask(fields=fields)
    assert len(asked.dialog.fields) <= 30
    asked.dialog.decline_button.click()
    assert asked.replies == [(1, "decline", {})]


def test_a_page_is_opened_after_the_yes_alone(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: pages.append(url.toString()))
    url = "https://example.org/login?a=b"
    asked.ask(kind="login", url=url)
    assert url in asked.dialog._text.toPlainText() and not pages
    asked.dialog.decline_button.click()
    assert not pages
    asked.ask(2, kind="login", url=url)
    asked.dialog.accept_button.click()
    assert pages == [url] and asked.replies == [(1, "decline", {}), (2, "accept", {})]
    for number, other in enumerate(("file:///etc/passwd", "javascript:alert(1)", "", "ssh://x"), 3):
        asked.ask(number, kind="login", url=other)
        assert asked.questions.dialog is None and asked.replies[-1] == (number, "decline", {})
    assert len(pages) == 1


def test_the_model_answers_after_the_yes_alone(asked: Asked, qtbot: QtBot) -> None:
    asked.rig.load()
    asked.ask(kind="sampling", message="Write a poem.")
    asked.dialog.decline_button.click()
    assert asked.replies == [(1, "decline", {})]
    asked.ask(2, kind="sampling", message="Write a poem.")
    asked.dialog.accept_button.click()
    qtbot.waitUntil(lambda: len(asked.replies) == 2)
    number, action, content = asked.replies[1]
    assert (number, action) == (2, "accept") and content["text"]


def test_what_the_model_is_asked_has_the_room_of_a_form(asked: Asked) -> None:
    asked.ask(kind="sampling", message="Summarize this: " + "lorem ipsum " * 100)
    asked.dialog.resize(560, 560)
    assert asked.dialog._text.height() > 300


def test_an_answer_that_is_not_needed_any_more_is_given_up(asked: Asked) -> None:
    asked.ask(kind="sampling", message="Write a poem.")
    asked.dialog.accept_button.click()
    assert asked.questions._jobs
    asked.service.withdrawn.emit(1)
    assert not asked.questions._jobs and not asked.replies
