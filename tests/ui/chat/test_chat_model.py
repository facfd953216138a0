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

from app.chats.attachments import Content
from app.chats.model import Attachment
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.client.connection import Timings
from app.protocol.answering import AnswerSettings
from app.protocol.events import RoundsReceived
from app.system import KnownError
from app.ui.chat.conversation import conversation
from app.ui.chat.writer import new_question
from app.ui.engine import EngineState
from app.ui.engine.pair_names import PairFiles
from app.ui.widgets.tasks import BUG
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.scripted_engine import round_of

MakeRig = Callable[..., Rig]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture
def make_rig(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeRig]:
    rigs = []

    def make(behavior: str = "well", timings: Timings | None = None, *, loads: bool = True) -> Rig:
        rigs.append(Rig(qtbot, tmp_path, behavior, timings))
        if loads:
            rigs[-1].load()
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def forbid_writing(rig: Rig, forbidden: bool = True) -> None:
    """Let SQLite refuse to write, as it does on a full or read-only disk."""
    state = "ON" if forbidden else "OFF"
    rig.stored(lambda store: store._connection.execute(f"PRAGMA query_only = {state}").fetchall())


def test_a_pair_that_got_slower_is_told_once_and_until_it_was_read(make_rig: MakeRig) -> None:
    rig = make_rig("slower")
    notice = rig.notice_list.notices()["slower"]
    assert "engine 2" in notice.text and "1.3×" in notice.text
    assert notice.actions == ("measure_plain", "dismiss")
    rig.load()  # nothing was measured anew, and it may not have been read
    assert rig.notice_list.notices()["slower"] == notice
    with rig.qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS):
        rig.pair_loader.load(PairFiles(str(rig.target)))
    assert "slower" not in rig.notice_list.notices()


def test_a_draft_that_fails_in_an_answer_is_told(make_rig: MakeRig) -> None:
    rig = make_rig("draft fails")
    rig.ask("Go on")
    assert rig.page.texts() == ["Go on", "Hello there"]
    assert rig.notice_list.notices()["drafting"].text.endswith("The draft ran out of memory.")


def test_message_without_a_model_is_kept_and_answered_later(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("no load", loads=False)
    with qtbot.waitSignal(rig.engine.load_failed, timeout=WAIT_MS):
        rig.pair_loader.load(rig.files())
    rig.model.send("Anybody?")
    qtbot.waitUntil(lambda: rig.page.texts() == ["Anybody?"], timeout=WAIT_MS)
    assert rig.is_busy()
    assert "choose_models" in rig.notice_list.notices()["load"].actions
    rig.model.stop()
    assert not rig.is_busy()
    assert rig.model.is_unanswered()


@posix
@pytest.mark.allow_logs
def test_an_answer_survives_its_engine_which_comes_back_twice(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("endless")

    def kill() -> None:
        with qtbot.waitSignal(rig.engine.engine_exited, timeout=WAIT_MS):
            os.kill(rig.engine.process_id(), signal.SIGKILL)
        rig.settle()

    rig.begin_answer("Go on")
    kill()
    chat_id = rig.model.id
    answer = rig.stored(lambda store: store.branch(chat_id))[-1]
    assert (answer.text, answer.status) == ("Hello there", "interrupted")
    notice = rig.notice_list.notices()["engine"]
    assert notice.actions == ("restart", "restart_plain", "copy_report")
    assert "scripted engine" in rig.pair_loader.report()
    with qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS):
        rig.pair_loader.restart()
    assert rig.engine.state() is EngineState.READY
    assert "engine" not in rig.notice_list.notices()
    kill()
    rig.begin_answer("Are you there?")  # a message is reason enough to start it
    kill()
    assert "third time in five minutes" in rig.notice_list.notices()["engine"].text
    rig.model.send("And now?")
    qtbot.waitUntil(lambda: rig.page.texts()[-1] == "And now?", timeout=WAIT_MS)
    assert rig.engine.state() is EngineState.DIED


@pytest.mark.allow_logs
def test_a_message_that_a_bug_keeps_from_being_asked_does_not_wait(make_rig: MakeRig) -> None:
    rig = make_rig()

    def fail(_chat: ChatSettings, _pair: object) -> AnswerSettings:
        raise RuntimeError("a bug")

    resolve, rig.answers.resolve = rig.answers.resolve, fail
    rig.model.send("Are you there?")
    rig.qtbot.waitUntil(lambda: not rig.is_busy(), timeout=WAIT_MS)
    assert rig.page.texts() == ["Are you there?"] and rig.model.is_unanswered()
    assert rig.notice_list.notices()["server"].text == BUG
    rig.answers.resolve = resolve
    assert rig.model.regenerate()
    rig.settle()
    assert rig.page.texts() == ["Are you there?", "Hello there"]


@posix
@pytest.mark.allow_logs
def test_after_a_crash_with_a_gpu_the_models_can_be_run_on_the_processor(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig(loads=False)
    for crash in range(3):
        rig.load()
        with qtbot.waitSignal(rig.engine.engine_exited, timeout=WAIT_MS):
            os.kill(rig.engine.process_id(), signal.SIGABRT)
        notice = rig.notice_list.notices()["engine"]
        assert "restart_on_cpu" in notice.actions
        assert ("won't work on this GPU" if crash == 2 else "the GPU's driver") in notice.text
    with qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS) as opened:
        rig.pair_loader.restart(on_cpu=True)
    assert opened.args is not None
    settings = opened.args[0].settings
    assert (settings.target_gpu_layers, settings.draft_gpu_layers) == (0, 0)
    with qtbot.waitSignal(rig.engine.engine_exited, timeout=WAIT_MS):
        os.kill(rig.engine.process_id(), signal.SIGABRT)
    assert "restart_on_cpu" not in rig.notice_list.notices()["engine"].actions


@pytest.mark.allow_logs
def test_an_engine_that_refuses_to_start_is_not_blamed_on_the_pair(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("unable", loads=False)
    for _ in range(3):
        with qtbot.waitSignal(rig.engine.engine_exited, timeout=WAIT_MS):
            rig.pair_loader.restart()
        assert "pair" not in rig.notice_list.notices()["engine"].text


@pytest.mark.allow_logs
def test_stalled_engine_is_offered_to_be_restarted(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("deaf", Timings(cancel=0.1, quit=0.2))
    rig.begin_answer("Go on")
    with qtbot.waitSignal(rig.engine.engine_stalled, timeout=WAIT_MS):
        rig.model.stop()
    assert rig.notice_list.notices()["stall"].actions == ("wait", "restart")
    with qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS):
        rig.pair_loader.restart()
    rig.settle()
    assert rig.model.messages[-1].status == "interrupted"
    assert "stall" not in rig.notice_list.notices()


def test_another_pair_in_the_middle_of_an_answer_ends_it(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("endless")
    rig.begin_answer("Go on")
    rig.load()
    rig.settle()
    answer = rig.model.messages[-1]
    assert (answer.text, answer.status) == ("Hello there", "stopped")


def test_refused_message_says_why_now_and_later(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("refusing")
    rig.ask("Much too long")
    assert rig.page.notes() == ["The message has 9,000 tokens, the context 2,048."]
    chat_id = rig.model.id
    rig.chats.new()
    rig.open(chat_id)
    assert rig.page.notes() == ["The message has 9,000 tokens, the context 2,048."]


def test_line_where_the_context_begins_now_and_later(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("forgetful")
    rig.ask("One")
    assert [rig.page.context_start()] == [None]
    rig.ask("Two")
    second_question = rig.model.messages[2].id
    assert rig.page.context_start() == second_question
    chat_id = rig.model.id
    rig.chats.new()
    assert [rig.page.context_start()] == [None]
    rig.open(chat_id)
    assert rig.page.context_start() == second_question


def test_an_answer_that_only_repeats_itself_is_stopped(make_rig: MakeRig) -> None:
    rig = make_rig("endless")
    rig.begin_answer("Go on")
    assert rig.model.live is not None and rig.model.live.job is not None
    words = [round_of("and again ", at) for at in range(700)]
    rig.engine.rounds_received.emit(RoundsReceived(request=rig.model.live.job.request, rounds=words))
    rig.settle()
    last = rig.model.messages[-1]
    assert (last.status, last.finish_reason) == ("stopped", "repeats")


def test_what_was_not_saved_of_an_erased_chat_goes_with_it(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig("endless")
    rig.begin_answer("Go on")
    forbid_writing(rig)
    rig.model.stop()
    qtbot.waitUntil(lambda: "save" in rig.notice_list.notices(), timeout=WAIT_MS)
    chat_id = rig.model.id
    forbid_writing(rig, False)
    rig.stored(lambda store: store.delete_chats([chat_id]))
    rig.stored(lambda store: store.erase_deleted([chat_id]))
    rig.chats.forget([chat_id])
    rig.chats.save_again()
    qtbot.waitUntil(lambda: "save" not in rig.notice_list.notices(), timeout=WAIT_MS)
    assert rig.stored(ChatStore.chats) == []


def test_a_stopped_answer_goes_on_where_it_was_cut(make_rig: MakeRig) -> None:
    rig = make_rig("endless")
    rig.begin_answer("Go on")
    rig.model.stop()
    rig.settle()
    cut = rig.model.messages[-1]
    assert (cut.text, cut.status, list(cut.tokens)) == ("Hello there", "stopped", [5])
    assert rig.page.footers()[-1].endswith("stopped by you")
    assert rig.model.can_continue(cut.id)
    assert rig.model.continue_answer(cut.id)
    rig.qtbot.waitUntil(lambda: rig.model.live is not None and len(rig.model.live.pieces) == 2, timeout=WAIT_MS)
    rig.model.stop()
    rig.settle()
    whole = rig.model.messages[-1]
    assert (whole.id, whole.text, list(whole.tokens)) == (cut.id, "Hello thereHello there", [5, 5])
    assert rig.page.texts() == ["Go on", "Hello thereHello there"]
    assert rig.stored(lambda store: store.branch(rig.model.id))[-1] == whole


def test_an_answer_of_another_model_that_goes_on_has_no_tokens_to_go_on_from(make_rig: MakeRig) -> None:
    rig = make_rig("endless")
    rig.begin_answer("Go on")
    rig.model.stop()
    rig.settle()
    cut = replace(rig.model.messages[-1], pair="Another model", tokens=())
    rig.model.messages[-1] = cut
    assert rig.model.continue_answer(cut.id, [5])
    rig.qtbot.waitUntil(lambda: rig.model.live is not None and len(rig.model.live.pieces) == 2, timeout=WAIT_MS)
    rig.model.stop()
    rig.settle()
    whole = rig.model.messages[-1]
    assert (whole.text, list(whole.tokens)) == ("Hello thereHello there", [])
    assert not rig.stored(lambda store: store.branch(rig.model.id))[-1].tokens
    assert not rig.model.can_continue(whole.id)


def test_a_temporary_chat_leaves_nothing(qtbot: QtBot, make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig("endless")
    rig.chats.new_temporary()
    defaults = ChatSettings(system_prompt="Be brief.")
    rig.chats._default_settings = lambda: defaults
    rig.chats.use_defaults()
    assert rig.model.settings == defaults
    attach(qtbot, rig)
    rig.begin_answer("")
    assert rig.model.messages[0].attachments[0].text == "Green tea: 80 degrees."
    live = rig.model.live
    assert live is not None
    with qtbot.waitSignal(live.ended, timeout=WAIT_MS):  # whoever shows its speed is told that it is over
        rig.chats.new()
    qtbot.waitUntil(lambda: rig.engine.state() is EngineState.READY, timeout=WAIT_MS)
    assert not rig.is_wanted()
    assert rig.stored(ChatStore.chats) == []
    assert not (tmp_path / "attachments").exists()
    rig.begin_answer("Now for the record")
    rig.model.stop()
    rig.settle()
    assert [chat.title for chat in rig.stored(ChatStore.chats)] == ["Now for the record"]


def test_pair_that_took_the_app_with_it_is_not_loaded_again_by_itself(make_rig: MakeRig) -> None:
    rig = make_rig(loads=False)
    rig.marker.set(rig.files())
    rig.pair_loader.open_at_start(rig.files())
    assert "load_again" in rig.notice_list.notices()["load"].actions
    assert rig.engine.state() is EngineState.STARTING
    assert rig.marker.left_behind() is None


def test_a_missing_file_can_be_forgotten_while_other_models_are_loaded(make_rig: MakeRig) -> None:
    rig = make_rig(loads=False)
    rig.draft.unlink()
    rig.pair_loader.load(rig.files())
    rig.qtbot.waitUntil(lambda: "load" in rig.notice_list.notices(), timeout=WAIT_MS)
    notice = rig.notice_list.notices()["load"]
    assert "draft.gguf" in notice.text
    assert "load_guide" in notice.actions and "dismiss" not in notice.actions
    assert rig.engine.state() is EngineState.EMPTY
    rig.draft.write_bytes(b"GGUF")
    rig.load()
    rig.draft.unlink()
    rig.pair_loader.load(rig.files())
    rig.qtbot.waitUntil(lambda: "load" in rig.notice_list.notices(), timeout=WAIT_MS)
    assert "dismiss" in rig.notice_list.notices()["load"].actions


# ------------------------------------------------------------ attachments

NOTES = Content("text", "notes.md", b"Green tea: 80 degrees.", "text/markdown")


def attach(qtbot: QtBot, rig: Rig, content: Content = NOTES) -> Attachment:
    before = len(rig.model.unsent.attachments)
    rig.model.attach(content)
    qtbot.waitUntil(lambda: len(rig.model.unsent.attachments) > before, timeout=WAIT_MS)
    return rig.model.unsent.attachments[-1]


def test_an_example_leaves_what_is_attached_where_it_is(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig()
    assert not rig.model.send("")
    attached = attach(qtbot, rig)
    rig.ask("")  # it needs no words
    assert [len(one.attachments) for one in rig.model.messages] == [1, 0]
    assert rig.model.title == rig.stored(ChatStore.chats)[0].title == "notes.md"
    attach(qtbot, rig)
    rig.model.unsent.type("half a sen")
    rig.ask("What is a draft?")
    assert rig.model.messages[2].attachments == ()
    assert (rig.model.unsent.text, rig.model.unsent.attachments) == ("half a sen", (attached,))


def test_another_wording_keeps_attachments_or_has_others(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig()
    attached = attach(qtbot, rig)
    rig.ask("")
    assert rig.model.edit(rig.model.messages[0].id, "How hot?")
    rig.settle()
    assert [(one.text, one.attachments, one.version) for one in rig.model.messages[:1]] == [
        ("How hot?", (attached,), 2)
    ]
    assert rig.model.edit(rig.model.messages[0].id, "How hot?", ())
    rig.settle()
    assert [(one.text, one.attachments, one.version) for one in rig.model.messages[:1]] == [("How hot?", (), 3)]
    assert not rig.model.edit(rig.model.messages[0].id, " ")
    chat_id = rig.model.id
    versions = rig.stored(lambda store: [len(one.attachments) for one in store.record(chat_id).messages])
    assert versions == [1, 0, 1, 0, 0, 0]


def test_what_was_attached_before_the_store_was_read_is_kept_with_what_it_has(
    qtbot: QtBot, make_rig: MakeRig, tmp_path: Path
) -> None:
    with ChatStore(tmp_path / "chats.sqlite") as store:
        stored = store.keep(replace(NOTES, data=b"stored"))
        store.set_unsent_attachments(None, [stored])
    rig = make_rig(loads=False)
    added = attach(qtbot, rig)
    rig.chats.begin(None)
    qtbot.waitUntil(lambda: rig.model.unsent.attachments == (stored, added), timeout=WAIT_MS)
    rig.settle()
    assert rig.stored(lambda store: store.unsent_attachments(None)) == (stored, added)


def test_a_message_leaves_the_composer_in_the_moment_in_which_it_is_stored(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by ``make proof``: a kill in between left the text in both places."""
    rig = make_rig()
    rig.chats.begin(None)
    rig.settle()
    rig.model.unsent.type("Half of it")
    rig.model.unsent.save()
    rig.settle()
    with monkeypatch.context() as patch:

        def refuse(*_arguments: object) -> None:
            raise KnownError("The disk is full.")

        patch.setattr(ChatStore, "set_unsent", refuse)
        assert rig.model.send(rig.model.unsent.text)
        rig.qtbot.waitUntil(lambda: "save" in rig.notice_list.notices(), timeout=WAIT_MS)
        assert rig.stored(ChatStore.chats) == []
        assert rig.stored(lambda store: store.unsent(None)) == "Half of it"
    rig.chats.save_again()
    rig.settle()
    assert rig.stored(lambda store: store.branch(rig.model.id))[0].text == "Half of it"
    assert rig.stored(lambda store: store.unsent(None)) == ""


def test_a_full_disk_stops_nobody_and_what_was_not_saved_is_saved_later(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig()
    forbid_writing(rig)
    rig.ask("One")
    rig.ask("Two")
    rig.model.regenerate()
    rig.settle()
    chat_id = rig.model.id
    assert rig.page.texts() == ["One", "Hello there", "Two", "Hello there"]
    assert rig.notice_list.notices()["save"].actions == ("save_again",)
    assert rig.stored(ChatStore.chats) == []
    rig.chats.new()
    rig.open(chat_id)
    assert rig.page.texts() == ["One", "Hello there", "Two", "Hello there"]
    forbid_writing(rig, False)
    rig.chats.save_again()
    qtbot.waitUntil(lambda: "save" not in rig.notice_list.notices(), timeout=WAIT_MS)
    branch = rig.stored(lambda store: store.branch(chat_id))
    assert [(one.text, one.version, one.versions) for one in branch] == [
        ("One", 1, 1),
        ("Hello there", 1, 1),
        ("Two", 1, 1),
        ("Hello there", 2, 2),
    ]


def test_attachments_are_sent_and_stored(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.chats.begin(None)
    attached = attach(qtbot, rig)
    rig.settle()
    assert rig.stored(lambda store: store.unsent_attachments(None)) == (attached,)
    rig.model.unsent.type("How hot?")
    rig.ask("How hot?")
    chat_id = rig.model.id
    assert rig.model.messages[0].attachments == (attached,)
    assert rig.model.unsent.attachments == ()
    assert rig.stored(lambda store: store.branch(chat_id))[0].attachments == (attached,)
    assert rig.stored(lambda store: (store.unsent_attachments(None), store.unsent_attachments(chat_id))) == ((), ())
    assert conversation(rig.model.messages[:1]).messages[0].content == (
        "`notes.md`\n\n```\nGreen tea: 80 degrees.\n```\n\nHow hot?"
    )
    rig.ask("And now?")
    assert rig.model.messages[2].attachments == ()


def test_unsent_attachments_are_kept_for_each_chat(qtbot: QtBot, make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.chats.begin(None)
    rig.ask("One")
    chat_id = rig.model.id
    attached = attach(qtbot, rig)
    rig.chats.new()
    assert len(rig.model.unsent.attachments) == 0
    other = attach(qtbot, rig, replace(NOTES, data=b"other"))
    rig.open(chat_id)
    assert list(rig.model.unsent.attachments) == [attached]
    rig.model.unsent.attach(())
    rig.settle()
    assert rig.stored(lambda store: (store.unsent_attachments(None), store.unsent_attachments(chat_id))) == (
        (other,),
        (),
    )


@pytest.mark.parametrize(("is_sent", "left"), [(True, "typed since"), (False, "")])
def test_what_is_left_in_the_composer_goes_with_what_is_sent(make_rig: MakeRig, is_sent: bool, left: str) -> None:
    rig = make_rig()
    rig.chats.begin(None)
    first, later = rig.stored(lambda store: [store.keep(replace(NOTES, data=data)) for data in (b"1", b"2")])
    rig.stored(lambda store: store.set_unsent(None, "First"))
    rig.stored(lambda store: store.set_unsent_attachments(None, [first]))
    unsent = rig.model.unsent
    unsent.text, unsent.attachments, unsent.is_known = "typed since", (later,), True
    write = unsent.question_writer(new_question("chat", "First", (first,), []), first_settings="{}", is_sent=is_sent)
    rig.stored(write)
    assert rig.stored(lambda store: (store.unsent("chat"), store.unsent_attachments("chat"))) == (
        left,
        (later,) if is_sent else (),
    )
    assert rig.stored(lambda store: (store.unsent(None), store.unsent_attachments(None))) == (
        ("", ()) if is_sent else ("First", (first,))
    )
