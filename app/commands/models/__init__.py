"""``slipstream models``: the models on this machine, and how to get more."""

from __future__ import annotations

import argparse

from app.commands import inspect
from app.commands.models import choosing, get, listing, pair, plan, remove, search, verify
from app.commands.options import Command, add_command


def add(parser: argparse.ArgumentParser) -> None:
    """Its commands."""
    parser.epilog = "MODEL, TARGET and DRAFT are a file, or a part of a name in the library that only one model has."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    of_library = inspect.Inspect("MODEL", choosing.library_files)
    table: dict[str, tuple[Command, str]] = {
        "list": (listing, "list the models of all folders"),
        "inspect": (of_library, "say what a model is, and whether two fit as a pair"),
        "pair": (pair, "say which drafts fit a target, the most promising first"),
        "plan": (plan, "say what a model or a pair takes in memory, and how it would be loaded"),
        "search": (search, "search Hugging Face for models"),
        "get": (get, "download a model from Hugging Face, with a draft that fits if you want"),
        "verify": (verify, "check a model's files against their SHA-256"),
        "remove": (remove, "delete a model's files"),
    }
    for name, (command, help) in table.items():
        add_command(commands, name, command, help, as_json="")
