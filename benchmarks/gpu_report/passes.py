"""Single passes: what the width of a verify pass costs, in which order a draft is best computed, and batch sizes."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.engine.llama import backend
from app.engine.llama.backend import default_threads
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.engine.policy.costs import is_quicker_one_by_one, padded, quickest_widths
from app.protocol.options import TARGET_OUTPUTS, LoadSettings
from benchmarks.gpu_report.sizes import Bench
from benchmarks.quantizing import Quantization

_BEFORE = 256
"""Tokens in the context before each pass."""
_LENGTH = 1024
_ORDERS: dict[str, tuple[int, ...]] = {
    "8 × 1": (1,) * 8,
    "2, 7 × 1": (2, *(1,) * 7),
    "1, 1, 7 × 1": (1,) * 9,
    "1 (no logits), 1, 7 × 1": (0, *(1,) * 8),
    "9 at once": (9,),
}
"""Widths of the passes of a draft; a width of 0 is a pass over one token whose logits nobody asks for. All but the
first process what follows full acceptance: two new tokens, then seven of the draft.
"""


@contextlib.contextmanager
def opened(path: Path, settings: LoadSettings, *, length: int, outputs: int, snapshots: int = 0) -> Iterator[Context]:
    """A model and its context, everything on the GPU."""
    backend.start()
    model = Model(path, settings.target_gpu_layers, lambda _: True)
    try:
        context = Context(
            model, settings, length=length, threads=default_threads(), outputs=outputs, snapshots=snapshots
        )
        try:
            yield context
        finally:
            context.close()
    finally:
        model.close()


def tokens(count: int, vocabulary: int) -> list[int]:
    """Some tokens, none of the first, which are special."""
    return [int(token) for token in np.random.default_rng(count).integers(vocabulary // 4, vocabulary, count)]


def _timed(context: Context, width: int) -> float:
    """Milliseconds of a pass that is rolled back. With logits, so that a GPU has finished."""
    before = len(context.tokens)
    ids = tokens(max(width, 1), context.model.vocabulary_size)
    begun = time.perf_counter()
    context.decode(ids, width)
    seconds = time.perf_counter() - begun
    context.roll_back(before)
    return seconds * 1e3


def widths(quantization: Quantization) -> Callable[[Bench], Iterator[dict[str, Any]]]:
    """Milliseconds by width: the first pass ever, many in a row, and taking turns with passes over one token."""

    def step(bench: Bench) -> Iterator[dict[str, Any]]:
        sizes = bench.sizes
        every = range(1, sizes.widths + 1)
        outputs = max(sizes.widths, TARGET_OUTPUTS)  # as the engine has
        with opened(bench.target(quantization), bench.settings(), length=_LENGTH, outputs=outputs) as context:
            context.decode(tokens(_BEFORE, context.model.vocabulary_size), 1)
            yield {"cold": {width: _timed(context, width) for width in every}}
            yield _passes(context, "in a row", {width: [width] * sizes.passes for width in every})
            yield _passes(context, "alternating", {width: [1, width] * sizes.passes for width in every})
            yield _mixed(context, sizes.passes, min(8, sizes.widths))
            yield {"padded to": _chosen(context)}

    return step


def _passes(context: Context, name: str, orders: dict[int, list[int]]) -> dict[str, Any]:
    """Medians of the passes of each width, and the share of passes whose graph was reused."""
    medians, reused = {}, {}
    for width, order in orders.items():
        before = context.graphs_reused()
        times = [(each, _timed(context, each)) for each in order]
        medians[width] = statistics.median(ms for each, ms in times[-len(order) * 2 // 3 :] if each == width)
        reused[width] = (context.graphs_reused() - before) / len(order)
    return {name: medians, f"{name}, graphs reused": reused}


def _mixed(context: Context, passes: int, most: int) -> dict[str, dict[str, float]]:
    """Means over the same random widths up to ``most``, as they come and padded to few widths, and the share of passes
    whose graph was reused.
    """
    drawn = np.random.default_rng(1).integers(1, most + 1, 2 * passes).tolist()
    orders = {
        "as they come": drawn,
        f"padded to {most}": [most] * len(drawn),
        f"padded to 1 or {most}": [padded(width, (most,)) for width in drawn],
        f"padded to 1, {most // 2} or {most}": [padded(width, (most // 2, most)) for width in drawn],
        "padded to even numbers": [min(width + width % 2, most) for width in drawn],
    }
    for order in orders.values():  # once without timing
        for width in order:
            _timed(context, width)
    means, reused = {}, {}
    for name, order in orders.items():
        before = context.graphs_reused()
        means[name] = statistics.fmean(_timed(context, width) for width in order)
        reused[name] = (context.graphs_reused() - before) / len(order)
    return {"mixed": means, "mixed, graphs reused": reused}


def _chosen(context: Context) -> str:
    """What the engine would choose when it loads this model."""
    widths = quickest_widths(lambda width: _timed(context, width), context.graphs_reused)
    return " or ".join(map(str, widths)) or "as they come"


def draft_steps(bench: Bench) -> Iterator[dict[str, Any]]:
    """Milliseconds of a whole draft, by the order of its passes."""
    for name, path in bench.drafts().items():
        with opened(path, bench.settings(), length=_LENGTH, outputs=1) as context:
            context.decode(tokens(_BEFORE, context.model.vocabulary_size), 1)
            times: dict[str, list[float]] = {order: [] for order in _ORDERS}
            for _ in range(bench.sizes.passes):
                for order, each in _ORDERS.items():
                    times[order].append(_draft(context, each))
            one_by_one = is_quicker_one_by_one(lambda width: _draft(context, [width]), context.graphs_reused)
            medians = {order: statistics.median(each[len(each) // 3 :]) for order, each in times.items()}
            yield {name: {**medians, "chosen": "1, 1, …" if one_by_one else "2, 1, …"}}


def _draft(context: Context, order: Sequence[int]) -> float:
    before = len(context.tokens)
    begun = time.perf_counter()
    for width in order:
        context.decode([7] * max(width, 1), min(width, 1))
    seconds = time.perf_counter() - begun
    context.roll_back(before)
    return seconds * 1e3


def batch_sizes(bench: Bench) -> Iterator[dict[str, Any]]:
    """Prompt tokens per second, and memory on the GPU, by the number of tokens that are computed at once."""
    length = bench.sizes.prompt
    for size in bench.sizes.micro_batches:
        backend.start()
        free = sum(device.free_bytes for device in backend.devices())
        settings = bench.settings(batch_size=length, micro_batch_size=size)
        with opened(bench.target("q8_0"), settings, length=length + 64, outputs=1) as context:
            seconds = []
            for _ in range(3):
                begun = time.perf_counter()
                context.decode(tokens(length, context.model.vocabulary_size), 1)
                seconds.append(time.perf_counter() - begun)
                context.roll_back(0)
            taken = free - sum(device.free_bytes for device in backend.devices())
            yield {f"{size}": {"tokens per second": length / min(seconds[1:]), "GPU bytes": taken}}


# ---------------------------------------------------------------- hybrids


def hybrids(bench: Bench) -> Iterator[dict[str, Any]]:
    """Milliseconds of a whole round that is rolled back, by what is kept to go back to."""
    width = min(6, bench.sizes.widths)
    for name, snapshots in (("8 snapshots", 8), ("a copy in system memory", 0), ("a copy on the GPU", 0)):
        with opened(
            bench.hybrid(), bench.settings(), length=_LENGTH, outputs=bench.sizes.widths, snapshots=snapshots
        ) as context:
            context.checkpoints.copies_in_place = name == "a copy on the GPU"
            context.decode(tokens(_BEFORE, context.model.vocabulary_size), 1)
            kept = context.checkpoints.snapshots
            figures: dict[str, float] = {"snapshots kept": kept, "bytes of a copy": context.checkpoints.size()}
            for each in (1, width):
                rounds = [_round(context, each) for _ in range(bench.sizes.passes)]
                figures[f"round of width {each}"] = statistics.median(rounds[len(rounds) // 3 :])
            yield {name: figures}


def _round(context: Context, width: int) -> float:
    """Milliseconds: make ready to come back, a pass, and back to its first token."""
    before = len(context.tokens)
    ids = tokens(width, context.model.vocabulary_size)
    begun = time.perf_counter()
    context.hold(width - 1)
    context.decode(ids, width)
    context.roll_back(before + 1)
    missing = [*ids[:1]] if len(context.tokens) == before else []
    if missing:
        context.decode(missing, 1)  # the accepted token again, which the copy of the state lacks
    seconds = time.perf_counter() - begun
    if len(context.tokens) + 1 >= context.length - width:
        context.clear()
        context.decode(tokens(_BEFORE, context.model.vocabulary_size), 1)
    return seconds * 1e3
