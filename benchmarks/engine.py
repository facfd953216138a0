"""The engine's figures on the bundled guide pair: speed-up, sameness of the answers, and how quickly Stop stops.

    python -m benchmarks.engine [--questions N] [--pairs N] [--threads N] [--json]

Plain and drafted runs of a question follow each other, so that a drifting machine hits both alike; the ratio is the
median of the ratios. Questions are wordings the guide was not trained on.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from app import system
from app.compare.prompts import Prompt
from app.compare.results import Comparison, summarize
from app.compare.steps import compare
from app.engine.host.engine import Engine
from app.protocol.commands import Cancel, Generate, Load, Message
from app.protocol.events import GenerationFinished, PairLoaded, RoundsReceived
from app.protocol.options import LoadSettings, Sampling
from tests.support.comparing import compare_one
from tests.support.engine_process import EngineProcess
from tests.support.generation import GREEDY

sys.path.insert(0, str(Path(__file__).parents[1] / "packaging"))
from guide.corpus import load_corpus

GUIDE = [str(system.resource("guide", name)) for name in ("guide-target.gguf", "guide-draft.gguf")]
WARM = Sampling(temperature=0.8)
LONGEST = 300


def questions(count: int) -> list[str]:
    """Held-out wordings in a fixed random order."""
    wordings = [w for topic in load_corpus() if len(topic.turns) == 1 for w in topic.turns[0].held_out]
    random.Random(1).shuffle(wordings)
    return [wordings[i % len(wordings)] for i in range(count)]


def ask(text: str, sampling: Sampling, draft_length: int, seed: int = 1) -> Generate:
    return Generate(
        request=2,
        messages=[Message(role="user", content=text)],
        sampling=sampling,
        seed=seed,
        max_tokens=LONGEST,
        draft_length=draft_length,
    )


def prompt(text: str) -> Prompt:
    return Prompt(kind="guide", messages=[Message(role="user", content=text)])


def speed_up(engine: Engine, draft_length: int, count: int) -> dict[str, Any]:
    """Drafted ÷ plain decode speed, greedy and at temperature 0.8."""
    result = {}
    for name, sampling in (("greedy", GREEDY), ("temperature 0.8", WARM)):
        prompts = [prompt(text) for text in questions(count)]
        runs = compare(engine, prompts, ask("", sampling, draft_length))
        result[name] = msgspec.to_builtins(summarize([run for run in runs if isinstance(run, Comparison)]).total)
    return result


def sameness(engine: Engine, draft_length: int, count: int) -> dict[str, Any]:
    """How many of ``count`` prompt–seed pairs at temperature 0.8 give the same text with and without the draft."""
    command = ask("", WARM, draft_length)
    pairs = [compare_one(engine, prompt(text), command, seed) for seed, text in enumerate(questions(count))]
    differing = [pair for pair in pairs if pair.difference]
    same = count - len(differing)
    differences = [
        {"prompt": pair.prompt.title, "seed": pair.seed, **msgspec.to_builtins(pair.difference)} for pair in differing
    ]
    return {"pairs": count, "same": same, "share": same / count, "differences": differences}


def stop_to_stopped(count: int) -> dict[str, float]:
    """Seconds from Cancel to the end of the generation, through the real engine process."""
    seconds = []
    with EngineProcess() as process:
        process.send(Load(request=1, target=GUIDE[0], draft=GUIDE[1]))
        process.until(PairLoaded)
        for seed, text in enumerate(questions(count)):
            process.send(ask(text, Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0), 5, seed))
            process.until(RoundsReceived)
            begun = time.perf_counter()
            process.send(Cancel())
            process.until(GenerationFinished)
            seconds.append(time.perf_counter() - begun)
    return {"median_s": statistics.median(seconds), "worst_s": max(seconds)}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    engine = Engine()
    command = Load(request=1, target=GUIDE[0], draft=GUIDE[1], settings=LoadSettings(threads=options.threads))
    pair = engine.load(command, lambda _: None)
    length = pair.default_draft_length
    result: dict[str, Any] = {"draft_length": length, "threads": options.threads}
    result["speed_up"] = speed_up(engine, length, options.questions)
    result["sameness"] = sameness(engine, length, options.pairs)
    engine.unload()
    result["stop"] = stop_to_stopped(30)
    if not options.json:
        print(table(result))
    print(json.dumps(result, ensure_ascii=False))
    return result


def table(result: dict[str, Any]) -> str:
    """The figures as lines of text."""
    lines = [f"guide pair, draft length {result['draft_length']}, {result['threads']} threads"]
    for name, figures in result["speed_up"].items():
        lines.append(
            f"  {name:16} plain {figures['plain_speed'] or 0:7.0f} tok/s"
            f"  drafted {figures['drafted_speed'] or 0:7.0f} tok/s"
            f"  speed-up {figures['speed_up'] or 0:.2f} ×  kept {figures['acceptance_rate']:.1%}"
            f"  {figures['mean_acceptance_length']:.2f} tokens a pass  same {figures['same']} of {figures['runs']}"
        )
    same = result["sameness"]
    lines.append(
        f"  same seed, temperature 0.8: {same['same']} of {same['pairs']} texts the same ({same['share']:.1%})"
    )
    for d in same["differences"]:
        kind = "near-tie" if d["near_tie"] else "NO near-tie"
        lines.append(
            f"    seed {d['seed']}, token {d['token']}: {d['plain']!r} or {d['drafted']!r},"
            f" logits {d['plain_logit']:.4f} and {d['drafted_logit']:.4f}, rounding {d['rounding']:.4f}: {kind}"
        )
    stop = result["stop"]
    lines.append(f"  Stop to stopped: median {stop['median_s'] * 1e3:.1f} ms, worst {stop['worst_s'] * 1e3:.1f} ms")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
