"""``slipstream inspect`` and ``slipstream models inspect``: describe a GGUF file, and whether two fit as a pair."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from app.commands.output import show_result


class Inspect(NamedTuple):
    """The command; ``files`` finds the files its arguments mean."""

    metavar: str
    files: Callable[[Sequence[str]], list[Path]]

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        parser.add_argument("target", metavar=self.metavar)
        help = f"say whether this file works as a draft for {self.metavar}"
        parser.add_argument("draft", nargs="?", metavar="DRAFT", help=help)

    def run(self, options: argparse.Namespace) -> int:
        """Run the command; returns the exit status."""
        from app.models import inspect, pairing
        from app.models.gguf import read_header

        words = [word for word in (options.target, options.draft) if word is not None]
        header, *drafts = map(read_header, self.files(words))
        if not drafts:
            show_result(options, inspect.describe(header), inspect.readable(header))
            return 0
        verdict = pairing.compare(header, drafts[0])
        described = inspect.describe_pair(header, drafts[0], verdict)
        show_result(options, described, inspect.readable_pair(header, drafts[0], verdict))
        return 0 if verdict.fits else 1
