"""``slipstream bench``: decoding with and without a draft, in a few figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app import paths
from app.client.process import EngineProcess
from app.commands.options import add_model_options, add_sampling_options, whole
from app.commands.output import show_progress
from app.commands.session import check_drafts, generate_command, loaded
from app.compare import prompts
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Skipped, summarize
from app.compare.running import compare
from app.errors import KnownError
from app.protocol.commands import Generate


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--prompts", type=Path, metavar="FILE", help="a file with one prompt per line (default: a bundled mix)"
    )
    parser.add_argument(
        "--repeat", type=whole(1), default=3, metavar="N", help="how often to run each prompt (default 3)"
    )
    add_model_options(parser)
    add_sampling_options(parser, seed="0", max_tokens=1024)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    asked = prompts.read(options.prompts or paths.resource("bench", "prompts.txt"))
    check_drafts(options, "bench")
    with loaded(options) as (engine, pair):
        if pair.drafting_off:
            raise KnownError(pair.drafting_off)
        figures = measure(engine, asked, generate_command(options, pair), options.repeat)
    print(json.dumps(figures) if options.json else _readable(figures))
    return 0


def measure(
    engine: EngineProcess, asked: Sequence[Prompt], command: Generate, repeat: int = 1, what: str = ""
) -> dict[str, Any]:
    """The figures of prompts answered without a draft and as ``command`` specifies; ``what`` is shown before the
    progress.

    Raises `KnownError` if a prompt can't be answered.
    """
    total = len(asked) * repeat
    found: list[Comparison] = []
    for result in compare(engine, asked, command, repeat):
        if isinstance(result, Skipped):
            raise KnownError(result.reason)
        found.append(result)
        show_progress(f"{what}{len(found)} of {total} comparisons")
    show_progress("")
    return summary(found)


def summary(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The figures of all comparisons together. Speeds are tokens per second, 0 if all answers are too short."""
    total = summarize(comparisons).total
    return {
        "runs": total.runs,
        "plain_tokens_per_second": total.plain_speed or 0.0,
        "drafted_tokens_per_second": total.drafted_speed or 0.0,
        "speed_up": total.speed_up or 0.0,
        "tokens": total.tokens,
        "drafted": total.drafted,
        "tested": total.tested,
        "accepted": total.accepted,
        "rejected": total.tested - total.accepted,
        "acceptance_rate": total.acceptance_rate,
        "mean_acceptance_length": total.mean_acceptance_length,
        "same_text": total.same,
        "total_s": total.seconds,
    }


def _readable(figures: dict[str, Any]) -> str:
    lines = [
        f"without draft {figures['plain_tokens_per_second']:8.1f} tok/s (median)",
        f"with draft    {figures['drafted_tokens_per_second']:8.1f} tok/s (median)",
        f"speed-up      {figures['speed_up']:8.2f}× (median of the ratios)",
        f"rejected      {figures['rejected']:8d}",
        f"same text     {figures['same_text']:8d} of {figures['runs']}",
        f"total time    {figures['total_s']:8.1f} s, {figures['tokens']} tokens",
    ]
    if figures["acceptance_rate"] is not None:
        tokens = f"({figures['accepted']} of {figures['tested']} draft tokens)"
        lines.insert(3, f"accepted      {figures['acceptance_rate']:8.0%} {tokens}")
    return "\n".join(lines)
