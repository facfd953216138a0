"""Brings a pair into memory: files to models, contexts and drafters, and what their passes cost here."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psutil

from app import helper, paths
from app.engine.decoding.prompt import PromptBuilder
from app.engine.drafters.model import ModelDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.llama import context as llama
from app.engine.llama.devices import gpu_devices
from app.engine.llama.gpu_driver import driver_name
from app.engine.llama.rolling_back import Tried, try_out
from app.engine.policy.calibration import Build, KeptCosts, is_sound, measure, up_to_date
from app.engine.policy.costs import Costs
from app.engine.policy.history import PairHistory, history_file
from app.errors import KnownError
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.pairing import compare
from app.models.text import printable
from app.protocol.limits import (
    DEFAULT_DRAFT_LENGTH,
    DRAFT_OUTPUTS,
    MAX_CONTEXT_LENGTH,
    MAX_DRAFT_LENGTH,
    TARGET_OUTPUTS,
    default_context_length,
    fewer_snapshots,
    snapshots_for,
)
from app.protocol.messages import Load, LoadProgressed, LoadSettings, ModelInfo, Sampling, SpeedChange
from app.storage.keyed_file import KeyedFile, cache_file, key_of

log = logging.getLogger("slipstream.engine")

_SMALL_DRAFT_PARAMETERS = 20_000_000
_FINGERPRINT_BYTES, _LEAST_FINGERPRINT_BYTES = 1024 * 1024, 16 * 1024
"""Read at each of three places of a model, shared by its parts; and of a part at least."""
NO_ROLL_BACK = "Rejected guesses cannot be taken back from the running state of this target, so drafting is off."
_DRAFT_NO_ROLL_BACK = "Rejected guesses cannot be taken back from the running state of this draft, so it is not used."

Stamp = tuple[int, ...]
"""Size in bytes and time of the last change in nanoseconds of each file of a model: with the same it is the same."""


@dataclass
class Target:
    """A loaded target and what belongs to it."""

    path: Path
    settings: LoadSettings
    stamp: Stamp
    header: GgufHeader
    model: llama.Model
    context: llama.Context
    switcher: ChatSwitcher
    prompts: PromptBuilder
    ngrams: NgramDrafter
    info: ModelInfo
    longest_draft: int
    """How many rejected tokens its memory can take back; 0: drafting is off. On a GPU no more than there are snapshots:
    for longer drafts the running state would be copied to the computer's memory before each verify pass."""

    def close(self) -> None:
        """Free it."""
        self.ngrams.close()
        self.context.close()
        self.model.close()


@dataclass
class DraftModel:
    """A loaded draft model. ``default_length`` is the fixed draft length its file recommends."""

    stamp: Stamp
    model: llama.Model
    context: llama.Context
    switcher: ChatSwitcher
    drafter: ModelDrafter
    info: ModelInfo
    default_length: int

    def close(self) -> None:
        """Free it."""
        self.drafter.close()
        self.model.close()


class Loader:
    """Carries out one `Load`. Its methods raise `KnownError`, or `Cancelled` when ``stopped`` says so meanwhile.

    The drafter it makes asks ``stopped`` too, while it processes a prompt.
    """

    def __init__(
        self,
        command: Load,
        threads: int,
        on_progress: Callable[[LoadProgressed], None],
        stopped: Callable[[], bool],
        kept: ChatCaches,
    ) -> None:
        self._command = command
        self._settings = msgspec.structs.replace(command.settings, kept_cache_mib=0)  # changes nothing that is loaded
        self._kept = kept
        self._threads = threads
        self._on_progress = on_progress
        self._stopped = stopped
        self._path = Path(command.target)
        self._files = _ModelFiles.checked(self._path)

    def is_loaded(self, target: Target) -> bool:
        """Whether ``target`` is what the command asks for, unchanged."""
        return (target.path, target.settings, target.stamp) == (self._path, self._settings, self._files.stamp)

    def target(self) -> Target:
        """Load the target."""
        path, settings = self._path, self._settings
        helper.shared().start()  # it gets ready for the chat template while the model loads
        with contextlib.ExitStack() as undo:
            model = self._model(path, settings.target_gpu_layers, "target")
            undo.callback(model.close)
            if not model.has_decoder_only:
                raise KnownError(f"{path.name} is not a model that writes text token after token.")
            wanted = settings.context_length or default_context_length(model.training_context)
            self._on_progress(LoadProgressed(request=self._command.request, stage="context", fraction=0.0))
            context = _target_context(model, settings, wanted, self._threads)
            undo.callback(context.close)
            prompts = PromptBuilder(model, context.length)
            with context.aborting(self._stopped):
                _warm_up(context)
                owner = self._owner(context, self._files, settings.target_gpu_layers)
                longest_draft = _longest_draft(context, owner)
            self._files.check_unchanged()
            undo.pop_all()
        header, stamp = self._files.header, self._files.stamp
        info = _info(header, model, settings.target_gpu_layers)
        if info.gpu_layers and context.rolling_back.snapshots:
            longest_draft = min(longest_draft, context.rolling_back.snapshots)
        ngrams = NgramDrafter(model.is_end)
        switcher = ChatSwitcher(context, self._kept, owner, self._stopped)
        return Target(path, settings, stamp, header, model, context, switcher, prompts, ngrams, info, longest_draft)

    def draft(self, target: Target) -> DraftModel:
        """Load the draft, which has to fit ``target``."""
        path, settings = Path(self._command.draft or ""), self._settings
        files = _ModelFiles.checked(path)
        verdict = compare(target.header, files.header)
        if not verdict.fits:
            raise KnownError(verdict.reason)
        if not target.longest_draft:
            raise KnownError(NO_ROLL_BACK)
        threads = self._threads
        with contextlib.ExitStack() as undo:
            model = self._model(path, settings.draft_gpu_layers, "draft")
            undo.callback(model.close)
            if model.parameters < _SMALL_DRAFT_PARAMETERS:
                threads = 1  # below this size waiting for each other costs threads more than they share
            context = _new_context(model, settings, target.context.length, threads, DRAFT_OUTPUTS)
            undo.callback(context.close)
            with context.aborting(self._stopped):
                _warm_up(context)
                owner = self._owner(context, files, settings.draft_gpu_layers)
                if not _longest_draft(context, owner):
                    raise KnownError(_DRAFT_NO_ROLL_BACK)
            files.check_unchanged()
            undo.pop_all()
        vocabulary = min(model.vocabulary_size, target.model.vocabulary_size)
        switcher = ChatSwitcher(context, self._kept, owner, self._stopped)
        drafter = ModelDrafter(context, vocabulary, model.is_end, self._stopped, switcher)
        info = _info(files.header, model, settings.draft_gpu_layers)
        return DraftModel(files.stamp, model, context, switcher, drafter, info, _default_draft_length(model))

    def _owner(self, context: llama.Context, files: _ModelFiles, gpu_layers: int) -> str:
        """A name for all that the memory behind ``context`` depends on."""
        settings = self._settings
        return key_of(
            {
                "file": (*files.stamp, files.fingerprint()),
                "context": (context.length, settings.kv_type, settings.batch_size, settings.micro_batch_size),
                "gpu_layers": gpu_layers,
                "engine": llama.engine_name(),
                "devices": gpu_devices(),
                "machine": platform.machine(),
            }
        )

    def _model(self, path: Path, gpu_layers: int, stage: str) -> llama.Model:
        last = -1.0

        def report(share: float) -> bool:
            nonlocal last
            if share - last >= 0.01 or share == 1.0:
                last = share
                event = {"request": self._command.request, "stage": stage, "fraction": share}
                self._on_progress(msgspec.convert(event, LoadProgressed))
            return not self._stopped()

        log.info("loading %s %s", stage, path.name)
        return llama.Model(path, gpu_layers, report)


@dataclass
class PairCosts:
    """What passes of a pair cost here, and where that is kept."""

    costs: Costs
    kept: KeptCosts
    """What is written down."""
    store: KeyedFile[KeptCosts]
    key: str
    slower: SpeedChange | None = None
    """Set where engine or driver are others than they were, and the pair got slower by that."""

    def keep(self) -> None:
        """Write down what is known now."""
        if self.costs != self.kept.costs:
            self.kept = replace(self.kept, costs=self.costs)
            self.store.put(self.key, self.kept)


def measured_costs(target: Target, draft: DraftModel | None, threads: int, stopped: Callable[[], bool]) -> PairCosts:
    """What passes of this pair cost here, from the last time if nothing has changed. Raises `Cancelled`."""
    store = KeyedFile(cache_file("costs.json"), KeptCosts)
    facts = {"settings": msgspec.to_builtins(target.settings), "snapshots": target.context.rolling_back.snapshots}
    key = key_of({**_pair(target, draft, threads), **facts})
    kept = store.get(key)
    build = Build(llama.engine_name(), driver_name(gpu_devices()))

    def measured() -> Costs:
        target.switcher.before_measuring()
        target.context.clear()
        return measure(target.context, draft.context if draft else None, stopped)

    latest, slower = up_to_date(kept if kept and is_sound(kept) else None, build, measured)
    if latest is not kept:
        store.put(key, latest)
    return PairCosts(latest.costs, latest, store, key, slower)


def pair_history(target: Target, draft: DraftModel | None, threads: int) -> PairHistory:
    """What earlier answers of this pair on this machine brought, whatever the context length was."""
    settings = target.settings
    layers = (settings.target_gpu_layers, settings.draft_gpu_layers)
    key = key_of({**_pair(target, draft, threads), "layers": layers, "kv": settings.kv_type})
    return PairHistory(history_file(cache_file("history.json")), key)


def _pair(target: Target, draft: DraftModel | None, threads: int) -> dict[str, object]:
    """What identifies a pair on this machine."""
    return {
        "target": target.stamp,
        "draft": draft.stamp if draft else None,
        "threads": threads,
        "machine": (platform.node(), platform.machine(), platform.processor()),
    }


@dataclass(frozen=True)
class _ModelFiles:
    """The file of a model, or all its parts, as they were when the header was read."""

    header: GgufHeader
    paths: tuple[Path, ...]
    stamp: Stamp

    @classmethod
    def checked(cls, path: Path) -> _ModelFiles:
        """Read the header. Raises `KnownError` for what llama.cpp cannot load, or what changes meanwhile."""
        header = read_header(path)
        check_loadable(header)
        paths = header.split.files if header.split else (path,)
        files = cls(header, paths, _stamp(paths))
        if sum(files.stamp[::2]) != header.file_size:
            raise _changed(path)
        return files

    def check_unchanged(self) -> None:
        """Raise `KnownError` where a file was replaced, or written to, since `checked`."""
        if _stamp(self.paths) != self.stamp:
            raise _changed(self.header.path)

    def fingerprint(self) -> str:
        """A digest of parts of the files: header, middle and end of each. Times of change are not always to be trusted,
        and a state of another model of the same shape would be taken for its own."""
        digest = hashlib.sha256()
        length = max(_FINGERPRINT_BYTES // len(self.paths), _LEAST_FINGERPRINT_BYTES)
        for path in self.paths:
            try:
                with path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    for place in (0, size // 2, max(size - length, 0)):
                        file.seek(place)
                        digest.update(file.read(length))
            except OSError as error:
                raise _unreadable(path, error) from None
        return digest.hexdigest()


def _stamp(paths: Iterable[Path]) -> Stamp:
    stamp: list[int] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from None
        stamp += (status.st_size, status.st_mtime_ns)
    return tuple(stamp)


def _changed(path: Path) -> KnownError:
    return KnownError(f"{printable(path.name)} changed while it was being loaded, so it was not used. Load it again.")


def _unreadable(path: Path, error: OSError) -> KnownError:
    reason = "it is no longer there" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return KnownError(f"{printable(path.name)} could not be read while it was being loaded: {reason}. Load it again.")


def _target_context(model: llama.Model, settings: LoadSettings, length: int, threads: int) -> llama.Context:
    """With as many snapshots of its running state as there is memory for; without any where it would not fit else."""
    snapshots = _affordable_snapshots(model, settings, threads)
    while snapshots:
        try:
            return _new_context(model, settings, length, threads, TARGET_OUTPUTS, snapshots)
        except KnownError as error:
            log.info("no room for %d snapshots: %s", snapshots, error)
            snapshots = fewer_snapshots(snapshots)
    return _new_context(model, settings, length, threads, TARGET_OUTPUTS)


def _affordable_snapshots(model: llama.Model, settings: LoadSettings, threads: int) -> int:
    if not model.has_running_state:
        return 0
    small = msgspec.structs.replace(settings, batch_size=32, micro_batch_size=32)
    with contextlib.closing(_new_context(model, small, 1, threads, 1, snapshots=1)) as probe:
        probe.decode([0], 1)
        if not probe.rolling_back.snapshots:
            return 0
        size = probe.rolling_back.mark_size()
    return snapshots_for(size, min(model.size_bytes, psutil.virtual_memory().available))  # 0: llama.cpp cannot tell


def _longest_draft(context: llama.Context, owner: str) -> int:
    """How many guesses the memory of ``owner`` can take back: tried out the first time, then known."""
    back = context.rolling_back
    if back.any_length:
        return MAX_DRAFT_LENGTH
    store = KeyedFile(cache_file("rolling_back.json"), Tried)
    key = key_of({"owner": owner, "snapshots": back.snapshots})
    tried = store.get(key)
    if tried is None:
        tried = try_out(context, context.model.vocabulary_size)
        store.put(key, tried)
    back.use(tried)
    return tried.longest_draft


def _new_context(
    model: llama.Model, settings: LoadSettings, length: int, threads: int, outputs: int, snapshots: int = 0
) -> llama.Context:
    return llama.Context(
        model,
        length=length,
        batch_size=settings.batch_size,
        micro_batch_size=settings.micro_batch_size,
        threads=threads,
        kv_type=settings.kv_type,
        outputs=outputs,
        snapshots=snapshots,
    )


def _warm_up(context: llama.Context) -> None:
    """One pass before the first question: pages the weights in and sets the compute buffers up."""
    context.decode([0], 1)
    context.clear()


def _default_draft_length(model: llama.Model) -> int:
    value = model.metadata("slipstream.draft_length")
    if value is None or not (value.isascii() and value.isdigit()):
        return DEFAULT_DRAFT_LENGTH
    return min(max(int(value), 1), MAX_DRAFT_LENGTH)


_SAMPLING_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
    "penalty_window": "penalty_last_n",
}
"""Fields of `Sampling` and what they are called in a GGUF, behind ``general.sampling.``."""


_ALL = {"top_k": 0, "penalty_window": MAX_CONTEXT_LENGTH}
"""What llama.cpp's -1 is here: every token of the vocabulary, the whole context."""
_MOST_RECOMMENDED = 2**31 - 1
"""llama.cpp reads 32 bits, and so do the window's fields."""


def recommended_sampling(model: llama.Model) -> Sampling:
    """How the file of ``model`` says to sample. A value that makes no sense is left out, and none of the others."""
    sampling = Sampling()
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
    return sampling


def _info(header: GgufHeader, model: llama.Model, gpu_layers: int) -> ModelInfo:
    return ModelInfo(
        path=str(header.path),
        name=header.name,
        architecture=header.architecture,
        quantization=header.quantization,
        size_bytes=header.file_size,
        parameters=model.parameters,
        layers=model.layers,
        gpu_layers=_layers_on_gpu(model, gpu_layers),
        training_context=model.training_context,
    )


def _layers_on_gpu(model: llama.Model, wanted: int) -> int:
    if not gpu_devices():
        return 0
    return model.layers if wanted < 0 else min(wanted, model.layers)


def kept_files() -> ChatCacheFiles | None:
    """Where kept KV caches go on disk; ``None`` where there is no place for them."""
    try:
        return ChatCacheFiles(paths.kept_caches_dir())
    except KnownError as error:
        log.info("no caches are kept on disk: %s", error)
        return None
