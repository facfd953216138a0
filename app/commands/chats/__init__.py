"""``slipstream chats``: the chats of this computer, in and out."""

from __future__ import annotations

import argparse
from functools import partial

from app.commands.chats import export_chats, import_chats, listing
from app.commands.options import add_command


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    parser.epilog = "CHAT is the beginning of a chat's id, or part of a title that matches exactly one chat."
    add_one = partial(add_command, parser.add_subparsers(metavar="COMMAND", required=True), as_json="")
    add_one("list", listing.add_list, listing.list_chats, "list the chats, newest first")
    add_one("search", listing.add_search, listing.search_chats, "find chats by words in titles and messages")
    add_one("export", export_chats.add, export_chats.run, "write chats to files")
    add_one("import", import_chats.add, import_chats.run, "add chats from files of other apps")
