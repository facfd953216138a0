"""Drafting with an EAGLE-3 head beside the target: it is never out of step with the layer inputs that it reads.

The head of a table model is right only if each token is paired with the layer inputs that belong to it, so its
acceptance says whether it was. Everything that each drafter has to keep to is in `tests.engine.drafters`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.chat_cache import ChatCaches
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.engine import Engine
from app.engine.llama import context, eagle3, head
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings, Sampling
from tests.support.architectures import make
from tests.support.eagle3_models import (
    TargetArchitecture,
    make_pair,
    make_random_head,
    make_random_target,
    make_table_head,
    make_table_pair,
)
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, longest, run
from tests.support.made import Made
from tests.support.matrix import in_proof
from tests.support.mtp_models import cycle, rounds_of

WRONG_AFTER = tuple(range(280, 384, 5))
WARM = Sampling(temperature=0.8)
SETTINGS = LoadSettings(context_length=1024, micro_batch_size=32, threads=1)
LONG = "a question of so many tokens that they are processed in several chunks, one after the other. " * 2
KINDS: tuple[TargetArchitecture, ...] = ("llama", "qwen35")
Pair = tuple[Path, Path]
LoadPair = Callable[..., PairLoaded]


def command_for(pair: Pair, settings: LoadSettings = SETTINGS) -> Load:
    return Load(request=1, target=str(pair[0]), draft=str(pair[1]), settings=settings)


@pytest.fixture
def load_pair(engine: Engine) -> LoadPair:
    def load(pair: Pair, settings: LoadSettings = SETTINGS) -> PairLoaded:
        return engine.load(command_for(pair, settings), lambda _: None)

    return load


@pytest.fixture(scope="session")
def random_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[TargetArchitecture, Pair]:
    return Made(partial(make_pair, tmp_path_factory.mktemp("random")))


@pytest.fixture(scope="session")
def table_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[TargetArchitecture, Pair]:
    return Made(partial(make_table_pair, tmp_path_factory.mktemp("tables"), ()))


def asked(*texts: str, **options: Any) -> Generate:
    """What is asked after these messages of user and assistant in turn."""
    messages = [
        Message(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(texts or (LONG,))
    ]
    defaults = {"drafter": "eagle3", "draft_length": 3, "max_tokens": 60, "sampling": GREEDY}
    return ask("", **{**defaults, "messages": messages, **options})


def assert_passes(answer: Answer, plain: Answer, length: int, wrong_after: Sequence[int]) -> None:
    """What was tested and accepted follows from the plain text, as soon as the head has read the prompt."""
    assert answer.token_ids == plain.token_ids
    passes = [(round_.tested, round_.accepted) for round_ in answer.rounds if round_.verify_passes]
    first = next(number for number, (tested, _) in enumerate(passes) if tested)
    assert passes[first:] == rounds_of(plain.token_ids[first:], length, wrong_after)
    assert_sums_close(answer)


def assert_always_right(answer: Answer) -> None:
    draft = answer.finished.figures.draft
    assert answer.finished.draft_failure is None
    assert draft.tested and draft.accepted == draft.tested
    assert_sums_close(answer)


# ---------------------------------------------------------------- what is drafted and accepted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [3, *in_proof([1, 2, 5, 12])])
@pytest.mark.parametrize("wrong_after", [WRONG_AFTER, *in_proof([((),)])], ids=["sometimes wrong", "always right"])
def test_the_counters_follow_from_the_plain_text(
    tmp_path: Path,
    engine: Engine,
    load_pair: LoadPair,
    kind: TargetArchitecture,
    depth: int,
    wrong_after: Sequence[int],
) -> None:
    pair = load_pair(make_table_pair(tmp_path, wrong_after, kind))
    assert (pair.head_drafter, pair.head_refused, pair.draft, pair.draft_refused) == ("eagle3", None, None, None)
    assert pair.head_file and pair.head_file.architecture == "eagle3"
    plain = run(engine, asked(max_tokens=100, draft_length=0))
    answer = run(engine, asked(max_tokens=100, draft_length=depth))
    assert answer.text == plain.text
    assert {round_.drafter for round_ in answer.rounds if round_.tested} == {"eagle3"}
    assert_passes(answer, plain, longest(engine, depth), wrong_after)


@pytest.mark.parametrize("options", [{"own": ("output.weight",)}, {"own": ()}, {"read": (3, 0, 2)}])
def test_matrices_of_the_target_and_any_layers(
    tmp_path: Path, engine: Engine, load_pair: LoadPair, options: dict[str, Any]
) -> None:
    """Published heads of small models share the target's embedding, some its output as well."""
    assert load_pair(make_table_pair(tmp_path, **options)).head_drafter == "eagle3"
    assert_always_right(run(engine, asked()))


def test_a_head_with_a_vocabulary_of_its_own(tmp_path: Path, engine: Engine, load_pair: LoadPair) -> None:
    """It proposes none of the other tokens, and so is wrong before each of them."""
    knows = [token for token in range(384) if token % 3]
    load_pair(make_table_pair(tmp_path, knows=knows))
    plain, answer = (run(engine, asked(max_tokens=100, draft_length=length)) for length in (0, 4))
    assert_passes(answer, plain, 4, [token for token, following in cycle().items() if following not in knows])
    for rule in ("rejection", "block"):
        sampled = run(engine, asked(accept=rule, sampling=WARM))
        assert sampled.finished.figures.draft.accepted and sampled.finished.draft_failure is None


@pytest.mark.parametrize("knows", [None, range(0, 384, 2)])
def test_where_only_the_largest_logits_are_copied(
    tmp_path: Path,
    engine: Engine,
    load_pair: LoadPair,
    knows: Sequence[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from a GPU: llama.cpp picks them for each output, and a pass of the head has as many as it has tokens."""
    monkeypatch.setattr(context, "pays", lambda _: True)
    load_pair(make_table_pair(tmp_path, WRONG_AFTER, knows=knows))
    assert engine._target and engine._target.head and engine._target.head.cache._top_k.use(5)
    wrong_after = [token for token, next_one in cycle().items() if knows is not None and next_one not in knows]
    plain, answer = (run(engine, asked(max_tokens=100, draft_length=length)) for length in (0, 4))
    assert_passes(answer, plain, 4, [*WRONG_AFTER, *wrong_after])


def test_the_state_of_the_whole_target_may_be_one_of_the_three(
    tmp_path: Path, engine: Engine, load_pair: LoadPair
) -> None:
    """The number after the last layer stands for it, which not every architecture gives."""
    load_pair(make_table_pair(tmp_path, architecture="qwen35", read=(2, 3, 4)))
    assert_always_right(run(engine, asked()))
    pair = load_pair(make_table_pair(tmp_path, read=(2, 3, 4)))
    assert pair.head_drafter is None and pair.head_refused is not None
    assert run(engine, asked(drafter="auto", draft_length="auto")).token_ids


# ---------------------------------------------------------------- whatever happens to the chat


@pytest.mark.parametrize("kind", KINDS)
def test_stop_regenerate_and_edit_right_after_a_pass(
    engine: Engine, load_pair: LoadPair, table_pairs: dict[TargetArchitecture, Pair], kind: TargetArchitecture
) -> None:
    load_pair(table_pairs[kind])
    expected = run(engine, asked("another question", draft_length=0)).token_ids
    for rounds in (1, 3):
        stopped = run(engine, asked(), cancel_after=rounds)
        again = run(engine, asked())
        assert again.token_ids[: len(stopped.token_ids)] == stopped.token_ids
        assert_always_right(again)
        edited = run(engine, asked("another question"))
        assert edited.token_ids == expected
        assert_always_right(edited)


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_is_as_if_it_had_never_read_anything_else(
    engine: Engine, load_pair: LoadPair, random_pairs: dict[TargetArchitecture, Pair], kind: TargetArchitecture
) -> None:
    """After a stop, a second turn, another chat and a rewritten question it drafts what a new engine's head does."""
    load_pair(random_pairs[kind])
    first = run(engine, asked(draft_length=5))
    assert first.finished.figures.draft.accepted, "a head that is never right would show nothing"
    run(engine, asked(LONG, first.text, "And then?", draft_length=5), cancel_after=4)
    run(engine, asked("something quite different"))
    rewritten = asked(LONG, first.text, "And now?", draft_length=5)
    seen = _proposals(engine, rewritten)
    engine.unload()
    load_pair(random_pairs[kind])
    assert_near(seen, _proposals(engine, rewritten))


def _proposals(engine: Engine, command: Generate) -> Floats:
    """The head's logits after the answer to ``command``, for a draft of three tokens."""
    run(engine, command)
    assert engine._target is not None and engine._target.head is not None
    target, cache = engine._target.context, engine._target.head.cache
    cache.catch_up(target.tokens)
    assert cache.tokens == target.tokens
    return np.concatenate([cache.decode([token], 1)[0].copy() for token in (300, 310, 320)])


def assert_near(one: Floats, other: Floats) -> None:
    """Both are the same up to rounding."""
    assert np.mean(np.square(one - other)) < 1e-4 * np.var(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_belongs_to_the_copies_of_its_chat(
    tmp_path: Path,
    random_pairs: dict[TargetArchitecture, Pair],
    kind: TargetArchitecture,
    every_cache_is_saved: None,
) -> None:
    """It can't read again what its target won't compute again: in memory, when another chat is answered in between, and
    on disk, when another engine goes on."""
    del every_cache_is_saved

    def start() -> Engine:
        engine = Engine(ChatCaches(ChatCacheFiles(tmp_path)))
        engine.load(command_for(random_pairs[kind]), lambda _: None)
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


def test_layer_inputs_that_are_no_longer_known(
    engine: Engine, load_pair: LoadPair, random_pairs: dict[TargetArchitecture, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a head was emptied, it begins anew with the first token whose layer inputs are still there."""
    monkeypatch.setattr(head, "WAITING_STATES_BYTES", 0)
    load_pair(random_pairs["llama"])
    command = asked(LONG * 2)
    plain = run(engine, msgspec.structs.replace(command, draft_length=0))
    assert engine._target is not None and engine._target.head is not None
    cache = engine._target.head.cache
    assert 0 < cache._states.first < len(cache.tokens)
    states = cache._states.between(cache._states.first, cache._states.end).copy(), cache._states.first
    cache.clear()
    cache._states.append(states[1], states[0])
    going_on = msgspec.structs.replace(command, continued=plain.token_ids)
    answer = run(engine, going_on)
    assert answer.finished.figures.draft.tested and answer.finished.draft_failure is None
    assert_same(engine, going_on, answer, run(engine, msgspec.structs.replace(going_on, draft_length=0)))


def test_wide_passes_of_the_target(
    engine: Engine, load_pair: LoadPair, table_pairs: dict[TargetArchitecture, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More tokens at once than may wait for the head, whose own passes are short."""
    monkeypatch.setattr(head, "WAITING_STATES_BYTES", 0)
    load_pair(table_pairs["llama"], LoadSettings(context_length=1024, threads=1))
    answer = run(engine, asked(LONG * 4))
    assert answer.started.prompt_tokens > 300
    assert_always_right(answer)


def test_what_has_no_cell_is_passed_over_once(
    engine: Engine, load_pair: LoadPair, table_pairs: dict[TargetArchitecture, Pair]
) -> None:
    """Where the layer inputs of a long beginning are no longer known, and the head hasn't come to its end."""
    load_pair(table_pairs["llama"])
    run(engine, asked(draft_length=0))
    assert engine._target is not None and engine._target.head is not None
    target, cache = engine._target.context, engine._target.head.cache
    cache.clear()
    target.decode([300], 1)
    assert cache._states.first > 64
    cache.decode(target.tokens[:64], 0)
    target.decode([310], 1)
    assert cache.tokens == target.tokens[:64]


def test_other_drafters_and_pauses_leave_nothing_out(
    engine: Engine, load_pair: LoadPair, table_pairs: dict[TargetArchitecture, Pair]
) -> None:
    """What n-grams drafted and what was decoded without a draft is read all the same."""
    load_pair(table_pairs["llama"])
    for options in ({"draft_length": 0}, {"drafter": "ngram"}):
        answer = run(engine, asked(max_tokens=90, **options)).text
        assert_always_right(run(engine, asked(LONG, answer, "And?")))


def test_forgetting_leaves_no_layer_input_in_memory(
    engine: Engine, load_pair: LoadPair, table_pairs: dict[TargetArchitecture, Pair]
) -> None:
    load_pair(table_pairs["llama"])
    run(engine, asked())
    assert engine._target is not None and engine._target.head is not None
    cache = engine._target.head.cache
    assert isinstance(cache, eagle3.Eagle3Head)
    assert cache._states._rows.any() and cache._features.any() and cache._inputs.any() and cache.tokens
    engine.forget()
    kept = (cache._states._rows, cache._features, cache._inputs, cache._own)
    assert not cache.tokens and not any(each.any() for each in kept)
    assert_always_right(run(engine, asked()))


# ---------------------------------------------------------------- loading


def test_heads_that_do_not_belong_are_refused(tmp_path: Path, engine: Engine, load_pair: LoadPair) -> None:
    """Layers that the target lacks, another width: llama.cpp would end the process."""
    target = make_random_target(tmp_path / "target.gguf")
    wide = make_table_head(tmp_path / "wide.gguf")
    deep = make_random_head(tmp_path / "deep.gguf", target, read=(1, 2, 9))
    for other in (wide, deep):
        pair = load_pair((target, other))
        assert pair.head_drafter is None and pair.draft is None
        assert pair.head_refused == f"The EAGLE-3 head in {other.name} belongs to another model."
    assert run(engine, asked(drafter="auto", draft_length="auto")).token_ids


@pytest.mark.parametrize("token", [-1, 384, 2**40])
def test_a_list_of_tokens_that_the_vocabulary_lacks(
    tmp_path: Path, engine: Engine, load_pair: LoadPair, token: int
) -> None:
    """llama.cpp would end the process when it first computes."""
    target, other = make_table_pair(tmp_path, knows=range(384))
    data = other.read_bytes()
    listed = np.arange(384, dtype=np.int64).tobytes()
    assert data.count(listed) == 1
    other.write_bytes(data.replace(listed, listed[:-8] + np.int64(token).tobytes()))
    pair = load_pair((target, other))
    assert pair.head_drafter is None and "is damaged" in (pair.head_refused or "")


def test_a_target_without_layer_inputs_is_loaded_without_its_head(
    tmp_path: Path, engine: Engine, load_pair: LoadPair, random_pairs: dict[TargetArchitecture, Pair]
) -> None:
    pair = load_pair((make(tmp_path / "g.gguf", "gemma3"), random_pairs["llama"][1]))
    assert pair.head_drafter is None and "gemma3" in (pair.head_refused or "")
    assert run(engine, asked(drafter="auto", draft_length="auto")).token_ids


@pytest.mark.parametrize("name", ["llama_set_embeddings_layer_inp", "llama_model_target_layer_ids_n"])
def test_a_llama_cpp_without_one_of_the_functions(
    engine: Engine,
    load_pair: LoadPair,
    table_pairs: dict[TargetArchitecture, Pair],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sentence, and the target answers without a draft."""
    functions = {**head._FUNCTIONS, name: ("another", *head._FUNCTIONS[name][1:])}
    monkeypatch.setattr(head, "_FUNCTIONS", functions)
    pair = load_pair(table_pairs["llama"])
    assert pair.head_drafter is None and name in (pair.head_refused or "")
    assert run(engine, asked(drafter="auto", draft_length="auto")).token_ids
