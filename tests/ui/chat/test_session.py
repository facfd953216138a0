"""From a typed message to a stored answer, with a scripted engine in a real process and a real store."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.client.connection import Timings
from app.protocol.messages import LoadSettings, Message
from app.ui.chat.conversation import AnswerSettings
from app.ui.engine.interface import EngineState
from app.ui.engine.pair_files import PairFiles
from app.ui.notices import Action
from tests.ui.parts import WAIT_MS, Desk

MakeDesk = Callable[..., Desk]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture
def make_desk(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeDesk]:
    desks = []

    def make(way: str = "well", timings: Timings | None = None) -> Desk:
        desks.append(Desk(qtbot, tmp_path, way, timings))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()


def forbid_writing(desk: Desk, forbidden: bool = True) -> None:
    """Let SQLite refuse to write, as it does on a full or read-only disk."""
    state = "ON" if forbidden else "OFF"
    desk.stored(lambda store: store._connection.execute(f"PRAGMA query_only = {state}").fetchall())


def test_message_and_answer_are_shown_and_stored(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("What is a draft?")
    assert desk.page.texts() == ["What is a draft?", "Hello there"]
    chat_id = desk.session.chat_id()
    assert chat_id is not None
    question, answer = desk.stored(lambda store: store.branch(chat_id))
    assert (question.text, answer.text, answer.status) == ("What is a draft?", "Hello there", "complete")
    assert answer.seed == 7
    assert answer.figures["decode_tokens_per_second"] == 74.0
    assert "74 tok/s" in desk.page.footers[-1].replace("\u00a0", " ")
    assert desk.page.footers[-1].endswith("stopped at the end of the answer")
    assert not desk.page.busy


def test_whoever_else_needs_the_engine_is_told_when_the_chat_does_not(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    assert not desk.session.wants_engine()
    desk.session.send("Nothing is loaded yet")
    assert desk.session.wants_engine()
    qtbot.waitUntil(lambda: desk.page.texts() == ["Nothing is loaded yet"], timeout=WAIT_MS)
    with qtbot.waitSignal(desk.session.engine_released, timeout=WAIT_MS):
        desk.session.stop()
    assert not desk.session.wants_engine()
    desk.load()
    with qtbot.waitSignal(desk.session.engine_released, timeout=WAIT_MS):
        desk.session.regenerate()
        assert desk.session.wants_engine()
    desk.settle()
    assert not desk.session.wants_engine()


def test_how_to_draft_reaches_the_engine_and_is_stored(make_desk: MakeDesk) -> None:
    desk = make_desk("echo")
    desk.load()
    desk.ask("As it is")
    desk.session.settings = AnswerSettings(draft_length=3, drafter="ngram", propose="greedy")
    desk.ask("Otherwise")
    assert desk.page.texts() == ["As it is", "auto auto auto", "Otherwise", "3 ngram greedy"]
    chat_id = desk.session.chat_id()
    assert chat_id is not None
    answers = desk.stored(lambda store: store.branch(chat_id))[1::2]
    assert [(one.settings["draft_length"], one.settings["drafter"]) for one in answers] == [
        ("auto", "auto"),
        (3, "ngram"),
    ]


def test_a_pair_that_got_slower_is_told_once_and_until_it_was_read(make_desk: MakeDesk) -> None:
    desk = make_desk("slower")
    desk.load()
    notice = desk.notice_list.notices()["slower"]
    assert "engine 2" in notice.text and "1.3 ×" in notice.text
    assert notice.actions == (Action.MEASURE, Action.DISMISS)
    desk.load()  # nothing was measured anew, and it may not have been read
    assert desk.notice_list.notices()["slower"] == notice
    with desk.qtbot.waitSignal(desk.pair_loader.pair_opened, timeout=WAIT_MS):
        desk.pair_loader.load(PairFiles(str(desk.target)))
    assert "slower" not in desk.notice_list.notices()


def test_a_draft_that_fails_in_an_answer_is_told(make_desk: MakeDesk) -> None:
    desk = make_desk("draft fails")
    desk.load()
    desk.ask("Go on")
    assert desk.page.texts() == ["Go on", "Hello there"]
    assert desk.notice_list.notices()["draft"].text.endswith("The draft ran out of memory.")


def test_blank_messages_are_not_sent(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    desk.session.send(" \n ")
    assert not desk.session.is_busy()
    assert desk.stored(lambda store: store.chats()) == []


def test_message_sent_while_loading_is_answered_when_ready(make_desk: MakeDesk) -> None:
    desk = make_desk()
    hints: list[str] = []
    desk.session.hint_changed.connect(hints.append)
    desk.pair_loader.load(desk.files())
    desk.ask("Early")
    assert "Your message is sent when the pair is ready." in hints
    assert desk.page.texts() == ["Early", "Hello there"]


def test_message_without_a_model_is_kept_and_answered_later(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("no load")
    with qtbot.waitSignal(desk.engine.load_failed, timeout=WAIT_MS):
        desk.pair_loader.load(desk.files())
    desk.session.send("Anybody?")
    qtbot.waitUntil(lambda: desk.page.texts() == ["Anybody?"], timeout=WAIT_MS)
    assert desk.session.is_busy()
    assert Action.OPEN_MODELS in desk.notice_list.notices()["load"].actions
    desk.session.stop()
    assert not desk.session.is_busy()
    assert Action.ANSWER in desk.notice_list.notices()["unanswered"].actions


def test_stop_keeps_what_was_written(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("endless")
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Go on")
    with qtbot.waitSignal(desk.session.generation_ended, timeout=WAIT_MS):
        desk.session.stop()
    desk.settle()
    answer = desk.session.branch()[-1]
    assert (answer.text, answer.status) == ("Hello there", "stopped")
    assert desk.page.footers[-1].endswith("stopped by you")


def test_regenerate_keeps_the_earlier_version(make_desk: MakeDesk, qtbot: QtBot) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("Again")
    first = desk.session.branch()[-1]
    with qtbot.waitSignal(desk.session.generation_ended, timeout=WAIT_MS):
        desk.session.regenerate()
    desk.settle()
    second = desk.session.branch()[-1]
    assert (second.version, second.versions) == (2, 2)
    assert second.id != first.id
    assert desk.page.texts() == ["Again", "Hello there"]
    desk.session.choose_version(second.id, -1)
    qtbot.waitUntil(lambda: desk.session.branch()[-1].id == first.id, timeout=WAIT_MS)
    assert desk.page.places[-1] == (1, 2)


def test_edit_asks_again_and_keeps_the_old_wording(make_desk: MakeDesk, qtbot: QtBot) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("Frist")
    desk.ask("Second")
    frist = desk.session.branch()[0]
    with qtbot.waitSignal(desk.session.generation_ended, timeout=WAIT_MS):
        desk.session.edit(frist.id, "First")
    desk.settle()
    assert desk.page.texts() == ["First", "Hello there"]
    desk.session.choose_version(desk.session.branch()[0].id, -1)
    qtbot.waitUntil(lambda: desk.page.texts() == ["Frist", "Hello there", "Second", "Hello there"], timeout=WAIT_MS)


@posix
@pytest.mark.allow_logs
def test_engine_killed_in_an_answer_keeps_it_and_one_click_goes_on(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("endless")
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Go on")
    with qtbot.waitSignal(desk.session.generation_ended, timeout=WAIT_MS):
        os.kill(desk.engine.process_id(), signal.SIGKILL)
    desk.settle()
    chat_id = desk.session.chat_id()
    assert chat_id is not None
    answer = desk.stored(lambda store: store.branch(chat_id))[-1]
    assert (answer.text, answer.status) == ("Hello there", "interrupted")
    notice = desk.notice_list.notices()["engine"]
    assert notice.actions == (Action.RESTART, Action.RESTART_PLAIN, Action.COPY_REPORT)
    assert "scripted engine" in desk.pair_loader.report()
    with qtbot.waitSignal(desk.pair_loader.pair_opened, timeout=WAIT_MS):
        desk.pair_loader.restart()
    assert desk.engine.state() is EngineState.READY
    assert "engine" not in desk.notice_list.notices()


@posix
@pytest.mark.allow_logs
def test_message_after_a_death_brings_the_engine_back(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    with qtbot.waitSignal(desk.engine.engine_exited, timeout=WAIT_MS):
        os.kill(desk.engine.process_id(), signal.SIGKILL)
    desk.ask("Are you there?")
    assert desk.page.texts() == ["Are you there?", "Hello there"]


@posix
@pytest.mark.allow_logs
def test_after_three_deaths_the_window_asks(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    for _ in range(3):
        desk.load()
        with qtbot.waitSignal(desk.engine.engine_exited, timeout=WAIT_MS):
            os.kill(desk.engine.process_id(), signal.SIGKILL)
    assert "third time in five minutes" in desk.notice_list.notices()["engine"].text
    desk.session.send("Are you there?")
    qtbot.waitUntil(lambda: desk.page.texts() == ["Are you there?"], timeout=WAIT_MS)
    assert desk.engine.state() is EngineState.DIED


@pytest.mark.allow_logs
def test_an_engine_that_refuses_to_start_is_not_blamed_on_the_pair(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("unable")
    for _ in range(3):
        with qtbot.waitSignal(desk.engine.engine_exited, timeout=WAIT_MS):
            desk.pair_loader.restart()
        assert "pair" not in desk.notice_list.notices()["engine"].text


@pytest.mark.allow_logs
def test_stalled_engine_is_offered_to_be_restarted(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("deaf", Timings(cancel=0.1, quit=0.2))
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Go on")
    with qtbot.waitSignal(desk.engine.engine_stalled, timeout=WAIT_MS):
        desk.session.stop()
    assert desk.notice_list.notices()["stall"].actions == (Action.WAIT, Action.RESTART)
    with qtbot.waitSignal(desk.pair_loader.pair_opened, timeout=WAIT_MS):
        desk.pair_loader.restart()
    desk.settle()
    assert desk.session.branch()[-1].status == "interrupted"
    assert "stall" not in desk.notice_list.notices()


def test_another_pair_in_the_middle_of_an_answer_ends_it(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("endless")
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Go on")
    desk.load()
    desk.settle()
    answer = desk.session.branch()[-1]
    assert (answer.text, answer.status) == ("Hello there", "stopped")


def test_refused_message_says_why_now_and_later(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("refusing")
    desk.load()
    desk.ask("Much too long")
    assert desk.page.notes == ["The message has 9,000 tokens, the context 2,048."]
    chat_id = desk.session.chat_id()
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
        desk.session.new_chat()
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
        desk.session.open_chat(chat_id)
    assert desk.page.notes[1:] == ["The message has 9,000 tokens, the context 2,048."]


def test_line_where_the_context_begins_now_and_later(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("forgetful")
    desk.load()
    desk.ask("One")
    assert [desk.page.context_start] == [None]
    desk.ask("Two")
    second_question = desk.session.branch()[2].id
    assert desk.page.context_start == second_question
    chat_id = desk.session.chat_id()
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
        desk.session.new_chat()
    assert [desk.page.context_start] == [None]
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
        desk.session.open_chat(chat_id)
    assert desk.page.context_start == second_question


def test_withdrawn_regeneration_leaves_the_answer(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("Once")
    first = desk.session.branch()[-1]
    desk.engine.load(str(desk.target), None, LoadSettings())
    desk.session.regenerate()
    assert desk.page.texts() == ["Once"]
    desk.session.stop()
    qtbot.waitUntil(lambda: desk.session.branch()[-1].id == first.id, timeout=WAIT_MS)
    assert desk.page.texts() == ["Once", "Hello there"]


def test_answer_goes_on_while_another_chat_is_shown(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("endless")
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Long one")
    first = desk.session.chat_id()
    assert first is not None
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
        desk.session.new_chat()
    assert desk.page.texts() == []
    assert not desk.session.is_busy()
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
        desk.session.open_chat(first)
    assert desk.page.texts() == ["Long one", "Hello there"]
    assert desk.session.is_busy()
    with qtbot.waitSignal(desk.session.generation_ended, timeout=WAIT_MS):
        desk.session.stop()


def test_unsent_text_is_kept_for_each_chat(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("One")
    chat_id = desk.session.chat_id()
    desk.session.remember_unsent("half a sen")
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS) as shown:
        desk.session.new_chat()
    assert shown.args == [None, ""]
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS) as shown:
        desk.session.open_chat(chat_id)
    assert shown.args == [chat_id, "half a sen"]


def test_unsent_text_that_cannot_be_stored_is_still_there(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("One")
    chat_id = desk.session.chat_id()
    forbid_writing(desk)
    desk.session.remember_unsent("half a sen")
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS) as shown:
        desk.session.new_chat()
    assert shown.args == [None, ""]
    with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS) as shown:
        desk.session.open_chat(chat_id)
    assert shown.args == [chat_id, "half a sen"]
    assert "store" in desk.notice_list.notices()


def test_regeneration_that_cannot_begin_leaves_the_answer(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    desk.ask("One")
    forbid_writing(desk)
    desk.session.regenerate()
    assert desk.page.texts() == ["One"]
    qtbot.waitUntil(lambda: desk.page.texts() == ["One", "Hello there"], timeout=WAIT_MS)
    assert "send" in desk.notice_list.notices()
    assert not desk.session.is_busy()


def test_message_that_cannot_be_stored_comes_back(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    forbid_writing(desk)
    with qtbot.waitSignal(desk.session.send_failed, timeout=WAIT_MS) as failed:
        desk.session.send("Do not lose me")
    assert failed.args == ["Do not lose me"]
    assert "send" in desk.notice_list.notices()
    assert not desk.session.is_busy()


def test_answer_that_cannot_be_stored_can_be_saved_later(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("endless")
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Go on")
    forbid_writing(desk)
    with qtbot.waitSignal(desk.session.generation_ended, timeout=WAIT_MS):
        desk.session.stop()
    qtbot.waitUntil(lambda: "save" in desk.notice_list.notices(), timeout=WAIT_MS)
    assert desk.notice_list.notices()["save"].actions == (Action.SAVE_AGAIN,)
    assert desk.page.texts() == ["Go on", "Hello there"]
    chat_id = desk.session.chat_id()
    assert chat_id is not None
    for shown in (None, chat_id):
        with qtbot.waitSignal(desk.session.chat_shown, timeout=WAIT_MS):
            desk.session.open_chat(shown)
    assert desk.page.texts() == ["Go on", "Hello there"]
    assert desk.session.branch()[-1].status == "stopped"
    forbid_writing(desk, False)
    with qtbot.waitSignal(desk.session.writer.stored, timeout=WAIT_MS):
        desk.session.save_again()
    assert desk.stored(lambda store: store.branch(chat_id))[-1].text == "Hello there"
    assert "save" not in desk.notice_list.notices()


def test_answer_that_was_not_saved_goes_with_its_chat(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk("endless")
    desk.load()
    with qtbot.waitSignal(desk.session.rounds_received, timeout=WAIT_MS):
        desk.session.send("Go on")
    forbid_writing(desk)
    desk.session.stop()
    qtbot.waitUntil(lambda: "save" in desk.notice_list.notices(), timeout=WAIT_MS)
    chat_id = desk.session.chat_id()
    assert chat_id is not None
    question, answer = desk.session.branch()
    forbid_writing(desk, False)
    desk.stored(lambda store: store.delete_chat(chat_id))
    desk.stored(lambda store: store.erase_deleted([chat_id]))
    with qtbot.waitSignal(desk.session.writer.stored, timeout=WAIT_MS):
        desk.session.save_again()  # as the window does when a deletion is final
    assert "save" not in desk.notice_list.notices()
    assert desk.session.writer.newest([question, replace(answer, text="")])[-1].text == ""


def test_pair_that_took_the_app_with_it_is_not_loaded_again_by_itself(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.marker.set(desk.files())
    desk.pair_loader.open_at_start(desk.files())
    assert Action.LOAD_AGAIN in desk.notice_list.notices()["load"].actions
    assert desk.engine.state() is EngineState.STARTING
    assert desk.marker.left_behind() is None


def test_missing_file_is_named(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.draft.unlink()
    desk.pair_loader.load(desk.files())
    assert "draft.gguf" in desk.notice_list.notices()["load"].text
    assert desk.engine.state() is EngineState.STARTING


def test_measuring_reports_the_speed(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.load()
    with qtbot.waitSignal(desk.pair_loader.plain_speed_measured, timeout=WAIT_MS) as measured:
        desk.pair_loader.measure_plain([Message(role="user", content="Hi")], desk.session.settings.sampling, 0)
    assert measured.args == [40.0]
