"""What a model thought, in the transcript: folded, opened, streamed, found, copied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage, pack, to_json
from app.protocol.events import Figures, Piece, Round
from app.ui.chat.answer import AnswerMessage, ThinkingPart
from app.ui.chat.footer import thinking_title
from app.ui.chat.live_answer import ThinkingClock
from app.ui.chat.transcript import Transcript
from tests.ui.chat import stored
from tests.ui.chat.stored import actions_of, calls, settle, show

THOUGHT = "The user wants **words**.\n\n- one\n- two\n\n```py\nx = 1\n```"
FIGURES = Figures(completion_tokens=20, thinking_tokens=12, thinking_seconds=12.2)


def thought(text: str, thinking: str = THOUGHT, message_id: str = "a", **changes: object) -> StoredMessage:
    pieces = [Piece(text=thinking, thinking=True, drafter="model"), Piece(text=text)]
    message = stored.answer(message_id, text, figures=FIGURES)
    return replace(message, thinking=thinking, provenance_json=to_json(pack(pieces)), **changes)  # type: ignore[arg-type]


def answer(transcript: Transcript, place: int = -1) -> AnswerMessage:
    widget = transcript.column.entries[place].widget
    assert isinstance(widget, AnswerMessage)
    return widget


def part_of(transcript: Transcript, place: int = -1) -> ThinkingPart:
    part = answer(transcript, place).thinking
    assert part is not None and part.isVisible()
    return part


def is_laid_out(part: ThinkingPart) -> bool:
    return part.view is not None


def title(part: ThinkingPart) -> str:
    return part.button.text().replace("\u00a0", " ")


def top_of(transcript: Transcript, part: ThinkingPart) -> int:
    return part.button.mapTo(transcript.column.viewport(), QPoint(0, 0)).y()


def test_thinking_is_folded_until_it_is_opened_by_mouse_or_key(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, thought("The **answer**."))
    part = part_of(transcript)
    assert (title(part), part.button.accessibleName()) == ("Thought for 12 s", "Thought for 12 s, closed")
    assert not is_laid_out(part)
    QTest.mouseClick(part.button, Qt.MouseButton.LeftButton)
    settle(qtbot, transcript)
    assert part.view is not None and part.view.isVisible()
    assert part.view.document().toPlainText() == "The user wants words.\none\ntwo\nx = 1"
    assert part.button.accessibleName() == "Thought for 12 s, open"
    assert answer(transcript).view.y() >= part.geometry().bottom()
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Space, Qt.Key.Key_Enter):
        was_open = part.is_open
        part.button.setFocus()
        QTest.keyClick(part.button, key)
        assert part.is_open is not was_open
        assert part.view.isVisible() is part.is_open
    assert answer(transcript).view.content == "The **answer**."  # what is copied


@pytest.mark.parametrize("follows", [True, False], ids=["at the end", "further up"])
def test_opening_and_closing_leave_the_button_where_it_is(qtbot: QtBot, transcript: Transcript, follows: bool) -> None:
    for number in range(6):
        transcript.add_all([stored.question(f"u{number}", "Why? " * 40)])
        transcript.add_all([thought("Because. " * 60, "Well, well. " * 400, f"a{number}")])
    settle(qtbot, transcript)
    if not follows:
        bar = transcript.column.verticalScrollBar()
        bar.setValue(bar.maximum() // 2)
        settle(qtbot, transcript)
    messages = [one.widget for one in transcript.column.built() if isinstance(one.widget, AnswerMessage)]
    parts = [one.thinking for one in messages if one.thinking is not None]
    part = next(one for one in parts if 0 <= top_of(transcript, one) < 500)
    before = top_of(transcript, part)
    part.button.click()
    settle(qtbot, transcript)
    assert part.view is not None and part.view.height() > 600
    assert top_of(transcript, part) == before
    assert transcript.newest_button.isVisible()
    part.button.click()
    settle(qtbot, transcript)
    if not follows:
        assert top_of(transcript, part) == before
    else:
        assert transcript.column.follows
        assert not transcript.newest_button.isVisible()


def test_a_choice_stays_while_the_message_is_out_of_sight(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add_all([thought("First.", message_id="first"), stored.question("u", "Why? " * 9000)])
    transcript.add_all([stored.answer(f"b{number}", "Words. " * 900) for number in range(20)])
    settle(qtbot, transcript)
    widget = transcript.show_message("first")
    assert isinstance(widget, AnswerMessage) and widget.thinking is not None
    widget.thinking.button.click()
    settle(qtbot, transcript)
    transcript.column.go_to_end()
    settle(qtbot, transcript)
    qtbot.waitUntil(lambda: transcript.column.entries[0].widget is None)
    again = transcript.show_message("first")
    assert isinstance(again, AnswerMessage) and again.thinking is not None and again.thinking.is_open


def test_an_answer_that_has_only_thinking_says_how_it_ended(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add_all([stored.answer("plain", "Plain.")])
    transcript.add_all([thought("Nothing thought.", " \n", "b")])
    transcript.add_all([thought("", message_id="ended", finish_reason="end")])
    show(qtbot, transcript, thought("", status="stopped", finish_reason="cancelled"))
    assert answer(transcript, 0).thinking is None and answer(transcript, 1).thinking is None
    note = answer(transcript, 2).note
    assert note is not None and note.text() == "The model stopped after thinking, without writing an answer."
    assert title(part_of(transcript, 2)) == "Thought for 12 s"
    assert title(part_of(transcript)) == "Stopped thinking after 12 s"
    assert not answer(transcript).view.isVisible()
    assert answer(transcript).spoken() == "Guide: Stopped thinking after 12 s, closed"
    buttons = answer(transcript).buttons
    assert buttons.own["regenerate"].isVisible() and not buttons.copy_button.isVisible()
    menu = QMenu()
    qtbot.addWidget(menu)
    answer(transcript).fill_menu(menu)
    assert [action.text() for action in menu.actions()][:2] == ["Copy thinking", "Show raw text"]


def test_thinking_counts_up_and_is_laid_out_only_when_it_is_opened(qtbot: QtBot, transcript: Transcript) -> None:
    stopped = calls(transcript, "skip_thinking")
    seconds = [3.2]
    transcript.begin_answer(stored.answer("a"), lambda: seconds[0])
    transcript.append_pieces([Piece(text="", thinking=True)])
    empty = answer(transcript).thinking
    assert empty is None or not empty.isVisible()
    transcript.append_pieces([Piece(text="Let me see. ", thinking=True)])
    settle(qtbot, transcript)
    part = part_of(transcript)
    assert title(part) == "Thinking… 3 s"
    seconds[0] = 4.4
    qtbot.waitUntil(lambda: title(part) == "Thinking… 4 s")
    assert part.button.accessibleName() == "Thinking, closed"  # not a new name each second
    assert not is_laid_out(part)
    assert part.stop_button is not None
    QTest.mouseClick(part.stop_button, Qt.MouseButton.LeftButton)
    assert stopped == [()] and not part.stop_button.isEnabled()
    part.button.click()
    transcript.append_pieces([Piece(text="Yes.", thinking=True)])
    settle(qtbot, transcript)
    assert part.view is not None and part.view.document().toPlainText() == "Let me see. Yes."
    seconds[0] = 65
    transcript.append_pieces([Piece(text="", thinking=True), Piece(text="The answer.")])
    settle(qtbot, transcript)
    assert title(part) == "Thought for 1 min 5 s"
    assert not part.stop_button.isVisible()
    assert answer(transcript).view.document().toPlainText() == "The answer."
    transcript.finish_answer(thought("The answer.", "Let me see. Yes."))
    settle(qtbot, transcript)
    assert title(part) == "Thought for 12 s" and part.is_open
    assert not part._timer.isActive()
    actions_of(transcript).disabled.add("skip_thinking")  # where nothing can stop it
    transcript.begin_answer(stored.answer("b"))
    transcript.append_pieces([Piece(text="Hm.", thinking=True)])
    settle(qtbot, transcript)
    assert part_of(transcript).stop_button is None


def test_opened_while_it_streams_it_stays_where_it_is_and_may_grow_below_the_screen(
    qtbot: QtBot, transcript: Transcript
) -> None:
    for number in range(4):
        transcript.add_all([stored.question(f"u{number}", "Why? " * 40)])
        transcript.add_all([stored.answer(f"b{number}", "Because. " * 60)])
    transcript.begin_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text="Well, well.\n\n", thinking=True) for _ in range(200)])
    settle(qtbot, transcript)
    part = part_of(transcript)
    before = top_of(transcript, part)
    part.button.click()
    settle(qtbot, transcript)
    for _ in range(5):
        transcript.append_pieces([Piece(text="More of it. ", thinking=True) for _ in range(50)])
        settle(qtbot, transcript)
        assert top_of(transcript, part) == before
    transcript.finish_answer(thought(""))
    settle(qtbot, transcript)


def test_matches_in_the_thinking_come_first(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, thought("A word, and another word."))
    transcript.set_find("word")
    in_answer = transcript.show_match("a", 1)
    assert in_answer is answer(transcript).view and not is_laid_out(part_of(transcript))
    in_thinking = transcript.show_match("a", 0)
    settle(qtbot, transcript)
    assert in_thinking is part_of(transcript).view
    assert in_thinking is not None and in_thinking.find_box() is not None


def test_the_clock_counts_as_the_engine_does() -> None:
    clock = ThinkingClock(2.0)
    assert clock.seconds() == 2.0
    thinking = [Piece(text="a", thinking=True)]
    clock.add([Round(index=0, verify_passes=0, pieces=thinking, tokens=1, time=1.0)])
    clock.add([Round(index=1, verify_passes=1, pieces=thinking, tokens=1, time=4.5)])
    assert clock.seconds() >= 5.5  # still thinking
    clock.add([Round(index=2, verify_passes=1, pieces=[Piece(text="b")], tokens=1, time=9.0)])
    assert clock.seconds() == 5.5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"text": "Yes."}, "Thought for 12 s"),
        ({"text": "Yes.", "status": "stopped", "finish_reason": "cancelled"}, "Thought for 12 s"),
        ({"text": "", "finish_reason": "length"}, "Stopped thinking after 12 s"),
        ({"text": "", "status": "interrupted"}, "Stopped thinking after 12 s"),
        ({"text": "Yes.", "figures_json": "{}"}, "Thinking"),
        ({"text": "", "status": "interrupted", "figures_json": "{}"}, "Stopped thinking"),
    ],
)
def test_what_stands_above_the_thinking(changes: dict[str, str], expected: str) -> None:
    message = replace(thought("Yes."), **changes)  # type: ignore[arg-type]
    assert thinking_title(message).replace("\u00a0", " ") == expected


def test_thinking_that_turns_out_to_be_the_answer_is_shown_as_one(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.begin_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text=THOUGHT, thinking=True)])
    settle(qtbot, transcript)
    assert part_of(transcript).isVisible()
    transcript.finish_answer(stored.answer("a", THOUGHT))
    settle(qtbot, transcript)
    shown = answer(transcript)
    assert shown.thinking is None and shown.view.isVisible() and shown.view.content == THOUGHT
