"""Whether a model of every architecture that llama.cpp knows answers the same, however its tokens are drafted.

    scripts/check-architectures [--only REGEX] [--models FOLDER] [--processes N] [--write FILE] [--json FILE [--resume]]

llama.cpp's own generator (its target ``test-llama-archs``, built from the source of llama-cpp-python) writes a tiny
model of each architecture; `benchmarks.added_heads` adds MTP heads, and `tests.support.gemma4_models` and
`tests.support.mtp_models` write what it leaves out. `benchmarks.architecture_checks` says what is tried with each. One
process per model: a model that ends it is reported, too. ``--write benchmarks/notes/architectures.md`` writes the
table; ``--models`` keeps the models in a folder, where the next run finds them; with ``--resume``, models that the file
of ``--json`` has results of aren't checked again. The exit status is 1 if any answer differs.
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
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from app import system
from app.models import heads
from app.models.gguf import LARGE_GRAPHS, refusal
from benchmarks import llama_cpp_tools
from benchmarks.added_heads import add_head
from benchmarks.architecture_checks import HEAD, WAYS, Case, Kind, check
from tests.support.gemma4_models import KINDS, make_assistant, make_gemma4
from tests.support.mtp_models import HeadArchitecture, make_random_model

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 3600
"""For one model."""
_OTHERS = ("llama-dense", "qwen3-dense")
"""The first of them is the wrong draft; the second for the first."""
_GEMMA4_DRAFT = "drafts/gemma4.gguf"
"""The wrong draft for those models that have another vocabulary than the generator's."""
_WITH_HEADS = (*(name for name in heads.ARCHITECTURES if name != "nemotron_h_moe"), "glm5-next")
"""Architectures whose models get a head. llama.cpp reads those of glm5-next and can't compute them. Those of
nemotron_h_moe have experts, which the generator's models of it lack: so they are written as `_OWN` are.
"""
_OWN: dict[str, tuple[HeadArchitecture, int]] = {
    f"nemotron_h_moe-dense{HEAD}": ("nemotron_h_moe", 1),
    "step35-dense": ("step35", 3),
    f"step35-dense{HEAD}": ("step35", 3),
}
"""Models that the generator leaves out, and how many heads they have."""
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
        for source in sorted(folder.glob("*.gguf")):
            if source.stem.rpartition("-")[0] in _WITH_HEADS:
                add_head(source, folder / f"{source.stem}{HEAD}.gguf")
        for kind in KINDS:
            make_gemma4(folder / f"gemma4-{kind}.gguf", kind)
            make_assistant(folder / f"gemma4-{kind}{HEAD}.gguf", kind)
        for name, (architecture, heads) in _OWN.items():
            make_random_model(folder / f"{name}.gguf", architecture, heads=heads)
        (folder / "drafts").mkdir()
        make_gemma4(folder / _GEMMA4_DRAFT, seed=5)


def checked(path: Path, folder: Path) -> Checked:
    """Everything about one model, from a process of its own."""
    result = Checked(path.stem)
    other = folder / f"{_OTHERS[path.stem == _OTHERS[0]]}.gguf"
    if path.stem.startswith("gemma4-") or path.stem in _OWN:
        other = folder / _GEMMA4_DRAFT
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "benchmarks.architectures", "--one", str(path), str(other)]
        environment = {**os.environ, system.HOME_VARIABLE: home, "PYTHONPATH": str(ROOT)}
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


def unwritten(results: Sequence[Checked]) -> list[str]:
    """The architectures of llama.cpp that there is no model of, without those that the app refuses by their names."""
    code = (llama_cpp_tools.source() / "src" / "llama-arch.cpp").read_text("utf-8")
    names = set(re.findall(r'\{ *LLM_ARCH_\w+, *"([^"(]+)" *\}', code))
    seen = {result.kind.architecture for result in results if result.kind}
    return sorted(name for name in names - seen if refusal(name, "") is None)


# ---------------------------------------------------------------- reports


def document(results: Sequence[Checked], missing: Sequence[str], command: str) -> str:
    """The page about all architectures; there is no model of those that are ``missing``."""
    answers = [case for result in results for case in result.cases if case.result != "refused"]
    ties = [(result, case) for result in results for case in result.cases if case.result == "near-tie"]
    wrong = [(result, case) for result in results for case in result.cases if case.result in _FAILED]
    heads = {result.name.removesuffix(HEAD): result for result in results if result.name.endswith(HEAD)}
    models = [result for result in results if not result.name.endswith(HEAD)]
    refused = [result for result in models if result.kind and result.kind.refused]
    lines = [
        f"Notes of {datetime.now(UTC).date()}; not kept up to date.",
        "",
        "# Architectures",
        "",
        "Whether a model of every architecture answers the same, however its tokens are drafted and whatever happened "
        "to the chat before: the text is compared with that of decoding without a draft from an empty memory, and so "
        "are the logits after it. The models are tiny and have random weights. llama.cpp's own generator writes them, "
        "except for Gemma 4, step35 and the MTP heads. "
        "What is tried is in `benchmarks/architecture_checks.py`.",
        "",
        f"{datetime.now(UTC).date()}, llama-cpp-python {llama_cpp_tools.VERSION}, `{command}`:",
        f"{len(models)} models, {len(refused)} refused with the reason, "
        f"{sum(result.is_right for result in models) - len(refused)} the same in all answers; {len(heads)} with an MTP "
        f"head; {len(answers):,} answers, {_near_ties(len(ties))}, {len(wrong)} different. A right draft, which is the "
        f"model itself, was accepted to {_acceptance(answers, 'right draft')}.",
        "",
        "The columns say how many answers were compared. *Wrong*: another model drafts, which is nearly always wrong. "
        "*Partly right*: 0, 1, 2 … of the draft tokens are right and the others wrong. Models with a running state are "
        "checked with llama.cpp's snapshots, where it has them, and without.",
        "",
        "| architecture | memory | " + " | ".join(WAYS) + " |",
        "|---|---|" + "---|" * len(WAYS),
        *(_row(result, heads.get(result.name)) for result in models),
    ]
    if missing:
        lines += ["", f"Not checked, because the generator writes no models of them: {', '.join(missing)}."]
    for title, cases in (("Near-ties", ties), ("Different", wrong)):
        if cases:
            lines += ["", f"## {title}", "", *(_bullet(result, case) for result, case in cases)]
    if ended := [f"- `{result.name}`: {result.ended}" for result in results if result.ended]:
        lines += ["", "## Ended", "", *ended]
    return "\n".join(lines) + "\n"


def _acceptance(answers: Sequence[Case], way: str) -> str:
    counts = [(case.tested, case.accepted) for case in answers if case.way == way]
    tested, accepted = (sum(numbers) for numbers in zip(*counts, strict=True)) if counts else (0, 0)
    return f"{accepted / tested:.2%}" if tested else "–"


def _row(result: Checked, head: Checked | None) -> str:
    kind = result.kind
    if kind and kind.refused:
        reason = kind.refused.replace(f"{result.name}.gguf ", "")
        return f"| `{result.name}` | refused: {reason} |" + " |" * len(WAYS)
    cells = [_cell(head.of(way) if head and way == "MTP head" else result.of(way)) for way in WAYS]
    return f"| `{result.name}` | {kind.memory if kind else ''} | " + " | ".join(cells) + " |"


def _cell(cases: Sequence[Case]) -> str:
    refused = [case.message for case in cases if case.result == "refused"]
    if refused:
        return f"refused: {refused[0]}"
    wrong, ties = (sum(case.result in results for case in cases) for results in (_FAILED, ("near-tie",)))
    notes = [f"**{wrong} different**"] * bool(wrong) + [_near_ties(ties)] * bool(ties)
    return f"{len(cases) or ''}" + (f" ({', '.join(notes)})" if notes else "")


def _near_ties(count: int) -> str:
    return "1 near-tie" if count == 1 else f"{count} near-ties"


def _bullet(result: Checked, case: Case) -> str:
    place = "" if case.place is None else f", token {case.place}"
    snapshots = f", {case.snapshots} snapshots" if case.snapshots else ""
    message = f": {case.message}" if case.message else ""
    what = f"{case.way}, {case.sampling}, {case.event}{snapshots}{place}{message}"
    return f"- `{result.name}`, {what} (error of the logits {case.error:.1g})"


def _progress(result: Checked) -> None:
    counts = {name: sum(case.result == name for case in result.cases) for name in ("same", "near-tie", *_FAILED)}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    refused = result.kind.refused if result.kind else None
    print(f"{result.name}: {refused or told} {result.ended}".rstrip(), file=sys.stderr, flush=True)


# ---------------------------------------------------------------- running


def run_all(folder: Path, only: str, processes: int, keep: Path | None, known: Sequence[Checked]) -> list[Checked]:
    """All models in ``folder`` whose names ``only`` matches; ``keep`` is written after each, ``known`` are done."""
    results = [result for result in known if re.search(only, result.name)]
    done = {result.name for result in results}
    files = [path for path in sorted(folder.glob("*.gguf")) if re.search(only, path.stem) and path.stem not in done]
    files.sort(key=lambda path: path.stem.rpartition("-")[0] not in LARGE_GRAPHS)  # what takes longest begins
    with ThreadPoolExecutor(processes) as pool:
        for future in as_completed([pool.submit(checked, path, folder) for path in files]):
            results.append(future.result())
            _progress(results[-1])
            if keep:
                keep.write_bytes(msgspec.json.encode(results))
    return sorted(results, key=lambda result: result.name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only models whose names it matches")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="keep the models there")
    parser.add_argument("--processes", type=int, default=max((os.cpu_count() or 2) // 2, 1))
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table to FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--resume", action="store_true", help="go on with what FILE of --json has")
    parser.add_argument("--one", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        for told in check(*options.one):
            print(msgspec.json.encode(told).decode(), flush=True)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        write_models(folder)
        known = msgspec.json.decode(options.json.read_bytes(), type=list[Checked]) if options.resume else []
        results = run_all(folder, options.only, options.processes, options.json, known)
    given = [f"--only {shlex.quote(options.only)}"] * bool(options.only)
    page = document(
        results, [] if options.only else unwritten(results), " ".join(["scripts/check-architectures", *given])
    )
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    else:
        print(page)
    return 0 if all(result.is_right for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
