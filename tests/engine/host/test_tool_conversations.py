"""Conversations with tools in each form of calls, by models whose tables say what they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.host.engine import Engine
from app.protocol.options import Sampling
from app.protocol.tools import FORMATS, ToolFormatName
from tests.support.matrix import in_proof
from tests.support.pairs import Loader
from tests.support.tool_conversations import converse
from tests.support.tool_models import make_tool_model

WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
HERE: tuple[ToolFormatName, ...] = ("hermes", "gemma")
OTHERS = [name for name in FORMATS if name not in HERE]


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_whole_conversations(engine: Engine, load: Loader, tmp_path: Path, name: ToolFormatName) -> None:
    """Each call is valid, each result stands in the next prompt as it is, and a draft changes no token."""
    load(
        make_tool_model(tmp_path / "model.gguf", name),
        make_tool_model(tmp_path / "draft.gguf", name, noise=0.3),
    )
    accepted = 0
    for number in range(1, 5):
        plain = converse(engine, number, sampling=WARM, draft_length=0, drafter="none")
        drafted = converse(engine, number, sampling=WARM, draft_length=3, drafter="model" if number % 2 else "ngram")
        assert plain.problems == [] and len(plain.calls) == 1 + number % 5
        assert drafted.tokens == plain.tokens
        accepted += sum(turn.finished.figures.draft.accepted for turn in drafted.turns)
    assert accepted
