"""Chats with a model on a server: what is asked first, what is kept of a cut answer, how full the context is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.ui.chat.answer_queue import CONSENT, SERVER
from app.ui.chat.context_meter import ContextMeter, ContextUse
from app.ui.chat.model import ChatModel, ChatState
from app.ui.engine.interface import EngineState
from app.ui.notices import Action
from tests.ui.parts import WAIT_MS, Rig

FAR, NEAR = "http://far.example:8000", "http://127.0.0.1:8000"
OpenRig = Callable[[str], Rig]


@pytest.fixture
def open_rig(qtbot: QtBot, tmp_path: Path) -> Iterator[OpenRig]:
    rigs: list[Rig] = []

    def open_it(behavior: str) -> Rig:
        rigs.append(Rig(qtbot, tmp_path, behavior))
        return rigs[-1]

    yield open_it
    for rig in rigs:
        rig.close()


def waits_for_consent(rig: Rig) -> bool:
    return CONSENT in rig.notice_list.notices()


def local_chat(rig: Rig) -> None:
    """A chat that has been nowhere else."""
    rig.load()
    rig.ask("Hello")
    assert rig.model.messages[-1].settings["server"] == ""


# ------------------------------------------------------------ consent


def test_a_new_chat_goes_to_the_server_that_is_shown(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    rig.connect(FAR)
    rig.ask("Hello")
    rig.ask("And then?")
    assert [one.status for one in rig.model.messages] == ["complete"] * 4
    assert rig.model.messages[1].settings["server"] == FAR
    assert rig.model.messages[3].text == " 3"
    assert not rig.notice_list.notices()


def test_the_history_of_a_local_chat_goes_only_after_a_question(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    local_chat(rig)
    rig.connect(FAR)
    assert rig.model.send("And then?")
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)
    assert (rig.model.state, rig.engine.state()) == (ChatState.WAITING, EngineState.READY)
    notice = rig.notice_list.notices()[CONSENT]
    assert notice.actions == (Action.SEND_CHAT, Action.DO_NOT_SEND)
    assert "“Hello”" in notice.text and "far.example" in notice.text
    rig.queue.send_chat()
    rig.settle()
    assert rig.model.messages[-1].text == " 3"
    assert not waits_for_consent(rig)
    rig.ask("Once more")  # once per chat and host
    assert rig.model.messages[-1].text == " 5"


def test_what_may_not_be_sent_stays_unanswered(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    local_chat(rig)
    rig.connect(FAR)
    assert rig.model.send("And then?")
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)
    rig.queue.do_not_send()
    rig.settle()
    assert not waits_for_consent(rig)
    assert rig.model.is_unanswered()
    assert [one.text for one in rig.model.messages] == ["Hello", " 1", "And then?"]


def test_stop_ends_the_question_too(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    local_chat(rig)
    rig.connect(FAR)
    assert rig.model.send("And then?")
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)
    rig.model.stop()
    assert not waits_for_consent(rig) and rig.model.is_unanswered()


def test_a_message_from_before_is_asked_about_even_if_it_is_the_only_one(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    local_chat(rig)
    rig.connect(FAR)
    assert rig.model.regenerate()
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)
    rig.queue.do_not_send()
    assert [one.text for one in rig.model.messages] == ["Hello", " 1"]  # the answer is back


def test_a_message_that_was_sent_before_there_was_a_server_is_asked_about(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    assert rig.model.send("Typed before")
    rig.connect(FAR)
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)


def test_another_chat_does_not_wait_for_the_question(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    local_chat(rig)
    first = rig.model
    rig.connect(FAR)
    assert first.send("And then?")
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)
    rig.chats.new()
    rig.ask("Something else")
    assert rig.model.messages[-1].status == "complete"
    assert first.state is ChatState.WAITING and waits_for_consent(rig)


def test_this_computer_needs_no_consent_and_ends_the_question(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    local_chat(rig)
    rig.connect(FAR)
    assert rig.model.send("And then?")
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)
    rig.connect("http://127.0.0.1:8000")
    rig.settle()
    assert not waits_for_consent(rig)
    assert rig.model.messages[-1].settings["server"] == "http://127.0.0.1:8000"


def test_a_temporary_chat_asks_too(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    rig.load()
    rig.chats.new_temporary()
    rig.ask("Hello")
    rig.connect(FAR)
    assert rig.model.is_temporary and rig.model.send("And then?")
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)


def test_after_a_restart_the_chat_itself_tells_where_it_has_been(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    rig.connect(FAR)
    rig.ask("Hello")
    assert not rig.queue.consent.is_needed("as after a restart", rig.model.messages)
    rig.connect("http://elsewhere.example:8000")
    assert rig.queue.consent.is_needed("as after a restart, too", rig.model.messages)


# ------------------------------------------------------------ answers that aren't finished


def test_a_cut_answer_keeps_what_came_and_goes_on_when_asked(open_rig: OpenRig) -> None:
    rig = open_rig("far cut")
    rig.connect(FAR)
    rig.ask("Hello")
    cut = rig.model.messages[-1]
    assert (cut.text, cut.status, cut.figures["failure"]) == ("Hello there", "interrupted", "It is cut.")
    assert rig.notice_list.notices()[SERVER].actions == (Action.ASK_AGAIN, Action.CONTINUE, Action.DISMISS)
    assert len(rig.model.messages) == 2 and rig.engine.state() is EngineState.READY  # nothing is sent again by itself
    assert rig.model.continue_answer(cut.id, by_text=True)
    rig.settle()
    whole = rig.model.messages[-1]
    assert (whole.id, whole.text, whole.status) == (cut.id, "Hello there 2", "complete")
    assert SERVER not in rig.notice_list.notices()


def test_an_answer_that_never_began_says_why(open_rig: OpenRig) -> None:
    rig = open_rig("far lost")
    rig.connect(FAR)
    rig.ask("Hello")
    lost = rig.model.messages[-1]
    assert (lost.text, lost.status, lost.figures["failure"]) == ("", "failed", "It is unreachable.")
    assert rig.notice_list.notices()[SERVER].actions == (Action.ASK_AGAIN, Action.DISMISS)


def test_a_notice_is_about_the_chat_that_is_shown(open_rig: OpenRig) -> None:
    rig = open_rig("far lost")
    rig.queue.is_shown = lambda _chat_id: False
    rig.connect(FAR)
    rig.ask("Hello")
    assert rig.model.messages[-1].status == "failed"
    assert not rig.notice_list.notices()


# ------------------------------------------------------------ the context


def meter_of(rig: Rig) -> ContextMeter:
    meter = ContextMeter(rig.engine, parent=rig.queue, pair=rig.pair_loader.pair)
    meter.may_be_sent = lambda chat: not rig.queue.consent.is_needed(chat.id, chat.messages)
    meter.show(rig.model)
    return meter


def test_a_server_that_does_not_count_says_how_full_the_context_is_with_its_answer(open_rig: OpenRig) -> None:
    rig = open_rig("far")
    rig.connect(FAR)
    meter = meter_of(rig)
    rig.ask("Hello")
    rig.qtbot.waitUntil(lambda: meter.use is not None, timeout=WAIT_MS)
    assert meter.use is not None
    assert (meter.use.total, meter.use.length) == (14, 2048)
    assert meter.use.rows()[0][0] == "As of the last answer"


def test_a_full_context_of_a_server_is_not_loaded_longer_here() -> None:
    full = ContextUse(0, 2048, 0, 2048, "drop_oldest", is_counted=False, is_remote=True)
    assert full.warning().endswith("or give the model a longer context on its server.")


def test_only_what_was_sent_is_counted_elsewhere(open_rig: OpenRig) -> None:
    rig = open_rig("far counting")
    rig.connect(FAR)
    meter = meter_of(rig)
    rig.ask("One two three")
    rig.model.unsent.type("four five")
    rig.qtbot.waitUntil(lambda: meter.use is not None and meter.use.messages == 4, timeout=WAIT_MS)
    assert meter.use is not None and meter.use.text == 0


def test_this_computer_counts_what_is_typed_too(open_rig: OpenRig) -> None:
    rig = open_rig("far counting")
    rig.connect(NEAR)
    assert (remote := rig.pair_loader.remote()) is not None and remote.server.is_loopback
    meter = meter_of(rig)
    rig.model.unsent.type("four five")
    rig.qtbot.waitUntil(lambda: meter.use is not None and meter.use.text == 2, timeout=WAIT_MS)


def test_a_chat_that_has_not_been_sent_is_not_counted_either(
    open_rig: OpenRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_rig("far counting")
    local_chat(rig)
    rig.connect(FAR)
    counts: list[object] = []
    asked: list[ChatModel] = []

    def count_tokens(*given: object) -> int:
        counts.append(given)
        return 0

    monkeypatch.setattr(rig.engine, "count_tokens", count_tokens)
    meter = ContextMeter(rig.engine, parent=rig.queue, pair=rig.pair_loader.pair)

    def may_be_sent(chat: ChatModel) -> bool:
        asked.append(chat)
        return not rig.queue.consent.is_needed(chat.id, chat.messages)

    meter.may_be_sent = may_be_sent
    meter.show(rig.model)
    rig.qtbot.waitUntil(lambda: bool(asked), timeout=WAIT_MS)
    assert meter.use is None and not counts
