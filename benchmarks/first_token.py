"""Time to first token of a long prompt with a draft model ÷ without one.

    python -m benchmarks.first_token [--tokens N] [--parameters N] [--draft-parameters N] [--repeat N] [--json]

A pair with random weights and a real model's shape, so that only the cost is real. Each round answers a prompt of its
own twice, with and without the draft; who begins changes. The ratio is that of the medians, with a bootstrap interval
of 95 % over the rounds. The longest gap is the longest time between two rounds of the answer with the draft, and of the
one without.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from app import system
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFinished, Round
from app.protocol.options import DraftLength, LoadSettings
from benchmarks.second_turn import CONTEXT, layers_of, pair_in, text

ANSWER_TOKENS = 48


def answer(engine: Engine, prompt: str, length: DraftLength) -> dict[str, float]:
    """Seconds to the first token, seconds of the longest gap after it, and tokens of the prompt."""
    times = []
    message = Message(role="user", content=prompt)
    command = Generate(request=2, messages=[message], seed=1, max_tokens=ANSWER_TOKENS, draft_length=length)
    for event in engine.generate(command):
        if isinstance(event, Round):
            times.append(event.time)
        if isinstance(event, GenerationFinished):
            figures = event.figures
    assert figures.time_to_first_token_seconds is not None and figures.cached_tokens < 100
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return {"first": figures.time_to_first_token_seconds, "gap": max(gaps), "prompt": figures.prompt_tokens}


def measure(tokens: int, parameters: int, draft_parameters: int, repeat: int) -> dict[str, Any]:
    """Answer ``repeat`` prompts with and without a draft, one after the other."""
    runs: dict[str, list[dict[str, float]]] = {"auto": [], "5": [], "plain": []}
    lengths: dict[str, DraftLength] = {"auto": "auto", "5": 5, "plain": 0}
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, {system.HOME_VARIABLE: name}):
        target, draft = pair_in(Path(name), layers_of(parameters), layers_of(draft_parameters))
        engine = Engine()
        settings = LoadSettings(context_length=CONTEXT, chat_cache_mib=0)
        engine.load(Load(request=1, target=str(target), draft=str(draft), settings=settings), lambda _: None)
        answer(engine, text(100, 999), "auto")
        for number in range(repeat):
            order = list(lengths)[number % 3 :] + list(lengths)[: number % 3]
            for place, mode in enumerate(order):
                runs[mode].append(answer(engine, f"{number}{place} {text(tokens, 3 * number + place)}", lengths[mode]))
        engine.unload()
    result: dict[str, Any] = {"parameters": parameters, "draft_parameters": draft_parameters, "repeat": repeat}
    for mode, own in runs.items():
        result[mode] = {key: statistics.median(one[key] for one in own) for key in own[0]}
        result[mode]["ratio"], result[mode]["low"], result[mode]["high"] = _ratio(own, runs["plain"])
    return result


def _ratio(own: Sequence[dict[str, float]], plain: Sequence[dict[str, float]]) -> tuple[float, float, float]:
    """The ratio of medians of the times to the first token, and its interval over rounds drawn again."""
    a, b = (np.array([one["first"] for one in runs]) for runs in (own, plain))
    drawn = np.random.default_rng(0).integers(0, len(a), (4000, len(a)))
    low, high = np.quantile(np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1), (0.025, 0.975))
    return float(np.median(a) / np.median(b)), float(low), float(high)


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'':8}{'to first token':>16}{'÷ plain':>9}{'':18}{'longest gap':>14}{'prompt':>8}"]
    for mode in ("plain", "auto", "5"):
        row = result[mode]
        first, gap = f"{row['first'] * 1e3:,.0f} ms", f"{row['gap'] * 1e3:,.0f} ms"
        interval = f"({row['low']:.3f} to {row['high']:.3f})"
        lines.append(f"{mode:8}{first:>16}{row['ratio']:>9.3f}{interval:>18}{gap:>14}{row['prompt']:>8.0f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time to first token with and without a draft model")
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--draft-parameters", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(options.tokens, options.parameters, options.draft_parameters, max(options.repeat, 1))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
