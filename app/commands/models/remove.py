"""``slipstream models remove``: delete a model's files, after saying what that frees."""

from __future__ import annotations

import argparse
import sys

from app.commands.models import choosing
from app.commands.output import show_result
from app.errors import Cancelled, KnownError
from app.models.library.entry import LibraryEntry
from app.models.text import printable, size_text


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status."""
    library = choosing.library()
    entry = choosing.model(library, options.model)
    library.check_deletable(entry)
    if not options.yes:
        _ask(entry, library.would_free(entry))
    freed = library.delete(entry)
    described = {"deleted": [str(part) for part in entry.parts], "freed": freed}
    show_result(options, described, f"{printable(entry.where)} is deleted: {size_text(freed)} are free again.")
    return 0


def _ask(entry: LibraryEntry, freed: int) -> None:
    """Raises `Cancelled` unless the user says yes."""
    if not sys.stdin.isatty():
        raise KnownError("Deleting asks first, and nobody can answer here. Add --yes to delete without asking.")
    for part in entry.parts:
        print(printable(str(part), 500), file=sys.stderr)
    print(f"Delete {printable(entry.where)} and free {size_text(freed)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Cancelled
