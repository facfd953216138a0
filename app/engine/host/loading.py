"""Loads a target and its draft: from files to models and contexts."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from app import helper
from app.engine.decoding.counting import TokenCounter
from app.engine.decoding.grammar import GrammarVocabulary
from app.engine.decoding.prompt import PromptBuilder
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher
from app.engine.host.contexts import keep_copies_on_gpu, longest_draft, target_context
from app.engine.host.gpu_limits import check_cache, has_state_on_gpu
from app.engine.host.heads import TargetHead, header_of_head, load_head, why_unused
from app.engine.host.load_options import ModelOptions, repacks
from app.engine.host.model_files import ModelFiles, Stamp, stamp_of
from app.engine.host.thinking import ModelThinking
from app.engine.host.threads import remembered_threads
from app.engine.llama.backend import engine_name, gpu_devices
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.engine.llama.placement import Placement
from app.engine.llama.thread_count import Threads, default_threads
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.models.mtp import head_problem, must_be_loaded
from app.models.pairing import compare
from app.protocol.commands import Load
from app.protocol.events import LoadProgressed, ModelInfo
from app.protocol.limits import DRAFT_OUTPUTS, default_context_length
from app.protocol.options import LoadSettings
from app.storage.keyed_file import key_of

log = logging.getLogger("slipstream.engine")

_SMALL_DRAFT_PARAMETERS = 20_000_000
NO_ROLL_BACK = (
    "Drafting isn't available for this model: its architecture can't undo rejected tokens. Answers "
    "arrive at the model's normal speed."
)
_DRAFT_NO_ROLL_BACK = (
    "The architecture of this draft model can't undo rejected tokens, so it can't be used for drafting."
)


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

    A ``longest_draft`` of 0 means that drafting is off. With a running state on a GPU it is at most the number of
    snapshots: for longer drafts the state would be copied before each verify pass.
    """

    prompts: PromptBuilder
    counter: TokenCounter
    thinking: ModelThinking
    head: TargetHead | None
    head_stamp: Stamp | None
    """Of the file with the requested head; ``None`` if none was requested."""
    head_refused: str | None
    """Why it isn't used, for the user."""
    chat_template: str
    """See `Load.chat_template`."""
    drafts_alone: bool
    """Whether a head was requested without a draft model."""
    projector: ModelFiles | None
    """What was requested for it to see images with."""
    projector_refused: str | None
    """Why it isn't used, for the user."""
    exact_unit: int = 1
    """See `Exactness.unit`."""

    @property
    def computes_on_cpu(self) -> bool:
        """Whether the processor computes any of its layers."""
        info, settings = self.info, self.settings
        all_on_gpu = settings.target_gpu_layers < 0 or settings.target_gpu_layers > info.layers  # the output is one
        return not (info.gpu_layers and all_on_gpu) or settings.expert_layers_on_cpu > 0

    @cached_property
    def grammar_vocabulary(self) -> GrammarVocabulary:
        """Made when an answer first has to follow a grammar."""
        return GrammarVocabulary(self.model)

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
        self._head_stamp = stamp_of((self._head.path,)) if self._head else None
        self._projector_refused: str | None = None
        self._projector = self._checked_projector()

    def is_loaded(self, target: Target) -> bool:
        """Whether ``target`` is what the command requests, unchanged."""
        same_files = (target.files.header.path, target.files.stamp) == (self._files.header.path, self._files.stamp)
        has_snapshots = target.context.checkpoints.running_state
        same_snapshots = not has_snapshots or target.drafts_alone == self._drafts_alone
        same_head = target.head_stamp == self._head_stamp and same_snapshots
        same_projector = _identity(target.projector) == _identity(self._projector)
        same_template = target.chat_template == self._command.chat_template
        return same_files and same_head and same_projector and same_template and target.settings == self._settings

    @property
    def wants_draft_model(self) -> bool:
        """Whether the command names a draft model, and not a file with a head."""
        return bool(self._command.draft) and self._head in (None, self._files.header)

    @property
    def _drafts_alone(self) -> bool:
        """Whether a head is wanted and no draft model."""
        return self._head is not None and not self.wants_draft_model

    @property
    def head_off(self) -> str | None:
        """Why the command wants no head although the target has one, for the user."""
        return None if self._head else why_unused(self._command, self._files.header)

    def target(self) -> Target:
        """Load the target."""
        helper.shared().start()  # it prepares for the chat template while the model is loading
        with contextlib.ExitStack() as undo:
            loaded = self._loaded(undo, self._files, self._options, self._new_target_context)
            prompts = PromptBuilder(loaded.model, loaded.context.length, template=self._command.chat_template)
            head, refused = self._add_head(loaded)
            undo.pop_all()
        snapshots = loaded.context.checkpoints.snapshots
        if snapshots and has_state_on_gpu(self._files.header, self._settings.target_gpu_layers):
            loaded.longest_draft = min(loaded.longest_draft, snapshots)
        return Target(
            **vars(loaded),
            prompts=prompts,
            counter=TokenCounter(prompts, loaded.model),
            thinking=ModelThinking(prompts, loaded.model),
            head=head,
            head_stamp=self._head_stamp,
            head_refused=refused,
            chat_template=self._command.chat_template,
            drafts_alone=self._drafts_alone,
            projector=self._projector,
            projector_refused=self._projector_refused,
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

    def _checked_projector(self) -> ModelFiles | None:
        try:
            return ModelFiles.of_projector(Path(self._command.projector)) if self._command.projector else None
        except KnownError as error:
            self._projector_refused = str(error)
            return None

    def _add_projector(self, model: Model) -> None:
        """Load the requested projector of a target. If that isn't possible, it is loaded without."""
        if not self._projector:
            return
        path = self._projector.header.path
        log.info("loading projector %s", path.name)
        gpu = self._options.placement.first_gpu() if self._settings.target_gpu_layers else None
        try:
            model.load_projector(
                path, gpu=gpu, threads=self._threads.batch, on_progress=lambda _: not self._is_canceled()
            )
        except KnownError as error:
            log.info("the projector is not used: %s", error)
            self._projector_refused = str(error)

    def _head_model(self, path: Path) -> Model:
        options = replace(self._options, stage="draft", gpu_layers=self._settings.draft_gpu_layers)
        return self._model(path, options, options.placement, with_head=True)  # it may read its target's cache on a GPU

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
            check_cache(files.header, min(length, model.longest_context), options)
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
        is_used = is_target and self._head is files.header and head_problem(files.header) is None
        with_head = is_used or must_be_loaded(files.header)
        model = self._model(files.header.path, options, options.own_placement, with_head=with_head)
        undo.callback(model.close)
        if is_target:
            self._add_projector(model)
        context = context_of(model)
        undo.callback(context.close)
        with context.aborting(self._is_canceled):
            context.decode_largest([0], 1, 1)  # loads the weights from disk and allocates the compute buffers
            context.clear()
            owner = _owner(context, files, options, self._projector if model.vision else None)
            keep_copies_on_gpu(context, files.header, options.gpu_layers)
            longest = longest_draft(context, owner)
        files.check_unchanged()
        switcher = ChatSwitcher(context, self._caches, owner, self._is_canceled)
        info = _info(files.header, model, options.gpu_layers)
        return LoadedModel(files, self._settings, model, context, switcher, owner, info, longest)

    def _new_target_context(self, model: Model) -> Context:
        if not model.has_decoder_only:
            raise KnownError(f"{model.path.name} is not a model that generates text one token at a time.")
        length = self._settings.context_length or default_context_length(model.training_context)
        check_cache(self._files.header, min(length, model.longest_context), self._options)
        self._on_progress(LoadProgressed(request=self._command.request, stage="context", fraction=0.0))
        return target_context(model, self._settings, length, self._threads, has_head=self._drafts_alone)

    def _model(self, path: Path, options: ModelOptions, placement: Placement, *, with_head: bool = False) -> Model:
        last = -1.0

        def report(share: float) -> bool:
            nonlocal last
            if share - last >= 0.01 or share == 1.0:
                last = share
                self._on_progress(LoadProgressed(request=self._command.request, stage=options.stage, fraction=share))
            return not self._is_canceled()

        log.info("loading %s %s", options.stage, path.name)
        may_repack = options.stage != "target" or repacks(self._files.header, self._settings)
        return Model(path, options.gpu_layers, report, with_head=with_head, placement=placement, repacks=may_repack)


def _identity(files: ModelFiles | None) -> object:
    return files and (files.paths, files.stamp)


def _owner(context: Context, files: ModelFiles, options: ModelOptions, projector: ModelFiles | None) -> str:
    """A name for everything that the memory of ``context`` depends on."""
    settings = options.settings
    sight = {"projector": (*projector.stamp, projector.fingerprint())} if projector else {}
    return key_of(
        {
            "file": (*files.stamp, files.fingerprint()),
            "context": (context.length, settings.kv_type, settings.batch_size, settings.micro_batch_size),
            **options.memory_facts(),
            **sight,
            "engine": engine_name(),
            "devices": gpu_devices(),
            "machine": platform.machine(),
        }
    )


def _info(header: GgufHeader, model: Model, gpu_layers: int) -> ModelInfo:
    layers = model.layers if gpu_layers < 0 else min(gpu_layers, model.layers)
    return ModelInfo(
        path=str(header.path),
        name=header.known_name,
        inner_name=header.name,
        architecture=header.architecture,
        quantization=header.quantization,
        size_bytes=header.file_size,
        parameters=model.parameters,
        layers=model.layers,
        gpu_layers=layers if gpu_devices() else 0,
        training_context=model.training_context,
    )
