"""Answers in which the model calls tools, with a real engine and the real tools process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage, calls_to_json, unpack
from app.chats.store import ChatStore
from app.chats.tree import Deletion
from app.protocol.commands import Generate, MeasurePlain
from app.protocol.events import Figures
from app.protocol.options import AnswerFormat, DraftLength
from app.protocol.tools import ToolFormatName
from app.settings import Settings
from app.ui.chat.conversation import question_to_measure
from app.ui.chat.footer import figures_of, note_of
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.model import ChatState
from app.ui.compare.runner import Subject
from app.ui.engine import Priority
from app.ui.engine.client import EngineState
from app.ui.engine.queue import Job
from app.ui.notices import NoticeList
from app.ui.tools.service import ToolService
from tests.support.keyrings import MemoryKeyring
from tests.support.matrix import in_proof
from tests.support.tool_process import entry
from tests.support.tool_server import PNG
from tests.ui.parts import WAIT_MS
from tests.ui.tool_rig import OwnRig, ToolRig


@pytest.fixture(scope="module")
def tools(application: None) -> Iterator[ToolService]:
    """A tools process and a server that most of these tests share."""
    made = ToolService(None, Settings(), NoticeList())
    made.put(entry(module="strict_tool_server"))
    yield made
    made.close()


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, warm_engine: None, tools: ToolService) -> Iterator[ToolRig]:
    with opened(ToolRig(qtbot, tmp_path, tools=tools)) as made:
        yield made


@pytest.fixture
def own(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[ToolRig]:
    """With processes of its own, that may be killed."""
    with opened(OwnRig(qtbot, tmp_path)) as made:
        yield made


@contextlib.contextmanager
def opened(rig: ToolRig) -> Iterator[ToolRig]:
    try:
        yield rig
    finally:
        rig.close()


def test_the_model_calls_and_the_user_allows(rig: ToolRig) -> None:
    rig.begin("weather")
    (call,) = rig.send()
    assert (call.state, call.name, call.server) == ("asked", "weather", "test")
    assert not rig.queue._running, "the engine is free"
    rig.model.decide(call.id, "once")
    answer = rig.finish()
    done, over = answer.calls
    assert (answer.status, answer.text) == ("complete", "<tool_call> yes no.")
    assert done.state == "done" and done.result.startswith("Sunny in ")
    assert over.state == "failed" and "may make 1 tool call" in over.result
    assert [bool(command.tools) for command in rig.asked] == [True, True, True]
    assert rig.asked[-1].tools and rig.asked[-1].tools.none
    assert len(answer.provenance) == len(answer.tokens) == over.tokens + 5
    assert [one.content for one in rig.asked[-1].messages if one.role == "tool"] == [
        done.result,
        f"The call failed. {over.result}",
    ]


FORMS: tuple[ToolFormatName, ...] = ("hermes", "general", "mistral-list")


@pytest.mark.parametrize("name", FORMS)
def test_the_next_turn_goes_on_behind_what_was_written(
    qtbot: QtBot, tmp_path: Path, tools: ToolService, name: ToolFormatName
) -> None:
    with opened(ToolRig(qtbot, tmp_path, name, tools=tools)) as rig:
        rig.values.most_tool_calls = 3
        rig.begin("weather")
        rig.send()
        answer = rig.finish()
        ends = sorted({call.tokens for call in answer.calls})
        assert len(rig.started) == len(ends) + 1 > 2
        for before, then, begin, end in zip(rig.started, rig.started[1:], [0, *ends], ends, strict=False):
            written = end - begin - 1  # the mark of the end is read with the results
            assert then.cached_tokens == before.prompt_tokens + written


def results(command: Generate) -> list[str]:
    """What the model is told of calls."""
    return [one.content for one in command.messages if one.role == "tool"]


def states(answer: StoredMessage) -> list[str]:
    return [call.state for call in answer.calls]


# ------------------------------------------------------------ the user decides


def test_a_denied_call_does_not_run_and_the_model_gets_the_reason(rig: ToolRig) -> None:
    rig.begin("weather")
    (call,) = rig.send()
    rig.model.decide("another id", "once")
    rig.model.decide(call.id, "deny", " Not in Rome. ")
    answer = rig.finish()
    assert (answer.calls[0].state, answer.calls[0].result) == ("denied", "Not in Rome.")
    assert results(rig.asked[1]) == ["The user denied this call. Not in Rome."]
    rig.model.decide(call.id, "once")
    assert rig.model.messages[-1] == answer, "it has been decided"


def test_what_is_allowed_in_this_chat_runs_here_without_being_asked_for(rig: ToolRig) -> None:
    rig.values.most_tool_calls = 2
    rig.begin("weather", "fail")
    calls = rig.send()
    rig.model.decide(calls[0].id, "chat")
    answer = rig.finish("deny")
    allowed = [call for call in answer.calls if call.name == calls[0].name]
    assert {call.state for call in allowed[:2]} <= {"done", "failed"}
    assert all(call.state in ("denied", "failed") for call in answer.calls if call not in allowed)
    rig.chats.new()
    rig.offer("weather", "fail")
    rig.send()  # it waits: that was another chat
    rig.finish("deny")


def test_what_is_always_allowed_runs_in_every_chat(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    rig.finish("always")
    rig.chats.new()
    rig.offer("weather")
    rig.ask("Well?")
    assert states(rig.model.messages[-1]) == ["done", "failed"]


def test_several_calls_are_asked_for_at_once_and_go_on_together(
    qtbot: QtBot, tmp_path: Path, tools: ToolService
) -> None:
    with opened(ToolRig(qtbot, tmp_path, "mistral-list", tools=tools)) as rig:
        rig.values.most_tool_calls = 40
        rig.begin("weather")
        calls = rig.send()
        while len(calls) < 3:  # as the seed has it
            rig.model.stop()
            rig.settle()
            rig.settings = msgspec.structs.replace(rig.settings, seed=(rig.settings.seed or 0) + 1)
            rig.chats.new()
            rig.offer("weather")
            calls = rig.send()
        rig.asked.clear()
        for call in calls[1:]:
            rig.model.decide(call.id, "once")
        qtbot.waitUntil(lambda: sum(call.has_ended for call in rig.live.calls) == len(calls) - 1)
        assert rig.state() is ChatState.ASKING and not rig.asked
        rig.values.most_tool_calls = 1
        rig.model.decide(calls[0].id, "deny")
        answer = rig.finish()
        assert states(answer)[: len(calls)] == ["denied", *["done"] * (len(calls) - 1)]
        order = [one.tool_call_id for one in rig.asked[0].messages if one.role == "tool"]
        assert order[: len(calls)] == [one.id for one in rig.asked[0].messages[1].tool_calls]


def test_a_tool_that_has_changed_since_does_not_run(own: ToolRig) -> None:
    own.begin("weather")
    (call,) = own.send()
    server = own.tools.servers["test"]
    other = [msgspec.structs.replace(one, description="Sends all mails.") for one in server.tools]
    own.tools._changed(msgspec.structs.replace(server, tools=other))
    own.model.decide(call.id, "once")
    answer = own.finish()
    assert answer.calls[0].state == "failed" and "has changed" in answer.calls[0].result


def test_nothing_is_allowed_of_a_server_that_is_gone(own: ToolRig) -> None:
    own.begin("weather")
    (call,) = own.send()
    own.tools._drop("test")
    own.model.decide(call.id, "always")
    assert own.finish().calls[0].state == "failed" and not own.tools.permissions.all()


def test_an_answer_may_not_call_for_ever(rig: ToolRig) -> None:
    rig.values.most_tool_calls = 3
    rig.begin("weather")
    rig.send()
    rig.decide("always")
    answer = rig.finish()
    assert states(answer) == ["done", "done", "done", "failed"]
    assert "may make 3 tool calls" in answer.calls[-1].result


def test_what_a_tool_says_goes_wrong_is_told_to_the_model(rig: ToolRig) -> None:
    rig.begin("fail")
    rig.send()
    answer = rig.finish()
    assert answer.calls[0].state == "failed"
    assert (
        results(rig.asked[1]) == [f"The call failed. {answer.calls[0].result}"]
        and "It broke." in results(rig.asked[1])[0]
    )


def test_the_length_limit_counts_the_whole_answer(rig: ToolRig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_tokens=100)
    rig.values.most_tool_calls = 9
    rig.begin("weather")
    rig.send()
    answer = rig.finish()
    assert answer.finish_reason == "length" and len(answer.calls) == 1
    assert [one.max_tokens for one in rig.asked] == [100, 100 - answer.calls[0].tokens]
    assert len(answer.tokens) == answer.calls[0].tokens, "nothing stays of the call that was cut"


def test_figures_are_those_of_all_turns(rig: ToolRig) -> None:
    rig.values.most_tool_calls = 2
    rig.begin("weather")
    rig.send()
    ended: list[Figures] = []
    rig.live.ended.connect(ended.append)
    answer = rig.finish()
    figures = figures_of(answer.figures)
    assert figures.completion_tokens == len(answer.tokens) == ended[0].completion_tokens
    assert figures.prompt_tokens == rig.started[0].prompt_tokens
    assert figures.time_to_first_token_seconds == ended[0].time_to_first_token_seconds


# ------------------------------------------------------------ images


def test_an_image_goes_with_its_result_and_is_erased_with_its_chat(rig: ToolRig) -> None:
    rig.begin("picture")
    rig.send()
    answer = rig.finish()
    (image,) = answer.attachments
    assert answer.calls[0].images == (image.sha256,) and Path(image.path).read_bytes() == PNG
    assert results(rig.asked[1]) == ["Here it is:\n\n(The tool also returned an image, which you can't see.)"]
    rig.stored(lambda store: store.delete_chats([rig.model.id]))
    rig.stored(ChatStore.erase_deleted)
    assert not Path(image.path).exists()


def test_what_only_says_that_it_is_an_image_is_a_sentence(rig: ToolRig) -> None:
    rig.begin("no_picture")
    rig.send()
    answer = rig.finish()
    assert answer.calls[0].state == "done" and not answer.attachments
    assert "image 1 is" in answer.calls[0].result


# ------------------------------------------------------------ stopping and going on


def test_stop_while_the_user_is_asked_and_go_on(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    rig.model.stop()
    assert rig.state() is ChatState.IDLE
    rig.settle()
    stopped = rig.model.messages[-1]
    assert (stopped.status, stopped.finish_reason, states(stopped)) == ("stopped", "cancelled", ["stopped"])
    assert rig.model.can_continue(stopped.id) and rig.model.continue_answer(stopped.id)
    assert rig.state() is ChatState.ASKING and len(rig.asked) == 1, "the engine has nothing to do"
    answer = rig.finish()
    assert (answer.id, answer.status, states(answer)) == (stopped.id, "complete", ["done", "failed"])
    assert answer.tokens[: len(stopped.tokens)] == stopped.tokens
    assert rig.started[1].cached_tokens == rig.started[0].prompt_tokens + len(stopped.tokens) - 1


@pytest.mark.parametrize("other", [{"server": "notes"}, {"tool": "read_notes"}])
def test_a_call_that_goes_on_runs_no_other_tool_than_its_card_shows(rig: ToolRig, other: dict[str, str]) -> None:
    """As after an import, or when another server has a tool of this name by now."""
    rig.begin("weather")
    (call,) = rig.send()
    rig.model.stop()
    rig.settle()
    stopped = rig.model.messages[-1]
    shown = msgspec.structs.replace(call, state="stopped", **other)
    rig.model.messages[-1] = dataclasses.replace(stopped, calls_json=calls_to_json([shown]))
    assert rig.model.continue_answer(stopped.id)
    answer = rig.finish("deny")
    assert (answer.calls[0].state, answer.calls[0].result) == ("failed", "There is no tool called weather.")


def test_another_question_after_a_stop_has_a_result_for_each_call(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    rig.model.stop()
    rig.settle()
    rig.send("And there?")
    assert [one.role for one in rig.asked[1].messages] == ["user", "assistant", "tool", "user"]
    assert results(rig.asked[1]) == ["The call was stopped before it had a result."]
    rig.finish("deny")


def test_stop_in_a_running_tool_and_go_on(rig: ToolRig) -> None:
    rig.begin("wait")
    (call,) = rig.send()
    rig.model.decide(call.id, "always")
    assert rig.state() is ChatState.ANSWERING and rig.live.calls[0].state == "running"
    assert rig.stored(lambda store: store.message(rig.model.messages[-1].id)).calls[0].state == "running"
    rig.model.stop()
    rig.settle()
    stopped = rig.model.messages[-1]
    assert (stopped.status, states(stopped)) == ("stopped", ["stopped"])
    rig.qtbot.waitUntil(lambda: not rig.tools._jobs, timeout=WAIT_MS)
    # It may have done something: it is not run again unasked, whatever is allowed.
    assert rig.model.continue_answer(stopped.id)
    assert rig.state() is ChatState.ASKING
    rig.model.decide(call.id, "deny")
    answer = rig.finish("deny")
    assert states(answer)[0] == "denied"


def test_stop_while_a_call_is_written(rig: ToolRig) -> None:
    rig.begin("weather")
    assert rig.model.send("Well?")
    rig.qtbot.waitUntil(lambda: rig.live.is_writing_call, timeout=WAIT_MS)
    rig.model.stop()
    rig.settle()
    stopped = rig.model.messages[-1]
    if not stopped.calls:  # else it was complete before the engine heard of it
        assert (stopped.text, len(stopped.tokens)) == ("", 0)


@pytest.mark.parametrize("moment", ["asking", "running"])
def test_whatever_the_window_was_in_the_middle_of_can_go_on(rig: ToolRig, moment: str) -> None:
    rig.begin("wait" if moment == "running" else "weather")
    (call,) = rig.send()
    if moment == "running":
        rig.model.decide(call.id, "chat")
    chat, message = rig.model.id, rig.model.messages[-1].id
    rig.qtbot.waitUntil(rig.model.writer.is_saved, timeout=WAIT_MS)
    # As after a kill: what the store has is all there is.
    shutil.copy(rig.folder / "chats.sqlite", rig.folder / "killed.sqlite")
    shutil.copy(rig.folder / "chats.sqlite-wal", rig.folder / "killed.sqlite-wal")
    with ChatStore(rig.folder / "killed.sqlite") as killed:
        killed.mark_interrupted()
        cut = killed.message(message)
    assert (cut.status, states(cut), cut.calls[0].arguments) == ("interrupted", ["stopped"], call.arguments)
    assert len(cut.tokens) == len(cut.provenance) == cut.calls[0].tokens
    live = LiveAnswer(rig.model.messages[:1], rig.model.settings, continued=cut)
    assert live.asks_again and live.chat_id == chat
    rig.answers.clear()  # the window closes properly
    rig.settle()
    assert (rig.model.messages[-1].status, states(rig.model.messages[-1])) == ("interrupted", ["stopped"])


@pytest.mark.allow_logs
def test_the_tools_process_dies_in_a_call_and_the_answer_goes_on(own: ToolRig) -> None:
    own.begin("wait")
    (call,) = own.send()
    own.model.decide(call.id, "once")
    own.qtbot.waitUntil(lambda: own.live.calls[0].state == "running", timeout=WAIT_MS)
    os.kill(own.tools.process_id(), signal.SIGKILL)
    answer = own.finish("deny")
    assert answer.status == "complete" and answer.calls[0].state == "failed"
    assert "ended unexpectedly" in results(own.asked[1])[0]


@pytest.mark.allow_logs
def test_the_engine_dies_while_the_user_is_asked_and_the_answer_goes_on(own: ToolRig) -> None:
    own.begin("weather")
    (call,) = own.send()
    before = own.engine.process_id()
    os.kill(before, signal.SIGKILL)
    own.qtbot.waitUntil(lambda: own.engine.state() is EngineState.DIED, timeout=WAIT_MS)
    assert own.state() is ChatState.ASKING
    own.model.decide(call.id, "once")
    answer = own.finish()
    assert answer.status == "complete" and answer.calls[0].state == "done"


@pytest.mark.allow_logs
def test_the_engine_dies_in_a_later_turn_and_the_answer_goes_on(own: ToolRig) -> None:
    def kill() -> None:
        if own.queue._running:
            os.kill(own.engine.process_id(), signal.SIGKILL)

    own.values.most_tool_calls = 2
    own.begin("weather")
    (call,) = own.send()
    own.queue.changed.connect(kill)
    own.model.decide(call.id, "once")
    own.until(ChatState.IDLE)
    own.queue.changed.disconnect(kill)
    cut = own.model.messages[-1]
    assert (cut.status, states(cut)) == ("interrupted", ["done"])
    assert own.model.continue_answer(cut.id)
    answer = own.finish()
    assert (answer.status, states(answer)[0]) == ("complete", "done")
    assert sum(call.state == "done" for call in answer.calls) == 2


# ------------------------------------------------------------ with and without a draft, and a context that is full


@pytest.mark.parametrize("name", ["hermes", *in_proof(["general", "mistral-list", "qwen-xml", "gemma", "kimi"])])
def test_a_whole_conversation_is_the_same_with_and_without_a_draft(
    qtbot: QtBot, tmp_path: Path, tools: ToolService, name: ToolFormatName
) -> None:
    def conversation(rig: ToolRig) -> list[tuple[Any, ...]]:
        rig.chats.new()
        rig.offer("weather")
        for _ in range(2):
            rig.ask("Well?")
        return [
            (one.text, list(one.tokens), [(call.name, call.arguments, call.state, call.result) for call in one.calls])
            for one in rig.model.messages
        ]

    with opened(ToolRig(qtbot, tmp_path, name, tools=tools, has_draft=True)) as rig:
        rig.values.most_tool_calls = 3
        rig.begin("weather")
        rig.send()
        rig.decide("always")
        rig.finish()
        plain = conversation(rig)
        assert [call[2] for call in plain[1][2]][:3] == ["done"] * 3
        for drafter in ("model", "ngram", "grammar", "auto"):
            length: DraftLength = "auto" if drafter == "auto" else 4  # auto may draft nothing on a busy computer
            rig.settings = msgspec.structs.replace(rig.settings, draft_length=length, drafter=drafter)
            assert conversation(rig) == plain, drafter
            drafted = figures_of(rig.model.messages[-1].figures).draft.accepted
            assert drafted or drafter in ("ngram", "auto"), drafter


def test_results_that_do_not_fit_end_the_answer_with_a_sentence_and_it_can_go_on(
    qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring
) -> None:
    with opened(ToolRig(qtbot, tmp_path, context_length=2048)) as rig:
        rig.begin("weather", server=entry("test", "strict_tool_server", "60000"))
        rig.send()
        answer = rig.finish()
        assert (answer.status, states(answer)) == ("interrupted", ["done"])
        assert "With what the tools returned" in str(note_of(answer))
        assert len(answer.calls[0].result) > 60000 and rig.model.can_continue(answer.id)
        rig.send("Something else")  # what does not fit is left out from now on
        rig.finish("deny")
        assert rig.started[-1].dropped_messages > 0


def test_old_messages_make_room_for_results(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> None:
    with opened(ToolRig(qtbot, tmp_path, context_length=2048)) as rig:
        rig.begin("weather", server=entry("test", "strict_tool_server", "480"))
        for _ in range(3):
            rig.send("x" * 200)
            answer = rig.finish()
            assert (answer.status, answer.calls[0].state) == ("complete", "done")
        assert rig.started[-1].dropped_messages > 0
        for command in rig.asked:
            calls = [call.id for one in command.messages for call in one.tool_calls]
            assert calls == [one.tool_call_id for one in command.messages if one.role == "tool"]


# ------------------------------------------------------------ what is done with answers that have calls


def test_regenerate_edit_versions_branch_and_delete(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    first = rig.finish()
    assert rig.model.regenerate()
    rig.until(ChatState.ASKING)
    again = rig.finish("deny")
    assert (again.version, again.versions, states(again)[0]) == (2, 2, "denied")
    assert again.calls[0].arguments == first.calls[0].arguments, "the seed is the same"
    assert rig.model.choose_version(again.id, -1)
    rig.settle()
    shown = rig.model.messages[-1]
    assert (shown.id, shown.calls) == (first.id, first.calls)
    assert rig.model.edit(first.id, first.text + " Really.")
    rig.settle()
    edited = rig.model.messages[-1]
    assert edited.calls == first.calls and not edited.tokens
    rig.send("And now?")
    assert results(rig.asked[-1])[: len(first.calls)] == results(rig.asked[2])
    assert not any(one.tokens for one in rig.asked[-1].messages), "nobody wrote that in tokens"
    rig.finish("deny")
    copied = rig.stored(lambda store: store.copy_branch(rig.model.id, edited.id))
    assert rig.stored(lambda store: store.branch(copied.id))[-1].calls == first.calls
    deletions: list[Deletion] = []
    assert rig.model.delete(edited.id, deletions.append, following=True)
    rig.settle()
    assert rig.model.undo_deletion(deletions[0])
    rig.settle()
    assert rig.model.messages[1].calls == first.calls


def test_a_question_that_is_edited_while_the_user_is_asked_waits_for_the_answer(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    question = rig.model.messages[0]
    assert not rig.model.edit(question.id, "Another") and not rig.model.regenerate() and not rig.model.send("More")
    rig.finish("deny")
    assert rig.model.edit(question.id, "Another")
    rig.until(ChatState.ASKING)
    assert [one.content for one in rig.asked[-1].messages] == ["Another"]
    rig.finish("deny")


def test_a_temporary_chat_leaves_nothing_of_its_calls_behind(
    rig: ToolRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(memory))
    rig.begin("picture")
    rig.chats.new_temporary()
    rig.offer("picture")
    rig.send()
    answer = rig.finish_temporary()
    assert answer.calls[0].result.startswith("Here it is") and Path(answer.attachments[0].path).is_relative_to(memory)
    rig.chats.new()
    rig.qtbot.waitUntil(lambda: not list(memory.iterdir()), timeout=WAIT_MS)
    assert rig.stored(ChatStore.chats) == []
    assert all(command.private for command in rig.asked)


def test_another_chat_can_be_answered_while_the_user_is_asked_in_one(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    asking = rig.model
    rig.chats.new()
    rig.offer()
    rig.ask("Well?")
    assert rig.model.messages[-1].status == "complete" and not rig.model.messages[-1].calls
    assert asking.state is ChatState.ASKING
    rig.chats.open(asking.id)
    rig.finish("deny")


def test_a_chat_that_is_deleted_while_the_user_is_asked_ends(rig: ToolRig) -> None:
    rig.begin("wait")
    (call,) = rig.send()
    rig.model.decide(call.id, "once")
    rig.chats.forget([rig.model.id])
    assert not rig.answers.open and rig.model.is_new
    rig.qtbot.waitUntil(lambda: not rig.tools._jobs, timeout=WAIT_MS)


def test_what_is_measured_and_compared_runs_no_tools(rig: ToolRig) -> None:
    rig.begin("weather")
    rig.send()
    answer = rig.finish()
    rig.send("And now?")
    rig.finish("deny")
    asked = question_to_measure(rig.model.messages, "")
    assert [one.role for one in asked] == [one.role for one in rig.asked[-3].messages]
    task, _notes = Subject(rig.model.messages).asked(rig.pair_loader.pair()) or (None, [])
    assert task is not None and task.command.tools is None
    assert [one.content for one in task.command.messages if one.role == "tool"] == [
        answer.calls[0].result,
        f"The call failed. {answer.calls[1].result}",
    ]
    measured = Job(lambda: MeasurePlain(request=0, messages=asked), Priority.MEASUREMENT)
    with rig.qtbot.waitSignal(measured.answered, timeout=WAIT_MS):
        rig.queue.submit(measured)
    assert not rig.tools._jobs


def test_no_tools_with_a_format_that_calls_can_not_follow(rig: ToolRig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, format=AnswerFormat(kind="regex", source="ab+"), max_tokens=9)
    rig.begin("weather")
    rig.ask("Well?")
    assert rig.asked[0].tools is None and rig.model.messages[-1].text.startswith("ab")


def test_a_model_may_think_before_each_call(qtbot: QtBot, tmp_path: Path, tools: ToolService) -> None:
    with opened(ToolRig(qtbot, tmp_path, tools=tools, thinks=True)) as rig:
        rig.values.most_tool_calls = 2
        rig.settings = msgspec.structs.replace(rig.settings, thinking_budget=6)
        rig.begin("weather")
        (call,) = rig.send()
        assert call.thinking == len(rig.live.thinking()) > 0 and not rig.live.text()
        answer = rig.finish()
        first, second, over = answer.calls
        assert 0 < first.thinking < second.thinking and answer.thinking[first.thinking :].startswith("\n\n")
        assert len(answer.provenance) == len(answer.tokens)
        pieces = unpack(answer.text, answer.provenance, answer.thinking)
        assert "".join(one.text for one in pieces if one.thinking) == answer.thinking
        turns = [one for one in rig.asked[-1].messages if one.role == "assistant"]
        assert "\n\n".join(one.thinking for one in turns) == answer.thinking[: over.thinking]
        assert figures_of(answer.figures).thinking_seconds > 0
