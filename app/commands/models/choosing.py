"""The library as a command uses it, and the model that an argument means."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from app import system
from app.commands.output import tell
from app.models.gguf import read_header
from app.models.library.library import Library, LibraryEntry, open_library
from app.models.names import printable
from app.settings import Settings, SettingsFile
from app.system import KnownError

_SHOWN = 5


def settings() -> Settings:
    """The saved settings. Raises `KnownError`."""
    file = SettingsFile(system.settings_file())
    tell(file.notice)
    return file.values


def library() -> Library:
    """The library with these settings. Raises `KnownError`."""
    values = settings()
    return open_library(values.models_folder, values.extra_folders)


def model(of: Library, word: str, entries: Sequence[LibraryEntry] | None = None) -> LibraryEntry:
    """The model that ``word`` means: a file, or the only one with it in its name. Raises `KnownError`.

    ``entries`` are those of the library, if they are already known.
    """
    if os.path.isfile(word):  # noqa: PTH113 - Path's raises for names that no file can have
        return of.entry_at(Path(word))
    entries = of.scan() if entries is None else entries
    wanted = word.casefold()
    found = [entry for entry in entries if wanted in (entry.file_title.casefold(), entry.where.casefold())]
    found = found or [entry for entry in entries if wanted == entry.title.casefold()]
    found = found or [entry for entry in entries if wanted in entry.where.casefold()]
    if not found:
        if word.lower().endswith(".gguf"):
            read_header(word)  # raises an error that says why not
        raise KnownError(f'No model is called "{printable(word)}". "slipstream models list" shows all of them.')
    if len(found) > 1:
        names = ", ".join(printable(entry.where) for entry in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise KnownError(
            f'{len(found)} models have "{printable(word)}" in their names: {names}{more}. Be more specific.'
        )
    return found[0]


def library_files(words: Sequence[str]) -> list[Path]:
    """The files of the models that ``words`` mean. Raises `KnownError`."""
    found = library()
    return [model(found, word).path for word in words]


def check_usable(entry: LibraryEntry) -> None:
    """Raise `KnownError` for a model that can't be loaded now."""
    if not entry.usable:
        raise KnownError(entry.problem or f"{printable(entry.where)} is in a folder that isn't available right now.")


def described(entry: LibraryEntry) -> dict[str, Any]:
    """An entry as data for JSON; unknown values are ``None``."""
    facts = msgspec.to_builtins(entry.summary) if entry.summary else None
    if facts:
        del facts["shape"]
    return {
        "path": str(entry.path),
        "parts": [str(part) for part in entry.parts],
        "title": entry.title,
        "name": entry.where,
        "folder": str(entry.folder.path),
        "folder_kind": entry.folder.kind.value,
        "read_only": entry.read_only,
        "available": entry.available,
        "usable": entry.usable,
        "problem": entry.problem or None,
        "size": entry.size,
        "modified": entry.modified,
        "last_used": entry.last_used,
        "license": entry.license or None,
        "model": facts,
    }
