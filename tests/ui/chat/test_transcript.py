"""The transcript, from the calls of the window to what is on screen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage, unpack
from app.protocol.events import Piece
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.markdown.code_blocks import CodeHeader
from app.ui.chat.messages import UserMessage
from app.ui.chat.transcript import Transcript
from app.ui.widgets import theme
from app.ui.widgets.column import Entry
from app.ui.widgets.turns import turns
from tests.ui.chat import stored
from tests.ui.chat.stored import FOOTER, calls, click, keys, named, settle, show


def entry_of(transcript: Transcript, key: str) -> Entry:
    return next(entry for entry in transcript.column.entries if entry.key == key)


def widget(transcript: Transcript, key: str) -> QWidget:
    found = entry_of(transcript, key).widget
    assert found is not None
    return found


def answer(transcript: Transcript, key: str) -> AnswerMessage:
    found = widget(transcript, key)
    assert isinstance(found, AnswerMessage)
    return found


def question(transcript: Transcript, key: str) -> UserMessage:
    found = widget(transcript, key)
    assert isinstance(found, UserMessage)
    return found


def said(part: QLabel | None) -> str:
    assert part is not None and part.isVisible()
    return part.text()


def fill(transcript: Transcript, turns: int) -> None:
    for turn in range(turns):
        transcript.add_all([stored.question(f"u{turn}", f"Question {turn}")])
        transcript.add_all([stored.answer(f"a{turn}", f"Answer **{turn}**\n\n- one\n- two\n" * 5)])


# ---------------------------------------------------------------- an answer


def test_an_answer_streams_in(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add_all([stored.question("u", "What is **this**?")])
    transcript.append_pieces([Piece(text="before the beginning")])
    transcript.begin_answer(stored.answer("a"))
    for text in ("Some ", "**bo", "ld** ", "words\n\n", "```py\nx = 1", "\n```"):
        transcript.append_pieces([Piece(text=text)])
    settle(qtbot, transcript)
    assert answer(transcript, "a").view.document().toPlainText() == "Some bold words\nx = 1"
    assert answer(transcript, "a").footer is None
    transcript.finish_answer(stored.answer("a", note="Stopped before the end."))
    transcript.append_pieces([Piece(text="after the end")])
    settle(qtbot, transcript)
    assert answer(transcript, "a").view.document().toPlainText() == "Some bold words\nx = 1"
    assert said(answer(transcript, "a").footer) == FOOTER
    assert said(answer(transcript, "a").note) == "Stopped before the end."
    assert question(transcript, "u").view.document().toPlainText() == "What is **this**?"


def test_reading_the_chat_shows_only_when_it_takes_a_while(
    qtbot: QtBot, transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript.begin_answer(stored.answer("a"))
    transcript.set_prompt_progress(100, 1000)
    assert answer(transcript, "a").progress is None
    monkeypatch.setattr("app.ui.chat.transcript.PROGRESS_DELAY", 0.0)
    transcript.set_prompt_progress(420, 1000)
    progress = answer(transcript, "a").progress
    assert progress is not None and progress.text() == "Processing the prompt · 42%"
    transcript.append_pieces([Piece(text="x")])
    assert progress.isHidden()


# ---------------------------------------------------------------- what the user can do


def test_regenerate_copy_and_versions(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, stored.answer("a", "the **source**", 2, 2))
    message = answer(transcript, "a")
    regenerated = calls(transcript, "regenerate_answer")
    click(message.buttons.own["regenerate"])
    assert regenerated == [("a",)]
    menu = message.buttons.more_button.menu()
    menu.aboutToShow.emit()
    compared = calls(transcript, "compare_answer")
    next(one for one in menu.actions() if one.text().startswith("Compare")).trigger()
    assert compared == [("a",)]
    stepped = calls(transcript, "choose_version")
    click(named(message, "Earlier version"))
    assert stepped == [("a", -1)]
    assert not named(message, "Later version").isEnabled()
    click(message.buttons.copy_button)
    assert QGuiApplication.clipboard().text() == "the **source**"


def test_editing_a_message(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, stored.question("u", "first", 1, 2))
    message = question(transcript, "u")
    edited = calls(transcript, "edit_message")
    click(message.buttons.own["edit"])
    assert message.editing is not None
    message.editing.text.setPlainText("second")
    QTest.keyClick(message.editing.text, Qt.Key.Key_Escape)
    assert edited == []
    assert message.view.isVisible() and message.view.content == "first"
    click(message.buttons.own["edit"])
    assert message.editing is not None
    editor = message.editing.text
    assert editor.isVisible() and editor.toPlainText() == "first"
    editor.setPlainText("  ")
    assert not message.editing.save_button.isEnabled()
    editor.setPlainText("second")
    click(message.editing.save_button)
    assert edited == [("u", "second", ())]
    assert not editor.isVisible()


def test_an_answer_that_was_not_changed_is_no_new_version(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, stored.question("u", "first"), stored.answer("a", "An **answer**"))
    edited = calls(transcript, "edit_message")
    for key in ("a", "u"):
        message = widget(transcript, key)
        assert isinstance(message, (UserMessage, AnswerMessage))
        message.start_editing()
        assert message.editing is not None
        click(message.editing.save_button)
        assert message.editing is None
    assert edited == [("u", "first", ())]  # which is answered once more


def test_while_busy_nothing_can_be_changed(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 1)
    settle(qtbot, transcript)
    transcript.set_busy(True)
    show(qtbot, transcript, stored.answer("late", "text", 1, 2))
    late = answer(transcript, "late")
    late.set_continues(True)
    assert not late.buttons.own["end"].isVisible()
    for key in ("a0", "late"):
        assert not answer(transcript, key).buttons.own["regenerate"].isVisible()
        assert not answer(transcript, key).buttons.more_button.isVisible()
        assert answer(transcript, key).buttons.copy_button.isVisible()
    assert not question(transcript, "u0").buttons.own["edit"].isVisible()
    versions = late.buttons.versions
    assert versions is not None and not versions.isVisible()
    transcript.set_busy(False)
    assert all(button.isVisible() for button in (*late.buttons.own.values(), late.buttons.more_button, versions))
    late.set_continues(False)
    assert not late.buttons.own["end"].isVisible()


# ---------------------------------------------------------------- scrolling


def test_the_view_stays_where_the_user_reads(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 5)
    transcript.begin_answer(stored.answer("a"))
    bar = transcript.column.verticalScrollBar()
    for _ in range(3):
        transcript.append_pieces([Piece(text="line\n\n" * 10)])
        settle(qtbot, transcript)
        assert bar.value() == bar.maximum() > 0
    assert not transcript.newest_button.isVisible()
    bar.setValue(bar.maximum() // 2)
    settle(qtbot, transcript)  # what comes into view is built, and what is read keeps its place meanwhile
    place = bar.value()
    transcript.append_pieces([Piece(text="line\n\n" * 30)])
    settle(qtbot, transcript)
    assert bar.value() == place
    click(transcript.newest_button)
    settle(qtbot, transcript)
    assert bar.value() == bar.maximum()
    assert not transcript.newest_button.isVisible()


def test_building_what_is_above_moves_nothing(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 30)
    settle(qtbot, transcript)
    bar = transcript.column.verticalScrollBar()
    for _ in range(30):
        seen = next(e for e in transcript.column.entries if e.top + e.height > bar.value() + 300)
        assert seen.widget is not None
        before = seen.widget.y()
        bar.setValue(bar.value() - 150)
        settle(qtbot, transcript)
        if bar.value() == 0:
            break
        assert abs(seen.widget.y() - before - 150) <= 1
    assert bar.value() < bar.maximum()


def test_lines_of_prose_are_not_too_long(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.resize(1600, 600)
    show(qtbot, transcript, stored.answer("a", "word " * 200 + "\n\n```\nx\n```\n\n```\n" + "x" * 95 + "\n```"))
    message, widths = answer(transcript, "a"), transcript.column.widths()
    document = message.view.document()
    assert document.firstBlock().layout().lineAt(0).textLength() <= 90
    assert document.lastBlock().layout().lineCount() == 1
    short, long = message.view.findChildren(CodeHeader)
    assert short.width() == widths.prose < long.width() <= widths.code
    transcript.resize(360, 400)
    settle(qtbot, transcript)
    assert message.x() >= 0
    assert message.x() + message.view.width() <= 360


def test_a_change_of_theme_while_streaming_loses_nothing(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.begin_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text="before\n\n```py\nx = ")])
    settle(qtbot, transcript)
    theme.override(theme.DARK)
    transcript.append_pieces([Piece(text="1\n```\n\nafter")])
    transcript.finish_answer(stored.answer("a"))
    settle(qtbot, transcript)
    assert answer(transcript, "a").view.document().toPlainText() == "before\nx = 1\nafter"


def test_selecting_beyond_the_edge_scrolls(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, stored.answer("a", "words\n\n" * 100))
    bar = transcript.column.verticalScrollBar()
    bar.setValue(0)
    settle(qtbot, transcript)
    view = answer(transcript, "a").view
    transcript.column.show_point(view, QPoint(5, 300))
    assert bar.value() == 0
    transcript.column.show_point(view, QPoint(5, 700))
    assert 0 < bar.value() <= 60


# ---------------------------------------------------------------- long chats


def built(transcript: Transcript) -> set[str]:
    return {entry.key for entry in transcript.column.entries if entry.widget is not None}


def scroll(qtbot: QtBot, transcript: Transcript, value: int) -> None:
    transcript.column.verticalScrollBar().setValue(value)
    settle(qtbot, transcript)


def test_a_long_chat_works_out_only_what_is_shown_and_frees_what_is_far(
    qtbot: QtBot, transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(text: str, packed: Sequence[Sequence[object]], thinking: str) -> list[Piece]:
        asked.append(text.partition("\n")[0])
        return unpack(text, packed, thinking)

    monkeypatch.setattr("app.ui.chat.answer.unpack", counted)
    for turn in range(40):
        transcript.add_all([stored.question(f"u{turn}", f"Question {turn}")])
        transcript.add_all([stored.answer(f"a{turn}", f"Answer {turn}\n\n" + "words\n\n" * 12)])
    settle(qtbot, transcript)
    assert asked == []
    transcript.set_show_drafted(True)
    transcript.grab()
    assert "Answer 39" in asked
    assert "Answer 0" not in asked
    assert len(asked) < 10
    at_the_end = built(transcript)
    bar = transcript.column.verticalScrollBar()
    for value in range(bar.maximum(), 0, -700):
        scroll(qtbot, transcript, value)
    scroll(qtbot, transcript, 0)
    assert not at_the_end & built(transcript)
    assert len(built(transcript)) < 30
    transcript.column.go_to_end()
    settle(qtbot, transcript)
    assert {"u39", "a39"} <= at_the_end & built(transcript)
    assert said(answer(transcript, "a39").footer) == FOOTER


def test_what_is_in_use_is_not_freed(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add_all([stored.question("edited", "My words")])
    transcript.add_all([stored.answer("selected", "words to copy")])
    fill(transcript, 20)
    transcript.begin_answer(stored.answer("written"))
    transcript.append_pieces([Piece(text="one "), Piece(text="two", drafter="model")])
    settle(qtbot, transcript)
    scroll(qtbot, transcript, 0)
    click(question(transcript, "edited").buttons.own["edit"])
    answer(transcript, "selected").view.selectAll()
    transcript.column.go_to_end()
    settle(qtbot, transcript)
    transcript.column.setFocus()
    assert {"edited", "selected", "written"} <= built(transcript)
    scroll(qtbot, transcript, 0)
    assert {"edited", "selected", "written"} <= built(transcript)
    editing = question(transcript, "edited").editing
    assert editing is not None and editing.text.toPlainText() == "My words"
    assert answer(transcript, "selected").view.textCursor().selectedText() == "words to copy"


def test_an_answer_that_was_written_can_be_freed_and_comes_back(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 20)
    transcript.begin_answer(stored.answer("written", author="Someone"))
    transcript.append_pieces([Piece(text="one "), Piece(text="two", drafter="model")])
    pieces = [Piece(text="one "), Piece(text="two", drafter="model")]
    transcript.finish_answer(stored.answer("written", "one two", 2, 3, pieces=pieces, note="A note.", author="Someone"))
    settle(qtbot, transcript)
    scroll(qtbot, transcript, 0)
    assert "written" not in built(transcript)
    transcript.column.go_to_end()
    settle(qtbot, transcript)
    message = answer(transcript, "written")
    assert message.view.content == "one two"
    assert (said(message.footer), said(message.note), message.heading.text()) == (FOOTER, "A note.", "Someone")
    assert message.buttons.versions is not None and message.buttons.versions.isVisible()


def test_what_is_not_built_yet_shows_its_text(qtbot: QtBot, transcript: Transcript) -> None:
    """Someone who drags the scroll bar sees words, not an empty page."""
    fill(transcript, 100)
    settle(qtbot, transcript)
    transcript.column.verticalScrollBar().setValue(0)
    assert not transcript.column.is_complete() and "u0" not in built(transcript)
    before = transcript.column.viewport().grab().toImage()
    ground = before.pixelColor(2, 2)
    prose = range(100, before.width() - 100, 2)
    assert any(before.pixelColor(x, y) != ground for x in prose for y in range(24, 200, 2))
    settle(qtbot, transcript)
    assert transcript.column.is_complete()


@pytest.mark.parametrize(
    "text",
    ["Many words follow here. " * 12 + "\n\n", "- some words of a short line of a list\n"],
    ids=["lower", "higher"],
)
def test_what_is_scrolled_into_before_it_is_drawn_is_read_from_there(
    qtbot: QtBot, transcript: Transcript, text: str
) -> None:
    """Its height was estimated: when the real one is known, the same share of it is above the screen."""
    transcript.add_all([stored.question("q", "Write"), stored.answer("long", text * (7_000 // len(text)))])
    bar, entry = transcript.column.verticalScrollBar(), entry_of(transcript, "long")
    while bar.maximum() <= 1000:  # no longer than that: in each turn of the event loop, more of it is drawn
        QApplication.processEvents()
    estimated = entry.height
    bar.setValue(bar.maximum() * 4 // 5)
    assert 0 < entry.drawn < bar.value() - entry.top
    share = (bar.value() - entry.top) / entry.height
    lowest: list[int] = []
    bar.valueChanged.connect(lowest.append)
    settle(qtbot, transcript)
    assert entry.is_drawn() and entry.height == entry.drawn != estimated
    assert (bar.value() - entry.top) / entry.height == pytest.approx(share, abs=0.01)
    assert min(lowest) > 500


def test_older_messages_that_come_later_move_nothing_that_is_read(qtbot: QtBot, sliced: Transcript) -> None:
    messages = [stored.answer(str(number), f"Answer {number}\n\n" + "words\n\n" * 5) for number in range(50)]
    sliced.show_end(messages[-12:])
    settle(qtbot, sliced)
    scroll(qtbot, sliced, 100)
    shown = next(entry for entry in sliced.column.entries if entry.top > 100)
    before = widget(sliced, shown.key).y()
    sliced.add_all(messages)
    settle(qtbot, sliced)
    assert keys(sliced) == [message.id for message in messages]
    assert widget(sliced, shown.key).y() == before


def test_an_end_that_was_no_longer_true_goes(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.show_end([stored.answer("old", "words")])
    transcript.add_all([stored.answer("a", "words"), stored.answer("b", "words")])
    settle(qtbot, transcript)
    assert keys(transcript) == ["a", "b"]


# ---------------------------------------------------------------- a chat of thousands of messages comes in slices


def numbered(count: int) -> list[StoredMessage]:
    return [stored.question(str(number), f"Question {number}") for number in range(count)]


@pytest.fixture
def sliced(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> Transcript:
    monkeypatch.setattr("app.ui.chat.transcript._AT_ONCE", 15)
    return transcript


def opened(qtbot: QtBot, transcript: Transcript, messages: list[StoredMessage]) -> None:
    """Its end was shown, and one slice of what stands above it was added."""
    transcript.show_end(messages[-12:])
    settle(qtbot, transcript)
    transcript.add_all(messages)
    assert keys(transcript) == [message.id for message in messages[-27:]]
    assert turns().is_waiting(transcript)


def test_slices_stay_above_what_is_sent_and_answered_meanwhile(qtbot: QtBot, sliced: Transcript) -> None:
    messages = numbered(40)
    opened(qtbot, sliced, messages)
    sliced.add_all([stored.question("new", "And now?")])
    sliced.begin_answer(stored.answer("answer"))
    settle(qtbot, sliced)
    assert keys(sliced) == [*(message.id for message in messages), "new", "answer"]
    sliced.clear()
    opened(qtbot, sliced, messages)
    sliced.clear()  # what was still to come of a chat that is left never does
    show(qtbot, sliced, stored.question("another", "Of another chat"))
    assert keys(sliced) == ["another"]


def test_a_message_that_is_still_to_come_can_be_shown(qtbot: QtBot, sliced: Transcript) -> None:
    messages = numbered(60)
    opened(qtbot, sliced, messages)
    shown = sliced.show_message("3")
    assert isinstance(shown, UserMessage)
    assert keys(sliced) == [message.id for message in messages]
    settle(qtbot, sliced)
    assert sliced.column.viewport().rect().contains(shown.pos() + QPoint(0, 10))
    assert keys(sliced) == [message.id for message in messages]


def test_a_message_that_is_still_to_come_can_be_removed_with_what_follows(qtbot: QtBot, sliced: Transcript) -> None:
    opened(qtbot, sliced, numbered(60))
    sliced.remove_from("3")
    settle(qtbot, sliced)
    assert keys(sliced) == ["0", "1", "2"]


def test_the_context_may_begin_in_what_is_still_to_come(qtbot: QtBot, sliced: Transcript) -> None:
    opened(qtbot, sliced, numbered(40))
    sliced.mark_context_start("12")
    settle(qtbot, sliced)
    shown = keys(sliced)
    assert not shown[shown.index("12") - 1].isdigit()  # the line
    assert len(shown) == 41
