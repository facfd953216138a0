"""From a stored answer to what writes it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from app.chats.model import Role, StoredMessage, to_json
from app.protocol.answering import AnswerSettings
from app.protocol.commands import generate
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import DrafterName, Sampling
from app.ui.compare.runner import Subject

PAIR = PairLoaded(
    request=1, target=ModelInfo(path="/m/t.gguf", name="Target"), draft=ModelInfo(path="/m/d.gguf", name="Draft")
)
SETTINGS = AnswerSettings(
    sampling=Sampling(temperature=0.5), max_tokens=64, stop=["###"], system_prompt="Be short.", draft_length=3
)

_JSON = ("settings", "figures", "provenance")


def message(role: Role, text: str, **fields: Any) -> StoredMessage:
    made = StoredMessage(
        id=text, chat_id="chat", parent_id=None, role=role, text=text, status="complete", created_at=0.0
    )
    json = {f"{name}_json": to_json(value) for name, value in fields.items() if name in _JSON}
    return replace(made, **{**{name: value for name, value in fields.items() if name not in _JSON}, **json})


def answer(text: str = "An answer", settings: AnswerSettings = SETTINGS, **fields: Any) -> StoredMessage:
    kept = {**msgspec.to_builtins(settings), "template": "model", "draft": "Draft"}
    return message("assistant", text, pair="Target", settings=kept, seed=11, **fields)


def test_the_answer_is_asked_as_it_was() -> None:
    branch = [message("user", "One"), answer("First"), message("user", "Two"), answer("Second"), message("user", "3")]
    found = Subject(branch[:4]).asked(PAIR)
    assert found is not None
    assert [(one.role, one.content) for one in found[0].prompt.messages] == [
        ("system", "Be short."),
        ("user", "One"),
        ("assistant", "First"),
        ("user", "Two"),
    ]
    assert found[0].seed == 11
    assert found[0].command == generate(SETTINGS, found[0].prompt.messages, seed=11)
    assert not found[1]


def test_an_answer_of_a_temporary_chat_stays_private() -> None:
    found = Subject([message("user", "One"), answer()], is_private=True).asked(PAIR)
    assert found is not None and found[0].command.private


def test_a_question_and_an_answer_without_one_cannot_be_compared() -> None:
    assert Subject([message("user", "One")]).asked(PAIR) is None
    assert Subject([answer()]).asked(PAIR) is None


@pytest.mark.parametrize(
    "pair",
    [
        msgspec.structs.replace(PAIR, target=ModelInfo(path="/m/o.gguf", name="Other")),
        msgspec.structs.replace(PAIR, draft=None),
    ],
)
def test_another_pair_is_told(pair: PairLoaded) -> None:
    found = Subject([message("user", "One"), answer()]).asked(pair)
    assert found is not None
    assert found[1] == [
        "This answer was written by another pair (Target with the draft Draft). "
        "Both runs use the pair that is loaded now."
    ]


@pytest.mark.parametrize(
    ("stored", "loaded", "title"),
    [
        ({"mtp_head": True}, None, "MTP head"),  # as versions before EAGLE-3 stored it
        ({"mtp_head": True}, "mtp", ""),
        ({"head": "eagle3"}, "mtp", "EAGLE-3 head"),
        ({"head": "eagle3"}, "eagle3", ""),
        ({"head": None}, None, ""),
    ],
)
def test_another_head_is_told(stored: dict[str, object], loaded: DrafterName | None, title: str) -> None:
    kept = {**msgspec.to_builtins(SETTINGS), "draft": "Draft", **stored}
    written = message("assistant", "An answer", pair="Target", settings=kept, seed=11)
    found = Subject([message("user", "One"), written]).asked(msgspec.structs.replace(PAIR, head_drafter=loaded))
    assert found is not None and bool(found[1]) == bool(title)
    assert not title or f"(Target with the draft Draft and its {title})" in found[1][0]


@pytest.mark.parametrize("settings", [AnswerSettings(draft_length=0), AnswerSettings(drafter="none", draft_length=4)])
def test_an_answer_without_a_draft_is_drafted_automatically(settings: AnswerSettings) -> None:
    found = Subject([message("user", "One"), answer(settings=settings)]).asked(PAIR)
    assert found is not None
    assert (found[0].command.draft_length, found[0].command.drafter) == ("auto", "auto")
    assert found[1][0].startswith("This answer was written without a draft.")


def test_a_stopped_answer_is_written_as_far_as_it_came() -> None:
    stopped = answer(status="stopped", figures={"completion_tokens": 9})
    interrupted = answer(status="interrupted", provenance=[[2, None, 0, None]] * 5)
    for one, tokens in ((stopped, 9), (interrupted, 5), (answer(status="failed"), 64)):
        found = Subject([message("user", "One"), one]).asked(PAIR)
        assert found is not None
        assert found[0].command.max_tokens == tokens


def test_settings_that_cannot_be_read_are_the_usual_ones() -> None:
    broken = replace(answer(status="complete"), settings_json='{"sampling": 3, "max_tokens": 7}', seed=None)
    found = Subject([message("user", "One"), broken]).asked(PAIR)
    assert found is not None
    command = found[0].command
    assert (command.max_tokens, command.sampling, found[0].seed) == (7, Sampling(), 0)
