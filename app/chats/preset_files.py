"""A preset as a file to give away: our own JSON; LM Studio's are read, too.

LM Studio's presets (``~/.lmstudio/config-presets/*.preset.json``) are lists of keys and values in ``operation.fields``,
older ones in ``fields``; what can be left out is ``{"checked": …, "value": …}`` and off where it is not checked.
What a file names (paths, addresses, models) is not followed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from app import decoders
from app.chats.settings import ChatSettings
from app.errors import KnownError
from app.protocol.answering import SamplingChoice
from app.protocol.options import Overflow
from app.storage.json_file import NOT_UNDERSTOOD, encode
from app.storage.lenient import lenient

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
    """Unknown keys, in their order."""
    unusable: list[str] = []
    """Keys with invalid values; the model's recommendation is used instead."""

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
    """A preset in our own format."""
    values = msgspec.to_builtins(settings)
    del values["preset"]
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
        # Not `json_file.decode`: half a surrogate pair can't be given to a model.
        return decoders.decode(data.removeprefix(b"\xef\xbb\xbf"), dict[str, Any])
    except NOT_UNDERSTOOD:
        raise _not_a_preset(path) from None


def _not_a_preset(path: Path) -> KnownError:
    return KnownError(f"{path.name} isn't a Slipstream or LM Studio preset.")


def _name(path: Path, content: dict[str, Any]) -> str:
    """The name in the file, or the file's own name."""
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
    settings = msgspec.structs.replace(settings, preset="")
    return PresetFile(name=_name(path, content), settings=settings, ignored=ignored, unusable=unusable)


# ---------------------------------------------------------------- LM Studio's

_OVERFLOW: dict[str, Overflow] = {
    "stopAtLimit": "stop",
    "rollingWindow": "drop_oldest",
    "truncateMiddle": "keep_ends",
}
_CHECKED: dict[str, tuple[str, float]] = {
    "llm.prediction.topPSampling": ("top_p", 1.0),
    "llm.prediction.minPSampling": ("min_p", 0.0),
    "llm.prediction.repeatPenalty": ("repetition_penalty", 1.0),
    "llm.prediction.llama.presencePenalty": ("presence_penalty", 0.0),
    "llm.prediction.llama.frequencyPenalty": ("frequency_penalty", 0.0),
}
"""The key, our name for it, and its value if it isn't checked."""


def _lm_studio_fields(content: dict[str, Any]) -> list[Any] | None:
    """All fields of the file; ``None`` if it isn't one of LM Studio's."""
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
        if key in _READERS:
            place, name = (values, _OTHERS[key]) if key in _OTHERS else (sampling, _SAMPLING[key])
            try:
                place[name] = _converted(key, name, _READERS[key](value))
            except (msgspec.ValidationError, ValueError, TypeError, KeyError):
                unusable.append(key)
        else:
            ignored.append(key)
    settings = ChatSettings(sampling=SamplingChoice(**sampling), **values)
    return PresetFile(name=_name(path, content), settings=settings, ignored=ignored, unusable=unusable)


def _converted(key: str, name: str, value: Any) -> Any:
    """``value``, if it is valid for this setting."""
    kind: type[msgspec.Struct] = SamplingChoice if key in _SAMPLING else ChatSettings
    return getattr(decoders.convert({name: value}, kind), name)


def _choice(off: float | None) -> Callable[[Any], Any]:
    """Returns a function that reads an optional value; ``off`` is the value if it isn't set."""

    def read(value: Any) -> Any:
        match value:
            case {"checked": bool(checked), **rest}:
                return rest["value"] if checked else off
            case False:
                return off
            case _:
                return value

    return read


def _same(value: Any) -> Any:
    return value


def _top_k(value: Any) -> Any:
    number = _choice(0)(value)
    return 0 if number == -1 else number


_SAMPLING = {
    "llm.prediction.temperature": "temperature",
    "llm.prediction.topKSampling": "top_k",
    **{key: name for key, (name, _off) in _CHECKED.items()},
}
_OTHERS = {
    "llm.prediction.systemPrompt": "system_prompt",
    "llm.prediction.stopStrings": "stop",
    "llm.prediction.maxPredictedTokens": "max_tokens",
    "llm.prediction.seed": "seed",
    "llm.prediction.contextOverflowPolicy": "overflow",
}
_READERS: dict[str, Callable[[Any], Any]] = {
    **{key: _choice(off) for key, (_ours, off) in _CHECKED.items()},
    "llm.prediction.temperature": _same,
    "llm.prediction.topKSampling": _top_k,
    "llm.prediction.systemPrompt": _same,
    "llm.prediction.stopStrings": _same,
    "llm.prediction.maxPredictedTokens": _choice(None),
    "llm.prediction.seed": _choice(None),
    "llm.prediction.contextOverflowPolicy": lambda value: _OVERFLOW[value],
}
