"""Whole answers: the engine's own time, draft lengths against each other, and a bare loop against the engine."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import llama_cpp
import numpy as np

from app.engine.host.engine import Engine
from app.engine.llama.backend import default_threads
from app.engine.llama.context import Context
from app.protocol.commands import Load
from benchmarks import auto
from benchmarks.engine import questions
from benchmarks.gpu_report.sizes import Bench
from benchmarks.gpu_report.timetable import TOP_K_MODULE
from benchmarks.inflate import GUIDE
from benchmarks.overhead import CASES, measure
from benchmarks.quantizing import Quantization
from tests.support.generation import GREEDY, ask, run

_CASES = ("default sampler", "default sampler, rejection", "greedy", "repetition penalty 1.1", "all filters off")
_DRAFT_LENGTH = 5


def own_time(bench: Bench) -> Iterator[dict[str, Any]]:
    """Milliseconds of a round by its parts (`benchmarks.overhead`), for large vocabularies."""
    cases = [case for case in CASES if case.name in _CASES]
    for size in bench.sizes.vocabularies:
        pair = bench.vocabulary_pair(size)
        for case in cases:
            found = measure(pair, _DRAFT_LENGTH, bench.sizes.rounds, default_threads(), [case])
            yield {f"{size}, {name}": parts for name, parts in found.items()}


def top_k(bench: Bench) -> Iterator[dict[str, Any]]:
    """The same with the largest logits picked by llama.cpp, and with whole rows (`benchmarks.own_time`)."""
    module = importlib.import_module(TOP_K_MODULE)
    for size in bench.sizes.vocabularies:
        found = module.measure(bench.vocabulary_pair(size), _DRAFT_LENGTH, bench.sizes.rounds, default_threads())
        yield {f"{size}, {name}": figures for name, figures in found.items()}


def draft_lengths(quantization: Quantization) -> Callable[[Bench], Iterator[dict[str, Any]]]:
    """`benchmarks.auto` on the inflated guide with its draft."""

    def step(bench: Bench) -> Iterator[dict[str, Any]]:
        sizes, target = bench.sizes, bench.target(quantization)
        for kind in sizes.kinds:
            arguments = ["--target", str(target), "--draft", str(GUIDE[1]), "--folder", str(bench.folder), "--json"]
            arguments += ["--sets", kind, "--questions", str(sizes.questions), "--max-tokens", str(sizes.tokens)]
            arguments += ["--lengths", *map(str, sizes.lengths), "--threads", str(default_threads())]
            yield next(iter(auto.main(arguments)["pairs"].values()))

    return step


# ---------------------------------------------------------------- a bare loop


def bare_loop(quantization: Quantization) -> Callable[[Bench], Iterator[dict[str, Any]]]:
    """Tokens per second of the engine without a draft, and of nothing but ``llama_decode`` and the largest logit."""

    def step(bench: Bench) -> Iterator[dict[str, Any]]:
        engine = Engine()
        load = Load(request=1, target=str(bench.target(quantization)), settings=bench.settings())
        pair = engine.load(load, lambda _: None)
        assert engine._target is not None
        model = engine._target.model
        context = Context(model, bench.settings(), length=2048, threads=default_threads(), outputs=1)
        found = [_pair_of_speeds(engine, context, bench, each) for each in range(bench.sizes.repeats + 1)]
        context.close()
        engine.unload()
        ours, bare, same = (list(values) for values in zip(*found[1:], strict=True))  # the first one warms up
        yield {
            "engine": statistics.median(ours),
            "bare loop": statistics.median(bare),
            "ratio": statistics.median(ours) / statistics.median(bare),
            "answers": len(ours),
            "same tokens": sum(same),
            "passes that agree: multiples of": pair.exact_unit,
            "exact pass ÷ plain pass": pair.exact_pass_seconds / pair.plain_pass_seconds,
        }

    return step


def _pair_of_speeds(engine: Engine, context: Context, bench: Bench, number: int) -> tuple[float, float, bool]:
    """Tokens per second of both for one question, and whether the tokens are the same; who begins changes."""
    (text,) = questions(number + 1)[-1:]
    command = ask(text, sampling=GREEDY, draft_length=0, drafter="none", max_tokens=bench.sizes.tokens)
    assert engine._target is not None
    prompt = engine._target.prompts.chat(command.messages).tokens
    bare = _bare(context, prompt, bench.sizes.tokens) if number % 2 else None
    answer = run(engine, command)
    bare_speed, bare_ids = bare or _bare(context, prompt, bench.sizes.tokens)
    speed = answer.finished.figures.decode_tokens_per_second
    assert speed is not None
    return speed, bare_speed, bare_ids[: len(answer.token_ids)] == answer.token_ids


def _bare(context: Context, prompt: list[int], count: int) -> tuple[float, list[int]]:
    """As the engine counts it: tokens after the first ÷ time from the first to the last."""
    context.clear()
    token = int(context.decode(prompt, 1)[0].argmax())
    pointer = llama_cpp.llama_get_logits(context.handle)
    row = np.ctypeslib.as_array(pointer, shape=(context.model.vocabulary_size,))
    batch = llama_cpp.llama_batch_init(1, 0, 1)
    batch.n_tokens, batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 1, 0, 1
    ids = [token]
    begun = time.perf_counter()
    for position in range(len(prompt), len(prompt) + count - 1):
        batch.token[0], batch.pos[0] = token, position
        if llama_cpp.llama_decode(context.handle, batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_get_logits(context.handle)  # waits for a GPU
        token = int(row.argmax())
        ids.append(token)
    seconds = time.perf_counter() - begun
    llama_cpp.llama_batch_free(batch)
    return (count - 1) / seconds, ids
