"""The loop that is to be read first writes what the engine writes, token by token, with a draft and without."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from app.engine.host.engine import Engine
from app.protocol.events import PairLoaded
from app.protocol.options import Sampling
from tests.support.generation import ask, first_difference, run, scores_at

PATH = Path(__file__).parents[2] / "examples" / "minimal_loop.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minimal_loop", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


def test_it_is_short() -> None:
    assert len(PATH.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_it_writes_what_the_engine_writes(
    example: ModuleType,
    engine: Engine,
    load: Callable[..., PairLoaded],
    guide_pair: tuple[Path, Path],
    temperature: float,
) -> None:
    load(*guide_pair)
    sampling = Sampling(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)
    command = ask("What is a draft model?", sampling=sampling, seed=5, draft_length=3, max_tokens=60)
    written = run(engine, command)
    prompt = engine._sequence.tokens[: engine._sequence.prompt_length]
    target, draft = (example.Model(str(path)) for path in guide_pair)
    for drafter in (draft, None):
        rounds = list(example.generate(target, drafter, prompt, max_tokens=60, temperature=temperature, seed=5))
        tokens = [token for one in rounds for token in one.tokens][: len(written.token_ids)]
        assert (len(rounds) < len(tokens)) == (drafter is not None)
        if tokens != written.token_ids:  # its passes have kernels that round otherwise, on some processors
            answer = replace(written, token_ids=tokens)
            place = first_difference(answer, written)
            scored = scores_at(engine, command, answer, written, place) if place is not None else None
            assert scored is not None and scored.could_win == [True, True]
