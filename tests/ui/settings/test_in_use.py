"""Between the settings, the presets, the Open models dialog and the next answer."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from app.chats.settings import ChatSettings, SamplingChoice
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import LoadSettings, Sampling
from app.protocol.remote import RemoteModel, Server
from app.settings import Pair, Settings
from app.ui.engine.pair_files import PairFiles, guide_files
from app.ui.settings.in_use import (
    answer_settings,
    files_at_start,
    files_to_load,
    keep_opened,
)

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
    command = answer_settings(chat, Settings(accept="block", propose="greedy", draft_length=2), PAIR).command([])
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


def test_a_drafter_the_pair_does_not_have_is_left_for_the_automatic_choice() -> None:
    alone, drafted = PAIR, msgspec.structs.replace(PAIR, draft=ModelInfo(path="d.gguf", name="d"))
    values = Settings()
    for chosen, with_draft, without in (
        ("auto", "auto", "auto"),
        ("model", "model", "auto"),
        ("chain", "chain", "auto"),
        ("ngram", "ngram", "ngram"),
        ("none", "none", "none"),
    ):
        chat = msgspec.convert({"drafter": chosen}, ChatSettings)
        assert answer_settings(chat, values, drafted).drafter == with_draft
        assert answer_settings(chat, values, alone).drafter == without


def test_each_model_is_loaded_as_it_was_the_last_time() -> None:
    small, large = LoadSettings(context_length=1000), LoadSettings(context_length=9000, kv_type="q8_0")
    values = Settings(load=LoadSettings(threads=3))
    assert files_at_start(values) == replace(guide_files(), settings=values.load)
    for target, load in (("/small.gguf", small), ("/large.gguf", large), (guide_files().target, small)):
        keep_opened(values, PairFiles(target, None, load))
    assert (values.last_pair, values.load) == (None, LoadSettings(threads=3))
    assert files_at_start(values) == replace(guide_files(), settings=small)
    assert files_to_load(values, "/small.gguf", "/draft.gguf") == PairFiles("/small.gguf", "/draft.gguf", small)
    assert files_to_load(values, "/other.gguf", None).settings == values.load
    values.remember_pair(Pair("/large.gguf"))
    assert files_at_start(values) == PairFiles("/large.gguf", None, large)


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
    command = answer_settings(chat, values, REMOTE).command([])
    assert command.chosen == ["top_k"] and command.sampling.top_k == 3
    assert (command.draft_length, command.drafter, command.format) == ("auto", "auto", None)
    schema = answer_settings(ChatSettings(answer_format="json_schema", format_source="{}"), values, REMOTE)
    assert schema.format is not None and schema.format.kind == "json_schema"
    assert answer_settings(ChatSettings(), values, PAIR).command([]).chosen is None


def test_an_answer_without_a_draft_is_asked_for_only_where_that_is_possible() -> None:
    plain = ChatSettings(drafter="none")
    assert answer_settings(plain, Settings(), REMOTE).drafter == "auto"
    assert REMOTE.remote is not None
    ollama = msgspec.structs.replace(REMOTE.remote, can_switch_drafting=True)
    assert answer_settings(plain, Settings(), msgspec.structs.replace(REMOTE, remote=ollama)).drafter == "none"


def test_a_model_on_a_server_is_remembered_without_load_settings() -> None:
    values, files = Settings(), PairFiles("m", server="http://far.example:8000")
    keep_opened(values, files)
    assert values.last_pair == Pair("m", server="http://far.example:8000")
    assert values.recent_pairs == [values.last_pair] and not values.model_loads
    assert files_at_start(values) == files
    assert files.missing() is None and files.preset_target() == "http://far.example:8000#m"
