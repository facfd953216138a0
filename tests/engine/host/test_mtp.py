"""Drafting with the target's own MTP head: the text of decoding without a draft, and a head that is never out of step.

The head of a table model is right only if each token is paired with the hidden state that belongs to it, so its
acceptance says whether it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.chat_cache import ChatCaches
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.engine import Engine
from app.engine.llama import head as heads
from app.models.heads import TURNED_OFF
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings, Sampling
from tests.support.gemma4_models import KINDS as GEMMAS
from tests.support.gemma4_models import Gemma4, make_assistant, make_gemma4, make_table_assistant, make_table_gemma4
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, longest, run
from tests.support.made import Made
from tests.support.matrix import in_proof
from tests.support.mtp_models import (
    ARCHITECTURES,
    CHAINS,
    HeadArchitecture,
    make_head_file,
    make_random_model,
    make_table_model,
    rounds_of,
)
from tests.support.pairs import Loader

WRONG_AFTER = tuple(range(280, 384, 5))
WARM, HOT = Sampling(temperature=0.8), Sampling(temperature=1.5, top_k=0, top_p=1.0)
SETTINGS = LoadSettings(context_length=1024, micro_batch_size=32, threads=1)
LONG = "a question of so many tokens that they are processed in several chunks, one after the other. " * 2
REPEATED = "The answer repeats itself without end, so the rest of it is written without a draft."
GEMMA = "gemma4"
CHAIN: HeadArchitecture = "step35"
"""A model with `HEADS` heads in a chain."""
HEADS = 3
KINDS = (*ARCHITECTURES, GEMMA, CHAIN)
"""The head of Gemma 4 is a file of its own, and reads the target's KV cache."""


class Files(NamedTuple):
    """A target, and the file with its head if that is another one."""

    target: Path
    head: Path | None = None

    def load(self, settings: LoadSettings = SETTINGS) -> Load:
        head = str(self.head) if self.head else None
        return Load(request=1, target=str(self.target), draft=head, head="on", settings=settings)


Models = dict[str, Files]


def make_tables(folder: Path, kind: str, wrong_after: Sequence[int] = ()) -> Files:
    target = folder / f"{kind}.gguf"
    if kind == CHAIN:
        return Files(make_table_model(target, CHAIN, *([wrong_after] * HEADS)))
    if kind in ARCHITECTURES:
        return Files(make_table_model(target, kind, wrong_after))
    return Files(make_table_gemma4(target), make_table_assistant(folder / "mtp.gguf", wrong_after=wrong_after))


def make_random(folder: Path, kind: str) -> Files:
    target = folder / f"{kind}.gguf"
    if kind == GEMMA:
        return Files(make_gemma4(target), make_assistant(folder / "mtp.gguf"))
    return Files(make_random_model(target, kind, heads=HEADS if kind == CHAIN else 1))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def table_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Made(partial(make_tables, tmp_path_factory.mktemp("tables")))


@pytest.fixture(scope="session")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Made(partial(make_random, tmp_path_factory.mktemp("random")))


@pytest.fixture
def load_head(engine: Engine) -> Callable[..., PairLoaded]:
    def load(files: Files, settings: LoadSettings = SETTINGS) -> PairLoaded:
        return engine.load(files.load(settings), lambda _: None)

    return load


LoadHead = Callable[..., PairLoaded]


def asked(*texts: str, **options: Any) -> Generate:
    """What is asked after these messages of user and assistant in turn."""
    messages = [
        Message(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(texts or (LONG,))
    ]
    defaults = {"drafter": "mtp", "draft_length": 3, "max_tokens": 60, "sampling": GREEDY}
    return ask("", **{**defaults, "messages": messages, **options})


def passes_of(answer: Answer) -> list[tuple[int, int]]:
    return [(round_.tested, round_.accepted) for round_ in answer.rounds if round_.verify_passes]


def assert_passes(answer: Answer, plain: Answer, length: int, *wrong_after: Sequence[int]) -> None:
    """What was tested and accepted follows from the plain text, as soon as the head has read the prompt."""
    assert answer.token_ids == plain.token_ids
    passes = passes_of(answer)
    first = next(number for number, (tested, _) in enumerate(passes) if tested)
    assert passes[first:] == rounds_of(plain.token_ids[first:], length, *wrong_after)


def assert_always_right(answer: Answer) -> None:
    draft = answer.finished.figures.draft
    assert answer.finished.draft_failure is None
    assert draft.tested and draft.accepted == draft.tested, passes_of(answer)
    assert_sums_close(answer)


# ---------------------------------------------------------------- what is drafted and accepted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [3, *in_proof([1, 2, 5, 12])])
@pytest.mark.parametrize("wrong_after", [WRONG_AFTER, *in_proof([((),)])], ids=["sometimes wrong", "always right"])
def test_the_counters_follow_from_the_plain_text(
    tmp_path: Path, engine: Engine, load_head: LoadHead, kind: str, depth: int, wrong_after: Sequence[int]
) -> None:
    pair = load_head(make_tables(tmp_path, kind, wrong_after))
    assert pair.has_head and pair.head_refused is None and pair.draft is None
    plain = run(engine, asked(max_tokens=100, draft_length=0))
    answer = run(engine, asked(max_tokens=100, draft_length=depth))
    assert answer.text == plain.text
    assert {round_.drafter for round_ in answer.rounds if round_.tested} == {"mtp"}
    length = min(depth, HEADS) if kind == CHAIN else longest(engine, depth)
    assert_passes(answer, plain, length, wrong_after)
    assert_sums_close(answer)


@pytest.mark.parametrize("architecture", [CHAIN, *in_proof(["hy_v3", "mimo2"])])
def test_each_head_of_a_chain_drafts_the_token_of_its_number(
    tmp_path: Path, engine: Engine, load_head: LoadHead, architecture: HeadArchitecture
) -> None:
    """The heads are wrong after different tokens, so the counters tell which of them drafted."""
    wrong_after: list[Sequence[int]] = [(300, 340), (), WRONG_AFTER, ()]
    pair = load_head(Files(make_table_model(tmp_path / "m.gguf", architecture, *wrong_after)))
    assert pair.has_head and pair.head_refused is None
    assert pair.default_draft_length == (2 if pair.target.gpu_layers else 3)
    plain = run(engine, asked(max_tokens=100, draft_length=0))
    for depth in (1, 3, 8):
        assert_passes(run(engine, asked(max_tokens=100, draft_length=depth)), plain, depth, *wrong_after)
    automatic = run(engine, asked(max_tokens=100, draft_length="auto", drafter="auto"))
    assert automatic.token_ids == plain.token_ids
    assert all(round_.drafted <= 4 for round_ in automatic.rounds if round_.drafter == "mtp")


@pytest.mark.matrix
@pytest.mark.parametrize("architecture", ["nemotron_h_moe", *CHAINS])
def test_a_single_head_of_other_architectures(
    tmp_path: Path, engine: Engine, load_head: LoadHead, architecture: HeadArchitecture
) -> None:
    load_head(Files(make_table_model(tmp_path / "table.gguf", architecture, WRONG_AFTER)))
    plain, answer = (run(engine, asked(max_tokens=100, draft_length=length)) for length in (0, 5))
    assert_passes(answer, plain, longest(engine, 5), WRONG_AFTER)
    load_head(Files(make_random_model(tmp_path / "random.gguf", architecture)))
    for sampling in (GREEDY, WARM):
        assert_the_text_of_decoding_without_a_draft(engine, accepts=True, sampling=sampling)


def assert_the_text_of_decoding_without_a_draft(engine: Engine, *, accepts: bool = False, **options: Any) -> None:
    """``accepts``: a head that is never right would show nothing."""
    command = asked(**{"max_tokens": 80, **options})
    plain = run(engine, msgspec.structs.replace(command, draft_length=0, accept="coupled"))
    answer = run(engine, command)
    assert_same(engine, command, answer, plain)
    assert_sums_close(answer)
    assert answer.finished.figures.draft.accepted or not accepts


# ---------------------------------------------------------------- whatever happens to the chat


@pytest.mark.parametrize("kind", ["qwen35", CHAIN, *in_proof(["glm4moe", GEMMA])])
def test_stop_regenerate_and_edit_right_after_a_pass(
    engine: Engine, load_head: LoadHead, table_models: Models, kind: str
) -> None:
    """llama.cpp issue 26695: undoing a whole pass leaves another state, which must not be used."""
    load_head(table_models[kind])
    expected = run(engine, asked("another question", draft_length=0)).token_ids
    for rounds in (1, 3):
        stopped = run(engine, asked(), cancel_after=rounds)
        assert stopped.finished.finish_reason == "cancelled"
        again = run(engine, asked())
        assert again.token_ids[: len(stopped.token_ids)] == stopped.token_ids
        assert_always_right(again)
        edited = run(engine, asked("another question"))
        assert edited.token_ids == expected
        assert_always_right(edited)


@pytest.mark.parametrize("kind", ["qwen35", GEMMA, *in_proof(["glm4moe", CHAIN])])
def test_the_head_is_as_if_it_had_never_read_anything_else(
    engine: Engine, load_head: LoadHead, random_models: Models, kind: str
) -> None:
    """After a stop, a second turn, another chat and a rewritten question it drafts what a new engine's head does."""
    load_head(random_models[kind])
    first = run(engine, asked(draft_length=5))
    stopped = run(engine, asked(LONG, first.text, "And then?", draft_length=5), cancel_after=4)
    assert stopped.finished.finish_reason == "cancelled"
    run(engine, asked("something quite different"))
    rewritten = asked(LONG, first.text, "And now?", draft_length=5)
    seen = _proposals(engine, rewritten)
    engine.unload()
    load_head(random_models[kind])
    assert_near(seen, _proposals(engine, rewritten))


def _proposals(engine: Engine, command: Generate) -> Floats:
    """The head's logits after the answer to ``command``, for a draft of three tokens."""
    run(engine, command)
    assert engine._target is not None and engine._target.head is not None
    target, head = engine._target.context, engine._target.head.cache
    head.catch_up(target.tokens)
    assert head.tokens == target.tokens
    return np.concatenate([head.decode([token], 1)[0].copy() for token in (300, 310, 320)])


def assert_near(one: Floats, other: Floats) -> None:
    """Both are the same up to rounding."""
    assert np.mean(np.square(one - other)) < 1e-4 * np.var(other)


@pytest.mark.parametrize("kind", ["glm4moe", GEMMA, *in_proof(["qwen35", CHAIN])])
def test_a_head_belongs_to_the_copies_of_its_chat(
    tmp_path: Path, random_models: Models, kind: str, every_cache_is_saved: None
) -> None:
    """In memory, when another chat is answered in between, and on disk, when another engine goes on."""
    del every_cache_is_saved
    command = random_models[kind].load()

    def start() -> Engine:
        engine = Engine(ChatCaches(ChatCacheFiles(tmp_path)))
        engine.load(command, lambda _: None)
        return engine

    fresh = start()
    fresh.caches.set_limit(0)
    second = asked(LONG, run(fresh, asked()).text, "And?")
    going_on = msgspec.structs.replace(second, continued=run(fresh, second).token_ids)
    expected = _proposals(fresh, second), _proposals(fresh, going_on)
    fresh.unload()

    engine = start()
    run(engine, asked())
    run(engine, asked("another chat"))
    assert_near(_proposals(engine, second), expected[0])
    run(engine, second)
    run(engine, asked("another chat"))
    assert run(engine, going_on).started.cached_tokens > len(going_on.continued)
    run(engine, second)
    engine.unload()

    other = start()
    assert run(other, going_on).started.cached_tokens > len(going_on.continued)
    assert_near(_proposals(other, going_on), expected[1])
    other.unload()


@pytest.mark.parametrize("kind", [GEMMA, *in_proof(["glm4moe", "qwen35", CHAIN])])
@pytest.mark.parametrize("length", [3, *in_proof([0])])
def test_a_head_leaves_the_copy_of_its_target_alone(
    engine: Engine, load_head: LoadHead, random_models: Models, kind: str, length: int, every_cache_is_saved: None
) -> None:
    """A head that shares its target's cells must not empty them when its own part is restored."""
    del every_cache_is_saved
    load_head(random_models[kind])
    first = run(engine, asked(sampling=WARM))
    run(engine, asked("another chat"))
    going_on = asked(sampling=WARM, continued=first.token_ids, draft_length=length)
    answer = run(engine, going_on)
    assert answer.started.cached_tokens > len(first.token_ids)
    engine.forget()
    assert_same(engine, going_on, answer, run(engine, msgspec.structs.replace(going_on, draft_length=0)))


def test_other_drafters_and_pauses_leave_nothing_out(engine: Engine, load_head: LoadHead, table_models: Models) -> None:
    """What n-grams drafted and what was decoded without a draft is read all the same."""
    load_head(table_models["qwen35"])
    for options in ({"draft_length": 0}, {"drafter": "ngram"}):
        answer = run(engine, asked(max_tokens=90, **options)).text
        assert_always_right(run(engine, asked(LONG, answer, "And?")))


@pytest.mark.parametrize("cycle", [[300, 310, 320, 330, 340, 350, 360, 370], *in_proof([[300], [300, 301, 302]])])
def test_an_answer_that_repeats_itself_without_end_is_no_longer_drafted(
    tmp_path: Path, engine: Engine, load_head: LoadHead, cycle: list[int]
) -> None:
    follows = dict.fromkeys(range(384), cycle[0]) | dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    load_head(Files(make_table_model(tmp_path / "m.gguf", "qwen35", follows=follows)))
    answer = run(engine, asked(drafter="auto", draft_length=4, max_tokens=180))
    assert set(answer.token_ids) == set(cycle) and len(answer.token_ids) == 180
    assert answer.finished.draft_failure == REPEATED
    drafted = [number for number, round_ in enumerate(answer.rounds) if round_.drafted]
    assert drafted and 120 < sum(round_.tokens for round_ in answer.rounds[: drafted[-1] + 1]) < 145
    longer = {token: 300 + (token + 1) % 9 for token in range(384)}
    load_head(Files(make_table_model(tmp_path / "longer.gguf", "qwen35", follows=longer)))
    assert_always_right(run(engine, asked(draft_length=4, max_tokens=180)))


def test_forgetting_leaves_no_hidden_state_in_memory(engine: Engine, load_head: LoadHead, table_models: Models) -> None:
    load_head(table_models["glm4moe"])
    run(engine, asked())
    assert engine._target is not None and engine._target.head is not None
    head = engine._target.head.cache
    assert head._states._rows.any() and head._inputs.any() and head.tokens
    engine.forget()
    assert not (head._states._rows.any() or head._inputs.any() or head._own.any() or head.tokens)
    assert_always_right(run(engine, asked()))


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize("architecture", [CHAIN, *in_proof(ARCHITECTURES)])
def test_a_head_in_a_file_of_its_own(
    tmp_path: Path, engine: Engine, load_head: LoadHead, table_models: Models, architecture: HeadArchitecture
) -> None:
    heads = HEADS if architecture == CHAIN else 1
    sidecar = make_head_file(tmp_path / "beside.gguf", architecture, *([()] * heads))
    pair = load_head(Files(table_models[architecture].target, sidecar))
    assert pair.has_head and pair.draft is None and pair.draft_refused is None
    assert_always_right(run(engine, asked()))


def test_a_head_of_another_model_is_refused(
    tmp_path: Path, engine: Engine, load_head: LoadHead, random_models: Models
) -> None:
    target = random_models["qwen35"].target
    pair = load_head(Files(target, make_head_file(tmp_path / "glm.gguf", "glm4moe")))
    assert not pair.has_head and pair.head_refused == "The MTP head in glm.gguf belongs to another model."
    pair = load_head(Files(target, make_head_file(tmp_path / "wide.gguf", "qwen35")))
    assert not pair.has_head and pair.head_refused == "The MTP head in wide.gguf belongs to another model."
    assert run(engine, asked(drafter="auto", draft_length="auto")).token_ids


@pytest.mark.parametrize("gemma", [None, "E2B", *in_proof(["26B-A4B"])])
def test_an_assistant_of_another_model_is_refused(
    tmp_path: Path, engine: Engine, load_head: LoadHead, random_models: Models, gemma: Gemma4 | None
) -> None:
    """llama.cpp would read cells of another shape, and stop the process."""
    other = make_gemma4(tmp_path / "t.gguf", gemma, width=96) if gemma else random_models["glm4moe"].target
    pair = load_head(Files(other, random_models[GEMMA].head))
    assert not pair.has_head and pair.head_refused == "The MTP head in mtp.gguf belongs to another model."
    assert run(engine, asked(drafter="auto", draft_length="auto")).token_ids


@pytest.mark.matrix
@pytest.mark.parametrize("gemma", GEMMAS)
def test_an_assistant_of_each_kind_reads_its_targets_cache(
    tmp_path: Path, engine: Engine, load_head: LoadHead, gemma: Gemma4
) -> None:
    load_head(Files(make_gemma4(tmp_path / "t.gguf", gemma), make_assistant(tmp_path / "mtp.gguf", gemma)))
    assert_the_text_of_decoding_without_a_draft(engine, accepts=True)


NO_STATES = "llama.cpp doesn't output the hidden states of this model, so its head can't draft."


@pytest.mark.allow_logs
@pytest.mark.parametrize("kind", ["qwen35", GEMMA, *in_proof(["glm4moe", CHAIN])])
def test_without_hidden_states_it_stops_drafting_with_a_reason(
    engine: Engine, load_head: LoadHead, table_models: Models, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    load_head(table_models[kind])
    plain = run(engine, asked(draft_length=0))
    assert_always_right(run(engine, asked()))
    assert engine._target is not None
    heads.states_switch()(engine._target.context.handle, False, False)
    for text in (LONG, "another chat"):
        answer = run(engine, asked(text))
        assert answer.finished.draft_failure == NO_STATES and not answer.finished.figures.draft.tested
    assert run(engine, asked()).token_ids == plain.token_ids
    told = [record for record in caplog.records if NO_STATES in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]


def test_a_small_model_is_loaded_without_its_head_unless_it_is_asked_for(
    engine: Engine, load: Loader, load_head: LoadHead, table_models: Models
) -> None:
    pair = load(table_models["glm4moe"].target)
    assert not pair.has_head and pair.head_refused is None
    assert load_head(table_models["glm4moe"]).has_head
    assert not load(table_models["glm4moe"].target).has_head, "what is loaded differs, so it is loaded again"
    assert engine._target is not None and engine._target.context.head is None


@pytest.mark.parametrize("architecture", ["qwen35", *in_proof(["glm4moe", "nemotron_h_moe", *CHAINS])])
def test_a_model_that_llama_cpp_refuses_without_its_head_is_loaded_with_it(
    tmp_path: Path, engine: Engine, load_head: LoadHead, architecture: HeadArchitecture
) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/27736: the scales of a head in NVFP4."""
    command = asked(max_tokens=100, draft_length=0)
    usual, scaled = (
        Files(make_table_model(tmp_path / f"{scaled}.gguf", architecture, scaled=scaled)) for scaled in (False, True)
    )
    engine.load(msgspec.structs.replace(usual.load(), head="off"), lambda _: None)
    plain = run(engine, command)
    pair = engine.load(msgspec.structs.replace(scaled.load(), head="off"), lambda _: None)
    assert (pair.has_head, pair.head_refused, pair.head_off) == (False, None, TURNED_OFF)
    answer = run(engine, command)
    assert (answer.token_ids, answer.text) == (plain.token_ids, plain.text)
    assert load_head(scaled).has_head
    drafted = run(engine, asked(max_tokens=100, draft_length=1))
    assert drafted.token_ids == plain.token_ids
    assert_always_right(drafted)
    assert engine.load(Load(request=1, target=str(usual.target), draft=str(scaled.target)), lambda _: None).draft
