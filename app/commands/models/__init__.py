"""``slipstream models``: the models on this machine, and how to get more."""

from __future__ import annotations

import argparse
from functools import partial

from app.commands.inspect import Inspect
from app.commands.models import choosing, files, get, pair, plan, search
from app.commands.options import add_command


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    parser.epilog = (
        "MODEL, TARGET and DRAFT are a file, or part of a name that matches exactly one model in the library."
    )
    add_one = partial(add_command, parser.add_subparsers(metavar="COMMAND", required=True), as_json="")
    inspect = Inspect("MODEL", choosing.library_files)
    add_one("list", files.add_list, files.list_models, "list the models in all folders")
    add_one("inspect", inspect.add, inspect.run, "describe a model, and say whether two models fit as a pair")
    add_one("pair", pair.add, pair.run, "list the drafts that fit a target, most promising first")
    add_one("plan", plan.add, plan.run, "show how much memory a model or a pair needs, and how it would be loaded")
    add_one("search", search.add, search.run, "search Hugging Face for models")
    add_one("get", get.add, get.run, "download a model from Hugging Face, with a matching draft if you like")
    add_one("verify", files.add_verify, files.verify_model, "verify the SHA-256 checksums of a model's files")
    add_one("remove", files.add_remove, files.remove_model, "delete a model's files")
