"""Presets: chat settings saved under a name, all in one file, which also says which preset a new chat starts with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from app.chats.preset_files import PresetFile, preset_as_file, read_preset
from app.chats.settings import ChatSettings
from app.errors import KnownError
from app.storage.files import write_export
from app.storage.json_file import PATIENCE_SECONDS, JsonFile, OtherVersionError, Versioned
from app.storage.lenient import lenient

FILE_NAME = "presets.json"
VERSION = 1
MAX_PRESETS = 500
MAX_NAME_LENGTH = 80


class _File(Versioned, kw_only=True):
    presets: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Settings by name, as they are stored."""
    default: str = ""
    """Name of the preset for models without their own; empty if there is none."""
    defaults: dict[str, str] = msgspec.field(default_factory=dict)
    """Names by the path of a target."""


class Presets:
    """The presets of one file, which is read once, here.

    What asks looks into memory alone. What changes something writes the file, which is slow work, and raises
    `KnownError`: for a name that cannot be used, and where the disk does not let us; then the change counts until
    Slipstream ends. Safe from any thread. Two names are the same where they differ in capital letters only.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. A damaged one is renamed, a newer one left alone; in both cases there are no presets."""
        self._file = JsonFile(
            path,
            _File(version=VERSION),
            version=VERSION,
            what="The presets",
            patience=PATIENCE_SECONDS,
            log_level=logging.INFO,  # `notice` reports it
        )
        self.notice: str | None = None
        """What to tell the user about the file."""
        try:
            self._content = self._file.load()
        except OtherVersionError:
            self._content = self._file.read()
            self.notice = (
                "The presets were saved by a newer version of Slipstream and can't be used here. "
                "The file was not changed."
            )
        except OSError as error:
            self._content = self._file.read()
            self.notice = f"The presets can't be read: {error.strerror or error}."
        if self._file.aside is not None:
            self.notice = f"The presets couldn't be read. The file has been renamed to {self._file.aside}."

    # ------------------------------------------------------------ what there is

    def names(self) -> list[str]:
        """All names, from A to Z."""
        return sorted(self._content.presets, key=lambda name: (name.casefold(), name))

    def get(self, name: str) -> ChatSettings | None:
        """The settings of a preset, including its name; ``None`` if there is no such preset."""
        known = _known(self._content, name)
        if known is None:
            return None
        return msgspec.structs.replace(lenient(ChatSettings, self._content.presets[known], []), preset=known)

    def is_changed(self, settings: ChatSettings) -> bool:
        """Whether these differ from the preset they were taken from. Without a preset they don't."""
        return bool(settings.preset) and self.get(settings.preset) != settings

    def free_name(self, name: str) -> str:
        """``name``, with a number added if it is taken."""
        return _free(self._content, name)

    def default_name(self, target: str = "") -> str:
        """The preset that a new chat with the target at this path starts with; empty if there is none.

        Without a path, or if the model has no preset of its own, it is the one for all models.
        """
        return self.own_default_name(target) or self._content.default

    def own_default_name(self, target: str) -> str:
        """The preset that was chosen for this model; empty if there is none."""
        return self._content.defaults.get(target, "")

    def default_for(self, target: str = "") -> ChatSettings:
        """The settings of that preset, or what the model recommends."""
        return self.get(self.default_name(target)) or ChatSettings()

    # ------------------------------------------------------------ changes

    def save(self, name: str, settings: ChatSettings, *, replace: bool = False) -> str:
        """Save ``settings`` under a name, and return the name as it is stored.

        An existing preset is only changed with ``replace``.
        """

        def saved(file: _File) -> dict[str, Any]:
            kept = _usable(name)
            known = _known(file, kept)
            if known is not None and not replace:
                raise KnownError(f"There is already a preset named “{known}”. Choose another name.")
            return {"presets": _with(file, known or kept, settings)}

        self._change(saved)
        return _known(self._content, _usable(name)) or name

    def rename(self, name: str, new_name: str) -> str:
        """Rename a preset, and return the new name as it is stored. It stays a default if it was one."""

        def renamed(file: _File) -> dict[str, Any]:
            old, new = _wanted(file, name), _usable(new_name)
            taken = _known(file, new)
            if taken is not None and taken != old:
                raise KnownError(f"There is already a preset named “{taken}”. Choose another name.")
            return {
                "presets": {new if one == old else one: content for one, content in file.presets.items()},
                "default": new if file.default == old else file.default,
                "defaults": {target: new if one == old else one for target, one in file.defaults.items()},
            }

        self._change(renamed)
        return _usable(new_name)

    def duplicate(self, name: str) -> str:
        """Copy a preset; returns the name of the copy."""
        copies: list[str] = []

        def duplicated(file: _File) -> dict[str, Any]:
            old = _wanted(file, name)
            copies.append(_free(file, f"{old[: MAX_NAME_LENGTH - 5]} copy"))
            return {"presets": {**file.presets, copies[-1]: file.presets[old]}}

        self._change(duplicated)
        return copies[-1]

    def delete(self, name: str) -> None:
        """Delete a preset. Chats keep their settings; if it was a default, there is no default now."""

        def deleted(file: _File) -> dict[str, Any]:
            old = _wanted(file, name)
            return {
                "presets": {one: content for one, content in file.presets.items() if one != old},
                "default": "" if file.default == old else file.default,
                "defaults": {target: one for target, one in file.defaults.items() if one != old},
            }

        self._change(deleted)

    def set_default(self, name: str, target: str = "") -> None:
        """Make new chats with the target at this path, or with any model, start with a preset; ``name`` is empty for
        none.
        """

        def changed(file: _File) -> dict[str, Any]:
            known = _wanted(file, name) if name else ""
            if not target:
                return {"default": known}
            others = {path: one for path, one in file.defaults.items() if path != target}
            return {"defaults": {**others, target: known} if known else others}

        self._change(changed)

    # ------------------------------------------------------------ files

    def import_file(self, path: Path) -> PresetFile:
        """Save the preset in a file, ours or LM Studio's, under a free name; returns what was read, with that name."""
        read = read_preset(path)
        name = self.save(self.free_name(read.name), read.settings)
        return msgspec.structs.replace(read, name=name)

    def export_file(self, name: str, path: Path) -> None:
        """Write a preset to a file chosen by the user."""
        settings = self.get(name)
        if settings is None:
            raise KnownError(_missing(name))
        try:
            write_export(path, preset_as_file(settings.preset, settings))
        except OSError as error:
            raise KnownError(f"{path.name} couldn't be written: {error.strerror or error}.") from error

    def _change(self, change: Callable[[_File], dict[str, Any]]) -> None:
        try:
            self._file.update(lambda file: msgspec.structs.replace(file, **change(file)))
        finally:
            self._content = self._file.read()


def _known(file: _File, name: str) -> str | None:
    """The name of this preset as it is stored."""
    folded = name.casefold()
    return next((one for one in file.presets if one.casefold() == folded), None)


def _wanted(file: _File, name: str) -> str:
    known = _known(file, name)
    if known is None:
        raise KnownError(_missing(name))
    return known


def _missing(name: str) -> str:
    return f"There is no longer a preset named “{name}”."


def _usable(name: str) -> str:
    """``name`` on one line, without spaces around it."""
    usable = " ".join("".join(one if one.isprintable() else " " for one in name).split())
    if not usable:
        raise KnownError("A preset needs a name.")
    if len(usable) > MAX_NAME_LENGTH:
        raise KnownError(f"A preset's name can have at most {MAX_NAME_LENGTH} characters.")
    return usable


def _free(file: _File, name: str) -> str:
    wanted, number = _usable(name), 1
    free = wanted
    while _known(file, free) is not None:
        number += 1
        behind = f" {number}"
        free = wanted[: MAX_NAME_LENGTH - len(behind)].rstrip() + behind
    return free


def _with(file: _File, name: str, settings: ChatSettings) -> dict[str, dict[str, Any]]:
    if len(file.presets) >= MAX_PRESETS and name not in file.presets:
        raise KnownError(f"There are already {MAX_PRESETS} presets. Delete one first.")
    return {**file.presets, name: msgspec.to_builtins(msgspec.structs.replace(settings, preset=""))}
