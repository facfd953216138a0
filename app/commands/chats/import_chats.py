"""``slipstream chats import``."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from app.chats.importing import Import, Imported, Summary
from app.chats.requests import AddChats, ChatsAdded
from app.commands.chats.access import open_chats
from app.commands.output import show_progress, show_result
from app.errors import KnownError


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Adds chats from files of Slipstream, llama.cpp's page, LM Studio, ChatGPT, Claude, Open WebUI, Jan, and from "
        "ShareGPT and OpenAI messages. The format is recognized by the content. Chats that are there already aren't "
        "added again."
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files, archives (.zip) or folders")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be imported")
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("--folder", metavar="NAME", help="put the chats into this folder (default: by the app's name)")
    folders.add_argument("--no-folder", action="store_true", help="don't put the chats into a folder")


def run(options: argparse.Namespace) -> int:
    summary = Import(options.files, on_progress=lambda share: show_progress(f"Reading: {share:.0%}")).summary()
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
    reading = Import(options.files, on_progress=lambda share: show_progress(f"Importing: {share:.0%}"))
    with open_chats() as chats:
        imported, _ = reading.run(lambda found: chats.ask(AddChats(found, folder), ChatsAdded).added)
    show_progress("")
    return imported


def _lines(summary: Summary) -> list[str]:
    chats = "1 chat" if summary.chats == 1 else f"{summary.chats:,} chats"
    messages = "1 message" if summary.messages == 1 else f"{summary.messages:,} messages"
    sources = ", ".join(f"{name}: {count:,}" for name, count in summary.sources.items())
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
