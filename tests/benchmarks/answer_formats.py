"""Structured answers: do they follow their schema, are they the same with a draft, and what does the grammar cost?

``python -m tests.benchmarks.answer_formats validity [SCHEMAS]``: a pair with random weights at temperature 1.5 answers
each schema ten times, with and without a draft. ``python -m tests.benchmarks.answer_formats speed TARGET``: the decode
speed with a grammar ÷ without, by turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import jsonschema

from app.engine.host.engine import Engine
from app.errors import KnownError
from app.protocol.commands import Load
from app.protocol.options import AnswerFormat, LoadSettings, Sampling
from tests.support.generation import Answer, ask, first_difference, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.schemas import random_schema

_HOT = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
_ANSWERS, _LONGEST = 10, 400
_FREE_TEXT = AnswerFormat(kind="regex", source=r"(.|\n)*")
_PROSE = AnswerFormat(
    kind="json_schema",
    source='{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}',
)
_TOKENS, _TURNS = 64, 5


def check_validity(schemas: int) -> Counter[str]:
    """Every answer that ends is valid; with a draft it is the same, but for near-ties."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = make_model(folder / "target.gguf", chat_template=CHATML_TEMPLATE, weights="F32")
        draft = make_model(folder / "draft.gguf", chat_template=CHATML_TEMPLATE, weights="F32", noise=0.07)
        engine = Engine()
        engine.load(
            Load(request=1, target=str(target), draft=str(draft), settings=LoadSettings(context_length=2048)),
            lambda _: None,
        )
        for number in range(schemas):
            _check_schema(engine, number, counts)
            if number % 25 == 24:
                print(number + 1, dict(counts), flush=True)
        engine.unload()
    return counts


def _check_schema(engine: Engine, number: int, counts: Counter[str]) -> None:
    schema = random_schema(number)
    wanted = AnswerFormat(kind="json_schema", source=json.dumps(schema))
    for seed in range(_ANSWERS):
        command = ask("Go", seed=seed, sampling=_HOT, format=wanted, max_tokens=_LONGEST, draft_length=0)
        try:
            plain = run(engine, command)
        except KnownError as error:
            counts["refused"] += 1
            print(f"schema {number}: {error}", flush=True)
            return
        counts[plain.finished.finish_reason] += 1
        if plain.finished.finish_reason == "end":
            counts["valid" if _is_valid(plain, schema, number, seed) else "invalid"] += 1
        if seed == 0:
            drafted = run(engine, ask("Go", seed=seed, sampling=_HOT, format=wanted, max_tokens=_LONGEST))
            counts["same" if first_difference(drafted, plain) is None else "different"] += 1


def _is_valid(answer: Answer, schema: dict[str, object], number: int, seed: int) -> bool:
    try:
        jsonschema.validate(json.loads(answer.text), schema)
    except (ValueError, jsonschema.ValidationError) as error:
        print(f"schema {number}, seed {seed}: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def measure_speed(target: Path) -> None:
    """Tokens per second without a draft; the same tokens with and without a grammar that allows everything."""
    engine = Engine()
    engine.load(Load(request=1, target=str(target), settings=LoadSettings(context_length=2048)), lambda _: None)
    for name, wanted in (("everything", _FREE_TEXT), ("a string in JSON", _PROSE)):
        speeds: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * _TURNS):
            has_grammar = bool(turn % 2)
            begun = time.perf_counter()
            answer = run(
                engine,
                ask("Tell me a story", format=wanted if has_grammar else None, max_tokens=_TOKENS, draft_length=0),
            )
            speed = answer.finished.figures.decode_tokens_per_second
            assert speed is not None
            speeds[has_grammar].append(speed)
            print(f"{name} {has_grammar} {speed:.2f} tok/s, {time.perf_counter() - begun:.1f} s", flush=True)
        with_it, without = statistics.median(speeds[True]), statistics.median(speeds[False])
        print(f"{name}: {with_it:.2f} ÷ {without:.2f} tok/s = {with_it / without:.3f}", flush=True)
    engine.unload()


if __name__ == "__main__":
    if sys.argv[1] == "validity":
        print(dict(check_validity(int(sys.argv[2]) if len(sys.argv) > 2 else 500)))
    else:
        measure_speed(Path(sys.argv[2]))
