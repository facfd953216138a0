"""The transcript, from the calls of the window to what is on screen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QPlainTextEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import unpack
from app.protocol.messages import DrafterFigures, DraftFigures, Figures, Piece
from app.ui.chat.footer import footer_of
from app.ui.chat.markdown.code_headers import CodeHeader
from app.ui.chat.messages import AnswerMessage, UserMessage
from app.ui.chat.transcript import CONTEXT_TEXT, EXAMPLES, Transcript
from app.ui.widgets import stylesheet, theme
from tests.ui.chat import stored
from tests.ui.chat.stored import FOOTER


@pytest.fixture
def transcript(qtbot: QtBot, no_style_later: None, qapp: QApplication) -> Transcript:
    stylesheet.apply(qapp)
    result = Transcript()
    qtbot.addWidget(result)
    result.resize(800, 600)
    result.show()
    return result


def widget(transcript: Transcript, key: str) -> QWidget:
    entry = next(entry for entry in transcript.column.entries if entry.key == key)
    assert entry.widget is not None
    return entry.widget


def answer(transcript: Transcript, key: str) -> AnswerMessage:
    found = widget(transcript, key)
    assert isinstance(found, AnswerMessage)
    return found


def question(transcript: Transcript, key: str) -> UserMessage:
    found = widget(transcript, key)
    assert isinstance(found, UserMessage)
    return found


def settle(qtbot: QtBot, transcript: Transcript) -> None:
    """Wait until everything near the screen is built and drawn."""

    def is_settled() -> bool:
        built = [entry for entry in transcript.column.entries if entry.widget is not None]
        views = [entry.widget.view for entry in built if isinstance(entry.widget, (UserMessage, AnswerMessage))]
        return not transcript.column._soon.isActive() and all(view.is_drawn for view in views)

    qtbot.waitUntil(is_settled)


def click(button: QAbstractButton) -> None:
    assert button.isVisible()
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def fill(transcript: Transcript, turns: int) -> None:
    for turn in range(turns):
        transcript.add(stored.question(f"u{turn}", f"Question {turn}"))
        transcript.add(stored.answer(f"a{turn}", f"Answer **{turn}**\n\n- one\n- two\n" * 5))


# ---------------------------------------------------------------- an answer


def test_an_answer_streams_in(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.question("u", "What is **this**?"))
    transcript.begin_answer(stored.answer("a"))
    for text in ("Some ", "**bo", "ld** ", "words\n\n", "```py\nx = 1", "\n```"):
        transcript.append_pieces([Piece(text=text)])
    settle(qtbot, transcript)
    assert answer(transcript, "a").view.document().toPlainText() == "Some bold words\nx = 1"
    assert not answer(transcript, "a").footer.isVisible()
    transcript.finish_answer(stored.answer("a", note="Stopped before the end."))
    settle(qtbot, transcript)
    assert answer(transcript, "a").footer.text() == FOOTER
    assert answer(transcript, "a").note.isVisible()
    assert question(transcript, "u").view.document().toPlainText() == "What is **this**?"


def test_pieces_after_the_end_are_ignored(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.append_pieces([Piece(text="lost")])
    transcript.begin_answer(stored.answer("a"))
    transcript.finish_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text="late")])
    settle(qtbot, transcript)
    assert answer(transcript, "a").view.content == ""


def test_reading_the_chat_shows_only_when_it_takes_a_while(
    qtbot: QtBot, transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript.begin_answer(stored.answer("a"))
    transcript.set_prompt_progress(100, 1000)
    assert answer(transcript, "a").progress.isHidden()
    monkeypatch.setattr("app.ui.chat.transcript.PROGRESS_DELAY", 0.0)
    transcript.set_prompt_progress(420, 1000)
    assert answer(transcript, "a").progress.text() == "Reading the chat · 42 %"
    assert "acceptance rate" in answer(transcript, "a").footer.whatsThis()
    transcript.append_pieces([Piece(text="x")])
    assert answer(transcript, "a").progress.isHidden()


def test_a_stored_answer_shows_its_footer_and_version(qtbot: QtBot, transcript: Transcript) -> None:
    drafters = [DrafterFigures(name=name, tested=2, accepted=1, acceptance_rate=0.5) for name in ("model", "ngram")]
    figures = Figures(completion_tokens=214, draft=DraftFigures(drafters=drafters))
    message = stored.answer("a", "text", 2, 3, pieces=[Piece(text="text", drafter="model")], figures=figures)
    transcript.add(message)
    settle(qtbot, transcript)
    details = answer(transcript, "a").footer.accessibleDescription()
    assert [line.partition(":")[0] for line in details.splitlines()] == ["Draft model", "n-grams"]
    assert answer(transcript, "a").footer.whatsThis().endswith(f".\n\n{details}")
    shown = [label.text() for label in answer(transcript, "a").findChildren(QLabel) if label.isVisible()]
    assert footer_of(message) in shown
    assert "2/3" in shown


# ---------------------------------------------------------------- what the user can do


def calls(transcript: Transcript, command: str) -> list[tuple[object, ...]]:
    """What this command of the transcript is called with from now on."""
    found: list[tuple[object, ...]] = []
    setattr(transcript.commands, command, lambda *arguments: found.append(arguments))
    return found


def named(parent: QWidget, name: str) -> QAbstractButton:
    return next(button for button in parent.findChildren(QAbstractButton) if button.accessibleName() == name)


def test_regenerate_copy_and_versions(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.answer("a", "the **source**", 2, 2))
    settle(qtbot, transcript)
    message = answer(transcript, "a")
    regenerated = calls(transcript, "regenerate")
    click(message.regenerate_button)
    assert regenerated == [("a",)]
    (compare,) = message.more_button.menu().actions()
    compared = calls(transcript, "compare")
    compare.trigger()
    assert compared == [("a",)]
    stepped = calls(transcript, "choose_version")
    click(named(message, "Earlier version"))
    assert stepped == [("a", -1)]
    assert not named(message, "Later version").isEnabled()
    click(message.copy_button)
    assert QGuiApplication.clipboard().text() == "the **source**"


def test_editing_a_message(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.question("u", "first", 1, 2))
    settle(qtbot, transcript)
    message = question(transcript, "u")
    click(message.edit_button)
    editor = message.findChild(QPlainTextEdit)
    assert isinstance(editor, QPlainTextEdit)
    assert editor.isVisible()
    editor.setPlainText("  ")
    assert not message.save_button.isEnabled()
    editor.setPlainText("second")
    edited = calls(transcript, "edit")
    click(message.save_button)
    assert edited == [("u", "second")]
    assert not editor.isVisible()


def test_escape_leaves_a_message_as_it_was(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.question("u", "first"))
    settle(qtbot, transcript)
    message = question(transcript, "u")
    click(message.edit_button)
    message.editor.setPlainText("second")
    edited = calls(transcript, "edit")
    QTest.keyClick(message.editor, Qt.Key.Key_Escape)
    assert edited == []
    assert message.view.isVisible()
    assert message.view.content == "first"


def test_while_busy_nothing_can_be_changed(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 1)
    settle(qtbot, transcript)
    transcript.set_busy(True)
    transcript.add(stored.answer("late", "text", 1, 2))
    settle(qtbot, transcript)
    for key in ("a0", "late"):
        assert not answer(transcript, key).regenerate_button.isVisible()
        assert not answer(transcript, key).more_button.isVisible()
        assert not answer(transcript, key).versions.isVisible()
        assert answer(transcript, key).copy_button.isVisible()
    assert not question(transcript, "u0").edit_button.isVisible()
    transcript.set_busy(False)
    assert answer(transcript, "late").regenerate_button.isVisible()
    assert answer(transcript, "late").more_button.isVisible()
    assert answer(transcript, "late").versions.isVisible()


def test_every_control_has_a_name_and_takes_the_focus(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.question("u", "question", 1, 2))
    transcript.add(stored.answer("a", "```py\nx\n```", 1, 2))
    settle(qtbot, transcript)
    buttons = [button for button in transcript.findChildren(QAbstractButton) if button.isVisible()]
    assert len(buttons) >= 10
    for button in buttons:
        assert button.accessibleName(), button.text()
        assert button.focusPolicy() & Qt.FocusPolicy.TabFocus, button.accessibleName()


def test_enter_and_escape_during_composition_belong_to_the_input_method(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.question("u", "before"))
    settle(qtbot, transcript)
    click(question(transcript, "u").edit_button)
    editor = question(transcript, "u").editor
    QApplication.sendEvent(editor, QInputMethodEvent("に", []))
    edited = calls(transcript, "edit")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    QTest.keyClick(editor, Qt.Key.Key_Escape)
    assert editor.isVisible() and edited == []
    done = QInputMethodEvent("", [])
    done.setCommitString("日本")
    QApplication.sendEvent(editor, done)
    QTest.keyClick(editor, Qt.Key.Key_Return)
    assert edited == [("u", "日本")]


# ---------------------------------------------------------------- order of the column


def keys(transcript: Transcript) -> list[str]:
    return [entry.key for entry in transcript.column.entries]


def test_remove_from(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 3)
    settle(qtbot, transcript)
    transcript.remove_from("u1")
    assert keys(transcript) == ["u0", "a0"]
    transcript.remove_from("unknown")
    assert keys(transcript) == ["u0", "a0"]


def test_removing_the_answer_being_written_ends_it(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.begin_answer(stored.answer("a"))
    transcript.append_pieces([Piece(text="x")])
    transcript.remove_from("a")
    transcript.append_pieces([Piece(text="y")])
    transcript.finish_answer(stored.answer("a"))
    settle(qtbot, transcript)
    assert keys(transcript) == []


def test_clear_while_an_answer_is_written(qtbot: QtBot, transcript: Transcript) -> None:
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


def test_the_examples_can_be_chosen(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.show_welcome()
    settle(qtbot, transcript)
    asked = calls(transcript, "ask")
    for text in EXAMPLES:
        click(named(transcript, text))
    assert asked == [(text,) for text in EXAMPLES]
    assert not [button for button in transcript.findChildren(QPushButton) if button.text() == "Keep the guide"]


def test_the_card_of_the_first_start(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.set_guide(True)
    transcript.show_welcome()
    settle(qtbot, transcript)
    opened, hidden = calls(transcript, "open_models"), calls(transcript, "hide_guide_card")
    click(named(transcript, "Open models…"))
    keep = named(transcript, "Keep the guide")
    click(keep)
    assert not keep.isVisible()
    assert opened == hidden == [()]


def test_the_card_proposes_a_pair_to_get(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.set_guide(True)
    transcript.show_welcome()
    transcript.set_proposal("Qwen3 8B, 5.7 GB")
    settle(qtbot, transcript)
    assert any("Qwen3 8B, 5.7 GB" in one.text() for one in transcript.findChildren(QLabel))
    wanted = calls(transcript, "get_proposed")
    click(named(transcript, "Get it with draft"))
    assert wanted == [()]
    transcript.set_proposal("")
    settle(qtbot, transcript)
    assert not [button for button in transcript.findChildren(QPushButton) if button.text() == "Get it with draft"]


def test_a_proposal_changes_no_chat_that_has_messages(transcript: Transcript) -> None:
    transcript.set_guide(True)
    transcript.show_welcome()
    transcript.add(stored.question("u", "Hello"))
    transcript.set_proposal("Qwen3 8B, 5.7 GB")
    assert keys(transcript) == ["u"]


def test_the_first_message_ends_the_welcome(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.set_guide(True)
    transcript.show_welcome()
    transcript.add(stored.question("u", "Hello"))
    assert keys(transcript) == ["u"]


# ---------------------------------------------------------------- scrolling


def test_only_what_is_near_the_screen_is_built(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 150)
    settle(qtbot, transcript)
    built = [entry for entry in transcript.column.entries if entry.widget is not None]
    assert len(transcript.column.entries) == 300
    assert len(built) < 40
    assert built[-1].key == "a149"
    transcript.column.verticalScrollBar().setValue(0)
    settle(qtbot, transcript)
    assert transcript.column.entries[0].widget is not None
    assert question(transcript, "u0").isVisible()


def test_the_view_follows_the_end(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 3)
    transcript.begin_answer(stored.answer("a"))
    bar = transcript.column.verticalScrollBar()
    for _ in range(5):
        transcript.append_pieces([Piece(text="line\n\n" * 10)])
        settle(qtbot, transcript)
        assert bar.value() == bar.maximum() > 0
    assert not transcript.newest_button.isVisible()


def test_the_view_stays_where_the_user_reads(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 5)
    transcript.begin_answer(stored.answer("a"))
    settle(qtbot, transcript)
    bar = transcript.column.verticalScrollBar()
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
    fill(transcript, 60)
    settle(qtbot, transcript)
    bar = transcript.column.verticalScrollBar()
    for _ in range(60):
        seen = next(e for e in transcript.column.entries if e.top + e.height > bar.value() + 300)
        assert seen.widget is not None
        before = seen.widget.y()
        bar.setValue(bar.value() - 150)
        settle(qtbot, transcript)
        if bar.value() == 0:
            break
        assert abs(seen.widget.y() - before - 150) <= 1
    assert bar.value() < bar.maximum()


def test_a_narrow_window_still_fits(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 2)
    transcript.resize(360, 400)
    settle(qtbot, transcript)
    message = answer(transcript, "a1")
    assert message.x() >= 0
    assert message.x() + message.view.width() <= 360


def test_lines_of_prose_are_not_too_long(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.resize(1600, 600)
    transcript.add(stored.answer("a", "word " * 200 + "\n\n```\n" + "x" * 90 + "\n```"))
    settle(qtbot, transcript)
    document = answer(transcript, "a").view.document()
    assert document.firstBlock().layout().lineAt(0).textLength() <= 90
    assert document.lastBlock().layout().lineCount() == 1


def test_tints_are_switched_in_all_messages(qtbot: QtBot, transcript: Transcript) -> None:
    for key in ("a", "b"):
        text = "drafted words"
        pieces = [Piece(text=text, round=3, drafter="model")]
        transcript.add(stored.answer(key, text, pieces=pieces))
    settle(qtbot, transcript)
    plain = [answer(transcript, key).view.grab().toImage() for key in ("a", "b")]
    transcript.set_show_drafted(True)
    assert all(answer(transcript, key).view.grab().toImage() != image for key, image in zip("ab", plain, strict=True))
    transcript.set_show_drafted(False)
    assert all(answer(transcript, key).view.grab().toImage() == image for key, image in zip("ab", plain, strict=True))


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
    transcript.add(stored.answer("a", "words\n\n" * 100))
    settle(qtbot, transcript)
    bar = transcript.column.verticalScrollBar()
    bar.setValue(0)
    settle(qtbot, transcript)
    view = answer(transcript, "a").view
    transcript.column.show_point(view, QPoint(5, 300))
    assert bar.value() == 0
    transcript.column.show_point(view, QPoint(5, 700))
    assert 0 < bar.value() <= 60


def test_a_short_code_block_is_no_wider_than_prose(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.resize(1400, 600)
    transcript.add(stored.answer("a", "```\nx\n```\n\n```\n" + "x" * 95 + "\n```"))
    settle(qtbot, transcript)
    short, long = answer(transcript, "a").view.findChildren(CodeHeader)
    assert short.width() == transcript.column.widths().prose
    assert short.width() < long.width() <= transcript.column.widths().code


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

    def counted(text: str, packed: Sequence[Sequence[object]]) -> list[Piece]:
        asked.append(text.partition("\n")[0])
        return unpack(text, packed)

    monkeypatch.setattr("app.ui.chat.messages.unpack", counted)
    for turn in range(40):
        transcript.add(stored.question(f"u{turn}", f"Question {turn}"))
        transcript.add(stored.answer(f"a{turn}", f"Answer {turn}\n\n" + "words\n\n" * 12))
    settle(qtbot, transcript)
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
    assert answer(transcript, "a39").footer.text() == FOOTER


def test_what_is_in_use_is_not_freed(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.add(stored.question("edited", "My words"))
    transcript.add(stored.answer("selected", "words to copy"))
    fill(transcript, 20)
    transcript.begin_answer(stored.answer("written"))
    transcript.append_pieces([Piece(text="one "), Piece(text="two", drafter="model")])
    settle(qtbot, transcript)
    scroll(qtbot, transcript, 0)
    click(question(transcript, "edited").edit_button)
    answer(transcript, "selected").view.selectAll()
    transcript.column.go_to_end()
    settle(qtbot, transcript)
    transcript.column.setFocus()
    assert {"edited", "selected", "written"} <= built(transcript)
    scroll(qtbot, transcript, 0)
    assert {"edited", "selected", "written"} <= built(transcript)
    assert question(transcript, "edited").editor.toPlainText() == "My words"


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
    assert (message.footer.text(), message.note.text(), message.heading.text()) == (FOOTER, "A note.", "Someone")
    assert message.versions.isVisible()


def test_the_tab_key_goes_from_top_to_bottom_also_after_scrolling_up(qtbot: QtBot, transcript: Transcript) -> None:
    fill(transcript, 12)
    settle(qtbot, transcript)
    bar = transcript.column.verticalScrollBar()
    for value in (bar.maximum() // 2, 0):
        scroll(qtbot, transcript, value)
    shown = [entry.widget for entry in transcript.column.entries if isinstance(entry.widget, AnswerMessage)]
    assert len(shown) >= 4
    buttons: list[QWidget] = [message.copy_button for message in shown]
    order: list[int] = []
    one = transcript.column.nextInFocusChain()
    while one is not None and one is not transcript.column:
        if one in buttons:
            order.append(buttons.index(one))
        one = one.nextInFocusChain()
    assert order == list(range(len(buttons)))


def test_few_messages_are_built_in_one_go_the_newest_first(qtbot: QtBot, transcript: Transcript) -> None:
    for number in range(12):
        transcript.add(stored.answer(str(number), "word"))
    transcript.column.arrange()
    assert [entry.key for entry in transcript.column.entries if entry.widget is not None] == ["9", "10", "11"]
    settle(qtbot, transcript)
    assert all(entry.widget is not None for entry in transcript.column.entries[5:])


def test_messages_as_high_as_the_screen_are_built_one_at_a_time(qtbot: QtBot, transcript: Transcript) -> None:
    for number in range(6):
        transcript.add(stored.answer(str(number), "word\n\n" * 40))

    def built() -> list[str]:
        return [entry.key for entry in transcript.column.entries if entry.widget is not None]

    transcript.column.arrange()
    assert built() == ["5"]
    transcript.column.entries[4].height = 10
    transcript.column.refit(transcript.column.entries[5])
    assert built() == ["5"]  # what draws builds nothing in the same turn of the event loop
    settle(qtbot, transcript)
    assert built()[-1:] == ["5"]
