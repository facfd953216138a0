"""Searching and sorting a library."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from app.models.library.entry import LibraryEntry

SortKey = Literal["name", "size", "last used", "quantization", "context"]

_KEYS: dict[SortKey, Callable[[LibraryEntry], Any]] = {
    "name": lambda entry: entry.title.casefold(),
    "size": lambda entry: -entry.size,
    "last used": lambda entry: -(entry.last_used or 0),
    "quantization": lambda entry: entry.summary.quantization if entry.summary else "~",
    "context": lambda entry: -(entry.summary.training_context if entry.summary else 0),
}


def matching(entries: Iterable[LibraryEntry], words: str) -> list[LibraryEntry]:
    """Those that have all ``words`` in their title, name, folders, architecture, quantization or where they are."""
    wanted = words.casefold().split()
    return [entry for entry in entries if all(word in _searched(entry) for word in wanted)]


def in_order(entries: Iterable[LibraryEntry], key: SortKey, *, reverse: bool = False) -> list[LibraryEntry]:
    """By name and quantization from A, by the others from the largest or latest; what cannot be used comes last."""
    by_name = sorted(entries, key=_KEYS["name"])
    ordered = sorted(by_name, key=_KEYS[key], reverse=reverse)
    return sorted(ordered, key=lambda entry: not entry.usable)


def _searched(entry: LibraryEntry) -> str:
    summary = entry.summary
    facts = (summary.name, summary.architecture, summary.quantization) if summary else ()
    return "\n".join((entry.where, entry.folder.kind.label, *facts)).casefold()
