"""What the window says when something is not as usual."""

from __future__ import annotations

import inspect

import pytest
from pytestqt.qtbot import QtBot

from app.protocol.events import SpeedChange
from app.settings import Pair
from app.ui import notices
from app.ui.engine.client import EngineExit, EngineState, ExitCause
from app.ui.notices import Notice, NoticeList
from app.ui.shell.all_actions import all_actions

ENDED = EngineExit(ExitCause.KILLED, "SIGKILL", EngineState.ANSWERING).sentence()
ALL = [
    notices.engine_ended(ENDED, had_draft=True, was_answering=True),
    notices.engine_ends_too_often(ENDED, had_draft=True),
    notices.engine_stalled(12.3),
    notices.load_failed("The file is cut off."),
    notices.load_canceled(),
    notices.does_not_fit("The pair needs 9.3 GB, 7.6 GB are free.", is_loaded=True),
    notices.loaded_otherwise("Without the draft: the pair needs 9.3 GB, 7.6 GB are free."),
    notices.server_failed("Nothing answers at gpu-box:8000.", "unreachable"),
    notices.server_loading(),
    notices.not_connected(),
    notices.server_stalled(121.0),
    notices.may_be_sent("Hello", "gpu-box"),
    notices.answer_not_finished("cut", has_begun=True, can_continue=True),
    notices.no_model(),
    notices.file_missing("big.gguf", is_loaded=False),
    notices.guide_missing(),
    notices.slow_drive(),
    notices.not_opened("notes.txt is no model."),
    notices.draft_refused("The vocabularies differ."),
    notices.draft_failed("The draft ran out of memory."),
    notices.head_refused("The MTP head in model.gguf can't be computed."),
    notices.projector_refused("The projector mmproj.gguf is for another model."),
    notices.template_refused("The model's own chat template is broken. The ChatML template is used instead."),
    notices.slower(SpeedChange(before="llama-cpp-python 0.3.36", now="llama-cpp-python 0.3.37", times=1.31)),
    notices.died_while_loading("big.gguf"),
    notices.unanswered(),
    notices.not_saved("The disk is full."),
    notices.chats_unavailable("The chats are newer."),
    notices.previous_crash(),
    notices.exported("chat.md"),
    notices.downloaded("Qwen3 8B with draft", Pair("/m/qwen3.gguf")),
    notices.download_stopped("Qwen3 8B with draft", "The disk is full."),
    notices.better_model("Gemma 4 E2B (2.7 GB to download)"),
    notices.api_server_ended(),
    notices.api_server_failed("Port 8642 on 127.0.0.1 is in use by another program."),
    notices.tools_failed(
        "The MCP server “time” isn't available. It ended at once.", ["Traceback", "ImportError: time"]
    ),
    notices.told("Three chats were imported."),
    notices.too_long("With its attachments, this message is 12 tokens too long for the context."),
    notices.plain_text("Something."),
    notices.cannot_see("986 MB to download"),
    notices.has_no_text("scan.pdf"),
]


def test_every_notice_is_in_this_test() -> None:
    own = [one for one in vars(notices).values() if inspect.isfunction(one) and one.__module__ == notices.__name__]
    assert len(own) == len(ALL)


@pytest.mark.parametrize("notice", ALL)
def test_every_notice_is_calm_and_can_be_acted_on(notice: Notice) -> None:
    assert notice.text.endswith(".")
    assert "!" not in notice.text
    assert 1 <= len(notice.actions) <= 3
    assert len(set(notice.actions)) == len(notice.actions)
    assert all(all_actions().text(name) for name in notice.actions)


def test_what_got_slower_is_named_with_both_versions_and_how_much() -> None:
    change = SpeedChange(before="NVIDIA driver 550.54", now="NVIDIA driver 560.1", times=1.31)
    assert notices.slower(change).text.startswith(
        "These models have been slower since NVIDIA driver 560.1 was installed: computing a token takes "
        "1.3× as long as with NVIDIA driver 550.54."
    )


def test_what_helps_with_a_server_depends_on_what_is_wrong() -> None:
    assert notices.server_failed("It needs a key.", "key").actions[0] == "enter_key"
    assert notices.server_failed("It is loading.", "loading").actions[0] == "connect_again"
    assert notices.server_failed("It doesn't have the model.", "model").actions[0] == "choose_server"
    assert notices.server_failed("It isn't trusted.", "certificate").actions[0] == "choose_server"
    unreachable = notices.answer_not_finished("unreachable", has_begun=False, can_continue=False)
    assert unreachable.actions == ("ask_again", "dismiss")
    assert "Your message was kept" in unreachable.text
    assert "continue_answer" not in notices.answer_not_finished("cut", has_begun=True, can_continue=False).actions


def test_without_a_draft_there_is_no_restart_without_it() -> None:
    assert "restart_plain" not in notices.engine_ended(ENDED, had_draft=False, was_answering=False).actions
    assert "restart_plain" not in notices.engine_ends_too_often(ENDED, had_draft=False).actions


def test_after_a_crash_with_a_gpu_the_processor_is_offered() -> None:
    once = notices.engine_ended(ENDED, had_draft=True, crashed_with_gpu=True)
    often = notices.engine_ends_too_often(ENDED, had_draft=True, crashed_with_gpu=True)
    assert once.actions == ("restart", "restart_on_cpu", "copy_report")
    assert often.actions == ("restart_on_cpu", "restart", "copy_report")


def test_one_notice_a_subject_and_only_changes_are_told(qtbot: QtBot) -> None:
    notice_list = NoticeList()
    told: list[dict[str, Notice]] = []
    notice_list.changed.connect(told.append)
    notice_list.show("a", notices.no_model())
    notice_list.show("a", notices.no_model())
    notice_list.show("b", notices.unanswered())
    notice_list.show("a", notices.load_canceled())
    assert [list(one) for one in told] == [["a"], ["a", "b"], ["b", "a"]]
    notice_list.remove("nothing")
    notice_list.remove("a", "b")
    assert notice_list.notices() == {}
    assert len(told) == 4
