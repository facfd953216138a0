"""``slipstream compare``: decoding with and without a draft for a set of prompts, by kind of text, with a report."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import msgspec

from app import words
from app.commands.options import add_model_options, add_sampling_options, command, option, whole
from app.commands.output import show_progress, wrong_usage
from app.commands.remote import add_server_options, comparing
from app.commands.session import check_drafts, generate_command, load_settings, loaded
from app.compare import prompts, report, setup, steps, wording
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Curve, Report, Setup, Skipped
from app.compare.steps import Engine
from app.models.gguf import read_header
from app.models.heads import head_problem
from app.protocol.commands import Generate
from app.protocol.events import PairLoaded
from app.protocol.options import HEADS, DrafterChoice
from app.storage.files import write_export
from app.system import Canceled, KnownError
from app.words import visible

_MAX_TOKENS = 256


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@command(
    "compare",
    "compare answers with and without a draft, by kind of text",
    option(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="a text file with one prompt per line, a .jsonl file with kinds, or a .json report (default: 21 bundled "
        "prompts of seven kinds)",
    ),
    option("--kinds", type=_words, default=[], metavar="KIND,…", help="only use prompts of these kinds"),
    option("--repeat", type=whole(1), default=1, metavar="N", help="how often to run each prompt (default 1)"),
    option(
        "--drafters",
        type=_words,
        default=[],
        metavar="NAME,…",
        help="answer each prompt with each of these drafters in turn; all: with every drafter that fits the model, and "
        "with auto, which chooses among them",
    ),
    option("--curve", action="store_true", help="also measure every draft length from 0 to 16"),
    option(
        "--output",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="write a report to FILE (.md, .csv or .json); can be given more than once",
    ),
    add_model_options,
    add_server_options,
    option(
        "--plain-server",
        metavar="URL",
        help="the same model on a server that doesn't draft, where --server can't switch drafting off for one answer",
    ),
    partial(add_sampling_options, seed="0", max_tokens=_MAX_TOKENS),
    aliases=["bench"],
)
def compare(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status. After Ctrl+C, the comparisons made so far are still reported."""
    check_drafts(options, "compare")
    _check_drafters(options)
    if options.plain_server and not options.server:
        wrong_usage("--plain-server needs --server")
    if options.curve and options.server:
        wrong_usage("--curve measures draft lengths, which a server doesn't let anyone choose")
    _check_outputs(options.output)
    file = options.prompts or prompts.bundled_file()
    asked = _of_kinds(prompts.read(file), options.kinds)
    with loaded(options) as (engine, pair):
        if pair.drafting_off:
            raise KnownError(pair.drafting_off)
        command = generate_command(options, pair)
        drafters = _drafters(options.drafters, setup.fitting(pair, command)) if options.drafters else []
        with comparing(options, engine, pair) as (compared, without):
            made_with = setup.setup_of(
                engine=engine.hello().engine,
                devices=[device.description for device in engine.hello().devices],
                pair=pair,
                settings=load_settings(options),
                command=command,
                repeat=options.repeat,
                prompt_file=file,
                kinds=options.kinds,
                drafters=drafters,
                without=without,
                medusa=options.medusa,
            )
            found, is_complete = _measure(options, compared, asked, command, made_with)
    show_progress("")
    _tell(options, found, pair)
    if (text := wording.up_to_rounding(pair, found.setup, found.comparisons)) and not options.json:
        print(text)
    return 0 if is_complete else 130


def _measure(
    options: argparse.Namespace, engine: Engine, asked: Sequence[Prompt], command: Generate, made_with: Setup
) -> tuple[Report, bool]:
    """The results until everything was done or the user pressed Ctrl+C, and whether everything was done.

    Raises `Canceled` or `KnownError` if nothing could be compared.
    """
    found, skipped, curves, is_complete = list[Comparison](), list[Skipped](), list[Curve](), False
    drafters = made_with.drafters
    begun, each = time.monotonic(), options.repeat * max(len(drafters), 1)
    try:
        for result in steps.compare(engine, asked, command, options.repeat, drafters):
            if isinstance(result, Comparison):
                found.append(result)
            else:
                skipped.append(result)
            _show_done("comparisons", begun, len(found), (len(asked) - len(skipped)) * each)
        if options.curve and found:
            unfit = [one.prompt for one in skipped]
            fit = [prompt for prompt in asked if prompt not in unfit]
            show = partial(_show_done, "runs for the curve", time.monotonic())
            curves = steps.curves(engine, fit, command, drafters, show)
        is_complete = True
    except Canceled:
        if not (found or skipped):
            raise
    if not found:
        raise KnownError(skipped[0].reason)
    planned = len(asked) * each
    return Report(setup=made_with, comparisons=found, planned=planned, skipped=skipped, curves=curves), is_complete


def _check_drafters(options: argparse.Namespace) -> None:
    """Check the names, and have a head loaded if it is to be compared. Exits with a message for wrong usage."""
    names = [name for name in get_args(DrafterChoice) if name not in ("none", "chain")]
    for name in options.drafters:
        if name not in ("all", *names):
            wrong_usage(f"--drafters: there is no drafter {name}; choose from all, {', '.join(names)}")
    if options.drafters and options.drafter != "auto":
        wrong_usage("--drafters and --drafter can't be combined")
    if options.drafters and options.server:
        wrong_usage("--drafters needs a local model: a server decides for itself how it drafts")
    may_need = options.head == "auto" and options.target and {"all", *HEADS} & {*options.drafters}
    if may_need and not head_problem(read_header(options.target)):
        options.head = "on"


def _drafters(asked: Sequence[str], fitting: Sequence[DrafterChoice]) -> Sequence[DrafterChoice]:
    """The drafters to compare. Raises `KnownError` for one that can't draft for this model."""
    if "all" in asked:
        return fitting
    if missing := [name for name in asked if name not in fitting]:
        raise KnownError(f"{', '.join(missing)} can't draft for this model. Drafters that can: {', '.join(fitting)}.")
    return [name for name in fitting if name in asked]


def _show_done(what: str, begun: float, done: int, total: int) -> None:
    """Show how many of ``what`` are done, and how long the rest will take."""
    left = (time.monotonic() - begun) / done * (total - done) if done else 0.0
    show_progress(f"{done} of {total} {what}" + (f", {words.time_left(left)}" if left > 90 else ""))


def _tell(options: argparse.Namespace, found: Report, pair: PairLoaded) -> None:
    """Print the table first, because hashing large models takes time."""
    if not options.json:
        print(visible(report.readable(found)), flush=True)
    if (options.json or options.output) and pair.remote is None:
        show_progress("hashing the models")
        found = msgspec.structs.replace(found, setup=setup.hashed(found.setup, pair))
        show_progress("")
    if options.json:
        print(report.json(found), end="")
    failures = [failure for path in options.output if (failure := _write(path, found))]
    if failures:
        raise KnownError(" ".join(failures))


def _write(path: Path, found: Report) -> str:
    """Write a report; returns why that failed, or an empty text. Other files are written anyway."""
    try:
        write_export(path, report.encoded(found, path.suffix.lower()))
    except OSError as error:
        return f"The report couldn't be written to {path} ({error.strerror or error})."
    return ""


def _check_outputs(outputs: Sequence[Path]) -> None:
    """Check the output files before comparisons that may take an hour. Raises `KnownError`."""
    for path in outputs:
        if path.suffix.lower() not in report.WRITERS:
            wrong_usage(f"--output {path}: the name must end in .md, .csv or .json")
        folder = path.absolute().parent
        if path.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise KnownError(f"The report can't be written to {path}. Choose a file in a folder you can write to.")


def _of_kinds(asked: Sequence[Prompt], kinds: Sequence[str]) -> Sequence[Prompt]:
    there = list(dict.fromkeys(prompt.kind for prompt in asked))
    for kind in kinds:
        if kind not in there:
            wrong_usage(f"--kinds: no prompts of kind {kind}; the kinds are {', '.join(there)}")
    return [prompt for prompt in asked if prompt.kind in kinds] if kinds else asked
