"""Verify passes that are padded to a few widths: the text is the same, and nothing of the padding stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.engine.decoding.sampling import Logits
from app.engine.host.engine import Engine
from app.engine.llama.context import Context
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.protocol.commands import Load, Message
from app.protocol.options import TARGET_OUTPUTS, LoadSettings, Sampling
from tests.support.generation import GREEDY, ask, assert_same, assert_sums_close, run
from tests.support.matrix import in_proof
from tests.support.mtp_models import HeadArchitecture, make_table_model
from tests.support.pairs import WARM, Loader, Pair
from tests.support.simulator import pair_costs

CHEAP = replace(pair_costs({1: 1.0, 8: 1.1, 17: 3.0}, 0.15, 0.0001), widths=(4, 8))
"""Drafts of many lengths pay."""


class Passes:
    """Notes the passes of the target: how many tokens and outputs they have, and how many were there before."""

    def __init__(self, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[tuple[int, int, int]] = []
        self._context, self._decode = context, context.decode_largest
        monkeypatch.setattr(context, "decode_largest", self.decode_largest)

    def decode_largest(self, tokens: Sequence[int], outputs: int, count: int | None) -> Logits:
        self.all.append((len(tokens), outputs, len(self._context.tokens)))
        return self._decode(tokens, outputs, count)

    @property
    def widths(self) -> set[int]:
        """Of the verify passes."""
        return {width for width, outputs, _ in self.all if outputs == width}


@pytest.fixture
def padding(engine: Engine, load: Loader, random_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Passes]:
    """Load the pair with costs as on a GPU where padding pays."""

    def start(costs: Costs = CHEAP, **settings: object) -> Passes:
        load(*random_pair, **settings)
        assert engine._costs and engine._target
        engine._costs.costs = costs
        return Passes(engine._target.context, monkeypatch)

    return start


@pytest.mark.parametrize("drafter", ["chain", *in_proof(["model"])])
@pytest.mark.parametrize("sampling", [WARM, *in_proof([GREEDY])])
def test_the_text_is_the_same_as_without_a_draft(
    engine: Engine, padding: Callable[..., Passes], sampling: Sampling, drafter: str
) -> None:
    passes = padding()
    plain = run(engine, ask("Tell me", sampling=sampling, draft_length=0, max_tokens=120))
    passes.all.clear()
    command = ask("Tell me", sampling=sampling, draft_length="auto", drafter=drafter, max_tokens=120)
    drafted = run(engine, command)
    assert_same(engine, command, drafted, plain)
    assert_sums_close(drafted)
    assert passes.widths <= {1, 4, 8, *range(9, TARGET_OUTPUTS + 1)} and passes.widths & {4, 8}
    tested = {round_.tested + 1 for round_ in drafted.rounds}
    assert tested - {1, 4, 8}, "nothing was padded"


def test_a_context_is_filled_to_its_end(engine: Engine, padding: Callable[..., Passes]) -> None:
    passes = padding(context_length=256)
    assert engine._target
    plain = run(engine, ask("x", sampling=GREEDY, draft_length=0))
    passes.all.clear()
    command = ask("x", sampling=GREEDY, draft_length="auto")
    answer = run(engine, command)
    assert_same(engine, command, answer, plain)
    length = engine._target.context.length
    assert answer.finished.finish_reason == "context"
    assert answer.started.prompt_tokens + len(answer.token_ids) == length + 1
    assert max(held + width for width, _, held in passes.all) <= length
    assert run(engine, ask("y", draft_length="auto", max_tokens=3)).finished.finish_reason == "length"


def test_a_later_turn_begins_where_the_text_ends(engine: Engine, padding: Callable[..., Passes]) -> None:
    """After an answer that ended and one that was stopped, the cache has their texts and nothing else."""
    padding()
    assert engine._target
    for number, cancel_after in itertools.product(range(2), (None, 4)):
        first = ask(f"Tell me {number}", sampling=WARM, draft_length="auto", max_tokens=60)
        answer = run(engine, first, cancel_after)
        assert engine._target.context.tokens == engine._sequence.tokens[: len(engine._target.context.tokens)]
        assert engine._target.context._memory.newest() == len(engine._target.context.tokens) - 1
        said = Message(role="assistant", content=answer.text)
        messages = [*first.messages, said, Message(role="user", content="Go on")]
        command = ask("", messages=messages, sampling=WARM, draft_length="auto", max_tokens=30)
        after = run(engine, command)
        assert after.started.cached_tokens > 0
        plain = run(engine, ask("", messages=messages, sampling=WARM, draft_length=0, max_tokens=30))
        assert_same(engine, command, after, plain)


@pytest.mark.parametrize(("architecture", "heads"), [("hy_v3", 3), *in_proof([("glm4moe", 1)])])
def test_a_head_takes_padding_for_rejected_tokens(
    engine: Engine, tmp_path: Path, architecture: HeadArchitecture, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens are right only if it gets the hidden states of the text, and no others."""
    target = make_table_model(tmp_path / "target.gguf", architecture, *[()] * heads)
    settings = LoadSettings(context_length=512, threads=1)
    assert engine.load(Load(request=1, target=str(target), head="on", settings=settings), lambda _: None).has_head
    assert engine._target and engine._target.context.checkpoints.any_length
    monkeypatch.setattr(AutoPolicy, "width", lambda _policy, width: 8 if width > 1 else 1)
    passes = Passes(engine._target.context, monkeypatch)
    plain = run(engine, ask("x", sampling=GREEDY, max_tokens=100, draft_length=0))
    passes.all.clear()
    answer = run(engine, ask("x", sampling=GREEDY, max_tokens=100, drafter="mtp", draft_length=3))
    draft = answer.finished.figures.draft
    assert draft.tested and draft.accepted == draft.tested
    assert {width for width, outputs, _ in passes.all if outputs > 1} == {8}
    assert plain.token_ids == answer.token_ids
