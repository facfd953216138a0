"""Text that is the same with and without a draft behind a long prompt, and which passes give the same logits here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.engine.host import pair_costs
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.options import EXACT_WIDTH, AcceptRule, DraftLength, KvType, LoadSettings, Sampling
from tests.support.architectures import Architecture
from tests.support.architectures import make as make_architecture
from tests.support.generation import ask, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.matrix import in_proof
from tests.support.mtp_models import make_table_model
from tests.support.pairs import Loader, Pair

HOT = Sampling(temperature=0.9)
LONG = "Rounding is what this text is long for. " * 45
"""More than 700 tokens of most vocabularies: llama.cpp computes attention in another way from 512 on."""


def texts(engine: Engine, rule: AcceptRule, drafter: str, lengths: tuple[DraftLength, ...]) -> list[list[int]]:
    """An answer with each draft length, behind a long prompt."""
    return [
        run(engine, ask(LONG, draft_length=n, drafter=drafter, accept=rule, sampling=HOT, max_tokens=60)).token_ids
        for n in lengths
    ]


@pytest.fixture(scope="module")
def long_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """As `random_pair`, for long prompts."""
    folder = tmp_path_factory.mktemp("long")
    options = {"chat_template": CHATML_TEMPLATE, "context_length": 4096}
    return make_model(folder / "target.gguf", **options), make_model(folder / "draft.gguf", seed=2, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_exact_gives_one_text_behind_a_long_prompt(engine: Engine, load: Loader, long_pair: Pair, drafter: str) -> None:
    pair = load(*long_pair, context_length=4096)
    assert 1 <= pair.exact_unit <= EXACT_WIDTH and pair.exact_pass_seconds > 0
    first, *others = texts(engine, "exact", drafter, (0, 5, 16, "auto"))
    assert len(first) > 10 and all(other == first for other in others)


def test_the_guide_gives_one_text_with_its_draft(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(*guide_pair)
    first, *others = texts(engine, "exact", "model", (0, 5, "auto"))
    assert all(other == first for other in others)


def test_a_running_state_gives_one_text(engine: Engine, load: Loader, tmp_path: Path) -> None:
    load(make_table_model(tmp_path / "hybrid.gguf", "qwen35", context_length=4096), context_length=4096)
    first, *others = texts(engine, "exact", "ngram", (0, 5))
    assert all(other == first for other in others)


def test_an_answer_is_the_same_the_second_time(engine: Engine, load: Loader, long_pair: Pair) -> None:
    """When all but the last token of the prompt is in the cache."""
    load(long_pair[0], context_length=4096)
    first, second = texts(engine, "coupled", "ngram", (0, 0))
    assert first == second


def test_exact_fills_the_context_to_its_end(engine: Engine, load: Loader, long_pair: Pair) -> None:
    load(*long_pair, context_length=1024)
    assert engine._target is not None
    engine._target.exact_unit = EXACT_WIDTH
    command = ask("x", draft_length=5, accept="exact", sampling=HOT, max_tokens=None)
    answer = run(engine, command)
    assert answer.finished.finish_reason in ("context", "end")
    assert answer.started.prompt_tokens + len(answer.token_ids) <= 1024


class Cache:
    """Computes logits that differ where a function of the width of a pass does."""

    length = 4096

    def __init__(self, kernel: Callable[[int], int]) -> None:
        self._kernel = kernel
        self.tokens: list[int] = []

    def decode(self, tokens: list[int], outputs: int) -> np.ndarray:
        return np.full((outputs, 8), float(self._kernel(len(tokens))), np.float32)

    def roll_back(self, length: int) -> None: ...
    def hold(self, count: int) -> None: ...
    def lengthen(self, _length: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("kernel", "unit"),
    [
        (lambda _: 0, 1),
        (lambda width: min(width, 2), 2),
        (lambda width: int(width >= 4 and width % 4 == 0), 4),
        (lambda width: width // 8, EXACT_WIDTH),
        (lambda width: width, EXACT_WIDTH),
    ],
)
def test_the_smallest_unit_is_found(kernel: Callable[[int], int], unit: int) -> None:
    found = pair_costs.try_out(Cache(kernel), lambda: False)  # type: ignore[arg-type]
    assert (found.unit, found.behind) == (unit, 1000)


@pytest.mark.parametrize("kv_type", ["q8_0", *in_proof(["f16"])])
@pytest.mark.parametrize("architecture", ["gemma3", "qwen35", "mamba", *in_proof(["llama", "lfm2", "granitehybrid"])])
def test_a_lengthened_memory_goes_on_and_is_empty_afterwards(
    tmp_path: Path, architecture: Architecture, kv_type: KvType
) -> None:
    backend.start()
    model = Model(make_architecture(tmp_path / "model.gguf", architecture), 0, lambda _: True)
    settings = LoadSettings(batch_size=64, micro_batch_size=64, kv_type=kv_type)
    context = Context(model, settings, length=2048, threads=1, snapshots=2)
    try:
        prompt = [1, 2, 3, 4, 5]
        wanted = context.decode(prompt, 1).copy()
        context.roll_back(0)
        context.decode([0], 1)
        assert context.lengthen(1500) == (architecture != "mamba")
        assert context.tokens == ([] if architecture == "mamba" else [0])
        if context.tokens:
            state = context.state_size()
            assert state > 1500 * 8
            for width in (1, 2, 6, 17):
                before = len(context.tokens)
                context.hold(width - 1)
                context.decode([0] * width, width)
                context.roll_back(before + 1)
                assert before <= len(context.tokens) <= before + 1 and context.state_size() >= state
        context.roll_back(0)
        assert context.tokens == [] and context._memory.newest() == -1
        assert np.array_equal(context.decode(prompt, 1), wanted)
    finally:
        context.close()
        model.close()
