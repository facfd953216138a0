"""The Compare window beside the chat: what may run, and what happens to it. Scripted engines in real processes."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.protocol.answering import AnswerSettings
from app.ui.compare import wording
from app.ui.compare.runner import ENGINE_LOST
from app.ui.compare.tab import FORMATS, CompareTab
from app.ui.engine import EngineState
from app.ui.engine.pair_names import PairFiles
from tests.ui.compare.comparing import Comparing
from tests.ui.compare.conftest import MakeRig
from tests.ui.parts import WAIT_MS
from tests.ui.scripted_engine import OTHER_WORDS, PLAIN_WORDS

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
TEXT = "".join(PLAIN_WORDS)


MakeComparing = Callable[[str], Comparing]


@pytest.fixture
def make(make_rig: MakeRig) -> MakeComparing:
    return lambda how: Comparing(make_rig(how))


def endless_answer(at: Comparing, text: str = "Hello") -> None:
    """An answer that is being written."""
    at.chat.model.send(text)
    at.qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.ANSWERING, timeout=WAIT_MS)


def stopped_answer(at: Comparing, text: str = "Hello") -> None:
    endless_answer(at, text)
    at.chat.model.stop()
    at.chat.settle()


def until_it_writes(at: Comparing) -> None:
    at.qtbot.waitUntil(lambda: at.window.one.plain._text().view.content != "", timeout=WAIT_MS)


def test_an_answer_is_compared_with_its_own_settings_and_again(make: MakeComparing) -> None:
    at = make("compare")
    at.window.compare_last()
    assert at.window.one._empty_text.text() == wording.NO_ANSWER
    at.chat.ask("First")
    at.chat.settings = AnswerSettings(seed=21, draft_length=3)
    at.chat.ask("What is a draft?")
    at.chat.settings = AnswerSettings()
    at.window.compare_last()
    assert at.window.isVisible()
    assert at.window.tabs.currentWidget() is at.window.one
    assert at.window.one._title.text() == "What is a draft?"
    assert at.window.one._settings.text().startswith("Seed 21 ·")
    assert "draft length 3" in at.window.one._settings.text()
    at.idle()
    assert at.verdict() == "✓ Same text, 6 tokens, same seed · 2.0× faster · 71% accepted"
    assert at.window.one.plain._text().view.content == TEXT
    assert at.chat.page.texts() == ["First", TEXT, "What is a draft?", TEXT]  # nothing is added to the chat
    at.window.one.footer.run_button.click()
    assert at.window.runner.is_running()
    assert at.verdict() == at.window.one.plain._text().view.content == ""
    at.idle()
    assert at.verdict().startswith("✓ Same text")


def test_a_draft_that_fails_and_what_stays_of_a_temporary_chat(make: MakeComparing) -> None:
    at = make("compare draft fails")
    at.chat.settings = AnswerSettings(draft_length=0)
    at.chat.chats.new_temporary()
    at.chat.ask("Unmistakable")
    at.window.compare_last()
    assert "written without a draft" in at.window.one._notes.text()
    at.idle()
    assert at.verdict().endswith("Drafting stopped during the run. It ran out of memory.")
    assert "draft" not in at.chat.notice_list.notices()  # it is told here, not in the chat
    assert at.window.one._title.text() == "Unmistakable"
    at.chat.chats.new()
    assert at.window.one._empty_text.text() == wording.CHAT_DELETED
    assert at.window.one.plain._text().view.content == ""


@pytest.mark.parametrize("how", ["button and escape", "close", "program"])
def test_every_way_to_stop(qtbot: QtBot, make: MakeComparing, how: str) -> None:
    at = make("compare endless")
    stopped_answer(at)
    at.window.compare_last()
    until_it_writes(at)
    window = at.window
    if how == "button and escape":
        QTest.mouseClick(window.one.footer.stop_button, Qt.MouseButton.LeftButton)
        assert at.verdict() == "Stopped." and window.one.footer.run_button.isEnabled()
        window.one.footer.run_button.click()
        until_it_writes(at)
        at.escape()
        assert window.isVisible()  # a second one closes it
        at.escape()
        assert not window.isVisible()
    elif how == "close":
        window.close()
    else:
        at.chat.ctx.closing.close()
    assert not at.window.runner.is_running()
    assert how == "program" or at.verdict() == "Stopped."
    qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.READY, timeout=WAIT_MS)


@posix
@pytest.mark.allow_logs
def test_an_engine_that_dies(make: MakeComparing) -> None:
    at = make("compare dies")
    at.chat.settings = AnswerSettings(draft_length=0)
    at.chat.ask("Hello")
    at.window.compare_last()
    at.idle()
    assert at.verdict() == ENGINE_LOST
    assert not at.window.one.footer.run_button.isEnabled()
    assert "can restart it" in at.window.one.footer.run_button.toolTip()
    assert at.window.one.plain._text().view.content == TEXT  # what had arrived
    at.chat.pair_loader.restart()
    at.qtbot.waitUntil(at.window.one.footer.run_button.isEnabled, timeout=WAIT_MS)


def test_a_deleted_chat_leaves_the_window(make: MakeComparing) -> None:
    at = make("compare endless")
    endless_answer(at)
    chat_id = at.chat.model.id
    assert chat_id is not None
    at.window.compare_last()
    assert at.window.runner.waits_for() is not None
    at.chat.ctx.operations.chats_deleted.emit([chat_id])
    assert not at.window.runner.is_running()
    at.chat.model.stop()
    at.chat.settle()
    at.window.compare_last()
    until_it_writes(at)
    at.chat.ctx.operations.chats_deleted.emit(["another"])
    assert at.window.runner.is_running()
    at.chat.ctx.operations.chats_deleted.emit([chat_id])
    assert not at.window.runner.is_running()
    assert at.window.one._empty_text.text() == wording.CHAT_DELETED
    assert at.window.one.plain._text().view.content == ""
    assert at.window._begun is None


def test_a_chat_is_not_compared_on_a_server_it_has_not_been_sent_to(make: MakeComparing) -> None:
    at = make("far switching")
    at.chat.ask("Only for this computer")
    at.chat.connect("http://far.example:8000")
    at.window.compare_answer(at.last_answer())
    assert at.verdict().startswith("This chat hasn't been sent to far.example:8000 yet")
    at.chat.chats.new()
    at.chat.ask("For the server")
    assert not at.window.one.footer.run_button.isEnabled()  # it is still about the other chat
    at.window.compare_answer(at.last_answer())
    at.idle()
    assert at.verdict().startswith("✓ Same text")


def test_nothing_is_sent_to_a_server_that_was_connected_while_a_comparison_waited(make: MakeComparing) -> None:
    at = make("far switching")
    at.chat.ask("Only for this computer")
    begun: list[object] = []
    at.chat.engine.generation_started.connect(begun.append)
    with at.qtbot.waitSignal(at.chat.pair_loader.load_begun, timeout=WAIT_MS):
        at.chat.pair_loader.load(PairFiles("", server="http://far.example:8000"))
    at.window.compare_answer(at.last_answer())
    assert at.window.runner.waits_for() is not None
    at.idle()
    assert at.verdict().startswith("This chat hasn't been sent to far.example:8000 yet")
    assert begun == []


def test_a_set_from_start_to_a_row_in_full(qtbot: QtBot, make: MakeComparing, tmp_path: Path) -> None:
    at = make("compare differ")
    at.chat.settings = AnswerSettings(seed=3, draft_length=0, system_prompt="Be rude.", stop=["x"])
    at.window.compare_prompts()
    many = at.window.many
    path = tmp_path / "mine.txt"
    path.write_text("One\nTwo\nThree\n", encoding="utf-8")
    many.open_file(path)
    many._repeats.setValue(2)
    QTest.mouseClick(many.footer.run_button, Qt.MouseButton.LeftButton)
    assert not at.window.one.last_button.isEnabled()
    at.idle()
    assert [one.seed for one in many.results] == [3, 3, 3, 4, 4, 4]
    command = many.results[0].command
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


def test_all_drafters_of_the_pair_and_their_report(
    make: MakeComparing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = make("compare differ")
    at.window.compare_prompts()
    many = at.window.many
    path = tmp_path / "mine.txt"
    path.write_text("One\nTwo\n", encoding="utf-8")
    many.open_file(path)
    many._all_drafters.click()
    QTest.mouseClick(many.footer.run_button, Qt.MouseButton.LeftButton)
    at.idle()
    assert [one.drafter for one in many.results] == ["ngram", "model", "auto"] * 2
    assert many.planned == 6 and many.verdict.text().startswith("Same text in 0 of 6 · fastest: ")
    assert exported(at, many, "JSON", tmp_path / "set", monkeypatch) == "Exported to set.json."
    report = json.loads((tmp_path / "set.json").read_text("utf-8"))
    assert report["setup"]["drafters"] == ["ngram", "model", "auto"]
    many.table.opened.emit(1)
    assert many.results[1].command.drafter == "model" and at.window.one._title.text() == "One"


def test_how_many_texts_were_the_same_is_counted_over_restarts(make: MakeComparing, tmp_path: Path) -> None:
    for compared in (2, 4):
        at = make("compare differ")
        at.window.compare_prompts()
        path = tmp_path / "mine.txt"
        path.write_text("One\nTwo\n", encoding="utf-8")
        at.window.many.open_file(path)
        QTest.mouseClick(at.window.many.footer.run_button, Qt.MouseButton.LeftButton)
        at.idle()
        said = f"Texts with a draft are the same up to rounding: 0 of {compared} were identical so far."
        at.qtbot.waitUntil(lambda said=said, at=at: at.window.many.footer._said[0] == said, timeout=WAIT_MS)  # type: ignore[misc]
        at.chat.ctx.closing.close()


def exported(at: Comparing, tab: CompareTab, name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Export to this path, which gets its suffix; the status after that."""
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    with at.qtbot.waitSignal(at.window.exported, timeout=WAIT_MS):
        next(one for one in tab.footer.export_menu.actions() if one.text() == f"{name}…").trigger()
        assert not tab.footer.run_button.isEnabled()  # reading files would disturb the clocks
    assert tab.footer.run_button.isEnabled()
    return tab.footer._status.text()


def test_exports_of_both_tabs(make: MakeComparing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = make("compare differ")
    at.chat.ask("Hello")
    at.window.compare_last()
    at.idle()
    path = tmp_path / "mine.txt"
    path.write_text("One\nTwo\n", encoding="utf-8")
    one, many = at.window.one, at.window.many
    many.open_file(path)
    many.footer.run_button.click()
    at.idle()
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (at.chat.target, at.chat.draft)]
    for tab, name in ((one, "Markdown"), (many, "JSON")):
        file = (tmp_path / "set").with_suffix(FORMATS[name])
        assert exported(at, tab, name, tmp_path / "set", monkeypatch) == f"Exported to {file.name}."
        assert all(found in file.read_text("utf-8") for found in hashes)
        at.window._on_counted("Texts with a draft are the same up to rounding.")  # late
        assert tab.footer._status.text() == f"Exported to {file.name}."
    assert len(json.loads((tmp_path / "set.json").read_text("utf-8"))["comparisons"]) == 2
    at.window.show_tab(many)
    assert exported(at, many, "PNG", tmp_path / "set", monkeypatch) == "Exported to set.png."
    image = QImage(str(tmp_path / "set.png"))
    assert image.width() == round(many.width() * many.devicePixelRatio()) and image.height() < many.height()


def test_an_export_that_fails_says_so(make: MakeComparing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = make("compare")
    at.chat.ask("Hello")
    at.window.compare_last()
    at.idle()
    one = at.window.one
    at.chat.target.unlink()  # costs its hash only
    assert exported(at, one, "JSON", tmp_path / "a", monkeypatch) == "Exported to a.json."
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["setup"]["target"]["sha256"] == ""
    status = exported(at, one, "JSON", at.chat.draft / "x", monkeypatch)
    assert status.startswith(f"The comparison couldn't be exported to {at.chat.draft / 'x.json'}")

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.ui.compare.runner.write_export", full)
    assert "No space left on device" in exported(at, one, "JSON", tmp_path / "b", monkeypatch)
    assert not (tmp_path / "b.json").exists()
