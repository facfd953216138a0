"""``slipstream models list``, ``verify`` and ``remove``: the files of the models on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import get_args

from app.commands.models import choosing
from app.commands.options import command, option
from app.commands.output import show_progress, show_result
from app.models.library.folders import ModelFolder, found_folders
from app.models.library.library import LibraryEntry, SortKey, in_order, matching
from app.models.names import count_text, printable, size_text
from app.system import Canceled, KnownError

_SENTENCES = {
    True: "is intact: the SHA-256 checksum matches.",
    False: "has changed or is damaged: the SHA-256 checksum doesn't match. Download it again.",
    None: "can't be verified: its SHA-256 checksum isn't known.",
}


# ---------------------------------------------------------------- list


@command(
    "list",
    "list the models in all folders",
    option("words", nargs="*", metavar="WORD", help="only list models with all of these words in their names"),
    option("--sort", choices=get_args(SortKey), default="name", help="default: name"),
)
def list_models(options: argparse.Namespace) -> int:
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
        lines += ["", "These can't be used:"] if usable else ["These can't be used:"]
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
        return f"its folder, {printable(str(entry.folder.path), 200)}, isn't available right now."
    return entry.problem


def _offer(folder: ModelFolder) -> str:
    return (
        f"There are models from another app ({folder.kind.label}) in {printable(str(folder.path), 200)}. You can "
        "add the folder in Settings."
    )


# ---------------------------------------------------------------- verify


@command("verify", "verify the SHA-256 checksums of a model's files", option("model", metavar="MODEL"))
def verify_model(options: argparse.Namespace) -> int:
    """The exit status is 0 only if the files are unchanged."""
    library = choosing.library()
    entry = choosing.model(library, options.model)
    same = library.verify(entry, lambda done, total: show_progress(f"verifying {done / total:.0%}"))
    show_progress("")
    show_result(options, {"path": str(entry.path), "same": same}, f"{printable(entry.where)} {_SENTENCES[same]}")
    return 0 if same else 1


# ---------------------------------------------------------------- remove


@command(
    "remove",
    "delete a model's files",
    option("model", metavar="MODEL"),
    option("--yes", action="store_true", help="don't ask for confirmation"),
)
def remove_model(options: argparse.Namespace) -> int:
    library = choosing.library()
    entry = choosing.model(library, options.model)
    library.check_deletable(entry)
    if not options.yes:
        _ask(entry, library.would_free(entry))
    freed = library.delete(entry)
    described = {"deleted": [str(part) for part in entry.parts], "freed": freed}
    show_result(
        options, described, f"{printable(entry.where)} was deleted. {size_text(freed)} of disk space was freed."
    )
    return 0


def _ask(entry: LibraryEntry, freed: int) -> None:
    """Raises `Canceled` unless the user says yes."""
    if not sys.stdin.isatty():
        raise KnownError(
            "Deleting needs confirmation, but there is no terminal to ask on. Use --yes to delete without asking."
        )
    for part in entry.parts:
        print(printable(str(part), 500), file=sys.stderr)
    print(f"Delete {printable(entry.where)} and free {size_text(freed)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Canceled
