"""``slipstream compare``: plain against drafted decoding over a set of prompts, by kind of text, with a report."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.commands.options import add_model_options, add_sampling_options, whole
from app.commands.session import check_drafts, generate_command, load_settings, loaded, show_progress, wrong_usage
from app.compare import prompts, report, running, setup, terminal
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Curve, Report, Setup, Skipped
from app.errors import Cancelled, KnownError
from app.models.text import visible
from app.protocol.messages import Generate, PairLoaded
from app.storage.files import write_export

if TYPE_CHECKING:
    from app.engine.host.engine import Engine

_FORMATS: dict[str, Callable[[Report], str]] = {".md": report.markdown, ".csv": report.csv, ".json": report.json}
_MAX_TOKENS = 256


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="a prompt a line, .jsonl with kinds, or a .json report (default: 21 bundled prompts of seven kinds)",
    )
    parser.add_argument("--kinds", type=_words, default=[], metavar="KIND,…", help="only prompts of these kinds")
    parser.add_argument("--repeat", type=whole(1), default=1, metavar="N", help="runs of each prompt (default 1)")
    parser.add_argument("--curve", action="store_true", help="also measure every draft length from 0 to 16")
    parser.add_argument(
        "--output",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="write a report: .md, .csv or .json; may be given more than once",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    add_model_options(parser)
    add_sampling_options(parser, seed="0", max_tokens=_MAX_TOKENS)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status. After Ctrl+C what was compared until then is still told."""
    check_drafts(options, "compare")
    _check_outputs(options.output)
    file = options.prompts or prompts.bundled_file()
    asked = _of_kinds(prompts.read(file), options.kinds)
    with loaded(options) as (engine, pair):
        if pair.drafting_off:
            raise KnownError(pair.drafting_off)
        command = generate_command(options, pair)
        made_with = _setup(options, pair, command, file)
        work = _Work(engine, asked, command, options.repeat)
        work.compare()
        if options.curve:
            work.measure_curve()
    show_progress("")
    found = Report(
        setup=made_with,
        comparisons=work.comparisons,
        planned=len(asked) * options.repeat,
        skipped=work.skipped,
        curve=work.curve,
    )
    _tell(options, found, pair)
    return 130 if work.stopped else 0


class _Work:
    """Comparisons as they are made; ``stopped`` once the user has pressed Ctrl+C."""

    def __init__(self, engine: Engine, asked: Sequence[Prompt], command: Generate, repeat: int) -> None:
        self._engine, self._asked, self._command, self._repeat = engine, asked, command, repeat
        self.comparisons: list[Comparison] = []
        self.skipped: list[Skipped] = []
        self.curve: Curve | None = None
        self.stopped = False

    def compare(self) -> None:
        """Raises `Cancelled` or `KnownError` when nothing could be compared."""
        total, begun = len(self._asked) * self._repeat, time.monotonic()
        try:
            for result in running.compare(self._engine, self._asked, self._command, self._repeat):
                if isinstance(result, Skipped):
                    self.skipped.append(result)
                    total -= self._repeat
                else:
                    self.comparisons.append(result)
                _show(len(self.comparisons), total, "comparisons", begun)
        except Cancelled:
            self.stopped = True
        if self.comparisons:
            return
        if self.skipped:
            raise KnownError(self.skipped[0].reason)
        raise Cancelled

    def measure_curve(self) -> None:
        if self.stopped:
            return
        unfit = [skipped.prompt for skipped in self.skipped]
        fit = [prompt for prompt in self._asked if prompt not in unfit]
        begun = time.monotonic()
        try:
            self.curve = running.curve(
                self._engine, fit, self._command, lambda done, total: _show(done, total, "runs for the curve", begun)
            )
        except Cancelled:
            self.stopped = True


def _show(done: int, total: int, what: str, begun: float) -> None:
    left = (time.monotonic() - begun) / done * (total - done) if done else 0.0
    show_progress(f"{done} of {total} {what}" + (f", about {left / 60:.0f} min left" if left > 90 else ""))


def _setup(options: argparse.Namespace, pair: PairLoaded, command: Generate, file: Path) -> Setup:
    from app.engine.llama.backend import engine_name
    from app.engine.llama.devices import gpu_devices

    return setup.setup_of(
        engine=engine_name(),
        devices=gpu_devices(),
        pair=pair,
        settings=load_settings(options),
        command=command,
        repeat=options.repeat,
        prompt_file=file,
        kinds=options.kinds,
    )


def _tell(options: argparse.Namespace, found: Report, pair: PairLoaded) -> None:
    """The table first: the hashes of large models take their time."""
    if not options.json:
        print(visible(terminal.readable(found)), flush=True)
    if options.json or options.output:
        show_progress("hashing the models")
        found = msgspec.structs.replace(found, setup=setup.hashed(found.setup, pair))
        show_progress("")
    if options.json:
        print(report.json(found), end="")
    failures = [failure for path in options.output if (failure := _write(path, found))]
    if failures:
        raise KnownError(" ".join(failures))


def _write(path: Path, found: Report) -> str:
    """Why it could not be written, if so: the other files are written all the same."""
    try:
        write_export(path, _FORMATS[path.suffix.lower()](found).encode("utf-8", "replace"))
    except OSError as error:
        return f"The report could not be written to {path} ({error.strerror or error})."
    return ""


def _check_outputs(outputs: Sequence[Path]) -> None:
    """Before the hour that the comparisons may take. Raises `KnownError`."""
    for path in outputs:
        if path.suffix.lower() not in _FORMATS:
            wrong_usage(f"--output {path}: its name must end in .md, .csv or .json")
        folder = path.absolute().parent
        if path.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise KnownError(f"The report cannot be written to {path}. Name a file in a folder that can be written.")


def _of_kinds(asked: Sequence[Prompt], kinds: Sequence[str]) -> Sequence[Prompt]:
    there = list(dict.fromkeys(prompt.kind for prompt in asked))
    for kind in kinds:
        if kind not in there:
            wrong_usage(f"--kinds: there are no prompts of the kind {kind}; there are {', '.join(there)}")
    return [prompt for prompt in asked if prompt.kind in kinds] if kinds else asked


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
