"""Several drafters and the policy in the real loop: the text stays, and a failure costs no answer."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from app.engine.decoding.drafting import Drafting
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.ngram import NgramDrafter
from app.engine.host import engine
from app.engine.host.engine import Engine
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Decision, Situation, Stopping
from app.protocol.options import DrafterChoice, Sampling
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, run
from tests.support.matrix import in_proof
from tests.support.pairs import HOT, PENALIZED, WARM

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


class _OneOfTheModel(AutoPolicy):
    """The draft model begins every draft with one token; the rest is up to n-grams."""

    def decide(self, situation: Situation) -> Decision:
        seconds, certain = [1.0] * 18, lambda *_: 0.9
        stopping = Stopping(certain, [1.0, 1.9], [1.0, 0.9], seconds, 1.0, 1.0, certain)
        return Decision("model", 1, "coupled", stopping) if situation.most > 0 else Decision()


@pytest.mark.parametrize("sampling", [GREEDY, *in_proof([WARM, HOT, PENALIZED])])
def test_a_draft_that_ngrams_continue_leaves_the_text_and_counts_each_ones_tokens(
    loaded: Engine, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = msgspec.structs.replace(sampling, frequency_penalty=-10.0, penalty_window=64)  # it repeats itself
    plain = run(loaded, ask(ECHO, sampling=sampling, draft_length=0, max_tokens=80))
    monkeypatch.setattr(engine, "AutoPolicy", _OneOfTheModel)
    command = ask(ECHO, sampling=sampling, drafter="chain", max_tokens=80)
    drafted = run(loaded, command)
    assert_same(loaded, command, drafted, plain)
    assert_sums_close(drafted)
    assert_drafters_close(drafted)
    draft = drafted.finished.figures.draft
    assert sum(round_.continued for round_ in drafted.rounds) == draft.drafters[1].tested > 0
    assert draft.drafters[1].accepted > 0 and draft.drafters[0].tested == draft.verify_passes


def test_a_choice_of_drafter_is_obeyed(loaded: Engine) -> None:
    sampling = Sampling(temperature=0, frequency_penalty=-10.0, penalty_window=64)
    for choice, names in (("model", {"model"}), ("ngram", {"ngram"}), ("none", set())):
        answer = run(loaded, ask("x", sampling=sampling, drafter=choice, max_tokens=60))
        assert {figures.name for figures in answer.finished.figures.draft.drafters} == names


class _AsHead(NgramDrafter):
    name = "mtp"


@pytest.mark.parametrize("is_one_character", [True, False])
def test_one_character_without_end_ends_drafting_however_it_is_split_into_tokens(is_one_character: bool) -> None:
    """https://github.com/ggml-org/llama.cpp/issues/23577"""
    pieces = {5: b"/", 6: b"//", 7: b"////" if is_one_character else b"/ /"}
    drafting = Drafting(AutoPolicy(Costs({1: 1.0})), [_AsHead(lambda _: False)], pieces.__getitem__)
    sequence = TokenSequence([5, 6])
    drafting.begin(sequence, Task(sampling=GREEDY, seed=1))
    for token in np.random.default_rng(1).choice([5, 6, 7], 400).tolist():
        sequence.append(token)
        drafting.draft(5)
    assert (drafting.failure is not None) == is_one_character
