"""``scripts/gpu-report``: measures on a machine with a GPU what this project can't measure without one.

scripts/gpu-report pack [--numpy]   where there is a network: what the machine needs, in build/
scripts/gpu-report run [--backend NAME] [--small]      on the machine, several times if its calls are short
scripts/gpu-report write [RESULTS]                     the figures as a section of benchmarks/notes/gpu.md
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_report.building import BACKENDS
from benchmarks.gpu_report.packing import ROOT, WORK, add, pack
from benchmarks.gpu_report.results import Results
from benchmarks.gpu_report.running import Call
from benchmarks.gpu_report.timetable import entries
from benchmarks.gpu_report.writing import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "pack":
        if options.add:
            add(options.add)
        else:
            pack(options.python, options.machine, with_numpy=options.numpy)
        return 0
    if options.command == "run":
        unknown = set(options.only) - {entry.name for entry in entries(options.backend)}
        if unknown:
            raise SystemExit(f"There is no step {', '.join(sorted(unknown))}.")
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # which ends its processes
        return Call(options.backend, options.minutes * 60, options.small, tuple(options.only), options.out).run()
    files = [options.results] if options.results else sorted(WORK.glob("results-*.json"))
    if not files:
        raise SystemExit(f"There are no results in {WORK}. Name the file.")
    for file in files:
        write(Results.read(file), options.page)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-report", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="what a machine without a network needs")
    packing.add_argument("--python", default="3.12", help="the machine's version of Python")
    packing.add_argument("--machine", default="x86_64", help="its kind of processor")
    packing.add_argument("--numpy", action="store_true", help="add NumPy, which is large")
    packing.add_argument("--add", type=Path, metavar="FOLDER", help="only add what a call brought back")
    running = commands.add_parser("run", help="build, measure, go on")
    running.add_argument(
        "--backend",
        choices=BACKENDS,
        default="metal" if platform.system() == "Darwin" else "cuda",
        help="what llama.cpp is built for; installed: take the one this Python finds",
    )
    running.add_argument("--minutes", type=float, default=9.5, help="how long this call may take")
    running.add_argument("--small", action="store_true", help="tiny sizes, to try out the report itself")
    running.add_argument("--only", nargs="+", default=[], metavar="STEP", help="these steps, even if they are done")
    out = os.environ.get("OUT")
    running.add_argument("--out", type=Path, default=Path(out) if out else None, help="a second place for the results")
    writing = commands.add_parser("write", help="the figures as a page")
    writing.add_argument("results", type=Path, nargs="?", help="the file; what is in build/ if none is given")
    writing.add_argument("--page", type=Path, default=ROOT / "benchmarks" / "notes" / "gpu.md")
    return parser
