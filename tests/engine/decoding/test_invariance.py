"""Whatever proposes, and however that changes in the middle of an answer, the answer stays the target's own."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from app.engine.decoding.accept_rules import draw
from app.engine.decoding.sampling import distributions, penalize_rows
from app.engine.drafters import Proposal, Worth
from app.engine.host import engine as engine_module
from app.engine.host.engine import Engine
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.policy import Decision, Situation
from app.protocol.commands import Message
from app.protocol.options import MAX_DRAFT_LENGTH, ProposalMethod, Sampling
from tests.support.generation import Answer, ask, assert_sums_close, run
from tests.support.matrix import in_proof
from tests.support.pairs import Loader, Pair
from tests.support.statistics import chi_square_p_value

ECHO = "one two three four five six seven eight nine ten " * 6


class RestlessDecision(Decision):
    """Stops drafting early and tests less, by chance."""

    rng = random.Random(0)

    def worth(self) -> Worth:
        return lambda _confidence: self.rng.random() < 0.8

    def tested(self, proposal: Proposal) -> int:
        return self.rng.randint(0, min(self.length, len(proposal.tokens)))


class RestlessPolicy(AutoPolicy):
    """Changes drafter, proposal method and length in every round, by chance."""

    def decide(self, situation: Situation) -> Decision:
        super().decide(situation)
        rng, found, most = RestlessDecision.rng, situation.free.get("ngram", Proposal()), situation.most
        method: ProposalMethod = "coupled" if rng.random() < 0.5 else "greedy"
        length = rng.randint(1, MAX_DRAFT_LENGTH)
        drafter = rng.choice(("ngram", "ngram", "model", None) if found.tokens else ("model", None))
        if drafter == "ngram" and found.tokens and most:
            return RestlessDecision("ngram", min(length, most, len(found.tokens)), method)
        return RestlessDecision("model", min(length, most), method) if drafter == "model" and most else Decision()


def any_sampling(rng: random.Random) -> Sampling:
    """Every setting at or off its neutral value, independently of the others."""
    return Sampling(
        temperature=rng.choice((0.0, 0.5, 1.0, 1.8)),
        top_k=rng.choice((0, 1, 5, 40)),
        top_p=rng.choice((1.0, 0.9, 0.5)),
        min_p=rng.choice((0.0, 0.05, 0.3)),
        repetition_penalty=rng.choice((1.0, 1.2, 0.9)),
        frequency_penalty=rng.choice((0.0, 0.5, -3.0)),
        presence_penalty=rng.choice((0.0, 0.4, -1.0)),
        penalty_window=rng.choice((0, 16, 64)),
    )


def ends(answer: Answer) -> tuple[object, ...]:
    finished = answer.finished
    return answer.token_ids, answer.text, finished.finish_reason, finished.stop_string


def is_near_tie(engine: Engine, command: dict[str, Any], plain: Answer, drafted: Answer) -> bool:
    """Whether rounding decides which of the first two different tokens is written: passes of another width round
    logits otherwise, by less than 0.02."""
    pairs = zip(plain.token_ids, drafted.token_ids, strict=False)
    index = next(i for i, (ours, theirs) in enumerate(pairs) if ours != theirs)
    assert engine._target
    context, prompts = engine._target.context, engine._target.prompts
    tokens = [*prompts.chat([Message(role="user", content=ECHO)]).tokens, *plain.token_ids[:index]]
    context.clear()
    row = penalize_rows(context.decode(tokens, 1), tokens, [], command["sampling"])[0]
    shaken = row + np.random.default_rng(0).uniform(-0.02, 0.02, (500, len(row))).astype(np.float32)
    p = distributions(shaken, command["sampling"])
    return {plain.token_ids[index], drafted.token_ids[index]} <= set(draw(p, command["seed"], [len(tokens)] * 500))


def test_no_change_of_drafter_method_or_length_changes_a_word(
    engine: Engine, load: Loader, random_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(*random_pair, threads=1)
    monkeypatch.setattr(engine_module, "AutoPolicy", RestlessPolicy)
    RestlessDecision.rng = rng = random.Random(7)
    seen: Counter[object] = Counter()
    for seed in range(50):
        command: dict[str, Any] = {"sampling": any_sampling(rng), "seed": seed, "max_tokens": rng.randint(1, 60)}
        plain = run(engine, ask(ECHO, draft_length=0, **command))
        if seed % 3 == 0:
            start = len(plain.text) // 2
            command["stop"] = ["not in there", plain.text[start : start + rng.randint(1, 5)]]
            plain = run(engine, ask(ECHO, draft_length=0, **command))
        drafted = run(engine, ask(ECHO, draft_length="auto", drafter="chain", **command))
        assert ends(drafted) == ends(plain) or is_near_tie(engine, command, plain, drafted), command
        seen["same"] += ends(drafted) == ends(plain)
        assert_sums_close(drafted)
        seen[drafted.finished.finish_reason] += 1
        drafters = {piece.drafter for piece in drafted.pieces}
        seen["both drafters"] += {"model", "ngram"} <= drafters
        seen["rejected"] += any(round_.accepted < round_.tested for round_ in drafted.rounds)
    assert min(seen[what] for what in ("both drafters", "rejected", "length", "stop_string")) >= 4, seen
    assert seen["same"] >= 45


@pytest.mark.parametrize("accept", ["block", *in_proof(["rejection"])])
def test_samples_in_the_loop_have_the_joint_distribution_of_the_penalized_target(
    engine: Engine, load: Loader, random_pair: Pair, accept: str
) -> None:
    """Four tokens, of which up to two are drafted: each of the 16 texts as often as the target would write it."""
    load(*random_pair, threads=1)
    sampling = Sampling(
        temperature=3.0, top_k=2, top_p=1.0, min_p=0.0, repetition_penalty=1.3, presence_penalty=1.0, penalty_window=4
    )
    expected = joint(engine, "abcabc", sampling, 4)
    counts = Counter[tuple[int, ...]]()
    accepted = 0
    for seed in range(800):
        options: dict[str, Any] = {
            "sampling": sampling,
            "seed": seed,
            "max_tokens": 4,
            "raw": True,
            "accept": accept,
        }
        answer = run(engine, ask("abcabc", draft_length="auto" if seed % 2 else 5, **options))
        counts[tuple(answer.token_ids)] += 1
        accepted += answer.finished.figures.draft.accepted
    assert accepted > 150
    assert set(counts) <= set(expected)
    assert chi_square_p_value([counts[text] for text in expected], list(expected.values())) > 1e-4


def joint(engine: Engine, prompt: str, sampling: Sampling, length: int) -> dict[tuple[int, ...], float]:
    """The probability of every text of ``length`` tokens behind ``prompt``, token by token from the target's logits."""
    assert engine._target
    context, tokens = engine._target.context, engine._target.prompts.raw(prompt).tokens
    known: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for text, probability in known.items():
            context.clear()
            rows = penalize_rows(context.decode([*tokens, *text], 1), [*tokens, *text], [], sampling)
            p = distributions(rows, sampling)
            longer |= {(*text, int(token)): probability * p.probability(0, int(token)) for token in p.ids[0]}
        known = longer
    return known
