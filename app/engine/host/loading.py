"""Brings a target and its draft into memory: from files to models and contexts."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from app import helper
from app.engine.decoding.prompt import PromptBuilder
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher
from app.engine.host.contexts import longest_draft, new_context, target_context, warm_up
from app.engine.host.model_files import ModelFiles
from app.engine.llama.backend import engine_name
from app.engine.llama.context import Context
from app.engine.llama.devices import gpu_devices
from app.engine.llama.model import Model
from app.errors import KnownError
from app.models.pairing import compare
from app.protocol.limits import DRAFT_OUTPUTS, default_context_length
from app.protocol.messages import Load, LoadProgressed, LoadSettings, ModelInfo
from app.storage.keyed_file import key_of

log = logging.getLogger("slipstream.engine")

_SMALL_DRAFT_PARAMETERS = 20_000_000
NO_ROLL_BACK = "Rejected guesses cannot be taken back from the running state of this target, so drafting is off."
_DRAFT_NO_ROLL_BACK = "Rejected guesses cannot be taken back from the running state of this draft, so it is not used."


@dataclass
class LoadedModel:
    """A model in memory with its context, as it was loaded with ``settings``."""

    files: ModelFiles
    settings: LoadSettings
    model: Model
    context: Context
    switcher: ChatSwitcher
    info: ModelInfo
    longest_draft: int
    """How many rejected tokens its memory can take back; 0: none."""

    def close(self) -> None:
        """Free it."""
        self.context.close()
        self.model.close()


@dataclass
class Target(LoadedModel):
    """A loaded target and what belongs to it.

    Its ``longest_draft`` of 0: drafting is off. On a GPU it is no more than there are snapshots: for longer drafts the
    running state would be copied to the computer's memory before each verify pass.
    """

    prompts: PromptBuilder


class Loader:
    """Carries out one `Load`. Its methods raise `KnownError`, or `Cancelled` when ``is_cancelled`` says so."""

    def __init__(
        self,
        command: Load,
        threads: int,
        on_progress: Callable[[LoadProgressed], None],
        is_cancelled: Callable[[], bool],
        caches: ChatCaches,
    ) -> None:
        self._command = command
        self._settings = msgspec.structs.replace(command.settings, chat_cache_mib=0)  # changes nothing that is loaded
        self._caches = caches
        self._threads = threads
        self._on_progress = on_progress
        self._is_cancelled = is_cancelled
        self._files = ModelFiles.checked(Path(command.target))

    def is_loaded(self, target: Target) -> bool:
        """Whether ``target`` is what the command asks for, unchanged."""
        same_files = (target.files.header.path, target.files.stamp) == (self._files.header.path, self._files.stamp)
        return same_files and target.settings == self._settings

    def target(self) -> Target:
        """Load the target."""
        helper.shared().start()  # it gets ready for the chat template while the model loads
        with contextlib.ExitStack() as undo:
            layers = self._settings.target_gpu_layers
            loaded = self._loaded(undo, self._files, "target", layers, self._new_target_context)
            prompts = PromptBuilder(loaded.model, loaded.context.length)
            undo.pop_all()
        snapshots = loaded.context.checkpoints.snapshots
        if loaded.info.gpu_layers and snapshots:
            loaded.longest_draft = min(loaded.longest_draft, snapshots)
        return Target(**vars(loaded), prompts=prompts)

    def draft(self, target: Target) -> LoadedModel:
        """Load the draft, which has to fit ``target``."""
        files = ModelFiles.checked(Path(self._command.draft or ""))
        verdict = compare(target.files.header, files.header)
        if not verdict.fits:
            raise KnownError(verdict.reason)
        if not target.longest_draft:
            raise KnownError(NO_ROLL_BACK)

        def context_of(model: Model) -> Context:
            # below this size waiting for each other costs threads more than they share
            threads = 1 if model.parameters < _SMALL_DRAFT_PARAMETERS else self._threads
            return new_context(model, self._settings, target.context.length, threads, DRAFT_OUTPUTS)

        with contextlib.ExitStack() as undo:
            loaded = self._loaded(undo, files, "draft", self._settings.draft_gpu_layers, context_of)
            if not loaded.longest_draft:
                raise KnownError(_DRAFT_NO_ROLL_BACK)
            undo.pop_all()
        return loaded

    def _loaded(
        self,
        undo: contextlib.ExitStack,
        files: ModelFiles,
        stage: Literal["target", "draft"],
        gpu_layers: int,
        context_of: Callable[[Model], Context],
    ) -> LoadedModel:
        """A model and its context, which ``undo`` frees."""
        model = self._model(files.header.path, gpu_layers, stage)
        undo.callback(model.close)
        context = context_of(model)
        undo.callback(context.close)
        with context.aborting(self._is_cancelled):
            warm_up(context)
            owner = self._owner(context, files, gpu_layers)
            longest = longest_draft(context, owner)
        files.check_unchanged()
        switcher = ChatSwitcher(context, self._caches, owner, self._is_cancelled)
        info = _info(files, model, gpu_layers)
        return LoadedModel(files, self._settings, model, context, switcher, info, longest)

    def _new_target_context(self, model: Model) -> Context:
        if not model.has_decoder_only:
            raise KnownError(f"{model.path.name} is not a model that writes text token after token.")
        length = self._settings.context_length or default_context_length(model.training_context)
        self._on_progress(LoadProgressed(request=self._command.request, stage="context", fraction=0.0))
        return target_context(model, self._settings, length, self._threads)

    def _owner(self, context: Context, files: ModelFiles, gpu_layers: int) -> str:
        """A name for all that the memory behind ``context`` depends on."""
        settings = self._settings
        return key_of(
            {
                "file": (*files.stamp, files.fingerprint()),
                "context": (context.length, settings.kv_type, settings.batch_size, settings.micro_batch_size),
                "gpu_layers": gpu_layers,
                "engine": engine_name(),
                "devices": gpu_devices(),
                "machine": platform.machine(),
            }
        )

    def _model(self, path: Path, gpu_layers: int, stage: Literal["target", "draft"]) -> Model:
        last = -1.0

        def report(share: float) -> bool:
            nonlocal last
            if share - last >= 0.01 or share == 1.0:
                last = share
                self._on_progress(LoadProgressed(request=self._command.request, stage=stage, fraction=share))
            return not self._is_cancelled()

        log.info("loading %s %s", stage, path.name)
        return Model(path, gpu_layers, report)


def _info(files: ModelFiles, model: Model, gpu_layers: int) -> ModelInfo:
    header = files.header
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


def _layers_on_gpu(model: Model, wanted: int) -> int:
    if not gpu_devices():
        return 0
    return model.layers if wanted < 0 else min(wanted, model.layers)
