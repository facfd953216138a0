"""``slipstream models list``: what there is, where, and what cannot be used and why."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import get_args

from app.commands.models import choosing
from app.commands.output import show_result
from app.models.library.entry import LibraryEntry, SortKey, in_order, matching
from app.models.library.folders import ModelFolder, found_folders
from app.models.text import count_text, printable, size_text


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("words", nargs="*", metavar="WORD", help="only models with all of these in their names")
    parser.add_argument("--sort", choices=get_args(SortKey), default="name", help="default: name")


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status."""
    library = choosing.library()
    entries = in_order(matching(library.scan(), " ".join(options.words)), options.sort)
    folders = library.folders()
    offered = [folder for folder in found_folders() if folder.path not in [one.path for one in folders]]
    lists = {"folders": _places(folders), "found_folders": _places(offered), "notices": library.notices}
    table = _table(entries) or [_nothing(folders, options.words)]
    described = {"models": [choosing.described(entry) for entry in entries], **lists}
    show_result(options, described, [*table, *library.notices, *map(_offer, offered)])
    return 0


def _places(folders: Sequence[ModelFolder]) -> list[dict[str, str]]:
    return [{"path": str(folder.path), "kind": folder.kind.value} for folder in folders]


def _nothing(folders: Sequence[ModelFolder], words: Sequence[str]) -> str:
    if words:
        return f"No model has {printable(' '.join(words))} in its name."
    return f"There are no models in {', '.join(printable(str(one.path), 200) for one in folders)}."


def _table(entries: Sequence[LibraryEntry]) -> list[str]:
    usable = [entry for entry in entries if entry.usable]
    others = [entry for entry in entries if not entry.usable]
    width = max((len(printable(entry.where, 60)) for entry in usable), default=0)
    lines = [_row(entry, width) for entry in usable]
    if others:
        lines += ["", "These cannot be used:"] if usable else ["These cannot be used:"]
        lines += [f"  {printable(entry.where, 60)}: {_reason(entry)}" for entry in others]
    return lines


def _row(entry: LibraryEntry, width: int) -> str:
    summary = entry.summary
    assert summary is not None  # it is usable
    context = f"{summary.training_context:,}" if summary.training_context else "?"
    used = time.strftime("%Y-%m-%d", time.localtime(entry.last_used)) if entry.last_used else "never used"
    return (
        f"{printable(entry.where, 60):<{width}}  {size_text(entry.size):>8}  {count_text(summary.parameters):>7}  "
        f"{printable(summary.quantization, 10):<8} {context:>9} tokens  {used:<10}  {entry.folder.kind.label}"
    )


def _reason(entry: LibraryEntry) -> str:
    if not entry.available:
        return f"its folder, {printable(str(entry.folder.path), 200)}, is not there now."
    return entry.problem


def _offer(folder: ModelFolder) -> str:
    return f"Models of another app ({folder.kind.label}) are in {printable(str(folder.path), 200)}: add it in Settings."
