"""Sampled drafts of an MTP head leave the target's distribution as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from app.engine.decoding.accept_rules import Purpose, block, draw, rejection
from app.engine.decoding.sampling import Distributions, distributions
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.model import LoadedDraft
from app.engine.drafters.mtp import MtpDrafter
from app.engine.llama.context import Context
from app.engine.llama.head import Head, HeadChain, SharedHead
from app.engine.llama.model import Model
from app.protocol.options import AcceptRule, LoadSettings, Sampling
from tests.support.gemma4_models import make_assistant, make_gemma4
from tests.support.gguf_files import NORMAL, Vocabulary
from tests.support.matrix import in_proof
from tests.support.mtp_models import make_random_model
from tests.support.statistics import chi_square_p_value

SIZE, DEPTH = 128, 2
GEMMA = "gemma4"
HEADS = {"step35": 2}
KINDS = ["glm4moe", "step35", *in_proof(["qwen35", GEMMA])]
DRAWS = 6_000
SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SETTINGS = LoadSettings(threads=1)
PROMPT = [7, 101, 55, 23, 90]


Loaded = tuple[Context, Head]


@pytest.fixture(scope="module", params=KINDS)
def loaded(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """A target whose next token depends on the last one alone, its head, for which all before counts."""
    folder = tmp_path_factory.mktemp("head")
    path, beside = folder / "target.gguf", folder / "head.gguf"
    vocabulary = Vocabulary([f"▁{number}" for number in range(SIZE)], [NORMAL] * SIZE, [0.0] * SIZE)
    options: dict[str, Any] = {"vocabulary": vocabulary, "sharpness": 2.0}
    if request.param == GEMMA:
        make_gemma4(path, writes=0.0, **options)
        make_assistant(beside, **options)
    else:
        make_random_model(path, request.param, writes=0.0, heads=HEADS.get(request.param, 1), **options)
    models = [Model(one, 0, lambda _: True, with_head=True) for one in (path, beside) if one.exists()]
    target = Context(models[0], SETTINGS, length=256, threads=1)
    kind = SharedHead if request.param == GEMMA else HeadChain if request.param in HEADS else Head
    head = target.head = kind(target, models[-1], SETTINGS)
    yield target, head
    head.close()
    target.close()
    for model in models:
        model.close()


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_the_distribution_is_the_targets(loaded: Loaded, rule: AcceptRule) -> None:
    target, head = loaded
    p = np.exp([_after(target, token).log_probs[0] for token in range(SIZE)])
    target.clear()
    target.decode(PROMPT[:-1], 0)
    drafter = MtpDrafter(LoadedDraft(head, SIZE, lambda _: False, lambda: False))
    sequence = TokenSequence(PROMPT)
    judge = block if rule == "block" else rejection
    counts, accepted = np.zeros((2, SIZE), int), 0
    for seed in range(DRAWS):
        drafter.begin(sequence, Task(sampling=SAMPLING, seed=seed, accept=rule))
        proposal = drafter.propose(DEPTH)
        assert proposal.distributions is not None
        drafter.accepted()
        rows = _rows(p, [PROMPT[-1], *proposal.tokens])
        verdict = judge(rows, proposal.distributions, proposal.tokens, seed, len(PROMPT))
        tokens = [*proposal.tokens[: verdict.accepted], verdict.token]
        if len(tokens) == 1:  # the next round draws the second one
            tokens += draw(_rows(p, tokens), seed + DRAWS, [len(PROMPT) + 1], Purpose.TARGET)
        accepted += verdict.accepted
        for place in range(2):
            counts[place, tokens[place]] += 1
    assert 0.1 < accepted / (DRAWS * DEPTH) < 0.9, "a head that is always or never right shows nothing"
    first = p[PROMPT[-1]]
    assert chi_square_p_value(counts[0], first / first.sum()) > 1e-4
    assert chi_square_p_value(counts[1], first @ p / (first @ p).sum()) > 1e-4


def _after(target: Context, token: int) -> Distributions:
    target.clear()
    return distributions(target.decode([token], 1).copy(), SAMPLING)


def _rows(p: np.ndarray[tuple[int, ...], np.dtype[np.float64]], tokens: list[int]) -> Distributions:
    """The target's distributions after these tokens."""
    return Distributions(np.tile(np.arange(SIZE), (len(tokens), 1)), np.log(p[tokens]), True)
