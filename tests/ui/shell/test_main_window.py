"""The whole window with the bundled pair in a real engine process: from typing to a stored answer, and around it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app import system
from app.chats.database import backup_folder
from app.chats.model import unpack
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.protocol.answering import SamplingChoice
from app.settings import Settings, SettingsFile
from app.ui import notices
from app.ui.chat.markdown.code_blocks import code_wrap
from app.ui.chat.transfers import ImportDialog
from app.ui.engine.client import EngineClient, EngineState
from app.ui.shell.all_actions import all_actions
from app.ui.shell.main_window import MainWindow
from tests.ui.chat.test_attachments import drop, mime
from tests.ui.shell.desktop import Desktop
from tests.ui.shell.running import LONGEST_ANSWER, WAIT_MS, Running, button
from tests.ui.speed.parts import status_of


@pytest.fixture
def own_engine(qtbot: QtBot) -> Iterator[Running]:
    """A window whose engine may be killed, and has learned nothing from earlier answers."""
    running = Running(qtbot, EngineClient())
    running.begin()
    yield running
    running.close()


@pytest.mark.usefixtures("guide_pair")
def test_from_typing_to_a_stored_answer_and_to_the_next_start(
    qtbot: QtBot, own_engine: Running, open_window: Callable[[], Running]
) -> None:
    running, desktop = own_engine, Desktop()
    object.__setattr__(running.ctx, "notifier", desktop)
    assert "Slipstream Guide" in running.window.top_bar.pair.accessibleName()
    running.ask("What is a draft model?")
    question, answer = running.model.messages
    assert (question.role, question.text) == ("user", "What is a draft model?")
    assert (answer.role, answer.status) == ("assistant", "complete")
    assert answer.text
    assert answer.seed is not None
    assert "".join(piece.text for piece in unpack(answer.text, answer.provenance)) == answer.text
    assert len(unpack(answer.text, answer.provenance)) > 1
    chat_id = running.model.id
    stored = running.worker.submit(lambda store: store.branch(chat_id)).result(timeout=10)
    assert stored[1].text == answer.text
    assert stored[1].figures["completion_tokens"]
    assert stored[1].settings["draft_length"] == running.ctx.chats.answers.settings(running.model.settings).draft_length
    qtbot.waitUntil(lambda: running.titles() == ["Today", "What is a draft model?"], timeout=WAIT_MS)
    assert running.window.top_bar._label.text() == "ready"
    assert running.window.composer.text() == ""
    running.choose("regenerate")
    running.done()
    assert (running.model.messages[-1].version, running.model.messages[-1].versions) == (2, 2)
    running.choose("new_chat")
    assert running.model.is_new and [title for title, _text in desktop.told] == 2 * ["What is a draft model?"]
    desktop.click()
    qtbot.waitUntil(lambda: running.model.id == chat_id)
    running.window.composer.set_text("not sent yet")
    running.window.close()
    again = open_window()
    assert again.model.messages[0].text == "What is a draft model?"
    assert again.window.composer.text() == "not sent yet"


@pytest.mark.allow_logs
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.usefixtures("guide_pair")
def test_engine_killed_in_an_answer(qtbot: QtBot, own_engine: Running) -> None:
    running = own_engine
    endless = SamplingChoice(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0)  # finds no end
    running.model.set_settings(ChatSettings(sampling=endless))
    running.ready()
    running.type("Tell me a short story")
    with qtbot.waitSignal(running.engine.rounds_received, timeout=WAIT_MS):
        pass
    with qtbot.waitSignal(running.engine.engine_exited, timeout=WAIT_MS):
        os.kill(running.engine.process_id(), signal.SIGKILL)
    running.done()
    assert running.model.messages[-1].status == "interrupted"
    assert running.window.top_bar._label.text() == "stopped"
    panel = running.window.speed_panel
    sentence = "Engine stopped · The engine was stopped by another program (SIGKILL)."
    qtbot.waitUntil(lambda: status_of(panel) == sentence, timeout=WAIT_MS)
    restart = button(running.window.notice_bar, "Restart")
    QTest.mouseClick(restart, Qt.MouseButton.LeftButton)
    running.ready()
    running.model.set_settings(ChatSettings(max_tokens=LONGEST_ANSWER))
    qtbot.waitUntil(lambda: status_of(panel).startswith("Drafting"), timeout=WAIT_MS)
    running.ask("Still there?")
    assert [one.status for one in running.model.messages] == ["complete", "interrupted", "complete", "complete"]


@pytest.mark.usefixtures("guide_pair")
def test_how_to_draft_is_chosen_in_the_panel_and_kept(qtbot: QtBot) -> None:
    running = Running(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "echo"]))
    running.begin()
    running.ready()
    panel, tab = running.window.speed_panel, running.window.settings_tab
    auto, drafter = button(panel, "Auto"), panel.findChild(QComboBox)
    assert isinstance(drafter, QComboBox)
    qtbot.waitUntil(auto.isEnabled)

    def chosen() -> tuple[int | None, str]:
        return running.settings.values.draft_length, running.model.settings.drafter

    assert chosen() == (None, "auto")
    running.ask("First")
    QTest.keyClick(auto, Qt.Key.Key_Space)
    QTest.keyClick(drafter, Qt.Key.Key_End)
    assert chosen() == (5, "ngram") and tab.by_key["drafter"].currentData() == "ngram"
    running.ask("Second")
    QTest.keyClick(auto, Qt.Key.Key_Space)
    assert chosen() == (None, "ngram")
    answers = [message.text for message in running.model.messages if message.role == "assistant"]
    assert answers == ["auto auto auto", "5 ngram auto"]
    tab.by_key["drafter"].setCurrentIndex(tab.by_key["drafter"].findData("model"))
    tab.by_key["drafter"].activated.emit(tab.by_key["drafter"].currentIndex())
    assert chosen() == (None, "model") and panel.drafter.choice() == "model"
    running.choose("new_chat")
    assert running.model.settings == ChatSettings()
    assert panel.drafter.choice() == tab.by_key["drafter"].currentData() == "auto"
    running.close()
    qtbot.wait_until(lambda: not isValid(running.window), timeout=WAIT_MS)
    kept = SettingsFile(system.settings_file()).values
    assert kept.draft_length is None


@pytest.mark.usefixtures("guide_pair")
def test_closing_in_an_answer_keeps_it_and_asks_the_store_nothing_more(qtbot: QtBot) -> None:
    running = Running(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "endless"]))
    running.begin()
    running.ready()
    running.type("Go on")
    with qtbot.waitSignal(running.engine.rounds_received, timeout=WAIT_MS):
        pass
    running.close()
    qtbot.wait_until(lambda: not isValid(running.window), timeout=WAIT_MS)
    with ChatStore(system.chat_file()) as store:
        assert store.branch(store.chats()[0].id)[-1].status == "interrupted"


@pytest.mark.usefixtures("guide_pair")
def test_neither_a_message_too_long_nor_control_characters_do_harm(open_window: Callable[[], Running]) -> None:
    running = open_window()
    running.ready()
    running.window.composer.set_text("word " * 50_000)
    QTest.keyClick(running.window.composer.editor, Qt.Key.Key_Return)
    running.qtbot.waitUntil(lambda: running.model.state.is_busy, timeout=WAIT_MS)
    running.done()
    answer = running.model.messages[-1]
    assert answer.status == "failed"
    reason = str(answer.figures["failure"])
    assert "2,048" in reason
    assert len(re.findall(r"\d[\d,]+", reason)) >= 2
    running.choose("new_chat")
    assert running.model.is_new
    running.model.send("\x00\x01\x1b[31m\u202e\ufffd\ud800\r\n\x7f")
    running.done()
    chat_id = running.model.id
    stored = running.worker.submit(lambda store: store.branch(chat_id)).result(timeout=10)
    assert [one.role for one in stored] == ["user", "assistant"]
    assert stored[1].status == "complete"


@pytest.mark.usefixtures("guide_pair")
def test_measuring_plain_speed_gives_a_baseline_that_stays_and_can_be_stopped(
    qtbot: QtBot, open_window: Callable[[], Running]
) -> None:
    running = open_window()
    running.ready()
    running.choose("measure_plain")
    running.choose("stop")
    running.ready()
    assert not running.actions.qaction("stop").isEnabled()
    running.actions.run("measure_plain")
    qtbot.waitUntil(lambda: not running.app.speed.is_measuring(), timeout=WAIT_MS)
    running.ready()
    sampling = running.ctx.chats.answers.settings(running.model.settings).sampling
    found: list[float | None] = []
    running.app.speed._baseline.find(
        running.ctx.loader.pair(), running.ctx.loader.load_settings(), sampling, found.append
    )
    qtbot.waitUntil(lambda: bool(found), timeout=WAIT_MS)
    (speed,) = found
    assert speed is None or speed > 0
    assert (speed is None) == ("measure" in running.ctx.notices.notices())


def texts(parent: QWidget) -> list[str]:
    return [one.text() for one in parent.findChildren(QPushButton) if one.isVisible()]


def test_the_engine_forgets_a_chat_with_its_deletion(
    qtbot: QtBot, open_window: Callable[[], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[list[str]] = []
    monkeypatch.setattr(EngineClient, "forget", lambda _, chats=(): forgotten.append(list(chats)))
    running = open_window()
    operations = running.ctx.operations
    chats = [running.make_chat(title).id for title in ("one", "two")]
    with qtbot.waitSignal(operations.chats_deleted, timeout=WAIT_MS):
        operations.delete(chats)
    assert forgotten == [chats]
    with qtbot.waitSignal(operations.chats_restored, timeout=WAIT_MS) as restored:
        operations.undo()
    assert restored.args == [chats, None]
    with qtbot.waitSignal(operations.chats_deleted, timeout=WAIT_MS):
        operations.delete(chats[:1])
    with qtbot.waitSignal(operations.copies_unwanted, timeout=WAIT_MS):
        operations.erase()
    assert forgotten[1:] == [[], []]  # the engine has never said that it has forgotten the first two


def test_a_deleted_chat_is_erased_from_all_files(qtbot: QtBot) -> None:
    secret = "unmistakable"

    def is_erased() -> bool:
        files = [file for file in system.data_dir().rglob("*") if file.is_file()]
        try:
            is_left = any(secret.encode() in file.read_bytes() for file in files)
        except FileNotFoundError:  # a temporary file of the engine, gone meanwhile: look again
            return False
        return not is_left and not any(file.suffix in (".erasing", ".copies") for file in files)

    with ChatStore(system.chat_file(), clock=lambda: 0.0) as store:  # it was in the trash for long
        store.delete_chats([store.create_chat(secret).id])
    shutil.rmtree(backup_folder(system.chat_file()))
    (system.chat_caches_dir() / "a.kept").write_text(secret)
    assert not is_erased()
    running = Running(qtbot, EngineClient())
    running.begin()  # it has been in the trash for long enough
    qtbot.waitUntil(is_erased, timeout=WAIT_MS)
    operations = running.ctx.operations
    chat = running.make_chat(f"{secret} too")
    with qtbot.waitSignal(operations.chats_listed, timeout=WAIT_MS):
        operations.refresh()
    copy = system.chat_caches_dir() / "b.kept"
    copy.write_text(secret)
    with qtbot.waitSignal(operations.chats_deleted, timeout=WAIT_MS):
        operations.delete([chat.id])
    qtbot.waitUntil(lambda: not copy.exists(), timeout=WAIT_MS)
    assert secret in running.window.undo_bar._label.text()
    assert not is_erased()
    operations.erase([chat.id])
    qtbot.waitUntil(is_erased, timeout=WAIT_MS)
    assert running.window.undo_bar._label.text() == ""
    running.close()


def test_a_window_that_was_on_a_screen_that_is_gone_is_on_one_that_is_there(qtbot: QtBot) -> None:
    settings = Settings()
    for place in ((9000, 4000), None):
        window = MainWindow(settings, all_actions())
        qtbot.addWidget(window)
        if place is not None:
            window.move(*place)
        window.show()
        qtbot.waitExposed(window)
        window.store(settings)
    assert window.screen().availableGeometry().contains(window.geometry().center())


@pytest.mark.usefixtures("dressed")
@pytest.mark.parametrize("introduced", [False, True])
def test_an_empty_chat_needs_no_scroll_bar_at_the_start(qtbot: QtBot, introduced: bool) -> None:
    window = MainWindow(Settings(guide_introduced=introduced), all_actions())
    qtbot.addWidget(window)
    window.show()
    qtbot.waitExposed(window)
    QCoreApplication.processEvents()
    bar = window.transcript.column.verticalScrollBar()
    assert (bar.maximum(), bar.isVisible()) == (0, False)
    page = bar.pageStep()
    window.notice_bar.set_notices({"save": notices.not_saved("The disk is full.")})
    qtbot.waitUntil(lambda: bar.pageStep() <= page - window.notice_bar.cards["save"].height() > 0)
    assert (bar.maximum(), bar.isVisible()) == (0, False)


def test_panels_give_way_in_a_narrow_window_and_are_remembered(open_window: Callable[[], Running]) -> None:
    running = open_window()
    window = running.window

    def shown() -> tuple[bool, bool]:
        return window.chat_list.isVisible(), window.speed_panel.isVisible()

    window.resize(1100, 720)
    assert shown() == (True, True)
    window.resize(640, 480)
    assert window.size().width() == 640
    assert shown() in ((True, False), (False, True))
    window.toggle_panel("side")
    assert shown() == (False, True)
    window.toggle_panel("side")
    assert shown() == (False, False)
    window.toggle_panel("side")
    window.resize(1100, 720)
    assert shown() == (True, True)
    running.choose("toggle_chats")
    window.resize(700, 560)
    assert shown() == (False, True)
    window.close()
    again = open_window()
    assert (again.window.width(), again.window.height()) == (700, 560)
    assert not again.window.chat_list.isVisible()
    assert not again.actions.qaction("toggle_chats").isChecked()


def test_one_switch_wraps_all_code_and_is_kept(open_window: Callable[[], Running]) -> None:
    running = open_window()
    assert not code_wrap().is_on and not running.actions.qaction("wrap_code").isChecked()
    running.choose("wrap_code")
    assert code_wrap().is_on
    running.window.close()
    code_wrap().set_on(False)
    again = open_window()
    assert code_wrap().is_on and again.actions.qaction("wrap_code").isChecked()
    again.choose("wrap_code")
    assert not code_wrap().is_on and not again.settings.values.code_wrap


def test_chats_of_a_newer_version_are_left_alone_and_the_window_goes_on(qtbot: QtBot) -> None:
    ChatStore(system.chat_file()).close()
    connection = sqlite3.connect(system.chat_file())
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    before = system.chat_file().read_bytes()
    running = Running(qtbot)
    running.begin()
    notice = running.ctx.notices.notices()["store"]
    assert "dismiss" in notice.actions
    assert "will be lost when you close Slipstream" in notice.text
    running.close()
    assert system.chat_file().read_bytes() == before


CHATS = Path(__file__).parents[2] / "data" / "imports" / "openai.jsonl"


@pytest.mark.usefixtures("guide_pair")
def test_their_chats_are_imported(running: Running) -> None:
    chat_list = running.window.chat_list
    assert chat_list.target.accessibleName() == "Drop files to import their chats"
    drop(chat_list, mime(str(CHATS)))
    (dialog,) = running.window.findChildren(ImportDialog)
    press = button(dialog, "Import")
    running.qtbot.waitUntil(press.isEnabled, timeout=WAIT_MS)
    press.click()
    running.qtbot.waitUntil(lambda: len(running.titles()) > 1, timeout=WAIT_MS)
    dialog.reject()


def test_what_is_typed_before_the_chats_are_open_stays(qtbot: QtBot) -> None:
    for written, there in (("first", "first"), ("second", "first\nsecond"), ("", "first\nsecond")):
        running = Running(qtbot)
        running.window.composer.set_text(written)
        running.begin()
        assert running.window.composer.text() == there
        running.close()


def test_a_pair_that_was_loading_at_a_kill_is_not_loaded_by_itself(
    open_window: Callable[[], Running], guide_pair: tuple[Path, Path]
) -> None:
    target, draft = map(str, guide_pair)
    (system.data_dir() / "loading.json").write_text(json.dumps({"target": target, "draft": draft}), encoding="utf-8")
    running = open_window()
    running.qtbot.waitUntil(lambda: running.engine.state() is EngineState.EMPTY, timeout=WAIT_MS)
    assert "load" in running.ctx.notices.notices()
    assert running.ctx.loader.pair() is None
