"""``slipstream chats list`` and ``search``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.chats.requests import ChatLine, ListChats, Listed, SearchChats
from app.commands.chats.access import open_chats
from app.commands.options import whole
from app.commands.output import show_result
from app.models.text import printable

_SHOWN_ID = 8
_MOST = 100
_UNTITLED = "New chat"


def add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", metavar="NAME", help="only the chats in this folder")


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", help="words that all have to occur")
    parser.add_argument(
        "--limit", type=whole(1), default=_MOST, metavar="N", help=f"at most so many chats (default {_MOST})"
    )


def list_chats(options: argparse.Namespace) -> int:
    with open_chats() as chats:
        found = chats.ask(ListChats(), Listed).chats
    if options.folder is not None:
        found = [chat for chat in found if chat.folder == options.folder]
    _show(options, found, "There are no chats yet.")
    return 0


def search_chats(options: argparse.Namespace) -> int:
    with open_chats() as chats:
        found = chats.ask(SearchChats(options.text, options.limit), Listed).chats
    _show(options, found, "Nothing was found.")
    return 0


def _show(options: argparse.Namespace, found: Sequence[ChatLine], nothing: str) -> None:
    lines: list[str] = []
    for chat in found:
        date = datetime.fromtimestamp(chat.updated_at).strftime("%Y-%m-%d %H:%M")
        folder = f"  [{printable(chat.folder)}]" if chat.folder else ""
        lines.append(f"{chat.id[:_SHOWN_ID]}  {date}  {printable(chat.title) or _UNTITLED}{folder}")
        lines += [f"          {printable(passage, 100)}" for passage in chat.passages]
    show_result(options, {"chats": [msgspec.to_builtins(chat) for chat in found]}, lines or [nothing])
