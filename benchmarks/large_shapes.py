"""Large models beside llama-server, without a draft, where memory is enough for one of the two programs at a time.

    python -m benchmarks.large_shapes [--only NAME …] [--folder DIR] [--json FILE]

Files with random weights in the shapes of `benchmarks.shapes`, made where they are missing. Slipstream and llama-server
take turns (ours, theirs, theirs, ours): each loads the file, reads prompts of 2,000 tokens and writes some answers. On
two cores, the three shapes take about half an hour, most of which is reading the prompts.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.protocol.options import Sampling
from benchmarks.llama_cpp_tools import tools
from benchmarks.real_bench import OURS, THEIRS, _heading
from benchmarks.real_contestants import PAUSE_S, Loaded, Request, cores, engine, llama_server, prompts_of, whole
from benchmarks.real_figures import QUESTIONS, as_json, ratio_of_medians
from benchmarks.shapes import FOLDER, shaped

FIRSTS = {"qwen3.5-4b": 2, "gemma4-12b": 1, "gpt-oss-20b": 2}
"""How many long prompts each of the two reads; where one takes minutes, a single one."""
_TURNS = ((OURS, THEIRS), (THEIRS, OURS))
_SHORT_PROMPT, _FRESH, _ROOM = 100, 100, 300
_SPEED, _FIRST, _LOAD = "tokens per second", "first token, s", "load, s"
Figures = dict[str, dict[str, list[float]]]


def measured(target: Path, firsts: int, options: argparse.Namespace, home: Path) -> Figures:
    """By figure and side, in pairs."""
    (short,) = prompts_of(target, _SHORT_PROMPT, [0], options.questions)
    longs = prompts_of(target, options.prompt_tokens, range(_FRESH, _FRESH + firsts), options.questions)
    found: Figures = {figure: {OURS: [], THEIRS: []} for figure in (_SPEED, _FIRST, _LOAD)}
    for number, names in enumerate(_TURNS):
        for name in names:
            with _loaded(name, target, options, home) as loaded:
                _take_turn(loaded, short, longs[number :: len(_TURNS)], number, options, found, name)
    return found


def _loaded(name: str, target: Path, options: argparse.Namespace, home: Path) -> AbstractContextManager[Loaded]:
    context = options.prompt_tokens + _ROOM
    return engine(target, context, home=home) if name == OURS else llama_server(tools(), target, context, cores())


def _take_turn(
    loaded: Loaded,
    short: Request,
    longs: Sequence[Request],
    number: int,
    options: argparse.Namespace,
    found: Figures,
    name: str,
) -> None:
    ask = loaded.contestant.ask
    found[_LOAD][name].append(loaded.load_seconds)
    found[_FIRST][name] += [ask(replace(one, fresh=True)).first_seconds for one in longs]
    wanted = replace(short, max_tokens=options.tokens, sampling=Sampling(temperature=0.8))
    ask(replace(wanted, max_tokens=4))
    for seed in range(number * options.answers, (number + 1) * options.answers):
        time.sleep(PAUSE_S)
        found[_SPEED][name].append(whole(loaded.contestant, replace(wanted, seed=seed)).speed or 0.0)


def table(name: str, found: Figures, seconds: float) -> str:
    """For people. Our first load measures what passes cost, so that only the second one counts."""
    found = {**found, _LOAD: {side: all_[-1:] for side, all_ in found[_LOAD].items()}}
    lines = [f"{name}, {seconds:.0f} s{'':14}{OURS:>12}{THEIRS:>14}   ratio"]
    for figure, sides in found.items():
        if not sides[OURS]:
            continue
        ours, theirs = (statistics.median(sides[side]) for side in (OURS, THEIRS))
        lines.append(f"  {figure:24}{ours:>12.2f}{theirs:>14.2f}   {ratio_of_medians(sides[OURS], sides[THEIRS])}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print; returns all figures."""
    options = _parser().parse_args(arguments)
    tools()
    heading = _heading("llama-server")
    print(heading, flush=True)
    result: dict[str, Any] = {"heading": heading, "options": as_json(vars(options)), "files": {}}
    for name in options.only:
        target, begun = shaped(name, options.folder), time.monotonic()
        with tempfile.TemporaryDirectory() as home:
            found = measured(target, FIRSTS[name] if options.firsts is None else options.firsts, options, Path(home))
        result["files"][name] = found
        print(table(name, found, time.monotonic() - begun), flush=True)
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FIRSTS, default=list(FIRSTS), metavar="NAME")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the models")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, metavar="FILE", help="Spec-Bench's question.jsonl")
    parser.add_argument("--prompt-tokens", type=int, default=2000, help="of the prompts for the first token")
    parser.add_argument("--firsts", type=int, help="how many of those")
    parser.add_argument("--answers", type=int, default=5, help="of each side in each of two turns")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers end, too
    main()
