"""``slipstream inspect`` and ``slipstream models inspect``: describe a GGUF file, and whether two fit as a pair."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from app.commands.options import Command, command, option
from app.commands.output import show_result


def inspecting(metavar: str, help: str, files: Callable[[Sequence[str]], list[Path]]) -> Command:
    """The command; ``files`` finds the files that its arguments mean."""

    @command(
        "inspect",
        help,
        option("target", metavar=metavar),
        option("draft", nargs="?", metavar="DRAFT", help=f"say whether this file works as a draft for {metavar}"),
    )
    def inspect(options: argparse.Namespace) -> int:
        from app.models import inspect, pairing
        from app.models.gguf import read_header

        words = [word for word in (options.target, options.draft) if word is not None]
        header, *drafts = map(read_header, files(words))
        if not drafts:
            show_result(options, inspect.describe(header), inspect.readable(header))
            return 0
        verdict = pairing.compare(header, drafts[0])
        described = inspect.describe_pair(header, drafts[0], verdict)
        show_result(options, described, inspect.readable_pair(header, drafts[0], verdict))
        return 0 if verdict.fits else 1

    return inspect
