"""``slipstream chats export``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from app.chats.exporting import Export
from app.chats.formats.writing import WRITE
from app.chats.requests import ChatLine, ChatRead, ListChats, Listed, ReadChat
from app.commands.chats.access import open_chats
from app.commands.output import show_progress, show_result, wrong_usage
from app.errors import KnownError
from app.helper import shared
from app.models.text import printable, visible


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chats", nargs="*", metavar="CHAT", help="chats to export")
    parser.add_argument("--all", action="store_true", help="export all chats")
    parser.add_argument("--folder", metavar="NAME", help="export the chats in this folder")
    parser.add_argument("--format", choices=list(WRITE), default="markdown", help="what to write (default: markdown)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="a file, or a folder for one file for each chat (default: print to standard output)",
    )


def run(options: argparse.Namespace) -> int:
    if not (options.chats or options.all or options.folder is not None):
        wrong_usage("name a chat, or use --all or --folder")
    if options.json and options.output is None:
        wrong_usage("--json needs --output: without it, the chats themselves are printed")
    with open_chats() as chats:
        ids = _chosen(options, chats.ask(ListChats(), Listed).chats)
        _check_output(options, ids)
        export = Export(
            lambda chat_id: chats.ask(ReadChat(chat_id), ChatRead).chat,
            shared(),
            on_progress=lambda done: show_progress(f"{done:,} of {len(ids):,} chats"),
        )
        if options.output is None:
            _print(export, ids, options.format)
            return 0
        if options.output.is_dir():
            export.to_folder(ids, options.format, options.output)
        else:
            export.to_file(ids, options.format, options.output)
    show_progress("")
    count = "1 chat was" if len(ids) == 1 else f"{len(ids):,} chats were"
    described = {"exported": ids, "format": options.format, "output": str(options.output)}
    show_result(options, described, f"{count} exported to {options.output}.")
    return 0


def _print(export: Export, ids: Sequence[str], format_name: str) -> None:
    """Unchanged into files and pipes; made printable for a terminal."""
    for part in export.parts(ids, format_name):
        text = part.decode()
        print(visible(text) if sys.stdout.isatty() else text, end="", flush=True)


def _check_output(options: argparse.Namespace, ids: Sequence[str]) -> None:
    is_folder = options.output is not None and options.output.is_dir()
    if len(ids) > 1 and not WRITE[options.format].joins and not is_folder:
        raise KnownError(
            f"{WRITE[options.format].title} needs a file for each chat: give a folder that exists with --output, or "
            "choose another --format."
        )


def _chosen(options: argparse.Namespace, chats: Sequence[ChatLine]) -> list[str]:
    """The ids of the chats that were asked for."""
    ids = [_find(word, chats).id for word in options.chats]
    ids += [
        chat.id
        for chat in chats
        if (options.all or (options.folder is not None and chat.folder == options.folder)) and chat.id not in ids
    ]
    if not ids:
        raise KnownError("There are no chats to export.")
    return list(dict.fromkeys(ids))


def _find(word: str, chats: Sequence[ChatLine]) -> ChatLine:
    found = [chat for chat in chats if chat.id.startswith(word)]
    if len(found) != 1:
        found = found or [chat for chat in chats if chat.title == word]
        found = found or [chat for chat in chats if word.casefold() in chat.title.casefold()]
    if not found:
        raise KnownError(f"There is no chat “{printable(word)}”. “slipstream chats list” shows them.")
    if len(found) > 1:
        raise KnownError(
            f"{len(found):,} chats match “{printable(word)}”. Use the id that “slipstream chats list” shows."
        )
    return found[0]
