"""The Compare window beside the chat: what may run, and what happens to it. Scripted engines in real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.chats.store import ChatStore
from app.ui.chat.conversation import AnswerSettings
from app.ui.compare import wording
from app.ui.compare.runner import ENGINE_LOST
from app.ui.compare.tab import CompareTab
from app.ui.engine.interface import EngineState
from app.ui.engine.pair_files import PairFiles
from tests.ui.compare.comparing import Comparing
from tests.ui.compare.conftest import MakeRig
from tests.ui.parts import WAIT_MS
from tests.ui.scripted_engine import OTHER_WORDS, PLAIN_WORDS

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
TEXT = "".join(PLAIN_WORDS)


MakeComparing = Callable[[str], Comparing]


@pytest.fixture
def make(make_rig: MakeRig, dressed: None) -> Iterator[MakeComparing]:
    made = []

    def start(how: str) -> Comparing:
        made.append(Comparing(make_rig(how)))
        return made[-1]

    yield start
    for one in made:
        if isValid(one.presenter):
            one.presenter.close()
        one.close()


def test_an_answer_is_compared_with_its_own_settings(make: MakeComparing) -> None:
    at = make("compare")
    at.chat.settings = AnswerSettings(seed=21, draft_length=3)
    at.chat.ask("What is a draft?")
    at.chat.settings = AnswerSettings()
    at.presenter.compare_answer(at.last_answer())
    assert at.window.isVisible()
    assert at.window.tabs.currentWidget() is at.window.one
    assert at.window.one._title.text() == "What is a draft?"
    assert at.window.one._settings.text().startswith("Seed 21 ·")
    assert "draft length 3" in at.window.one._settings.text()
    at.idle()
    assert at.verdict() == "✓ Same text, 6 tokens, same seed · 2.0× faster · 71% accepted"
    assert at.window.one.plain._text().view.content == TEXT
    assert at.chat.page.texts() == ["What is a draft?", TEXT]  # nothing is added to the chat


def test_the_last_answer_and_a_chat_without_one(make: MakeComparing) -> None:
    at = make("compare")
    at.presenter.compare_last()
    assert at.window.one._empty_text.text() == wording.NO_ANSWER
    at.chat.ask("First")
    at.chat.ask("Second")
    at.presenter.compare_last()
    assert at.window.one._title.text() == "Second"
    at.idle()


def test_where_they_differ_both_sides_are_marked(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare differ")
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    assert at.verdict().startswith("Different starting at token 5 · 2.0× faster · 71% accepted")
    assert "Without a draft: “ friend” (logit 17.310). With a draft: “ foe” (logit 17.306)." in at.verdict()
    for pane, words in ((at.window.one.plain, PLAIN_WORDS), (at.window.one.drafted, OTHER_WORDS)):
        view = pane._text().view
        qtbot.waitUntil(lambda view=view: view.mark_box() is not None, timeout=WAIT_MS)  # type: ignore[misc]
        assert view._mark is not None
        assert view.content[view._mark.start : view._mark.end] == words[4]


def test_an_engine_without_tokens_and_counters(make: MakeComparing) -> None:
    at = make("compare differ nameless")
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    assert at.verdict().startswith("Different starting at character 18 · 2.0× faster Without a draft: “")
    at.window.one.footer.run_button.click()
    at.idle()


def test_a_draft_that_fails_is_told_here_and_not_in_the_chat(make: MakeComparing) -> None:
    at = make("compare draft fails")
    at.chat.settings = AnswerSettings(draft_length=0)
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    assert at.verdict().endswith("Drafting stopped during the run. It ran out of memory.")
    assert "draft" not in at.chat.notice_list.notices()


def test_run_again(make: MakeComparing) -> None:
    at = make("compare")
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    at.window.one.footer.run_button.click()
    assert at.presenter.runner.is_running()
    assert at.verdict() == ""
    assert at.window.one.plain._text().view.content == ""
    at.idle()
    assert at.verdict().startswith("✓ Same text")


@pytest.mark.parametrize("how", ["button", "escape", "close", "program"])
def test_every_way_to_stop(qtbot: QtBot, make: MakeComparing, how: str) -> None:
    at = make("compare endless")
    at.chat.model.send("Hello")
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)
    at.chat.model.stop()
    at.chat.settle()
    at.presenter.compare_last()
    qtbot.waitUntil(lambda: at.window.one.plain._text().view.content != "", timeout=WAIT_MS)
    window = at.window
    if how == "button":
        QTest.mouseClick(window.one.footer.stop_button, Qt.MouseButton.LeftButton)
    elif how == "escape":
        at.escape()
        assert window.isVisible()
    elif how == "close":
        window.close()
    else:
        at.presenter.close()
    assert not at.presenter.runner.is_running()
    if how != "program":
        assert at.verdict() == "Stopped."
        assert window.one.footer.run_button.isEnabled() or how == "close"
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.READY, timeout=WAIT_MS)


def test_escape_closes_what_does_not_run(make: MakeComparing) -> None:
    at = make("compare")
    at.presenter.compare_prompts()
    assert at.window.tabs.currentWidget() is at.window.many
    at.escape()
    assert not at.window.isVisible()


@posix
@pytest.mark.allow_logs
def test_an_engine_that_dies(make: MakeComparing) -> None:
    at = make("compare dies")
    at.chat.settings = AnswerSettings(draft_length=0)
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    assert at.verdict() == ENGINE_LOST
    assert not at.window.one.footer.run_button.isEnabled()
    assert "can restart it" in at.window.one.footer.run_button.toolTip()
    assert at.window.one.plain._text().view.content == TEXT  # what had arrived
    at.chat.pair_loader.restart()
    at.qtbot.waitUntil(at.window.one.footer.run_button.isEnabled, timeout=WAIT_MS)


def test_another_pair_is_told_and_used(make: MakeComparing) -> None:
    at = make("compare")
    at.chat.ask("Hello")
    at.chat.draft.unlink()
    with at.qtbot.waitSignal(at.chat.pair_loader.pair_opened, timeout=WAIT_MS):
        at.chat.pair_loader.load(replace(at.chat.files(), draft=None))
    at.presenter.compare_last()
    note = at.window.one._notes
    assert note.isVisible()
    assert note.text() == (
        "This answer was written by another pair (scripted with the draft scripted draft). "
        "Both runs use the pair that is loaded now."
    )
    at.idle()


def test_a_reload_in_the_middle_ends_it(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare endless")
    at.chat.model.send("Hello")
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)
    at.chat.model.stop()
    at.chat.settle()
    at.presenter.compare_last()
    qtbot.waitUntil(lambda: at.window.one.plain._text().view.content != "", timeout=WAIT_MS)
    at.chat.load()
    assert at.verdict().startswith("Another pair was loaded")
    assert at.window.one.footer.run_button.isEnabled()


def test_a_deleted_chat_leaves_the_window(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare endless")
    at.chat.model.send("Hello")
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)
    at.chat.model.stop()
    at.chat.settle()
    chat_id = at.chat.model.id
    assert chat_id is not None
    at.presenter.compare_last()
    qtbot.waitUntil(lambda: at.window.one.plain._text().view.content != "", timeout=WAIT_MS)
    at.presenter.forget_chat("another")
    assert at.presenter.runner.is_running()
    at.presenter.forget_chat(chat_id)
    assert not at.presenter.runner.is_running()
    assert at.window.one._empty_text.text() == wording.CHAT_DELETED
    assert at.window.one.plain._text().view.content == ""
    assert at.presenter._begun is None
    at.chat.stored(ChatStore.chats)


def test_nothing_stays_of_a_comparison_of_a_deleted_chat_that_only_waited(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare endless")
    at.chat.model.send("Hello")
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)
    chat_id = at.chat.model.id
    assert chat_id is not None
    at.presenter.compare_last()
    assert at.presenter.runner.is_waiting()
    begun = at.presenter._begun
    assert begun is not None
    at.presenter.forget_chat(chat_id)
    assert not at.presenter.runner.is_running()
    assert at.presenter._begun is None
    at.chat.model.stop()
    at.chat.settle()


def test_nothing_of_a_temporary_chat_stays_once_it_is_left(make: MakeComparing) -> None:
    at = make("compare")
    at.chat.chats.new_temporary()
    at.chat.ask("Unmistakable")
    at.presenter.compare_last()
    at.idle()
    assert at.window.one._title.text() == "Unmistakable"
    at.chat.chats.new()
    assert at.window.one._empty_text.text() == wording.CHAT_DELETED
    assert at.window.one.plain._text().view.content == ""


def test_a_chat_is_not_compared_on_a_server_it_has_not_been_sent_to(make: MakeComparing) -> None:
    at = make("far switching")
    at.chat.ask("Only for this computer")
    at.chat.connect("http://far.example:8000")
    at.presenter.compare_answer(at.last_answer())
    assert at.verdict().startswith("This chat hasn't been sent to far.example:8000 yet")
    at.chat.chats.new()
    at.chat.ask("For the server")
    assert not at.window.one.footer.run_button.isEnabled()  # it is still about the other chat
    at.presenter.compare_answer(at.last_answer())
    at.idle()
    assert at.verdict().startswith("✓ Same text")


def test_nothing_is_sent_to_a_server_that_was_connected_while_a_comparison_waited(make: MakeComparing) -> None:
    at = make("far switching")
    at.chat.ask("Only for this computer")
    begun: list[object] = []
    at.chat.engine.generation_started.connect(begun.append)
    at.chat.pair_loader.load(PairFiles("", server="http://far.example:8000"))
    at.presenter.compare_answer(at.last_answer())
    assert at.presenter.runner.is_waiting()
    at.idle()
    assert at.verdict().startswith("This chat hasn't been sent to far.example:8000 yet")
    assert begun == []


def test_a_server_that_cannot_switch_drafting_off_needs_a_second_one(make: MakeComparing) -> None:
    at = make("far")
    at.chat.connect("http://127.0.0.1:8000")
    at.chat.ask("Hello")
    at.presenter.compare_answer(at.last_answer())
    assert at.verdict() == wording.NO_SECOND.format(server="vLLM 0.29.0")
    assert at.window.one.server.isVisible() and at.window.one.server.text() == "none yet"
    assert not at.window.many.footer.run_button.isEnabled()
    at.chat.load()
    assert not at.window.one.server.isVisible()  # our engine needs none


def test_a_set_from_start_to_a_row_in_full(qtbot: QtBot, make: MakeComparing, tmp_path: Path) -> None:
    at = make("compare differ")
    at.chat.settings = AnswerSettings(seed=3, draft_length=0, system_prompt="Be rude.", stop=("x",))
    at.presenter.compare_prompts()
    many = at.window.many
    path = tmp_path / "mine.txt"
    path.write_text("One\nTwo\nThree\n", encoding="utf-8")
    many.choice.open_file(path)
    many.choice._repeats.setValue(2)
    QTest.mouseClick(many.footer.run_button, Qt.MouseButton.LeftButton)
    assert not at.window.one.last_button.isEnabled()
    at.idle()
    assert [one.comparison.seed for one in many.results] == [3, 3, 3, 4, 4, 4]
    command = many.results[0].task.command
    assert (command.draft_length, command.stop, command.max_tokens) == ("auto", [], 128)
    assert [message.content for message in command.messages] == ["One"]
    assert many.verdict.text().startswith("Same text in 0 of 6 · 2.0× faster (median) · 71% accepted")
    many.table.opened.emit(4)
    one = at.window.one
    assert at.window.tabs.currentWidget() is one
    assert one._title.text() == "Two"
    assert one.drafted._text().view.content == "".join(OTHER_WORDS)
    assert one.verdict.text().startswith("Different starting at token 5")
    assert one.footer.export_button.isEnabled()
    QTest.mouseClick(one.footer.run_button, Qt.MouseButton.LeftButton)
    at.idle()
    assert one.verdict.text().startswith("Different starting at token 5")


def test_while_a_set_runs_an_answer_waits_for_its_end(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare endless")
    at.chat.model.send("Hello")
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)
    at.chat.model.stop()
    at.chat.settle()
    at.presenter.compare_prompts()
    at.window.many.footer.run_button.click()
    assert at.presenter.runner.is_running()
    at.presenter.compare_last()
    assert "A prompt set is running" in at.verdict()
    assert not at.window.one.footer.run_button.isEnabled()
    at.window.many.footer.stop_button.click()
    assert at.window.many.verdict.text() == "Stopped."
    assert at.window.one.footer.run_button.isEnabled()
    at.window.one.footer.run_button.click()
    assert not at.window.many.footer.run_button.isEnabled()
    assert at.window.many.footer.run_button.toolTip() == "An answer is being compared."
    at.presenter.runner.stop()


def test_another_answer_takes_the_place_of_the_one_that_runs(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare endless")
    for text in ("First", "Second"):
        at.chat.model.send(text)
        qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)
        at.chat.model.stop()
        at.chat.settle()
    first, second = (one.id for one in at.chat.model.messages if one.role == "assistant")
    at.presenter.compare_answer(first)
    qtbot.waitUntil(lambda: at.window.one.plain._text().view.content != "", timeout=WAIT_MS)
    at.presenter.compare_answer(second)
    assert at.window.one._title.text() == "Second"
    assert at.presenter.runner.is_running()
    qtbot.waitUntil(lambda: at.window.one.plain._text().view.content != "", timeout=WAIT_MS)
    at.presenter.runner.stop()


def test_a_file_of_prompts_that_is_gone_when_it_starts(make: MakeComparing, tmp_path: Path) -> None:
    at = make("compare")
    at.presenter.compare_prompts()
    path = tmp_path / "mine.txt"
    path.write_text("One\n", encoding="utf-8")
    at.window.many.choice.open_file(path)
    path.unlink()
    at.window.many.footer.run_button.click()
    at.idle()
    assert "mine.txt can't be read" in at.window.many.verdict.text()
    at.qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.READY, timeout=WAIT_MS)


def export_as(tab: CompareTab, name: str) -> None:
    next(one for one in tab.footer.export_menu.actions() if one.text() == f"{name}…").trigger()


@pytest.mark.parametrize("name", ["Markdown", "CSV", "JSON", "PNG"])
def test_exports_of_both_tabs(
    qtbot: QtBot, make: MakeComparing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    at = make("compare differ")
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    for tab in (at.window.one, at.window.many):
        typed = tmp_path / f"export of {type(tab).__name__}"
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, typed=typed: (str(typed), ""))
        if tab is at.window.many:
            path = tmp_path / "mine.txt"
            path.write_text("One\nTwo\n", encoding="utf-8")
            at.window.many.choice.open_file(path)
            at.window.many.footer.run_button.click()
            at.idle()
        with qtbot.waitSignal(at.presenter.exporter.ended, timeout=WAIT_MS) as ended:
            export_as(tab, name)
            assert not tab.footer.run_button.isEnabled()  # reading files would disturb the clocks
        assert ended.args is not None
        written = ended.args[0]
        assert ended.args[1] == ""
        assert written.name.startswith(typed.name)
        assert written.stat().st_size > 500
        assert tab.footer._status.text() == f"Exported to {written.name}."
        assert tab.footer.run_button.isEnabled()


def test_an_export_that_fails_says_so(
    qtbot: QtBot, make: MakeComparing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = make("compare")
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(at.chat.target / "x"), ""))
    with qtbot.waitSignal(at.presenter.exporter.ended, timeout=WAIT_MS):
        export_as(at.window.one, "JSON")
    assert at.window.one.footer._status.text().startswith("The comparison couldn't be exported to")


def test_every_control_has_an_accessible_name_and_is_reached_with_tab(qtbot: QtBot, make: MakeComparing) -> None:
    at = make("compare")
    at.chat.ask("Hello")
    at.presenter.compare_last()
    at.idle()
    for tab in (at.window.one, at.window.many):
        at.window.show_tab(tab)
        focusable = [
            widget
            for widget in tab.findChildren(QWidget)
            if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
            and widget.isVisible()
            and not widget.objectName().startswith("qt_")
        ]
        assert len(focusable) > 3
        unnamed = [one for one in focusable if not (one.accessibleName() or getattr(one, "text", str)())]
        assert unnamed == []
