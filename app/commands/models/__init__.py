"""``slipstream models``: the models on this machine, and how to get more."""

from __future__ import annotations

import argparse

from app.commands.models import get, inspect, listing, pair, plan, remove, search, verify


def add(parser: argparse.ArgumentParser) -> None:
    """Its commands."""
    parser.epilog = "MODEL, TARGET and DRAFT are a file, or a part of a name in the library that only one model has."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing.add(commands.add_parser("list", help="list the models of all folders"))
    inspect.add(commands.add_parser("inspect", help="say what a model is, and whether two fit as a pair"))
    pair.add(commands.add_parser("pair", help="say which drafts fit a target, the most promising first"))
    plan.add(commands.add_parser("plan", help="say what a model or a pair takes in memory, and how it would be loaded"))
    search.add(commands.add_parser("search", help="search Hugging Face for models"))
    get.add(commands.add_parser("get", help="download a model from Hugging Face, with a draft that fits if you want"))
    verify.add(commands.add_parser("verify", help="check a model's files against their SHA-256"))
    remove.add(commands.add_parser("remove", help="delete a model's files"))
