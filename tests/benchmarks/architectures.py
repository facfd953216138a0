"""Whether a model of every architecture that llama.cpp knows answers the same, however its tokens are drafted.

    scripts/check-architectures [--only REGEX] [--models FOLDER] [--processes N] [--write FILE] [--json FILE]

llama.cpp's own generator (its target ``test-llama-archs``, built from the source of llama-cpp-python) writes a tiny
model of each architecture. `tests.support.architecture_checks` says what is tried with each. One process per model: a
model that ends it is reported, too. ``--write docs/architectures.md`` writes the table; ``--models`` keeps the models
in a folder, where the next run finds them. The exit status is 1 if any answer differs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from app import paths
from app.models.architectures import LARGE_GRAPHS
from tests.benchmarks import llama_cpp_tools
from tests.support.architecture_checks import WAYS, Case, Kind, check

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 3600
"""For one model."""
_OTHERS = ("llama-dense", "qwen3-dense")
"""The first of them is the wrong draft; the second for the first."""
_FAILED = ("different", "failed")


@dataclass
class Checked:
    """What came out for one model."""

    name: str
    kind: Kind | None = None
    cases: list[Case] = field(default_factory=list)
    ended: str = ""
    """How its process ended, if it did not come to its end."""

    @property
    def is_right(self) -> bool:
        return not self.ended and all(case.result not in _FAILED for case in self.cases)

    def of(self, way: str) -> list[Case]:
        return [case for case in self.cases if case.way == way]


# ---------------------------------------------------------------- models


def write_models(folder: Path) -> None:
    """Write what is missing of all models into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*.gguf")):
        command = [str(llama_cpp_tools.generator()), "-o", str(folder), "-s", "1"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def checked(path: Path, folder: Path) -> Checked:
    """Everything about one model, from a process of its own."""
    result = Checked(path.stem)
    other = folder / f"{_OTHERS[path.stem == _OTHERS[0]]}.gguf"
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "tests.benchmarks.architectures", "--one", str(path), str(other)]
        environment = {**os.environ, paths.HOME_VARIABLE: home, "PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            output, result.ended = done.stdout, _ending(done.returncode)
        except subprocess.TimeoutExpired as late:
            output, result.ended = late.stdout or b"", f"not finished after {LIMIT_SECONDS} s"
        if result.ended:
            errors.seek(0)
            result.ended += _reason(errors.read().decode("utf-8", "replace"))
    for line in output.splitlines():
        told = msgspec.json.decode(line, type=Kind | Case)
        if isinstance(told, Kind):
            result.kind = told
        else:
            result.cases.append(told)
    return result


def _ending(status: int) -> str:
    if status == 0:
        return ""
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _reason(errors: str) -> str:
    """What llama.cpp said last about it."""
    found = re.findall(r"GGML_ASSERT\(.*|.*error:.*|\w*Error: .*", errors)
    return f": {found[-1].strip()}" if found else ""


# ---------------------------------------------------------------- reports


def document(results: Sequence[Checked], command: str) -> str:
    """The page about all architectures."""
    answers = [case for result in results for case in result.cases if case.result != "refused"]
    ties = [(result, case) for result in results for case in result.cases if case.result == "near-tie"]
    wrong = [(result, case) for result in results for case in result.cases if case.result in _FAILED]
    refused = [result for result in results if result.kind and result.kind.refused]
    lines = [
        "# Architectures",
        "",
        "Whether a model of every architecture answers the same, however its tokens are drafted and whatever happened "
        "to the chat before: the text is compared with that of decoding without a draft from an empty memory, and so "
        "are the logits after it. The models are tiny, have random weights and come from llama.cpp's own generator. "
        "What is tried is in `tests/support/architecture_checks.py`.",
        "",
        f"{datetime.now(UTC).date()}, llama-cpp-python {llama_cpp_tools.VERSION}, `{command}`:",
        f"{len(results)} models, {len(refused)} refused with the reason, "
        f"{sum(result.is_right for result in results) - len(refused)} the same in all answers; {len(answers):,} "
        f"answers, {len(ties)} near-ties, {len(wrong)} different.",
        "",
        "The columns say how many answers were compared. *Wrong*: another model drafts, which is nearly always wrong. "
        "*Partly right*: 0, 1, 2 … of the draft tokens are right and the others wrong. Models with a running state are "
        "checked with llama.cpp's snapshots, where it has them, and without.",
        "",
        "| architecture | memory | " + " | ".join(WAYS) + " |",
        "|---|---|" + "---|" * len(WAYS),
        *(_row(result) for result in results),
    ]
    for title, cases in (("Near-ties", ties), ("Different", wrong)):
        if cases:
            lines += ["", f"## {title}", "", *(_bullet(result, case) for result, case in cases)]
    if title_of := [f"- `{result.name}`: {result.ended}" for result in results if result.ended]:
        lines += ["", "## Ended", "", *title_of]
    return "\n".join(lines) + "\n"


def _row(result: Checked) -> str:
    kind = result.kind
    if kind and kind.refused:
        reason = kind.refused.replace(f"{result.name}.gguf ", "")
        return f"| `{result.name}` | refused: {reason} |" + " |" * len(WAYS)
    cells = [_cell(result.of(way)) for way in WAYS]
    return f"| `{result.name}` | {kind.memory if kind else ''} | " + " | ".join(cells) + " |"


def _cell(cases: Sequence[Case]) -> str:
    refused = [case.message for case in cases if case.result == "refused"]
    if refused:
        return f"refused: {refused[0]}"
    wrong, ties = (sum(case.result in results for case in cases) for results in (_FAILED, ("near-tie",)))
    notes = [f"**{wrong} different**"] * bool(wrong) + [f"{ties} near-ties"] * bool(ties)
    return f"{len(cases) or ''}" + (f" ({', '.join(notes)})" if notes else "")


def _bullet(result: Checked, case: Case) -> str:
    place = "" if case.place is None else f", token {case.place}"
    snapshots = f", {case.snapshots} snapshots" if case.snapshots else ""
    message = f": {case.message}" if case.message else f" (error of the logits {case.error:.1g})"
    return f"- `{result.name}`, {case.way}, {case.sampling}, {case.event}{snapshots}{place}{message}"


def _progress(result: Checked) -> None:
    counts = {name: sum(case.result == name for case in result.cases) for name in ("same", "near-tie", *_FAILED)}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    refused = result.kind.refused if result.kind else None
    print(f"{result.name}: {refused or told} {result.ended}".rstrip(), file=sys.stderr, flush=True)


# ---------------------------------------------------------------- running


def run_all(folder: Path, only: str, processes: int) -> list[Checked]:
    """All models in ``folder`` whose names ``only`` matches."""
    files = [path for path in sorted(folder.glob("*.gguf")) if re.search(only, path.stem)]
    slow_first = sorted(files, key=lambda path: path.stem.rpartition("-")[0] not in LARGE_GRAPHS)

    def one(path: Path) -> Checked:
        result = checked(path, folder)
        _progress(result)
        return result

    with ThreadPoolExecutor(processes) as pool:
        return sorted(pool.map(one, slow_first), key=lambda result: result.name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only models whose names it matches")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="keep the models there")
    parser.add_argument("--processes", type=int, default=max((os.cpu_count() or 2) // 2, 1))
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table to FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--one", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        for told in check(*options.one):
            print(msgspec.json.encode(told).decode(), flush=True)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        write_models(folder)
        results = run_all(folder, options.only, options.processes)
    given = [f"--only {shlex.quote(options.only)}"] * bool(options.only)
    page = document(results, " ".join(["scripts/check-architectures", *given]))
    if options.json:
        options.json.write_bytes(msgspec.json.encode(results))
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    else:
        print(page)
    return 0 if all(result.is_right for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
