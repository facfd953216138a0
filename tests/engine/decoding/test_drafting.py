"""Several drafters and the policy in the real loop: the text stays, and a failure costs no answer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding import loop
from app.engine.decoding.drafting import Draft, Drafting
from app.engine.decoding.sampling import Floats
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.ngram import NgramDrafter
from app.engine.host.engine import Engine
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.errors import KnownError
from app.protocol.options import DrafterChoice, Propose, Sampling
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.matrix import in_proof
from tests.support.pairs import HOT, PENALIZED, WARM, Loader, Pair
from tests.support.simulator import pair_costs

ECHO = "one two three four five six seven eight nine ten " * 6


def assert_drafters_close(answer: Answer) -> None:
    draft = answer.finished.figures.draft
    for counter in ("drafted", "tested", "accepted"):
        assert sum(getattr(figures, counter) for figures in draft.drafters) == getattr(draft, counter)
    for figures in draft.drafters:
        pieces = [piece for piece in answer.pieces if piece.drafter == figures.name]
        assert len(pieces) == figures.accepted
        rounds = [r for r in answer.rounds if r.drafter == figures.name]
        assert sum(r.tested > 0 for r in rounds) == figures.verify_passes


@pytest.mark.parametrize("sampling", [PENALIZED, *in_proof([GREEDY, WARM, HOT])])
@pytest.mark.parametrize("drafter", ["chain", "auto", *in_proof(["model", "ngram"])])
def test_the_text_depends_on_neither_drafter_nor_length(
    loaded: Engine, sampling: Sampling, drafter: DrafterChoice
) -> None:
    plain = run(loaded, ask(ECHO, sampling=sampling, draft_length=0, max_tokens=80))
    for length in ("auto", 4):
        command = ask(ECHO, sampling=sampling, draft_length=length, drafter=drafter, max_tokens=80)
        drafted = run(loaded, command)
        assert_same(loaded, command, drafted, plain)
        assert_sums_close(drafted)
        assert_drafters_close(drafted)


@pytest.mark.usefixtures("one_by_one")
def test_ways_of_proposing_differ(engine: Engine, load: Loader, random_pair: Pair) -> None:
    """With the target's own noise its twin always agrees; with its likeliest token it does not."""
    load(random_pair[0], random_pair[0])
    rejected = {"coupled": 0, "greedy": 0}
    for propose, seed in itertools.product(rejected, range(5)):
        answer = run(engine, ask("x", sampling=HOT, propose=propose, seed=seed, max_tokens=60))
        whole_rounds = [r for r in answer.rounds if r.tested][:-1]  # the last one may end inside its draft
        rejected[propose] += sum(r.accepted < r.tested for r in whole_rounds)
    assert rejected["coupled"] == 0 < rejected["greedy"]


def test_ngrams_copy_what_the_text_repeats(engine: Engine, load: Loader, random_pair: Pair) -> None:
    """A penalty that rewards repeating drives even random weights into a loop."""
    load(random_pair[0])
    sampling = Sampling(temperature=0, frequency_penalty=-10.0, penalty_window=64)
    answer = run(engine, ask("x", sampling=sampling, drafter="auto", draft_length=8, max_tokens=120))
    draft = answer.finished.figures.draft
    assert [figures.name for figures in draft.drafters] == ["ngram"]
    looping = [r for r in answer.rounds if r.tested][-6:-1]  # the last one may end inside its draft
    assert [(r.tested, r.accepted) for r in looping] == [(8, 8)] * 5
    assert_drafters_close(answer)


def test_a_choice_of_drafter_is_obeyed(loaded: Engine) -> None:
    sampling = Sampling(temperature=0, frequency_penalty=-10.0, penalty_window=64)
    for choice, names in (("model", {"model"}), ("ngram", {"ngram"}), ("none", set())):
        answer = run(loaded, ask("x", sampling=sampling, drafter=choice, max_tokens=60))
        assert {figures.name for figures in answer.finished.figures.draft.drafters} == names


def test_a_failing_draft_model_costs_its_help_but_not_the_answer(
    loaded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = Sampling(temperature=0, frequency_penalty=-10.0, penalty_window=64)
    plain = [run(loaded, ask("x", sampling=one, draft_length=0, max_tokens=120)) for one in (WARM, loops)]
    assert loaded._draft
    cache = loaded._draft.context
    decode, calls = cache.decode, itertools.count()

    def fails_later(tokens: Sequence[int], outputs: int) -> Floats:
        if next(calls) > 6:
            raise KnownError("The draft ran out of memory.")
        return decode(tokens, outputs)

    monkeypatch.setattr(cache, "decode", fails_later)
    answer = run(loaded, command := ask("x", sampling=WARM, max_tokens=120))
    assert_same(loaded, command, answer, plain[0])
    assert_sums_close(answer)
    assert answer.finished.draft_failure == "The draft ran out of memory."
    answer = run(loaded, command := ask("x", sampling=loops, drafter="chain", max_tokens=120))
    assert_same(loaded, command, answer, plain[1])
    assert any(piece.drafter == "ngram" for piece in answer.pieces)


class Clock:
    """Stands still but for what is added to it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_what_the_policy_takes_to_learn_is_time_of_the_next_round(
    loaded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    learned: list[tuple[float, float, float]] = []
    verified = Drafting.verified

    def slow(self: Drafting, draft: Draft, accepted: int, own: int, seconds: tuple[float, float, float]) -> None:
        learned.append(seconds)
        clock.now += 2.0
        verified(self, draft, accepted, own, seconds)

    monkeypatch.setattr(Drafting, "verified", slow)
    answer = run(loaded, ask("x", sampling=GREEDY, draft_length=2, max_tokens=12))
    assert len(learned) > 2 and learned[0] == (0.0, 0.0, 0.0)
    assert set(learned[1:]) == {(0.0, 0.0, 2.0)}
    assert [round_.other_seconds for round_ in answer.rounds[1 : len(learned) + 1]] == [2.0] * len(learned)


class _AsHead(NgramDrafter):
    name = "mtp"


@pytest.mark.parametrize("is_one_character", [True, False])
def test_one_character_without_end_ends_drafting_however_it_is_split_into_tokens(is_one_character: bool) -> None:
    """https://github.com/ggml-org/llama.cpp/issues/23577"""
    pieces = {5: b"/", 6: b"//", 7: b"////" if is_one_character else b"/ /"}
    drafting = Drafting(AutoPolicy(Costs({1: 1.0})), [_AsHead(lambda _: False)], pieces.__getitem__)
    sequence = TokenSequence([5, 6])
    drafting.begin(sequence, Task(GREEDY, 1))
    for token in np.random.default_rng(1).choice([5, 6, 7], 400).tolist():
        sequence.append(token)
        drafting.draft(5)
    assert (drafting.failure is not None) == is_one_character


@pytest.mark.parametrize("propose", ["coupled", "greedy", "auto"])
def test_the_text_does_not_depend_on_the_way_of_proposing(
    engine: Engine, load: Loader, random_pair: Pair, propose: Propose
) -> None:
    load(*random_pair)
    plain = run(engine, ask("Tell me", sampling=WARM, draft_length=0, max_tokens=80))
    drafted = run(engine, command := ask("Tell me", sampling=WARM, propose=propose, max_tokens=80))
    assert_same(engine, command, drafted, plain)
    assert drafted.finished.figures.draft.accepted > 0


def test_ngrams_draft_without_a_draft_model(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(guide_pair[0])
    question = "What is a draft model?"
    first = run(engine, ask(question, sampling=GREEDY, drafter="auto", max_tokens=200))
    again = run(engine, ask(f"{first.text}\n{question}", sampling=GREEDY, drafter="auto", max_tokens=200, raw=True))
    assert {piece.drafter for piece in again.pieces} <= {None, "ngram"}
    assert [figures.name for figures in again.finished.figures.draft.drafters] in ([], ["ngram"])
    assert_drafters_close(again)


def test_a_worthless_draft_is_paused(engine: Engine, load: Loader, random_pair: Pair, tmp_path: Path) -> None:
    stranger = make_model(tmp_path / "stranger.gguf", chat_template=CHATML_TEMPLATE, noise=3.0)
    load(random_pair[0], stranger)
    assert engine._costs
    engine._costs.costs = pair_costs({1: 1.0, 17: 17.0}, 0.5)  # whatever it takes on a busy machine
    answer = run(engine, ask("x", sampling=HOT, draft_length="auto", max_tokens=400))
    pauses = [round_.paused for round_ in answer.rounds if round_.paused]
    assert pauses and pauses[-1].acceptance_rate < 0.5


def test_auto_drafts_as_far_as_a_perfect_draft_pays(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(guide_pair[0], guide_pair[1])
    assert engine._costs
    engine._costs.costs = pair_costs({1: 1.0, 17: 1.1}, 0.001)  # as on a GPU: width is nearly free
    answer = run(engine, ask("What is a draft model?", sampling=GREEDY, draft_length="auto", max_tokens=200))
    assert max(round_.drafted for round_ in answer.rounds) == 16
