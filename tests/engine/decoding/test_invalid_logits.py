"""Models that compute what is no number: an answer ends with a sentence, a draft is left out, the engine goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding.sampling import InvalidLogitsError, candidates
from app.engine.host.engine import Engine
from app.engine.llama import context
from app.protocol.commands import Generate, MeasurePlain, Message, ScoreTokens
from app.protocol.events import GenerationFinished
from app.protocol.options import AcceptRule, Sampling
from app.system import KnownError
from tests.support.generation import tokens_of
from tests.support.gguf_files import CHATML_TEMPLATE, RandomWeights, Shape, Tensors, llama_weights, make_model
from tests.support.pairs import Loader

SAMPLERS = {
    "greedy": Sampling(temperature=0),
    "greedy, penalties": Sampling(temperature=0, repetition_penalty=1.2, presence_penalty=0.5),
    "all": Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    "top-k": Sampling(),
    "top-p": Sampling(top_k=0, min_p=0.0),
    "min-p": Sampling(top_k=0, top_p=1.0),
}
RULES: tuple[AcceptRule, ...] = ("coupled", "rejection", "block")


def damaged(rows: slice) -> Callable[[Shape, RandomWeights], Tensors]:
    """A model without numbers in these rows of its embedding."""

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = llama_weights(shape, random)
        made["token_embd.weight"][rows] = np.nan
        return made

    return tensors


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound model, one without numbers, and one that has none for the token ``#``; each tiny."""
    folder = tmp_path_factory.mktemp("models")
    options = {"chat_template": CHATML_TEMPLATE, "width": 32, "layers": 1}
    hash_token = slice(259 + 1 + ord("#") - 33, 259 + 2 + ord("#") - 33)
    return {
        "sound": make_model(folder / "sound.gguf", **options),  # type: ignore[arg-type]
        "damaged": make_model(folder / "damaged.gguf", tensors=damaged(slice(None)), **options),  # type: ignore[arg-type]
        "no hash": make_model(folder / "hash.gguf", tensors=damaged(hash_token), **options),  # type: ignore[arg-type]
    }


def answer(engine: Engine, text: str = "hi", **options: object) -> GenerationFinished:
    command = Generate(
        request=1,
        messages=[Message(role="user", content=text)],
        seed=1,
        max_tokens=12,
        **options,  # type: ignore[arg-type]
    )
    *_, finished = engine.generate(command)
    assert isinstance(finished, GenerationFinished)
    return finished


@pytest.mark.parametrize("is_picked", [False, True], ids=["whole rows", "picked logits"])
def test_a_target_without_numbers_ends_the_answer_with_a_sentence(
    engine: Engine, load: Loader, files: dict[str, Path], is_picked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "pays", lambda _: is_picked)
    load(files["damaged"], files["sound"])
    for sampling, rule, drafter in itertools.product(SAMPLERS.values(), RULES, ("none", "ngram", "auto")):
        with pytest.raises(KnownError, match="produces invalid numbers"):
            answer(engine, sampling=sampling, accept=rule, drafter=drafter)
    message = [Message(role="user", content="hi")]
    with pytest.raises(KnownError, match="produces invalid numbers"):
        engine.measure_plain(MeasurePlain(request=1, messages=message))
    with pytest.raises(KnownError, match="produces invalid numbers"):
        engine.score_tokens(ScoreTokens(request=1, messages=message, answer=[300], candidates=[301]))
    load(files["sound"])
    assert answer(engine).figures.completion_tokens


def test_a_draft_without_numbers_costs_the_answer_nothing(engine: Engine, load: Loader, files: dict[str, Path]) -> None:
    load(files["sound"], files["damaged"])
    for name, rule in itertools.product(SAMPLERS, RULES):
        answer(engine, sampling=SAMPLERS[name], accept=rule, draft_length=0)
        plain = tokens_of(engine)
        drafted = answer(engine, sampling=SAMPLERS[name], accept=rule, drafter="model", draft_length=4)
        assert tokens_of(engine) == plain, (name, rule)
        failure = drafted.draft_failure
        assert failure is not None and failure.startswith("The draft model produces invalid"), (name, rule)


@pytest.mark.parametrize("size", [10, 5000, 300_000])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", SAMPLERS)
def test_logits_that_are_no_numbers_are_refused_whatever_the_sampler(size: int, value: float, name: str) -> None:
    logits = np.zeros((2, size), np.float32)
    logits[1, size - 3] = value
    with pytest.raises(InvalidLogitsError):
        candidates(logits, SAMPLERS[name])
