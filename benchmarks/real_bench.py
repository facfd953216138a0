"""Slipstream on real models, beside llama-server on the same files.

    python -m benchmarks.real_bench plain [--target FILE …] [--context-tokens N] [--busy N] [--through serve]
    python -m benchmarks.real_bench spec-bench [--full] [--per-kind N] [--draft FILE]
    python -m benchmarks.real_bench same [--seeds N] [--prompt-tokens N]
    python -m benchmarks.real_bench recover [--nice N]
    python -m benchmarks.real_bench speed-bench [--per-kind N]

``plain``: decode speed, first token, load and memory without a draft. ``spec-bench``: Spec-Bench's questions with and
without a draft, and to llama-server with its own ways of drafting (`benchmarks.real_spec_bench`). ``same``:
whether the same seed gives the same tokens with and without n-grams; ``recover``: how long an answer stays slow after
another program has ended (both `benchmarks.real_ours`). ``speed-bench``: llama.cpp's own client of that name,
unchanged, against ``slipstream serve`` (`benchmarks.real_speed_bench`).

Without ``--target``, the files of ``scripts/real-models``. The first call builds llama.cpp's programs. Contestants take
turns, and only one computes at a time. All speeds are tokens after the first ÷ time from the first to the last; all
ratios are ratios of medians, with the interval of 95 % of pairs drawn again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

from app.compare import setup
from app.protocol.options import AcceptRule, Sampling
from benchmarks import real_ours, real_spec_bench, real_speed_bench
from benchmarks import real_xllamacpp as xllamacpp
from benchmarks.llama_cpp_tools import ROOT, VERSION, Tools, tools
from benchmarks.real_contestants import (
    Contestant,
    Loaded,
    Request,
    Said,
    busy,
    cores,
    engine,
    in_turn,
    llama_server,
    prompts_of,
    served,
)
from benchmarks.real_figures import QUESTIONS, as_json, median_or_none, ratio_of_medians

OURS, THEIRS = "Slipstream", "llama-server"
_SHORT_PROMPT, _PROMPTS = 500, 8
_FRESH = 100
"""The number of the first prompt that is only asked for its first token."""
_FOR_ALL_FILES = ("plain", "same", "recover")
"""Of the others, the answers of the first file count, which is of a model that answers questions."""
Result = dict[str, Any]


def real_models() -> list[Path]:
    """The files of ``scripts/real-models``, which downloads them once."""
    script = ROOT / "scripts" / "real-models"
    if not script.is_file():
        raise SystemExit("There is no scripts/real-models here; name a file with --target.")
    done = subprocess.run([script], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.returncode)  # it has said why
    return [Path(line) for line in done.stdout.splitlines() if line.strip()]


# ---------------------------------------------------------------- without a draft


def plain(target: Path, options: argparse.Namespace, programs: Tools) -> Result:
    """All figures of one file without a draft, ours and llama-server's."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        loads = _loads(target, options, programs, home)
        with (
            _ours(target, options, home) as ours,
            llama_server(programs, target, options.context, options.threads) as theirs,
        ):
            sides = {OURS: ours.contestant, THEIRS: theirs.contestant}
            numbers = range(_PROMPTS if options.context_tokens <= _SHORT_PROMPT else 1)
            decoded = prompts_of(target, options.context_tokens, numbers, options.questions)
            fresh = range(_FRESH, _FRESH + options.firsts)
            first = prompts_of(target, options.context_tokens, fresh, options.questions)
            with busy(options.busy, options.nice):
                firsts = in_turn(sides, [replace(one, fresh=True) for one in first])
                answers = _decoded(sides, decoded, options)
            peaks = {OURS: ours.peak_bytes(), THEIRS: theirs.peak_bytes()}
            threads = {OURS: ours.threads or None, THEIRS: theirs.threads}
    return {
        "prompt_tokens": [len(one.tokens) for one in decoded],
        "threads": threads,
        "decode": _side_by_side({name: [one.speed or 0.0 for one in said] for name, said in answers.items()}),
        "first_token": _side_by_side({name: [one.first_seconds for one in said] for name, said in firsts.items()}),
        "own_seconds": median_or_none([one.own_seconds for one in answers[OURS] if one.own_seconds is not None]),
        "load": loads,
        "peak_bytes": peaks,
        "shorter_answers": {name: sum(one.count < options.tokens for one in own) for name, own in answers.items()},
    }


def _decoded(
    sides: dict[str, Contestant], prompts: Sequence[Request], options: argparse.Namespace
) -> dict[str, list[Said]]:
    """Answers behind prompts that are processed already, as far as there is only one."""
    sampling = Sampling(temperature=options.temperature)
    requests = [
        replace(
            prompts[number % len(prompts)], max_tokens=options.tokens, sampling=sampling, seed=options.seed + number
        )
        for number in range(options.answers)
    ]
    in_turn(sides, [replace(requests[0], max_tokens=16)])
    return in_turn(sides, requests)


def _ours(target: Path, options: argparse.Namespace, home: Path) -> AbstractContextManager[Loaded]:
    if options.through == "serve":
        return served(target, options.context, threads=options.own_threads, home=home)
    return engine(target, options.context, threads=options.own_threads, home=home, accept=options.accept)


def _loads(target: Path, options: argparse.Namespace, programs: Tools, home: Path) -> Result:
    """Seconds from the start of a process until its model is loaded. Our first one measures what passes cost."""
    with _ours(target, options, home) as loaded:
        first = loaded.load_seconds
    starts = []
    seconds: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for number in range(options.loads):
        for name in (OURS, THEIRS) if number % 2 else (THEIRS, OURS):
            if name == OURS:
                with _ours(target, options, home) as loaded:
                    seconds[name].append(loaded.load_seconds)
                    starts += [loaded.start_seconds] if loaded.start_seconds else []
            else:
                with llama_server(programs, target, options.context, options.threads) as server:
                    seconds[name].append(server.load_seconds)
    return {**_side_by_side(seconds), "first_load": first, "start": median_or_none(starts)}


def _side_by_side(values: dict[str, list[float]]) -> Result:
    return {
        "medians": {name: median_or_none(own) for name, own in values.items()},
        "ratio": ratio_of_medians(values[OURS], values[THEIRS]),
        "all": values,
    }


def plain_table(name: str, result: Result, options: argparse.Namespace) -> str:
    """The result for people."""
    low, high = min(result["prompt_tokens"]), max(result["prompt_tokens"])
    threads = ", ".join(f"{side} {count or 'automatic'}" for side, count in result["threads"].items())
    peaks = {side: value and value / 1e6 for side, value in result["peak_bytes"].items()}
    shorter = sum(result["shorter_answers"].values())
    start, first = (_number(result["load"][which], 1e3, 0) for which in ("start", "first_load"))
    rows: list[tuple[str, dict[str, float | None], Any, float, int]] = [
        ("tokens per second", result["decode"]["medians"], result["decode"]["ratio"], 1.0, 1),
        ("first token, ms", result["first_token"]["medians"], result["first_token"]["ratio"], 1e3, 0),
        ("load, ms", result["load"]["medians"], result["load"]["ratio"], 1e3, 0),
        ("peak memory, MB", peaks, _quotient(peaks), 1.0, 0),
    ]
    return "\n".join(
        [
            f"{name}: prompts of {low} to {high} tokens, {options.answers} answers of {options.tokens}, "
            f"temperature {options.temperature:g}, beside {options.busy} busy processes; threads: {threads}",
            f"{'':20}{OURS:>12}{THEIRS:>14}   ratio",
            *(
                f"{label:20}{_number(both[OURS], unit, places):>12}{_number(both[THEIRS], unit, places):>14}   {ratio}"
                for label, both, ratio, unit, places in rows
            ),
            f"of our rounds {_number(result['own_seconds'], 1e3, 2)} ms are outside the verify pass",
            f"of our load {start} ms are the start of the process; the first load took {first} ms, with measuring what "
            f"passes cost; {shorter} of the answers ended before",
        ]
    )


def _quotient(sides: dict[str, float | None]) -> str:
    ours, theirs = sides[OURS], sides[THEIRS]
    return f"{ours / theirs:.3f}" if ours and theirs else "–"


def _number(value: float | None, unit: float, places: int) -> str:
    return "–" if value is None else f"{value * unit:,.{places}f}"


# ---------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> Result:
    """Measure and print; returns the figures."""
    options = _parser().parse_args(arguments)
    targets = options.target or real_models()
    heading = _heading(options.peer)
    print(heading, flush=True)
    result: Result = {"heading": heading, "what": options.what, "options": as_json(vars(options)), "files": {}}
    try:
        for target in targets if options.what in _FOR_ALL_FILES else targets[:1]:
            if not target.is_file():
                raise SystemExit(f"There is no file {target.name}.")
            result["files"][target.name] = _measured(target, options)
    finally:
        if options.json and result["files"]:
            options.json.write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def _measured(target: Path, options: argparse.Namespace) -> Result:
    """Measure one file, and print."""
    if options.what == "plain":
        result = plain(target, options, _programs(options))
        print(plain_table(target.name, result, options), flush=True)
    elif options.what == "spec-bench":
        result = real_spec_bench.spec_bench(target, options, _programs(options))
        print(real_spec_bench.table(result), flush=True)
    elif options.what == "same":
        result = real_ours.same(target, options)
        print(real_ours.same_table(target.name, result, options), flush=True)
    elif options.what == "speed-bench":
        result = real_speed_bench.speed_bench(target, options)
    else:
        result = real_ours.recover(target, options)
        print(real_ours.recover_table(target.name, result), flush=True)
    return result


def _programs(options: argparse.Namespace) -> Tools:
    if options.peer == "llama-server":
        return tools()
    program = xllamacpp.server()
    return Tools(program, program, "cpu")


def _heading(peer: str) -> str:
    """The machine, the state of the sources and how busy it was."""
    machine = setup._this_machine([])
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    state = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
    newest = f", llama-server of xllamacpp {xllamacpp.VERSION}" if peer == "xllamacpp" else ""
    load = f", load {os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{machine.processor}, {machine.physical_cores} cores, {machine.system}; {date.today().isoformat()}, "
        f"Slipstream {state}, llama.cpp of llama-cpp-python {VERSION}{newest}{load}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--target", type=Path, nargs="+", metavar="FILE", help="default: what scripts/real-models has")
    common.add_argument("--questions", type=Path, default=QUESTIONS, metavar="FILE", help="Spec-Bench's question.jsonl")
    common.add_argument("--context", type=int, default=8192, help="tokens in the KV cache, ours and theirs")
    common.add_argument("--threads", type=int, default=cores(), help="of llama-server; default: one per core")
    common.add_argument("--own-threads", type=int, default=0, help="ours; 0: as the engine finds best")
    common.add_argument(
        "--peer", choices=("llama-server", "xllamacpp"), default="llama-server", help="which llama-server"
    )
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    kinds = parser.add_subparsers(dest="what", required=True)
    _add_plain(kinds.add_parser("plain", parents=[common], help="without a draft, beside llama-server"))
    real_spec_bench.add_options(kinds.add_parser("spec-bench", parents=[common], help="with drafts"))
    real_ours.add_same_options(
        kinds.add_parser("same", parents=[common], help="the same text with and without a draft")
    )
    real_ours.add_recover_options(kinds.add_parser("recover", parents=[common], help="after another program has ended"))
    real_speed_bench.add_options(kinds.add_parser("speed-bench", parents=[common], help="llama.cpp's own client"))
    return parser


def _add_plain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context-tokens", type=int, default=100, help="of the prompts")
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--firsts", type=int, default=6, help="prompts for the time to the first token")
    parser.add_argument("--loads", type=int, default=4)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside")
    parser.add_argument("--nice", type=int, default=0, help="of these")
    parser.add_argument("--accept", choices=get_args(AcceptRule), default="coupled", help="ours, not through serve")
    parser.add_argument("--through", choices=("engine", "serve"), default="engine")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and busy processes end, too
    main()
