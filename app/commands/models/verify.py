"""``slipstream models verify``: whether a model's files are what was downloaded."""

from __future__ import annotations

import argparse

from app.commands.models import choosing
from app.commands.output import show_progress, show_result
from app.models.text import printable

_SENTENCES = {
    True: "is what was downloaded: the SHA-256 is the same.",
    False: "has changed or is damaged: the SHA-256 is another one. Download it again.",
    None: "cannot be checked: its SHA-256 is not known.",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("model", metavar="MODEL")


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status: 0 only where the files are what they were."""
    library = choosing.library()
    entry = choosing.model(library, options.model)
    same = library.verify(entry, lambda done, total: show_progress(f"verifying {done / total:.0%}"))
    show_progress("")
    show_result(options, {"path": str(entry.path), "same": same}, f"{printable(entry.where)} {_SENTENCES[same]}")
    return 0 if same else 1
