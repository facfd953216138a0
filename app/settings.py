"""The app's settings: each field of `Settings` is one, with its type, range and description, stored in a JSON file."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from app import system
from app.protocol.options import MAX_DRAFT_LENGTH, AcceptRule, HeadChoice, LoadSettings, Propose
from app.protocol.serving import DEFAULT_PORT
from app.storage.json_file import (
    NOT_UNDERSTOOD,
    PATIENCE_SECONDS,
    JsonFile,
    NotSavedError,
    OtherVersionError,
    decode,
    lenient,
    struct_of,
)
from app.system import KnownError

T = TypeVar("T")

VERSION = 5
MAX_RECENT_PAIRS = 10
MAX_MODEL_LOADS = 100
MINIMUM_ZOOM, MAXIMUM_ZOOM = 50, 200
"""Percent."""

ThemeChoice: TypeAlias = Literal["system", "light", "dark"]
SendKey: TypeAlias = Literal["enter", "ctrl_enter"]
SidePage: TypeAlias = Literal["speed", "chat_settings"]


class Pair(msgspec.Struct, frozen=True):
    """The files of a target and perhaps a draft, or a model on a server."""

    target: str
    """A path, or the model's name on the server."""
    draft: str | None = None
    server: str = ""
    """The server's address; empty for files on this computer."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How other programs may use the model loaded in the window."""

    on: Annotated[bool, Meta(description="Let other programs use the loaded model")] = False
    port: Annotated[int, Meta(ge=1, le=65535, description="Where the server listens")] = DEFAULT_PORT
    for_others: Annotated[bool, Meta(description="Other computers may use it; they need the key")] = False
    address: Annotated[str, Meta(description="Where it listens for other computers")] = ""
    """Empty: at all addresses of this computer."""
    needs_key: Annotated[bool, Meta(description="Programs on this computer need the key, too")] = True
    hosts: Annotated[list[str], Meta(description="Other names that programs may use for this computer")] = []
    origins: Annotated[list[str], Meta(description="More web pages that may use the server")] = []


class Settings(msgspec.Struct, kw_only=True):
    """All settings with their defaults. Ranges are checked on reading and saving."""

    window_geometry: Annotated[str, Meta(description="Place and size of the window, as Qt saves it, base64")] = ""
    splitter_state: Annotated[str, Meta(description="Widths of list, chat and panel, as Qt saves them, base64")] = ""
    chats_visible: Annotated[bool, Meta(description="Show the list of chats")] = True
    chat_sort: Annotated[Literal["newest", "oldest", "title"], Meta(description="Order of the chats")] = "newest"
    collapsed_folders: Annotated[list[str], Meta(description="Chat folders that are collapsed, by their ids")] = []
    open_sections: Annotated[list[str], Meta(description="Sections of the chat settings that are open")] = []
    speed_visible: Annotated[bool, Meta(description="Show the side panel")] = True
    side_page: Annotated[SidePage, Meta(description="What the side panel shows")] = "speed"
    guide_introduced: Annotated[bool, Meta(description="The guide has already introduced itself")] = False
    starter_introduced: Annotated[bool, Meta(description="The starter model has already introduced itself")] = False
    starter_hidden: Annotated[bool, Meta(description="Don't list or offer the starter model")] = False
    theme: Annotated[ThemeChoice, Meta(description="Colors of the window")] = "system"
    zoom: Annotated[int, Meta(ge=MINIMUM_ZOOM, le=MAXIMUM_ZOOM, description="Size of all text, in percent")] = 100
    send_with: Annotated[SendKey, Meta(description="The key that sends a message")] = "enter"
    notify_finished: Annotated[bool, Meta(description="Notify when an answer is finished in the background")] = True
    code_wrap: Annotated[bool, Meta(description="Wrap long lines of code")] = False
    drafted_visible: Annotated[bool, Meta(description="Tint the draft tokens that were accepted")] = False

    most_tool_calls: Annotated[int, Meta(ge=1, le=1000, description="How many tool calls an answer may make")] = 25
    draft_length: (
        Annotated[int, Meta(ge=0, le=MAX_DRAFT_LENGTH, description="Tokens per draft; 0 turns drafting off")] | None
    ) = None
    """``None``: automatic."""
    propose: Annotated[Propose, Meta(description="How a draft model proposes tokens; never changes the text")] = "auto"
    accept: Annotated[AcceptRule, Meta(description="How draft tokens are accepted")] = "coupled"
    load: Annotated[LoadSettings, Meta(description="Context and memory, for models without their own")] = LoadSettings()
    model_loads: Annotated[
        dict[str, LoadSettings], Meta(description="The same for each model, by the target's path")
    ] = msgspec.field(default_factory=dict)
    """In the order of loading, at most `MAX_MODEL_LOADS`."""
    model_heads: Annotated[
        dict[str, HeadChoice], Meta(description="Whether to use the MTP head inside a model, by its path")
    ] = msgspec.field(default_factory=dict)
    """Without those that are ``auto``; at most `MAX_MODEL_LOADS`."""
    model_templates: Annotated[
        dict[str, str], Meta(description="The chat template to use for a model, by its path: a name or a file")
    ] = msgspec.field(default_factory=dict)
    """Without those that use their own; at most `MAX_MODEL_LOADS`."""

    models_folder: Annotated[str, Meta(description="Where downloaded models are stored")] = ""
    """Empty: `app.system.models_dir`."""
    extra_folders: Annotated[list[str], Meta(description="More folders with models; nothing is written there")] = []
    offline: Annotated[bool, Meta(description="Use no network at all")] = False
    hub_endpoint: Annotated[str, Meta(description="Address of a Hugging Face mirror")] = ""
    """Empty: the variable HF_ENDPOINT, or huggingface.co."""
    token_to_mirror: Annotated[bool, Meta(description="Also send the access token to the mirror")] = False
    parallel_downloads: Annotated[
        int, Meta(ge=1, le=8, description="How many files are downloaded at the same time")
    ] = 2

    server: Annotated[ServerSettings, Meta(description="The API server")] = ServerSettings()
    built_in_tools: Annotated[list[str], Meta(description="Built-in tools that are on in all chats")] = msgspec.field(
        default_factory=list
    )

    last_pair: Annotated[Pair | None, Meta(description="The pair that was loaded last")] = None
    """``None``: the bundled pair."""
    recent_pairs: Annotated[list[Pair], Meta(description="What was loaded, newest first, at most 10")] = []
    last_chat_id: Annotated[str, Meta(description="The chat that was open")] | None = None

    def load_for(self, target: str) -> LoadSettings:
        """How to load the target at this path."""
        return self.model_loads.get(target, self.load)

    def remember_load(self, target: str, load: LoadSettings) -> None:
        """How to load this target from now on."""
        self.model_loads = _latest(self.model_loads, target, load)

    def head_for(self, target: str) -> HeadChoice:
        """Whether to use the MTP head inside the target at this path."""
        return self.model_heads.get(target, "auto")

    def remember_head(self, target: str, head: HeadChoice) -> None:
        """Whether to use the MTP head inside this target from now on."""
        self.model_heads = _latest(self.model_heads, target, None if head == "auto" else head)

    def template_for(self, target: str) -> str:
        """The chat template for the target at this path, as in `Load.chat_template`."""
        return self.model_templates.get(target, "")

    def remember_template(self, target: str, template: str) -> None:
        """The chat template for this target from now on; empty: its own."""
        self.model_templates = _latest(self.model_templates, target, template or None)

    def models_moved(self, old: Path, new: Path) -> None:
        """The models in folder ``old`` have moved to ``new``."""

        def there(path: str) -> str:
            return str(new / Path(path).relative_to(old)) if Path(path).is_relative_to(old) else path

        def both(pair: Pair) -> Pair:
            if pair.server:
                return pair
            return Pair(there(pair.target), there(pair.draft) if pair.draft else pair.draft)

        self.model_loads = {there(path): load for path, load in self.model_loads.items()}
        self.model_heads = {there(path): head for path, head in self.model_heads.items()}
        self.model_templates = {there(path): there(template) for path, template in self.model_templates.items()}
        self.recent_pairs = list(dict.fromkeys(map(both, self.recent_pairs)))
        self.last_pair = both(self.last_pair) if self.last_pair is not None else None

    def known_servers(self) -> list[str]:
        """The addresses of servers used recently."""
        return list(dict.fromkeys(pair.server for pair in self.recent_pairs if pair.server))

    def remember_pair(self, pair: Pair) -> None:
        """Make ``pair`` the most recent one."""
        self.last_pair = pair
        self.recent_pairs = [pair, *(other for other in self.recent_pairs if other != pair)][:MAX_RECENT_PAIRS]


def _latest(known: dict[str, T], target: str, value: T | None) -> dict[str, T]:
    """``known`` with this value for the target, or without any; drops the oldest entries if there are too many."""
    others = [(path, one) for path, one in known.items() if path != target]
    return dict([*others, *([] if value is None else [(target, value)])][-MAX_MODEL_LOADS:])


class SettingsFile:
    """The settings in one file: change attributes of ``values``, then `save`.

    Settings that this version doesn't know stay in the file. A file of another format version is never written; a newer
    one is read as far as possible.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises `KnownError` only if a damaged one can't be renamed."""
        self._file: JsonFile[dict[str, Any]] = JsonFile(
            path.resolve(),
            {},
            version=VERSION,
            what="Settings",
            patience=PATIENCE_SECONDS,
            log_level=logging.INFO,  # `notice` reports it
        )
        self._saving = threading.Lock()
        self._is_foreign = False
        self.notice: str | None = None
        """What to tell the user about the file."""
        self.values = self._read()

    def save(self, values: Settings | None = None) -> None:
        """Write ``values``, by default the attribute's, atomically. Thread-safe.

        Raises `KnownError` if writing fails, and `msgspec.ValidationError` for a value out of range (a bug).
        """
        if self._is_foreign:
            return
        with self._saving:
            raw = msgspec.to_builtins(self.values if values is None else values)
            system.convert(raw, Settings)
            try:
                self._file.update(lambda content: {"version": VERSION, **_merged(content, raw, Settings)})
            except NotSavedError as error:
                raise KnownError(
                    f"Settings couldn't be saved in {self._file.path.parent}: {error.reason}. They apply until you "
                    "close Slipstream."
                ) from error

    def _read(self) -> Settings:
        try:
            content = self._file.load()
        except OtherVersionError as error:
            return self._read_foreign(is_newer=error.is_newer)
        except OSError as error:
            raise KnownError(
                f"The settings in {self._file.path} can't be read or moved aside: {error.strerror or error}. Move "
                "the file away and start Slipstream again."
            ) from error
        if self._file.aside is not None:
            aside = self._file.aside
            self.notice = (
                f"The settings couldn't be read. The file is now called {aside}, and all settings have "
                "their default values."
            )
        problems: list[str] = []
        values = lenient(Settings, content, problems)
        if problems:
            self.notice = f"Some settings couldn't be used and have their default values: {', '.join(problems)}."
        return values

    def _read_foreign(self, *, is_newer: bool) -> Settings:
        self._is_foreign = True
        if not is_newer:
            self.notice = (
                "These settings were saved by a version of Slipstream from before its first release. All settings have "
                "their default values, and changes last only until you close Slipstream, because the file is left as "
                f"it is. To keep changes, move {self._file.path} to another folder."
            )
            return Settings()
        self.notice = (
            "These settings were saved by a newer version of Slipstream. Settings this version doesn't know have "
            "their default values, and changes last only until you close Slipstream, because the file is left as "
            "it is."
        )
        content: dict[str, Any] = {}
        with contextlib.suppress(OSError, *NOT_UNDERSTOOD):
            content = decode(self._file.path.read_bytes(), dict[str, Any])
        return lenient(Settings, content, [])


def _merged(content: dict[str, Any], values: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """``content`` updated with ``values``; unknown settings stay."""
    merged = {**content, **values}
    for field in msgspec.structs.fields(kind):
        struct, before = struct_of(field.type), content.get(field.name)
        if struct is not None and isinstance(before, dict):
            merged[field.name] = _merged(before, values[field.name], struct)
    return {key: value for key, value in merged.items() if key != "version"}
