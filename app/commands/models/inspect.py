"""``slipstream models inspect``: as ``slipstream inspect``, and it knows the names in the library."""

from __future__ import annotations

import argparse

from app.commands import inspect
from app.commands.models import choosing


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("target", metavar="MODEL")
    parser.add_argument("draft", nargs="?", metavar="DRAFT", help="say whether this fits MODEL as its draft")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status."""
    library = choosing.library()
    target = choosing.model(library, options.target).path
    draft = choosing.model(library, options.draft).path if options.draft else None
    return inspect.show(target, draft, as_json=options.json)
