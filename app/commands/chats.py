"""``slipstream chats``: lists, searches, exports and imports the chats on this computer.

Only one process may open the chat file: if a window has it, the command says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from app import system, words
from app.chats.exporting import Export
from app.chats.formats.writing import WRITE
from app.chats.importing import Import, Imported, Summary
from app.chats.model import Chat
from app.chats.store import ChatStore
from app.commands.options import Command, command, option, whole
from app.commands.output import show_progress, show_result, wrong_usage
from app.helper import shared
from app.system import KnownError
from app.words import printable, visible

_SHOWN_ID = 8
_MOST = 100
_UNTITLED = "New chat"


class ChatLine(msgspec.Struct, frozen=True):
    """A chat in a list. Times are seconds since 1970, UTC."""

    id: str
    title: str
    created_at: float
    updated_at: float
    folder: str
    is_pinned: bool
    passages: list[str] = []
    """Of a search result: at most three matching lines."""


def _open() -> ChatStore:
    """Open the chats. Raises `KnownError`."""
    return ChatStore(system.chat_file())


# ---------------------------------------------------------------- list, search


@command(
    "list",
    "list the chats, newest first",
    option("--folder", metavar="NAME", help="only the chats in this folder"),
)
def list_chats(options: argparse.Namespace) -> int:
    with _open() as store:
        found = _all(store)
    if options.folder is not None:
        found = [chat for chat in found if chat.folder == options.folder]
    _show(options, found, "There are no chats yet.")
    return 0


@command(
    "search",
    "find chats by words in titles and messages",
    option("text", metavar="TEXT", help="words that all have to occur"),
    option("--limit", type=whole(1), default=_MOST, metavar="N", help=f"maximum number of chats (default {_MOST})"),
)
def search_chats(options: argparse.Namespace) -> int:
    with _open() as store:
        names = _folder_names(store)
        found = [
            _line(one.chat, names, [snippet.text for snippet in one.snippets])
            for one in store.search(options.text, options.limit)
        ]
    _show(options, found, "Nothing was found.")
    return 0


def _all(store: ChatStore) -> list[ChatLine]:
    """All chats that aren't in the trash, newest first."""
    names = _folder_names(store)
    return [_line(chat, names) for chat in store.chats()]


def _folder_names(store: ChatStore) -> dict[str | None, str]:
    return {folder.id: folder.name for folder in store.folders()}


def _line(chat: Chat, names: dict[str | None, str], passages: Sequence[str] = ()) -> ChatLine:
    folder = names.get(chat.folder_id, "")
    is_pinned = chat.pinned_at is not None
    return ChatLine(chat.id, chat.title, chat.created_at, chat.updated_at, folder, is_pinned, list(passages))


def _show(options: argparse.Namespace, found: Sequence[ChatLine], nothing: str) -> None:
    lines: list[str] = []
    for chat in found:
        date = datetime.fromtimestamp(chat.updated_at).strftime("%Y-%m-%d %H:%M")
        folder = f"  [{printable(chat.folder)}]" if chat.folder else ""
        lines.append(f"{chat.id[:_SHOWN_ID]}  {date}  {printable(chat.title) or _UNTITLED}{folder}")
        lines += [f"          {printable(passage, 100)}" for passage in chat.passages]
    show_result(options, {"chats": [msgspec.to_builtins(chat) for chat in found]}, lines or [nothing])


# ---------------------------------------------------------------- export


@command(
    "export",
    "write chats to files",
    option("chats", nargs="*", metavar="CHAT", help="chats to export"),
    option("--all", action="store_true", help="export all chats"),
    option("--folder", metavar="NAME", help="export the chats in this folder"),
    option("--format", choices=list(WRITE), default="markdown", help="what to write (default: markdown)"),
    option(
        "--output",
        type=Path,
        metavar="PATH",
        help="a file, or a folder for one file for each chat (default: print to standard output)",
    ),
)
def export_chats(options: argparse.Namespace) -> int:
    if not (options.chats or options.all or options.folder is not None):
        wrong_usage("name a chat, or use --all or --folder")
    if options.json and options.output is None:
        wrong_usage("--json needs --output: without it, the chats themselves are printed")
    with _open() as store:
        ids = _chosen(options, _all(store))
        _check_output(options, ids)
        export = Export(
            store.record,
            shared(),
            on_progress=lambda done: show_progress(f"{words.number(done)} of {words.number(len(ids))} chats"),
        )
        if options.output is None:
            _print(export, ids, options.format)
            return 0
        if options.output.is_dir():
            export.to_folder(ids, options.format, options.output)
        else:
            export.to_file(ids, options.format, options.output)
    show_progress("")
    count = words.count(len(ids), "chat was", "chats were")
    described = {"exported": ids, "format": options.format, "output": str(options.output)}
    show_result(options, described, f"{count} exported to {options.output}.")
    return 0


def _print(export: Export, ids: Sequence[str], format_name: str) -> None:
    """Print unchanged to files and pipes; escape control characters on a terminal."""
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
    """The ids of the chats to export."""
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
            f"{words.number(len(found))} chats match “{printable(word)}”. Use the id that “slipstream chats list” "
            "shows."
        )
    return found[0]


# ---------------------------------------------------------------- import


def _add_folders(parser: argparse.ArgumentParser) -> None:
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("--folder", metavar="NAME", help="put the chats into this folder (default: by the app's name)")
    folders.add_argument("--no-folder", action="store_true", help="don't put the chats into a folder")


@command(
    "import",
    "add chats from files of other apps",
    option("files", nargs="+", type=Path, metavar="FILE", help="files, archives (.zip) or folders"),
    option("--dry-run", action="store_true", help="only say what would be imported"),
    _add_folders,
    description="Adds chats from files of Slipstream, llama.cpp's page, LM Studio, ChatGPT, Claude, Open WebUI, Jan, "
    "and from ShareGPT and OpenAI messages. The format is recognized by the content. Existing chats "
    "aren't added again.",
)
def import_chats(options: argparse.Namespace) -> int:
    if not options.dry_run:
        with _open():  # fail before reading the files if a window has the chats open
            pass
    summary = Import(options.files, on_progress=lambda share: show_progress(f"Reading: {words.share(share)}")).summary()
    show_progress("")
    lines = _lines(summary)
    if not summary.chats:
        raise KnownError(" ".join(["There are no chats in it that can be imported.", *lines[1:]]))
    imported = None
    if not options.dry_run:
        imported = _import(options, summary)
        lines.append(imported.sentence())
    show_result(options, _described(summary, imported), lines)
    return 0


def _import(options: argparse.Namespace, summary: Summary) -> Imported:
    folder = "" if options.no_folder else options.folder or summary.folder()
    reading = Import(options.files, on_progress=lambda share: show_progress(f"Importing: {words.share(share)}"))
    with _open() as store:
        imported, _ = reading.run(partial(store.add_records, folder=folder))
    show_progress("")
    return imported


def _lines(summary: Summary) -> list[str]:
    chats, messages = words.count(summary.chats, "chat"), words.count(summary.messages, "message")
    sources = ", ".join(f"{name}: {words.number(count)}" for name, count in summary.sources.items())
    lines = [f"{chats} with {messages} ({sources or 'no format that is known'})"]
    if summary.first is not None and summary.last is not None:
        first, last = (datetime.fromtimestamp(at).strftime("%Y-%m-%d") for at in (summary.first, summary.last))
        lines.append(f"From {first} to {last}")
    if left_out := summary.not_imported():
        lines.append(f"Not imported: {'; '.join(left_out)}.")
    return lines


def _described(summary: Summary, imported: Imported | None) -> dict[str, Any]:
    described = {
        "chats": summary.chats,
        "messages": summary.messages,
        "sources": dict(summary.sources),
        "left_out": dict(summary.left_out),
        "other_files": summary.other_files,
    }
    return {**described, "imported": asdict(imported) if imported is not None else None}


CHATS = Command(
    "chats",
    None,
    (),
    {
        "help": "list, search, export and import chats",
        "description": "Close the window first: the file of the chats belongs to one program at a time.",
        "epilog": "CHAT is the beginning of a chat's id, or part of a title that matches exactly one chat.",
    },
    (list_chats, search_chats, export_chats, import_chats),
)
