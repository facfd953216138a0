"""The transcript, from the calls of the window to what is on screen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.chats.model import StoredMessage, unpack
from app.protocol.events import DrafterFigures, DraftFigures, Figures, Piece
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.footer import footer_of
from app.ui.chat.markdown.code_headers import CodeHeader
from app.ui.chat.markdown.folding import folded_length
from app.ui.chat.messages import UserMessage
from app.ui.chat.parts import CONTEXT_TEXT
from app.ui.chat.transcript import Transcript
from app.ui.widgets import theme
from app.ui.widgets.column import MAX_FREED
from app.ui.widgets.entries import Entry
from app.ui.widgets.focus_order import next_in_focus_order
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


def test_a_stored_answer_shows_its_footer_and_version(qtbot: QtBot, transcript: Transcript) -> None:
    drafters = [DrafterFigures(name=name, tested=2, accepted=1, acceptance_rate=0.5) for name in ("model", "ngram")]
    figures = Figures(completion_tokens=214, draft=DraftFigures(drafters=drafters))
    message = stored.answer("a", "text", 2, 3, pieces=[Piece(text="text", drafter="model")], figures=figures)
    show(qtbot, transcript, message)
    footer = answer(transcript, "a").footer
    assert footer is not None
    details = footer.accessibleDescription()
    assert [line.partition(":")[0] for line in details.splitlines()] == ["Draft model", "n-grams"]
    assert "acceptance rate" in footer.whatsThis() and footer.whatsThis().endswith(f".\n\n{details}")
    shown = [label.text() for label in answer(transcript, "a").findChildren(QLabel) if label.isVisible()]
    assert footer_of(message) in shown
    assert "2/3" in shown


# ---------------------------------------------------------------- what the user can do


def test_regenerate_copy_and_versions(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, stored.answer("a", "the **source**", 2, 2))
    message = answer(transcript, "a")
    regenerated = calls(transcript, "regenerate_answer")
    click(message.buttons.regenerate_button)
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
    click(message.buttons.edit_button)
    assert message.editing is not None
    message.editing.text.setPlainText("second")
    QTest.keyClick(message.editing.text, Qt.Key.Key_Escape)
    assert edited == []
    assert message.view.isVisible() and message.view.content == "first"
    click(message.buttons.edit_button)
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
    for key in ("a0", "late"):
        assert not answer(transcript, key).buttons.regenerate_button.isVisible()
        assert not answer(transcript, key).buttons.more_button.isVisible()
        assert answer(transcript, key).buttons.copy_button.isVisible()
    assert not question(transcript, "u0").buttons.edit_button.isVisible()
    versions = answer(transcript, "late").buttons.versions
    assert versions is not None and not versions.isVisible()
    transcript.set_busy(False)
    assert answer(transcript, "late").buttons.regenerate_button.isVisible()
    assert answer(transcript, "late").buttons.more_button.isVisible()
    assert versions.isVisible()


def test_every_control_has_a_name_and_takes_the_focus(qtbot: QtBot, transcript: Transcript) -> None:
    show(qtbot, transcript, stored.question("u", "question", 1, 2), stored.answer("a", "```py\nx\n```", 1, 2))
    buttons = [button for button in transcript.findChildren(QAbstractButton) if button.isVisible()]
    assert len(buttons) >= 10
    for button in buttons:
        assert button.accessibleName(), button.text()
        assert button.focusPolicy() & Qt.FocusPolicy.TabFocus, button.accessibleName()


# ---------------------------------------------------------------- order of the column


def test_remove_from(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 3)
    settle(qtbot, transcript)
    transcript.remove_from("u1")
    assert keys(transcript) == ["u0", "a0"]
    transcript.remove_from("unknown")
    assert keys(transcript) == ["u0", "a0"]
    transcript.begin_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text="x")])
    transcript.remove_from("a")  # while it is written
    transcript.append_pieces([Piece(text="y")])
    transcript.finish_answer(stored.answer("a"))
    settle(qtbot, transcript)
    assert keys(transcript) == ["u0", "a0"]
    transcript.begin_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text="x " * 50_000)])
    transcript.clear()
    fill(transcript, 1)
    settle(qtbot, transcript)
    assert keys(transcript) == ["u0", "a0"]


def test_the_line_where_the_context_begins(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 3)
    transcript.mark_context_start("u1")
    transcript.mark_context_start("u2")
    settle(qtbot, transcript)
    at = keys(transcript).index("u2")
    line = transcript.column.entries[at - 1].widget
    assert line is not None
    assert [label.text() for label in line.findChildren(QLabel)] == [CONTEXT_TEXT]
    assert len(keys(transcript)) == 7
    transcript.mark_context_start(None)
    assert len(keys(transcript)) == 6


# ---------------------------------------------------------------- the empty chat


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


def test_tints_are_switched_in_all_messages(qtbot: QtBot, transcript: Transcript) -> None:
    for key in ("a", "b"):
        pieces = [Piece(text="drafted words", round=3, drafter="model")]
        transcript.add_all([stored.answer(key, "drafted words", pieces=pieces)])
    settle(qtbot, transcript)

    def pictures() -> list[QImage]:
        return [answer(transcript, key).view.grab().toImage() for key in ("a", "b")]

    plain = pictures()
    transcript.set_show_drafted(True)
    assert all(one != other for one, other in zip(pictures(), plain, strict=True))
    transcript.set_show_drafted(False)
    assert pictures() == plain


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
    click(question(transcript, "edited").buttons.edit_button)
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


def test_the_tab_key_goes_from_top_to_bottom_also_after_scrolling_up(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 12)
    settle(qtbot, transcript)
    bar = transcript.column.verticalScrollBar()
    for value in (bar.maximum() // 2, 0):
        scroll(qtbot, transcript, value)
    shown = [entry.widget for entry in transcript.column.entries if isinstance(entry.widget, AnswerMessage)]
    assert len(shown) >= 4
    buttons: list[QWidget] = [message.buttons.copy_button for message in shown]
    order: list[int] = []
    one = next_in_focus_order(transcript.column)
    while one is not transcript.column:
        if one in buttons:
            order.append(buttons.index(one))
        one = next_in_focus_order(one)
    assert order == list(range(len(buttons)))


def test_one_message_is_built_in_a_turn_the_newest_first(qtbot: QtBot, transcript: Transcript) -> None:
    """A turn of the event loop is not longer for a message that comes after another."""
    transcript.add_all([stored.answer(str(number), "word\n\n" * 5) for number in range(12)])
    for count in range(1, 5):
        assert turns().is_waiting(transcript.column)
        transcript.column.take_turn()
        transcript.column.refit(transcript.column.entries[11])  # it is drawn, and no other one is built
        assert built(transcript) == {str(11 - one) for one in range(count)}
    settle(qtbot, transcript)
    assert all(entry.widget is not None for entry in transcript.column.entries[-6:])


def test_what_is_far_is_freed_a_little_in_a_turn(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add_all([stored.question(str(number), "word") for number in range(400)])
    settle(qtbot, transcript)
    old = [entry.widget for entry in transcript.column.entries if entry.widget is not None]
    assert len(old) > 3 * MAX_FREED
    transcript.column.verticalScrollBar().setValue(0)
    far = left = built(transcript)
    while far & left:
        transcript.column.take_turn()
        assert len(left - built(transcript)) <= MAX_FREED
        left = built(transcript)
    settle(qtbot, transcript)
    qtbot.waitUntil(lambda: not any(isValid(widget) for widget in old))


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


def test_of_a_folded_message_only_what_it_shows_stands_there_until_it_is_built(
    qtbot: QtBot, transcript: Transcript
) -> None:
    text = "words " * 3000
    transcript.add_all([stored.answer("a", text), stored.question("q", text), stored.answer("b", "short")])
    for key in ("a", "q"):
        entry = entry_of(transcript, key)
        assert entry.widget is None and entry.text == text[: folded_length(text)] != text
        estimated = entry.height
        transcript.show_message(key)
        settle(qtbot, transcript)
        assert entry.height < 2 * estimated
    assert entry_of(transcript, "b").text == "short"


def test_any_message_can_be_shown_and_reached_with_the_keyboard(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 200)
    settle(qtbot, transcript)
    message = transcript.show_message("a17")
    assert isinstance(message, AnswerMessage)
    settle(qtbot, transcript)
    assert transcript.column.viewport().rect().contains(message.pos() + QPoint(0, 30))
    message.view.setFocus()
    reached: list[QWidget | None] = []
    for _ in range(4):
        QTest.keyClick(QApplication.focusWidget() or transcript, Qt.Key.Key_Tab)
        reached.append(QApplication.focusWidget())
    buttons = message.buttons
    assert reached[:3] == [buttons.copy_button, buttons.regenerate_button, buttons.more_button]
    following = transcript.column.entries[transcript.column.entries.index(entry_of(transcript, "a17")) + 1]
    assert following.widget is not None and following.widget.isAncestorOf(reached[3] or transcript)
    assert transcript.show_message("no such message") is None


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


def test_a_height_that_is_the_real_one_at_last_is_taken(qtbot: QtBot, transcript: Transcript) -> None:
    """Also where the last slice that is drawn of a message makes it no higher."""
    transcript.add_all([stored.question("q", "Write"), stored.answer("long", "words " * 1000)])
    settle(qtbot, transcript)
    entry, message = entry_of(transcript, "long"), answer(transcript, "long")
    real = entry.height
    entry.height += 500
    message.view._is_partial = True
    message.view._draw()
    settle(qtbot, transcript)
    assert entry.height == real


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


def test_the_older_messages_come_in_slices(qtbot: QtBot, sliced: Transcript) -> None:
    messages = numbered(45)
    opened(qtbot, sliced, messages)
    shown = widget(sliced, "44")
    place = shown.y()
    for count in (42, 45):
        sliced.take_turn()
        assert keys(sliced) == [message.id for message in messages[-count:]]
    settle(qtbot, sliced)
    assert not turns().is_waiting(sliced)
    assert widget(sliced, "44") is shown and shown.y() == place


def test_a_chat_whose_end_was_not_shown_comes_in_slices_too(qtbot: QtBot, sliced: Transcript) -> None:
    messages = numbered(25)
    sliced.add_all(messages)
    assert keys(sliced) == [message.id for message in messages[-15:]]
    settle(qtbot, sliced)
    assert keys(sliced) == [message.id for message in messages]


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
