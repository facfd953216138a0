"""How an answer is written: what the chat, the settings and the model say."""

from __future__ import annotations

import msgspec

from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import Sampling
from app.protocol.remote import RemoteModel, Server
from app.settings import Settings
from app.ui.chat.live_answer import answer_settings

COOL = Sampling(temperature=0.0)
PAIR = PairLoaded(
    request=1,
    target=ModelInfo(path="t.gguf", name="t"),
    default_draft_length=8,
    sampling=COOL,
    recommended=["temperature"],
)


def test_the_model_decides_until_the_user_does() -> None:
    chat, values = ChatSettings(), Settings()
    assert answer_settings(chat, values, None).sampling == Sampling()
    assert answer_settings(chat, values, PAIR).sampling == COOL
    chosen = ChatSettings(sampling=SamplingChoice(top_k=3))
    assert answer_settings(chosen, values, PAIR).sampling == Sampling(temperature=0.0, top_k=3)


def test_what_a_chat_says_is_how_its_answers_are_written() -> None:
    chat = ChatSettings(seed=3, max_tokens=9, stop=["x"], system_prompt="Hi", overflow="keep_ends")
    command = answer_settings(chat, Settings(accept="block", propose="greedy", draft_length=2), PAIR)
    assert (command.seed, command.max_tokens, command.stop, command.overflow) == (3, 9, ["x"], "keep_ends")
    assert (command.accept, command.propose, command.draft_length) == ("block", "greedy", 2)
    assert answer_settings(chat, Settings(), None).system_prompt == "Hi"


def test_the_draft_length_is_automatic_until_the_user_sets_one() -> None:
    chat, values = ChatSettings(), Settings()
    assert (
        answer_settings(chat, values, None).draft_length == answer_settings(chat, values, PAIR).draft_length == "auto"
    )
    values.draft_length = 0
    assert answer_settings(chat, values, PAIR).draft_length == 0


REMOTE = PairLoaded(
    request=1,
    target=ModelInfo(path="", name="m"),
    sampling=COOL,
    recommended=["temperature"],
    remote=RemoteModel(
        server=Server(kind="vllm", address="http://far.example:8000"), model="m", formats=["json_schema"]
    ),
)


def test_what_was_not_chosen_is_left_to_a_server() -> None:
    chat = ChatSettings(sampling=SamplingChoice(top_k=3), drafter="ngram", answer_format="regex", format_source="a")
    values = Settings(draft_length=0)
    command = answer_settings(chat, values, REMOTE)
    assert command.chosen == ["top_k"] and command.sampling.top_k == 3
    assert (command.draft_length, command.drafter, command.format) == ("auto", "auto", None)
    schema = answer_settings(ChatSettings(answer_format="json_schema", format_source="{}"), values, REMOTE)
    assert schema.format is not None and schema.format.kind == "json_schema"
    assert answer_settings(ChatSettings(), values, PAIR).chosen is None


def test_an_answer_without_a_draft_is_asked_for_only_where_that_is_possible() -> None:
    plain = ChatSettings(drafter="none")
    assert answer_settings(plain, Settings(), REMOTE).drafter == "auto"
    assert REMOTE.remote is not None
    ollama = msgspec.structs.replace(REMOTE.remote, can_switch_drafting=True)
    assert answer_settings(plain, Settings(), msgspec.structs.replace(REMOTE, remote=ollama)).drafter == "none"
