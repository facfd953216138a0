"""Chats with a model on a server: what is asked first, what is kept of a cut answer, how full the context is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage
from app.protocol.commands import CountTokens
from app.protocol.remote import RemoteModel, Server
from app.ui.chat.answers import CONSENT, SERVER, HostConsent
from app.ui.chat.composer import Composer
from app.ui.chat.context_meter import ContextMeter, ContextUse
from app.ui.chat.model import ChatState
from app.ui.engine import EngineState
from tests.ui.parts import WAIT_MS, Rig

FAR, NEAR = "http://far.example:8000", "http://127.0.0.1:8000"


@pytest.fixture
def rig(request: pytest.FixtureRequest, qtbot: QtBot, tmp_path: Path) -> Iterator[Rig]:
    """Nothing is loaded. `behaves` says how the engine behaves."""
    made = Rig(qtbot, tmp_path, getattr(request, "param", "far"))
    yield made
    made.close()


def behaves(behavior: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", [behavior], indirect=True)


@pytest.fixture
def far(rig: Rig) -> Rig:
    """Connected to another computer."""
    rig.connect(FAR)
    return rig


@pytest.fixture
def moved(rig: Rig) -> Rig:
    """With a chat that has been nowhere else, and now connected to another computer."""
    rig.load()
    rig.ask("Hello")
    assert rig.model.messages[-1].settings["server"] == ""
    rig.connect(FAR)
    return rig


@pytest.fixture
def asking(moved: Rig) -> Rig:
    """The same, with a message that waits for the user's consent."""
    assert moved.model.send("And then?")
    until_asked(moved)
    return moved


def waits_for_consent(rig: Rig) -> bool:
    return CONSENT in rig.notice_list.notices()


def until_asked(rig: Rig) -> None:
    rig.qtbot.waitUntil(lambda: waits_for_consent(rig), timeout=WAIT_MS)


def test_the_history_of_a_local_chat_goes_only_after_a_question(asking: Rig) -> None:
    assert (asking.model.state, asking.engine.state()) == (ChatState.WAITING, EngineState.READY)
    notice = asking.notice_list.notices()[CONSENT]
    assert notice.actions == ("send_chat", "do_not_send")
    assert "“Hello”" in notice.text and "far.example" in notice.text
    asking.answers.send_chat()
    asking.settle()
    assert asking.model.messages[-1].text == " 3"
    assert not waits_for_consent(asking)
    asking.ask("Once more")  # once per chat and host
    assert asking.model.messages[-1].text == " 5"


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_may_not_be_sent_stays_unanswered(asking: Rig, is_stopped: bool) -> None:
    if is_stopped:
        asking.model.stop()
    else:
        asking.answers.do_not_send()
    asking.settle()
    assert not waits_for_consent(asking)
    assert asking.model.is_unanswered()
    assert [one.text for one in asking.model.messages] == ["Hello", " 1", "And then?"]


def test_a_message_from_before_is_asked_about_even_if_it_is_the_only_one(moved: Rig) -> None:
    assert moved.model.regenerate()
    until_asked(moved)
    moved.answers.do_not_send()
    assert [one.text for one in moved.model.messages] == ["Hello", " 1"]  # the answer is back


def test_a_message_that_was_sent_before_there_was_a_server_is_asked_about(rig: Rig) -> None:
    assert rig.model.send("Typed before")
    rig.connect(FAR)
    until_asked(rig)


def test_this_computer_needs_no_consent_and_ends_the_question(asking: Rig) -> None:
    asking.connect(NEAR)
    asking.settle()
    assert not waits_for_consent(asking)
    assert asking.model.messages[-1].settings["server"] == NEAR


@pytest.mark.allow_logs
def test_a_message_that_waits_for_consent_does_not_bring_back_a_connection(asking: Rig) -> None:
    psutil.Process(asking.engine.process_id()).kill()
    with asking.qtbot.waitSignal(asking.pair_loader.engine_lost, timeout=WAIT_MS):
        pass
    assert asking.engine.state() is EngineState.DIED and "engine" in asking.notice_list.notices()
    assert asking.model.state is ChatState.WAITING
    asking.model.stop()


def test_a_temporary_chat_asks_too(rig: Rig) -> None:
    rig.load()
    rig.chats.new_temporary()
    rig.ask("Hello")
    rig.connect(FAR)
    assert rig.model.is_temporary and rig.model.send("And then?")
    until_asked(rig)


def test_after_a_restart_the_chat_itself_tells_where_it_has_been(far: Rig) -> None:
    far.ask("Hello")
    assert not far.answers.consent.is_needed("as after a restart", far.model.messages)
    far.connect("http://elsewhere.example:8000")
    assert far.answers.consent.is_needed("as after a restart, too", far.model.messages)


@behaves("far cut")
def test_a_cut_answer_keeps_what_came_and_goes_on_when_asked(far: Rig) -> None:
    far.ask("Hello")
    cut = far.model.messages[-1]
    assert (cut.text, cut.status, cut.figures["failure"]) == ("Hello there", "interrupted", "It is cut.")
    assert far.notice_list.notices()[SERVER].actions == ("ask_again", "continue_answer", "dismiss")
    assert len(far.model.messages) == 2 and far.engine.state() is EngineState.READY  # nothing is sent again by itself
    assert far.model.continue_answer(cut.id, by_text=True)
    far.settle()
    whole = far.model.messages[-1]
    assert (whole.id, whole.text, whole.status) == (cut.id, "Hello there 2", "complete")
    assert SERVER not in far.notice_list.notices()


@behaves("far lost")
def test_a_notice_is_about_the_chat_that_is_shown(rig: Rig) -> None:
    rig.connect(FAR)
    assert rig.model.send("Hello")
    asked = rig.model
    rig.chats.new()
    rig.qtbot.waitUntil(lambda: asked.state is ChatState.IDLE, timeout=WAIT_MS)
    assert asked.messages[-1].status == "failed"
    assert SERVER not in rig.notice_list.notices()


def meter_of(rig: Rig) -> ContextMeter:
    composer = Composer()
    rig.qtbot.addWidget(composer)
    return ContextMeter(rig.ctx, composer, lambda _use: None)


def test_a_server_that_does_not_count_says_how_full_the_context_is_with_its_answer(far: Rig) -> None:
    meter = meter_of(far)
    far.ask("Hello")
    far.qtbot.waitUntil(lambda: meter.use is not None, timeout=WAIT_MS)
    assert meter.use is not None
    assert (meter.use.total, meter.use.length) == (14, 2048)
    assert meter.use.rows()[0][0] == "As of the last answer"


def test_a_full_context_of_a_server_is_not_loaded_longer_here() -> None:
    full = ContextUse(0, 2048, 0, 2048, "drop_oldest", is_counted=False, is_remote=True)
    assert full.warning().endswith("or give the model a longer context on its server.")


@behaves("far counting")
def test_only_what_was_sent_is_counted_elsewhere(far: Rig) -> None:
    meter = meter_of(far)
    far.ask("One two three")
    far.model.unsent.type("four five")
    far.qtbot.waitUntil(lambda: meter.use is not None and meter.use.messages == 4, timeout=WAIT_MS)
    assert meter.use is not None and meter.use.text == 0


@behaves("far counting")
def test_a_chat_that_has_not_been_sent_is_not_counted_either(moved: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[CountTokens] = []
    asked: list[str] = []
    is_needed = moved.answers.consent.is_needed

    def count_tokens(question: CountTokens) -> int:
        counts.append(question)
        return 0

    def is_asked_for(chat_id: str, branch: Sequence[StoredMessage]) -> bool:
        asked.append(chat_id)
        return is_needed(chat_id, branch)

    monkeypatch.setattr(moved.engine, "count_tokens", count_tokens)
    monkeypatch.setattr(moved.answers.consent, "is_needed", is_asked_for)
    meter = meter_of(moved)
    moved.qtbot.waitUntil(lambda: bool(asked), timeout=WAIT_MS)
    assert meter.use is None and not counts


FAR, OTHER = "https://far.example:8000", "https://other.example"


def served_at(address: str, *, is_loopback: bool = False) -> RemoteModel:
    return RemoteModel(server=Server(kind="vllm", address=address, is_loopback=is_loopback), model="big")


def turns(*servers: str) -> list[StoredMessage]:
    """Questions, each answered by one of these; an empty one is this computer."""
    found: list[StoredMessage] = []
    for number, server in enumerate(servers):
        question = StoredMessage(f"q{number}", "c", None, "user", "Hello", "complete", 0.0)
        answer = replace(question, id=f"a{number}", role="assistant", settings_json=json.dumps({"server": server}))
        found += [question, answer]
    return found


def test_the_last_answer_tells_where_a_chat_has_been() -> None:
    consent = HostConsent(lambda: served_at(FAR))
    assert not consent.is_needed("c", [])
    assert not consent.is_needed("c", turns(FAR))
    assert not consent.is_needed("c", turns("", FAR))
    assert consent.is_needed("c", turns(""))
    assert consent.is_needed("c", turns(FAR, ""))  # what was said since then was said here only
    assert consent.is_needed("c", turns(OTHER))
    assert consent.is_needed("c", turns(FAR)[:1])


def test_to_look_at_one_branch_allows_nothing_for_another() -> None:
    consent = HostConsent(lambda: served_at(FAR))
    assert not consent.is_needed("c", turns(FAR))
    assert consent.is_needed("c", turns(""))
    consent.allow("c")
    assert not consent.is_needed("c", turns(""))
    assert consent.is_needed("another", turns(""))


def test_servers_on_this_computer_need_none() -> None:
    consent = HostConsent(lambda: served_at("http://127.0.0.1:8080", is_loopback=True))
    assert not consent.is_needed("c", turns(""))
    assert not HostConsent(lambda: None).is_needed("c", turns(""))
