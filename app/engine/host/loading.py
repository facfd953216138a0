"""Loads a target and its draft: from files to models and contexts."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psutil

from app import helper
from app.engine.decoding.counting import TokenCounter
from app.engine.decoding.prompt import PromptBuilder
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher
from app.engine.host.heads import TargetHead, header_of_head, load_head, why_unused
from app.engine.host.load_options import ModelOptions
from app.engine.host.thinking import ModelThinking
from app.engine.host.threads import remembered_threads
from app.engine.llama.backend import engine_name, gpu_devices
from app.engine.llama.checkpoints import RollBackSupport, try_out
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.engine.llama.thread_count import Threads, default_threads
from app.errors import KnownError
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.mtp import head_problem
from app.models.pairing import compare
from app.models.text import printable
from app.protocol.commands import Load
from app.protocol.events import LoadProgressed, ModelInfo
from app.protocol.limits import (
    DEFAULT_DRAFT_LENGTH,
    DRAFT_OUTPUTS,
    MAX_CONTEXT_LENGTH,
    MAX_DRAFT_LENGTH,
    default_context_length,
    fewer_snapshots,
    snapshots_for,
)
from app.protocol.options import LoadSettings, Sampling
from app.storage.keyed_file import KeyedFile, cache_file, key_of

log = logging.getLogger("slipstream.engine")

_SMALL_DRAFT_PARAMETERS = 20_000_000
NO_ROLL_BACK = (
    "Drafting isn't available for this model: its architecture can't undo rejected tokens. Answers "
    "arrive at the model's normal speed."
)
_DRAFT_NO_ROLL_BACK = (
    "The architecture of this draft model can't undo rejected tokens, so it can't be used for drafting."
)
_FINGERPRINT_BYTES, _LEAST_FINGERPRINT_BYTES = 1024 * 1024, 16 * 1024
"""How many bytes are read at each of three places of a model, distributed over its parts; and the minimum for each
part.
"""
_SAMPLING_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
    "penalty_window": "penalty_last_n",
}
"""Fields of `Sampling` and their names in a GGUF file, after ``general.sampling.``."""
_ALL = {"top_k": 0, "penalty_window": MAX_CONTEXT_LENGTH}
"""The meaning of llama.cpp's -1: every token of the vocabulary, the whole context."""
_MOST_RECOMMENDED = 2**31 - 1
"""llama.cpp reads 32 bits, and so do the window's fields."""

Stamp = tuple[int, ...]
"""Size in bytes and modification time in nanoseconds of each file of a model; if these are the same, so is the model.
"""


# ---------------------------------------------------------------- files


@dataclass(frozen=True)
class ModelFiles:
    """The file of a model, or all its parts, in the state in which the header was read."""

    header: GgufHeader
    paths: tuple[Path, ...]
    stamp: Stamp

    @classmethod
    def checked(cls, path: Path) -> ModelFiles:
        """Read the header. Raises `KnownError` for files that llama.cpp can't load, or that change in the meantime."""
        header = read_header(path)
        check_loadable(header)
        paths = header.split.files if header.split else (path,)
        files = cls(header, paths, _stamp(paths))
        if sum(files.stamp[::2]) != header.file_size:
            raise _changed(path)
        return files

    def check_unchanged(self) -> None:
        """Raise `KnownError` if a file was replaced or written to since `checked`."""
        if _stamp(self.paths) != self.stamp:
            raise _changed(self.header.path)

    def fingerprint(self) -> str:
        """A digest of parts of the files: header, middle and end of each. Modification times can't always be trusted,
        and a state of another model with the same shape would be taken for one of its own.
        """
        digest = hashlib.sha256()
        length = max(_FINGERPRINT_BYTES // len(self.paths), _LEAST_FINGERPRINT_BYTES)
        for path in self.paths:
            with _reading(path), path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                for place in (0, size // 2, max(size - length, 0)):
                    file.seek(place)
                    digest.update(file.read(length))
        return digest.hexdigest()


def _stamp(paths: tuple[Path, ...]) -> Stamp:
    stamp: list[int] = []
    for path in paths:
        with _reading(path):
            status = path.stat()
        stamp += (status.st_size, status.st_mtime_ns)
    return tuple(stamp)


def _changed(path: Path) -> KnownError:
    return KnownError(f"{printable(path.name)} changed while it was being loaded, so it wasn't used. Load it again.")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "it no longer exists" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise KnownError(
            f"{printable(path.name)} couldn't be read while it was being loaded: {reason}. Load it again."
        ) from None


# ---------------------------------------------------------------- what the file recommends


def recommended_sampling(model: Model) -> tuple[Sampling, list[str]]:
    """The sampling that the file of ``model`` recommends, and the names of the fields it specifies.

    Invalid values are left out; the others are used.
    """
    sampling, fields = Sampling(), list[str]()
    for name, key in _SAMPLING_KEYS.items():
        text = model.metadata(f"general.sampling.{key}")
        if not text:
            continue
        value: object = _ALL[name] if name in _ALL and text == "-1" else text
        try:
            changed = msgspec.convert({**msgspec.to_builtins(sampling), name: value}, Sampling, strict=False)
        except msgspec.ValidationError as error:
            log.info("%s that %s recommends is not used: %s", name, model.path.name, error)
            continue
        if math.isfinite(number := getattr(changed, name)) and number <= _MOST_RECOMMENDED:
            sampling = changed
            fields.append(name)
    return sampling, fields


def default_draft_length(model: Model) -> int:
    """The fixed draft length that the file of ``model`` recommends."""
    value = model.metadata("slipstream.draft_length")
    if value is None or not (value.isascii() and value.isdigit()):
        return DEFAULT_DRAFT_LENGTH
    return min(max(int(value), 1), MAX_DRAFT_LENGTH)


# ---------------------------------------------------------------- contexts


def target_context(
    model: Model, settings: LoadSettings, length: int, threads: Threads, *, has_head: bool = False
) -> Context:
    """With as many snapshots of its running state as there is memory for, or none if it wouldn't fit otherwise."""
    snapshots = _affordable_snapshots(model, settings, threads.batch, has_head=has_head)

    def with_snapshots(count: int) -> Context:
        one, batch = threads
        return Context(model, settings, length=length, threads=one, batch_threads=batch, snapshots=count)

    while snapshots:
        try:
            return with_snapshots(snapshots)
        except KnownError as error:
            log.info("too little memory for %d snapshots: %s", snapshots, error)
            snapshots = fewer_snapshots(snapshots)
    return with_snapshots(0)


def _affordable_snapshots(model: Model, settings: LoadSettings, threads: int, *, has_head: bool = False) -> int:
    if not model.has_running_state:
        return 0
    small = msgspec.structs.replace(settings, batch_size=32, micro_batch_size=32)
    with contextlib.closing(Context(model, small, length=1, threads=threads, outputs=1, snapshots=1)) as probe:
        probe.decode_largest([0], 1, 1)
        if not probe.checkpoints.snapshots:
            return 0
        size = probe.checkpoints.size()
    memory = min(model.size_bytes, psutil.virtual_memory().available)
    return snapshots_for(size, memory, has_head=has_head)  # 0: llama.cpp can't tell


def _longest_draft(context: Context, owner: str) -> int:
    """How many draft tokens the memory of ``owner`` can undo: tested the first time, then remembered."""
    back = context.checkpoints
    if back.any_length:
        return MAX_DRAFT_LENGTH
    store = KeyedFile(cache_file("rolling_back.json"), RollBackSupport)
    key = key_of({"owner": owner, "snapshots": back.snapshots})
    tried = store.get(key)
    if tried is None:
        tried = try_out(context, context.model.vocabulary_size)
        store.put(key, tried)
    back.use(tried)
    return tried.longest_draft


# ---------------------------------------------------------------- loading


@dataclass
class LoadedModel:
    """A model in memory with its context, as it was loaded with ``settings``."""

    files: ModelFiles
    settings: LoadSettings
    model: Model
    context: Context
    switcher: ChatSwitcher
    owner: str
    """A name for everything that its memory depends on."""
    info: ModelInfo
    longest_draft: int
    """How many rejected tokens its memory can undo; 0: none."""

    def close(self) -> None:
        """Free it; the useful part of its KV cache was saved before (`ChatSwitcher.put_away`)."""
        self.context.close()
        self.model.close()


@dataclass
class Target(LoadedModel):
    """A loaded target and what belongs to it.

    A ``longest_draft`` of 0 means that drafting is off. On a GPU it is at most the number of snapshots: for longer
    drafts the running state would be copied to system memory before each verify pass.
    """

    prompts: PromptBuilder
    counter: TokenCounter
    thinking: ModelThinking
    head: TargetHead | None
    head_stamp: Stamp | None
    """Of the file with the requested head; ``None`` if none was requested."""
    head_refused: str | None
    """Why it isn't used, for the user."""

    def close(self) -> None:
        """See `LoadedModel.close`."""
        self.counter.close()
        if self.head:
            self.head.close()
        super().close()


class Loader:
    """Carries out one `Load`. Its methods raise `KnownError`, or `Canceled` if ``is_canceled`` returns true."""

    def __init__(
        self,
        command: Load,
        on_progress: Callable[[LoadProgressed], None],
        is_canceled: Callable[[], bool],
        caches: ChatCaches,
    ) -> None:
        self._command = command
        self._settings = msgspec.structs.replace(
            command.settings, chat_cache_mib=0
        )  # doesn't change anything that is loaded
        self._options = ModelOptions.of_target(self._settings)
        self._caches = caches
        self._on_progress = on_progress
        self._is_canceled = is_canceled
        self._files = ModelFiles.checked(Path(command.target))
        self._threads = self._number_of_threads()
        self._head = header_of_head(command, self._files.header)
        self._head_stamp = _stamp((self._head.path,)) if self._head else None

    def is_loaded(self, target: Target) -> bool:
        """Whether ``target`` is what the command requests, unchanged."""
        same_files = (target.files.header.path, target.files.stamp) == (self._files.header.path, self._files.stamp)
        return same_files and target.head_stamp == self._head_stamp and target.settings == self._settings

    @property
    def wants_draft_model(self) -> bool:
        """Whether the command names a draft model, and not a file with a head."""
        return bool(self._command.draft) and self._head is None

    @property
    def head_off(self) -> str | None:
        """Why the command wants no head although the target has one, for the user."""
        return None if self._head else why_unused(self._command, self._files.header)

    def target(self) -> Target:
        """Load the target."""
        helper.shared().start()  # it prepares for the chat template while the model is loading
        with contextlib.ExitStack() as undo:
            loaded = self._loaded(undo, self._files, self._options, self._new_target_context)
            prompts = PromptBuilder(loaded.model, loaded.context.length)
            head, refused = self._add_head(loaded)
            undo.pop_all()
        snapshots = loaded.context.checkpoints.snapshots
        if loaded.info.gpu_layers and snapshots:
            loaded.longest_draft = min(loaded.longest_draft, snapshots)
        return Target(
            **vars(loaded),
            prompts=prompts,
            counter=TokenCounter(prompts, loaded.model),
            thinking=ModelThinking(prompts, loaded.model),
            head=head,
            head_stamp=self._head_stamp,
            head_refused=refused,
        )

    def _number_of_threads(self) -> Threads:
        """As chosen; otherwise as it was timed for this target, or as usual for this machine."""
        chosen, batch = self._settings.threads, self._settings.batch_threads
        usual = chosen or default_threads()
        return Threads(chosen or remembered_threads(self._files.stamp) or usual, batch or usual)

    def _add_head(self, loaded: LoadedModel) -> tuple[TargetHead | None, str | None]:
        """Load the requested head of a target; if that isn't possible, ``None`` and the reason."""
        if not self._head:
            return None, None
        try:
            if not loaded.longest_draft:
                raise KnownError(NO_ROLL_BACK)
            files = loaded.files.header, self._head
            head = load_head(loaded.context, files, self._command, self._head_model)
            if head.model:
                head.file = _info(self._head, head.model, self._settings.draft_gpu_layers)
        except KnownError as error:
            log.info("the MTP head is not used: %s", error)
            return None, str(error)
        owner = key_of({"target": loaded.owner, "head": self._head_stamp})  # copies of the cache end with the head's
        loaded.switcher = ChatSwitcher(loaded.context, self._caches, owner, self._is_canceled)
        return head, None

    def _head_model(self, path: Path) -> Model:
        options = replace(self._options, stage="draft", gpu_layers=self._settings.draft_gpu_layers)
        return self._model(path, options, with_head=True)

    def draft(self, target: Target) -> LoadedModel:
        """Load the draft, which must fit ``target``."""
        files = ModelFiles.checked(Path(self._command.draft or ""))
        verdict = compare(target.files.header, files.header)
        if not verdict.fits:
            raise KnownError(verdict.reason)
        if not target.longest_draft:
            raise KnownError(NO_ROLL_BACK)
        options = ModelOptions.of_draft(self._settings, target.context.length)

        def context_of(model: Model) -> Context:
            # below this size, waiting for each other costs threads more than they gain
            is_small = model.parameters < _SMALL_DRAFT_PARAMETERS
            one, batch = (1, 1) if is_small else (self._settings.threads or self._threads.batch, self._threads.batch)
            length, outputs = options.settings.context_length, DRAFT_OUTPUTS
            return Context(model, options.settings, length=length, threads=one, batch_threads=batch, outputs=outputs)

        with contextlib.ExitStack() as undo:
            loaded = self._loaded(undo, files, options, context_of)
            if not loaded.longest_draft:
                raise KnownError(_DRAFT_NO_ROLL_BACK)
            undo.pop_all()
        return loaded

    def _loaded(
        self,
        undo: contextlib.ExitStack,
        files: ModelFiles,
        options: ModelOptions,
        context_of: Callable[[Model], Context],
    ) -> LoadedModel:
        """A model and its context, which ``undo`` frees."""
        is_target = options.stage == "target"
        has_head = is_target and self._head is files.header and head_problem(files.header) is None
        model = self._model(files.header.path, options, with_head=has_head)
        undo.callback(model.close)
        context = context_of(model)
        undo.callback(context.close)
        with context.aborting(self._is_canceled):
            context.decode_largest([0], 1, 1)  # loads the weights from disk and allocates the compute buffers
            context.clear()
            owner = _owner(context, files, options)
            longest = _longest_draft(context, owner)
        files.check_unchanged()
        switcher = ChatSwitcher(context, self._caches, owner, self._is_canceled)
        info = _info(files.header, model, options.gpu_layers)
        return LoadedModel(files, self._settings, model, context, switcher, owner, info, longest)

    def _new_target_context(self, model: Model) -> Context:
        if not model.has_decoder_only:
            raise KnownError(f"{model.path.name} is not a model that generates text one token at a time.")
        length = self._settings.context_length or default_context_length(model.training_context)
        self._on_progress(LoadProgressed(request=self._command.request, stage="context", fraction=0.0))
        return target_context(model, self._settings, length, self._threads, has_head=self._head is not None)

    def _model(self, path: Path, options: ModelOptions, *, with_head: bool = False) -> Model:
        last = -1.0

        def report(share: float) -> bool:
            nonlocal last
            if share - last >= 0.01 or share == 1.0:
                last = share
                self._on_progress(LoadProgressed(request=self._command.request, stage=options.stage, fraction=share))
            return not self._is_canceled()

        log.info("loading %s %s", options.stage, path.name)
        return Model(path, options.gpu_layers, report, with_head=with_head, placement=options.placement)


def _owner(context: Context, files: ModelFiles, options: ModelOptions) -> str:
    """A name for everything that the memory of ``context`` depends on."""
    settings = options.settings
    return key_of(
        {
            "file": (*files.stamp, files.fingerprint()),
            "context": (context.length, settings.kv_type, settings.batch_size, settings.micro_batch_size),
            **options.memory_facts(),
            "engine": engine_name(),
            "devices": gpu_devices(),
            "machine": platform.machine(),
        }
    )


def _info(header: GgufHeader, model: Model, gpu_layers: int) -> ModelInfo:
    layers = model.layers if gpu_layers < 0 else min(gpu_layers, model.layers)
    return ModelInfo(
        path=str(header.path),
        name=header.name,
        architecture=header.architecture,
        quantization=header.quantization,
        size_bytes=header.file_size,
        parameters=model.parameters,
        layers=model.layers,
        gpu_layers=layers if gpu_devices() else 0,
        training_context=model.training_context,
    )
