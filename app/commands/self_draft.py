"""``slipstream self-draft``, an experiment: a draft cut from the target's first layers, and whether it helps here."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import msgspec

from app import system, words
from app.client.process import EngineProcess
from app.commands.options import HARDWARE_OPTIONS, command, option, whole
from app.commands.output import show_progress
from app.commands.session import loaded
from app.compare import prompts
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Row, Skipped, summarize
from app.compare.steps import compare
from app.models.hub.recommended import recommended
from app.protocol.commands import Generate
from app.protocol.options import DEFAULT_DRAFT_LENGTH, DraftLength, Quantization
from app.system import KnownError
from app.words import visible, visible_json

_MAX_TOKENS = 96
_NOT_CHOSEN = {"no_draft": False, "draft_gpu_layers": None, "kv_type": "f16"}
"""Load options that this command doesn't have."""
_PAYS = 1.05
"""Smaller speed-ups may be measurement noise."""


def _layers(text: str) -> int | str:
    return "auto" if text == "auto" else whole(1)(text)


_layers.__name__ = "number of layers"


@dataclass(frozen=True)
class Trial:
    """A draft cut from the target, and the results of drafting with it."""

    layers: int
    of_layers: int
    bytes: int
    target_bytes: int
    fixed: Row
    """Measured with a draft length of `DEFAULT_DRAFT_LENGTH`."""
    auto: Row

    @property
    def times_plain(self) -> float:
        """The better of the two speed-ups; 0 if the answers were too short to tell."""
        return max(self.fixed.speed_up or 0.0, self.auto.speed_up or 0.0)

    def verdict(self) -> str:
        """The result in one sentence."""
        if not self.times_plain:
            return "The answers were too short to measure a speed, so it isn't known whether this draft helps."
        if self.times_plain >= _PAYS:
            return f"With this draft the target is {words.times(self.times_plain)} as fast: it helps on this computer."
        fixed, auto = self.fixed.speed_up or 0.0, self.auto.speed_up or 0.0
        return (
            f"With this draft the target is {words.times(fixed)} as fast: it doesn't help on this computer "
            f"(draft length auto notices that and reaches {words.times(auto)})."
        )


@command(
    "self-draft",
    "experimental: cut a draft from a target's first layers",
    option("target", type=Path, metavar="TARGET", help="GGUF file of the target model"),
    option(
        "--layers", type=_layers, default="auto", metavar="N", help="auto (default) tries 1, 2, 4, … and keeps the best"
    ),
    option("--quantize", choices=get_args(Quantization), help="quantize the draft (default: like the target)"),
    option("--output", type=Path, metavar="FILE", help="default: TARGET-first-N-layers.gguf next to TARGET"),
    option("--prompts", type=Path, metavar="FILE", help="prompts to measure with (default: a bundled mix)"),
    option("--max-tokens", type=whole(2), default=_MAX_TOKENS, metavar="N", help=f"default {_MAX_TOKENS}"),
    *HARDWARE_OPTIONS,
    description="experimental: writes the first layers of TARGET as a draft model and measures how much faster it "
    "makes the target. Nothing is trained, so it rarely helps; the answers stay the target's own in any case.",
)
def self_draft(options: argparse.Namespace) -> int:
    from app.engine.llama import self_draft as cutting

    asked = prompts.read(options.prompts or system.resource("bench", "prompts.txt"))
    most = cutting.layers_to_choose(options.target)
    tried = _doubling(most) if options.layers == "auto" else [options.layers]
    for layers in tried:
        cutting.check_destination(_output(options, layers))
    trials: list[Trial] = []
    with _folder_beside(_output(options, 1)) as folder:
        for layers in tried:
            draft = folder / f"{layers}.gguf"
            show_progress(f"keeping {layers} of {most + 1} layers")
            cutting.cut(options.target, layers, draft, options.quantize, options.threads)
            trials.append(_try(options, draft, layers, most + 1, asked))
            if trials[-1] is not max(trials, key=lambda trial: trial.times_plain):
                draft.unlink()
        best = max(trials, key=lambda trial: trial.times_plain)
        output = _output(options, best.layers)
        (folder / f"{best.layers}.gguf").replace(output)
    _tell(options, output, best, trials)
    return 0


@contextlib.contextmanager
def _folder_beside(output: Path) -> Iterator[Path]:
    """A temporary folder for drafts that are being tried. Raises `KnownError` if it can't be created."""
    try:
        folder = tempfile.TemporaryDirectory(prefix=".self-draft-", dir=output.parent)
    except OSError as error:
        reason = error.strerror or error
        raise KnownError(
            f"Can't write to {output.parent} ({reason}). Choose a different file with --output."
        ) from error
    with folder as name:
        yield Path(name)


def _doubling(most: int) -> list[int]:
    """1, 2, 4 … up to half the target's layers."""
    return [2**i for i in range(most.bit_length()) if 2 ** (i + 1) <= most + 1]


def _output(options: argparse.Namespace, layers: int) -> Path:
    if options.output:
        return Path(options.output).absolute()
    target: Path = options.target.absolute()
    return target.with_name(f"{target.stem}-first-{layers}-layers.gguf")


def _try(options: argparse.Namespace, draft: Path, layers: int, of_layers: int, asked: Sequence[Prompt]) -> Trial:
    with loaded(argparse.Namespace(**{**vars(options), **_NOT_CHOSEN, "draft": draft})) as (engine, pair):
        if pair.draft is None:
            raise KnownError(pair.draft_refused or "The draft that was cut from the target couldn't be loaded.")
        command = Generate(
            request=0,
            messages=[],
            sampling=recommended(pair).sampling,
            seed=0,
            max_tokens=options.max_tokens,
            drafter="model",
        )
        lengths: tuple[DraftLength, ...] = (DEFAULT_DRAFT_LENGTH, "auto")
        fixed, auto = (
            _measure(
                engine,
                asked,
                msgspec.structs.replace(command, draft_length=length),
                what=f"{layers} of {of_layers} layers, draft length {length}: ",
            )
            for length in lengths
        )
        return Trial(layers, of_layers, pair.draft.size_bytes, pair.target.size_bytes, fixed, auto)


def _measure(engine: EngineProcess, asked: Sequence[Prompt], command: Generate, what: str) -> Row:
    """The figures of answers without a draft and with ``command``; ``what`` labels the progress.

    Raises `KnownError` if a prompt can't be answered.
    """
    found: list[Comparison] = []
    for result in compare(engine, asked, command):
        if isinstance(result, Skipped):
            raise KnownError(result.reason)
        found.append(result)
        show_progress(f"{what}{len(found)} of {len(asked)} comparisons")
    show_progress("")
    return summarize(found).total


def _tell(options: argparse.Namespace, output: Path, best: Trial, trials: Sequence[Trial]) -> None:
    if options.json:
        tried = [{**msgspec.to_builtins(trial), "verdict": trial.verdict()} for trial in trials]
        figures = {"experimental": True, "draft": str(output), "layers": best.layers, "pays": best.times_plain >= _PAYS}
        print(visible_json(json.dumps({**figures, "verdict": best.verdict(), "tried": tried}, ensure_ascii=False)))
        return
    print("experimental: a draft cut from the target's own first layers")
    print(f"  layers   size  accepted  per pass  length {DEFAULT_DRAFT_LENGTH}    auto")
    for trial in trials:
        accepted, length = trial.fixed.acceptance_rate or 0, trial.fixed.mean_acceptance_length or 1
        layers, size = (
            f"{trial.layers:>3} of {trial.of_layers:<3}",
            f"{words.share(trial.bytes / trial.target_bytes):>5}",
        )
        speed_ups = f"{words.times(trial.fixed.speed_up):>9} {words.times(trial.auto.speed_up):>7}"
        print(f"{layers}{size:>5} {words.share(accepted):>9} {words.number(length, 1):>9} {speed_ups}")
    print(f"written       {visible(str(output))}")
    print(best.verdict())
