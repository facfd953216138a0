"""Another Slipstream's server: it is recognized, and its figures are the engine's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.protocol.commands import Message
from app.protocol.options import Sampling
from tests.support.remote_engine import RemoteEngine
from tests.support.served import Served


@pytest.fixture(scope="module")
def served(guide_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(*guide_pair, home=tmp_path_factory.mktemp("home")) as running:
        yield running


GREEDY: dict[str, Any] = {"sampling": Sampling(temperature=0.0), "chosen": ["temperature"], "seed": 3, "max_tokens": 60}
QUESTION = [Message(role="user", content="What is a verify pass?")]


def test_the_figures_are_the_engine_s(engine: RemoteEngine, served: Served) -> None:
    pair = engine.connect(served.url)
    assert pair.remote is not None and served.pair is not None
    assert (pair.remote.server.kind, pair.context_length) == ("slipstream", served.pair.context_length)
    assert pair.thinking == served.pair.thinking
    answered = engine.answer(QUESTION, **GREEDY)
    told = served.chat(QUESTION[0].content, temperature=0, seed=3, max_tokens=60)
    figures = answered.finished.figures
    assert answered.text() == told["choices"][0]["message"]["content"]
    assert figures.completion_tokens == told["usage"]["completion_tokens"]
    assert figures.prompt_tokens == told["usage"]["prompt_tokens"]
    draft = figures.draft
    assert (draft.source, draft.estimated_passes) == ("live", False)
    assert 0 < draft.accepted <= draft.tested <= draft.drafted
    assert draft.mean_acceptance_length == pytest.approx(1 + draft.accepted / draft.verify_passes)
    assert sum(one.tokens for one in answered.rounds) <= figures.completion_tokens


def test_continuing(engine: RemoteEngine, served: Served) -> None:
    engine.connect(served.url)
    whole = engine.answer(QUESTION, **GREEDY).text()
    half = whole[: whole.index(" ", 40)]  # in the middle of a token, it would be another text
    begun = [*QUESTION, Message(role="assistant", content=half)]
    rest = engine.answer(begun, **GREEDY, continue_last=True).text()
    assert (half + rest).startswith(whole)
