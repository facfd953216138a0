"""Whether a thinking budget gives the same text with and without a draft, under ``coupled``, at random places.

    python -m tests.benchmarks.thinking_budget [--places N] [--seed N] [--json]

The models are made by `tests.support.thinking_models`: small, each thinks in the way of a family, with a draft that
agrees with it most of the time. Each place has a family, a seed, a budget and a draft length of its own. Where texts
differ, both tokens are scored again: ``near-tie`` if rounding explains that the other one won.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.engine.host.engine import Engine
from app.protocol.commands import Load
from app.protocol.options import LoadSettings, Sampling
from tests.support.generation import Answer, ask, assert_same, run
from tests.support.thinking_models import FAMILIES, make_thinking_model

LENGTH = 60
SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.001)


def compared(engine: Engine, rng: random.Random) -> tuple[str, Answer, dict[str, Any]]:
    """One place: ``same``, ``near-tie`` or ``different``; the drafted answer; what was asked."""
    seed = rng.randrange(2**31)
    whole = run(engine, ask("Well?", draft_length=0, sampling=SAMPLING, seed=seed, max_tokens=LENGTH))
    thought = sum(piece.thinking for piece in whole.pieces)
    options = {
        "sampling": SAMPLING,
        "seed": seed,
        "max_tokens": LENGTH,
        "thinking_budget": rng.randint(0, max(thought - 1, 0)),
    }
    plain = run(engine, ask("Well?", draft_length=0, **options))
    length = rng.choice([1, 2, 4, 8, 16])
    drafted = run(engine, command := ask("Well?", draft_length=length, **options))
    asked = {"seed": seed, "budget": options["thinking_budget"], "draft_length": length}
    if (drafted.token_ids, drafted.thinking, drafted.answer) == (plain.token_ids, plain.thinking, plain.answer):
        return "same", drafted, asked
    try:
        assert_same(engine, command, drafted, plain)
    except AssertionError:
        return "different", drafted, asked
    return "near-tie", drafted, asked


def measure(places: int, seed: int) -> dict[str, Any]:
    """Compare at so many places, shared among the families."""
    rng = random.Random(seed)
    results, forced, accepted = Counter[str](), 0, 0
    differences: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(FAMILIES):
            files = [Path(folder) / f"{name}-{what}.gguf" for what in ("target", "draft")]
            make_thinking_model(files[0], name)
            make_thinking_model(files[1], name, noise=0.8)
            engine = Engine()
            settings = LoadSettings(context_length=2048, threads=1)
            engine.load(Load(request=1, target=str(files[0]), draft=str(files[1]), settings=settings), lambda _: None)
            for _ in range(len(range(number, places, len(FAMILIES)))):
                result, drafted, asked = compared(engine, rng)
                results[result] += 1
                forced += any(round_.forced for round_ in drafted.rounds)
                accepted += drafted.finished.figures.draft.accepted
                if result != "same":
                    differences.append({"family": name, "result": result, **asked})
            engine.unload()
    counts = {"places": places, **results, "ended by the budget": forced, "accepted tokens": accepted}
    return {**counts, "differences": differences}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(options.places, options.seed)
    if not options.json:
        print(f"same text with and without a draft: {result.get('same', 0) / result['places']:.1%}")
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
