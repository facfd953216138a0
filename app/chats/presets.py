"""Presets: named chat settings, all in one file, and as files to share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from app import system
from app.chats.settings import ChatSettings, without_folders
from app.protocol.answering import SamplingChoice
from app.storage.files import write_export
from app.storage.json_file import (
    NOT_UNDERSTOOD,
    PATIENCE_SECONDS,
    JsonFile,
    OtherVersionError,
    Versioned,
    encode,
    lenient,
)
from app.system import KnownError

# Preset files for sharing: our own JSON; LM Studio's can be read, too. LM Studio's presets
# (``~/.lmstudio/config-presets/*.preset.json``) are lists of keys and values in ``operation.fields``, older ones in
# ``fields``; an optional value is ``{"checked": …, "value": …}`` and off if unchecked. Paths, addresses and models
# named in a file are ignored.

FORMAT = "slipstream-preset"
VERSION = 1
MAX_FILE_BYTES = 1024 * 1024
MAX_SYSTEM_PROMPT = 200_000
"""Characters."""
MAX_STOP_STRINGS, MAX_STOP_LENGTH = 64, 1000
_MAX_NAME = 60
"""Leaves room for a number at the end."""
_MOST_NAMED = 8


class PresetFile(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from a file."""

    name: str
    settings: ChatSettings
    ignored: list[str] = []
    """Unknown keys, in the file's order."""
    unusable: list[str] = []
    """Keys with invalid values; the model's recommendation applies instead."""

    def remark(self) -> str:
        """What was left out of the file, in one or two sentences; empty if nothing was."""
        sentences = []
        if self.unusable:
            sentences.append(f"Some values aren't valid and were left out: {_listed(self.unusable)}.")
        if self.ignored:
            sentences.append(f"Slipstream has no setting for these: {_listed(self.ignored)}.")
        return " ".join(sentences)


def read_preset(path: Path) -> PresetFile:
    """Read a preset in either format. Raises `KnownError` for any other file."""
    content = _content(path)
    fields = _lm_studio_fields(content)
    if content.get("format") == FORMAT:
        read = _read_own(path, content)
    elif fields is not None:
        read = _read_lm_studio(path, content, fields)
    else:
        raise _not_a_preset(path)
    return _checked(read)


def preset_as_file(name: str, settings: ChatSettings) -> bytes:
    values = msgspec.to_builtins(settings)
    del values["preset"], values["folders"]
    return encode({"format": FORMAT, "version": VERSION, "name": name, "settings": values})


def _content(path: Path) -> dict[str, Any]:
    if not os.path.isfile(path):  # noqa: PTH113 - Path's raises where one may not look
        raise KnownError(f"{path.name} can't be read because it isn't a file.")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KnownError(f"{path.name} can't be read: {error.strerror or error}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise KnownError(f"{path.name} is too large for a preset. The limit is 1 MB.")
    try:
        # Not `json_file.decode`, because a model can't be given half a surrogate pair.
        return system.decode(data.removeprefix(b"\xef\xbb\xbf"), dict[str, Any])
    except NOT_UNDERSTOOD:
        raise _not_a_preset(path) from None


def _not_a_preset(path: Path) -> KnownError:
    return KnownError(f"{path.name} isn't a Slipstream or LM Studio preset.")


def _name(path: Path, content: dict[str, Any]) -> str:
    """The name in the file, else the file's own name."""
    named = content.get("name")
    text = named if isinstance(named, str) and named.strip() else path.name.split(".")[0]
    usable = " ".join("".join(one if one.isprintable() else " " for one in text[:1000]).split())
    return usable[:_MAX_NAME].rstrip() or "Preset"


def _listed(names: list[str]) -> str:
    shown = [name.encode("unicode_escape").decode()[:60] for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _checked(read: PresetFile) -> PresetFile:
    """Without texts that are too long for a preset."""
    settings, unusable = read.settings, list(read.unusable)
    if len(settings.system_prompt) > MAX_SYSTEM_PROMPT:
        settings = msgspec.structs.replace(settings, system_prompt="")
        unusable.append("system_prompt")
    stop = [text for text in settings.stop if 0 < len(text) <= MAX_STOP_LENGTH][:MAX_STOP_STRINGS]
    if stop != settings.stop:
        settings = msgspec.structs.replace(settings, stop=stop)
        unusable.append("stop")
    return msgspec.structs.replace(read, settings=settings, unusable=unusable)


# ---------------------------------------------------------------- our own


def _read_own(path: Path, content: dict[str, Any]) -> PresetFile:
    version, values = content.get("version"), content.get("settings")
    if isinstance(version, int) and version > VERSION:
        raise KnownError(f"{path.name} was saved by a newer version of Slipstream. Update Slipstream to import it.")
    if not isinstance(values, dict):
        raise _not_a_preset(path)
    unusable: list[str] = []
    settings = lenient(ChatSettings, values, unusable)
    known, sampling = set(ChatSettings.__struct_fields__), values.get("sampling")
    ignored = [key for key in values if key not in known]
    if isinstance(sampling, dict):
        ignored += [f"sampling.{key}" for key in sampling if key not in SamplingChoice.__struct_fields__]
    settings = without_folders(msgspec.structs.replace(settings, preset=""))
    return PresetFile(name=_name(path, content), settings=settings, ignored=ignored, unusable=unusable)


# ---------------------------------------------------------------- LM Studio's


def _lm_studio_fields(content: dict[str, Any]) -> list[Any] | None:
    """All fields of the file; ``None`` if it isn't LM Studio's."""
    places = [content, content.get("operation"), content.get("load")]
    lists = [place["fields"] for place in places if isinstance(place, dict) and isinstance(place.get("fields"), list)]
    return [field for fields in lists for field in fields] if lists else None


def _read_lm_studio(path: Path, content: dict[str, Any], fields: list[Any]) -> PresetFile:
    values: dict[str, Any] = {}
    sampling: dict[str, Any] = {}
    ignored: list[str] = []
    unusable: list[str] = []
    for field in fields:
        match field:
            case {"key": str(key), "value": value}:
                pass
            case _:
                continue
        if key not in _LM_STUDIO:
            ignored.append(key)
            continue
        name, read = _LM_STUDIO[key]
        is_sampling = name in SamplingChoice.__struct_fields__
        try:
            converted = system.convert({name: read(value)}, SamplingChoice if is_sampling else ChatSettings)
            (sampling if is_sampling else values)[name] = getattr(converted, name)
        except (msgspec.ValidationError, ValueError, TypeError, KeyError):
            unusable.append(key)
    settings = ChatSettings(sampling=SamplingChoice(**sampling), **values)
    return PresetFile(name=_name(path, content), settings=settings, ignored=ignored, unusable=unusable)


def _choice(off: float | None) -> Callable[[Any], Any]:
    """Returns a reader for an optional value; ``off`` stands for an unset one."""

    def read(value: Any) -> Any:
        match value:
            case {"checked": bool(checked), **rest}:
                return rest["value"] if checked else off
            case False:
                return off
            case _:
                return value

    return read


def _top_k(value: Any) -> Any:
    number = _choice(0)(value)
    return 0 if number == -1 else number


_OVERFLOW = {"stopAtLimit": "stop", "rollingWindow": "drop_oldest", "truncateMiddle": "keep_ends"}
_LM_STUDIO: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "llm.prediction.temperature": ("temperature", lambda value: value),
    "llm.prediction.topKSampling": ("top_k", _top_k),
    "llm.prediction.topPSampling": ("top_p", _choice(1.0)),
    "llm.prediction.minPSampling": ("min_p", _choice(0.0)),
    "llm.prediction.repeatPenalty": ("repetition_penalty", _choice(1.0)),
    "llm.prediction.llama.presencePenalty": ("presence_penalty", _choice(0.0)),
    "llm.prediction.llama.frequencyPenalty": ("frequency_penalty", _choice(0.0)),
    "llm.prediction.systemPrompt": ("system_prompt", lambda value: value),
    "llm.prediction.stopStrings": ("stop", lambda value: value),
    "llm.prediction.maxPredictedTokens": ("max_tokens", _choice(None)),
    "llm.prediction.seed": ("seed", _choice(None)),
    "llm.prediction.contextOverflowPolicy": ("overflow", _OVERFLOW.__getitem__),
}
"""For each of their keys, our name and a converter of the value."""


FILE_NAME = "presets.json"
MAX_PRESETS = 500
MAX_NAME_LENGTH = 80


class _File(Versioned, kw_only=True):
    presets: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Settings by name, as stored."""
    default: str = ""
    """The default preset of models without their own; empty for none."""
    defaults: dict[str, str] = msgspec.field(default_factory=dict)
    """Default presets by the path of a target."""


class Presets:
    """The presets of one file, which is read once, here.

    Reads use memory only. Changes write the file (slow) and raise `KnownError` for an unusable name or if writing
    fails; the change then lasts until Slipstream ends. Safe from any thread. Names that differ only in case are the
    same.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. A damaged one is renamed, a newer one left alone; both leave no presets."""
        self._file = JsonFile(
            path,
            _File(version=VERSION),
            version=VERSION,
            what="The presets",
            patience=PATIENCE_SECONDS,
            log_level=logging.INFO,  # `notice` reports it
        )
        self.notice: str | None = None
        """What to tell the user about the file; empty if all is well."""
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
        """The settings of a preset, including its name; ``None`` if it doesn't exist."""
        known = _known(self._content, name)
        if known is None:
            return None
        settings = without_folders(lenient(ChatSettings, self._content.presets[known], []))
        return msgspec.structs.replace(settings, preset=known)

    def is_changed(self, settings: ChatSettings) -> bool:
        """Whether these settings differ from the preset they came from; ``False`` without a preset."""
        return bool(settings.preset) and self.get(settings.preset) != without_folders(settings)

    def free_name(self, name: str) -> str:
        """``name``, with a number added if it is taken."""
        return _free(self._content, name)

    def default_name(self, target: str = "") -> str:
        """The preset for new chats with the target at this path; empty for none.

        Without a path, or if the model has no preset of its own, the default of all models.
        """
        return self.own_default_name(target) or self._content.default

    def own_default_name(self, target: str) -> str:
        """The preset chosen for this model; empty if there is none."""
        return self._content.defaults.get(target, "")

    def default_for(self, target: str = "") -> ChatSettings:
        """The settings of the default preset, else what the model recommends."""
        return self.get(self.default_name(target)) or ChatSettings()

    # ------------------------------------------------------------ changes

    def save(self, name: str, settings: ChatSettings, *, replace: bool = False) -> str:
        """Save ``settings`` under a name; returns the name as stored.

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
        """Rename a preset; returns the new name as stored. A default stays the default."""

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
        """Copy a preset; returns the copy's name."""
        copies: list[str] = []

        def duplicated(file: _File) -> dict[str, Any]:
            old = _wanted(file, name)
            copies.append(_free(file, f"{old[: MAX_NAME_LENGTH - 5]} copy"))
            return {"presets": {**file.presets, copies[-1]: file.presets[old]}}

        self._change(duplicated)
        return copies[-1]

    def delete(self, name: str) -> None:
        """Delete a preset. Chats keep their settings; if it was a default, there is none now."""

        def deleted(file: _File) -> dict[str, Any]:
            old = _wanted(file, name)
            return {
                "presets": {one: content for one, content in file.presets.items() if one != old},
                "default": "" if file.default == old else file.default,
                "defaults": {target: one for target, one in file.defaults.items() if one != old},
            }

        self._change(deleted)

    def set_default(self, name: str, target: str = "") -> None:
        """Set the preset for new chats with the target at this path, or with any model; an empty ``name`` clears it."""

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
    """The preset's name as stored."""
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
    """``name`` on one line, without surrounding spaces."""
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
    return {**file.presets, name: msgspec.to_builtins(without_folders(msgspec.structs.replace(settings, preset="")))}
