"""Loads a target and its draft: the options, the checks before it, and the contexts."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from app import helper, words
from app.engine.decoding.counting import TokenCounter
from app.engine.decoding.grammar import GrammarVocabulary
from app.engine.decoding.prompt import PromptBuilder
from app.engine.decoding.sequence import shared_prefix
from app.engine.decoding.thinking import Marks, between, levels
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher
from app.engine.host.model_files import ModelFiles, Stamp, TargetHead, header_of_head, load_head, stamp_of, why_unused
from app.engine.host.threads import remembered_threads
from app.engine.llama.backend import (
    IS_X86,
    REPACKED,
    REPACKED_UNLIKE,
    Threads,
    default_threads,
    devices,
    engine_name,
    gpu_devices,
    largest_tensor,
    offload_handles,
)
from app.engine.llama.checkpoints import RollBackSupport, try_out
from app.engine.llama.context import Context
from app.engine.llama.model import ON_THE_CPU, WHERE_IT_FITS, Model, Placement
from app.models.gguf import GgufHeader
from app.models.heads import head_problem, must_be_loaded
from app.models.memory_shape import Layer, ModelShape, shape_of
from app.models.model_memory import CELLS, KV_BLOCKS, rounded_cells
from app.models.pairing import compare
from app.protocol.commands import CheckText, CountPrompt, CountTokens, Generate, Load, Message, ScoreTokens
from app.protocol.events import LoadProgressed, ModelInfo
from app.protocol.options import (
    DRAFT_OUTPUTS,
    MAX_DRAFT_LENGTH,
    SPECIAL_OPTIONS,
    LoadSettings,
    TemplateVariables,
    chosen_options,
    default_context_length,
    fewer_snapshots,
    snapshots_for,
)
from app.storage.json_file import KeyedFile, cache_file, key_of
from app.system import KnownError

_FEW = 0.25
"""As a share of a file's bytes."""


@dataclass(frozen=True)
class ModelOptions:
    """How one model of a pair is loaded."""

    stage: Literal["target", "draft"]
    settings: LoadSettings
    """With the model's own context length and KV type."""
    gpu_layers: int
    placement: Placement

    @classmethod
    def of_target(cls, settings: LoadSettings) -> ModelOptions:
        """Raises `KnownError` for what can't be combined."""
        _check(settings)
        return cls("target", settings, settings.target_gpu_layers, Placement.of_target(settings))

    @classmethod
    def of_draft(cls, settings: LoadSettings, target_length: int) -> ModelOptions:
        """For a draft of a target whose context has ``target_length`` tokens. Raises `KnownError`."""
        own = msgspec.structs.replace(
            settings,
            context_length=min(settings.draft_context_length or target_length, target_length),
            kv_type=settings.kv_type if settings.draft_kv_type == "auto" else settings.draft_kv_type,
        )
        _check(own)
        return cls("draft", own, settings.draft_gpu_layers, Placement.of_draft(settings))

    @property
    def own_placement(self) -> Placement:
        """``placement`` of a model that shares nothing with another: without layers on a GPU, it needs none."""
        return self.placement if self.gpu_layers else ON_THE_CPU


def cost_facts(settings: LoadSettings) -> dict[str, object]:
    """The settings that costs depend on, without newer options at their defaults."""
    values = msgspec.to_builtins(settings)
    usual = {name: value for name, value in values.items() if name not in SPECIAL_OPTIONS}
    return usual | chosen_options(settings)


def repacks(header: GgufHeader, settings: LoadSettings) -> bool:
    """Whether the target's weights are written anew for quicker verify passes, which then round differently.

    Not where few of them are of such types, so that it costs little, nor for the accept rule ``exact``. In a file that
    is nearly all Q4_K, passes over four tokens take 1.4 times as long without it, and prompts 0.8 times
    (``benchmarks/notes/real-models.md``). On Arm, where nothing was measured, more types are repacked.
    """
    sizes: Counter[str] = Counter()
    for tensor in header.tensors:
        sizes[tensor.type] += tensor.size
    unlike = sum(sizes[kind] for kind in REPACKED_UNLIKE)
    alike = sum(sizes[kind] for kind in REPACKED - REPACKED_UNLIKE)
    if not IS_X86 or not unlike or alike > unlike:
        return True
    return not settings.exact and unlike + alike > _FEW * sum(sizes.values())


def _check(settings: LoadSettings) -> None:
    if settings.flash_attention == "off" and settings.kv_type != "f16":
        raise KnownError(
            f"A KV cache of type {settings.kv_type} needs flash attention, which is turned off. Turn it on, or choose "
            "f16."
        )


def has_state_on_gpu(header: GgufHeader, gpu_layers: int) -> bool:
    """Whether a running state, or a part of it, is in a GPU's memory."""
    return bool(offload_handles()) and any(layer.state for layer in _layers_on_gpu(shape_of(header), gpu_layers))


def _layers_on_gpu(shape: ModelShape, gpu_layers: int) -> list[Layer]:
    """The repeating ones. The output counts as a layer and is the first to be there."""
    on_gpu = shape.gpu_slots if gpu_layers < 0 else min(gpu_layers, shape.gpu_slots)
    return shape.layers[shape.gpu_slots - on_gpu :]


def check_cache(header: GgufHeader, length: int, options: ModelOptions) -> None:
    """Raise `KnownError` if a layer's keys or values of ``length`` tokens are too large as one tensor for its GPU: with
    Vulkan, that is 4 GiB on most cards, 128 MiB on some small ones."""
    shape = shape_of(header)
    layers = _layers_on_gpu(shape, options.gpu_layers)
    # Windows are kept completely only where there is a running state, too.
    whole = [layer for layer in layers if not layer.window or shape.running_state]
    numbers = max((max(layer.keys, layer.values) for layer in whole), default=0)
    limits = filter(None, map(largest_tensor, options.own_placement.gpus().values()))
    limit = min(limits, default=0)
    block, size = KV_BLOCKS[options.settings.kv_type]
    if not limit or rounded_cells(length) * numbers * size // block <= limit:
        return
    most = limit * block // (numbers * size) // CELLS * CELLS
    raise KnownError(
        f"A KV cache for {words.number(length)} tokens is too large for this computer's GPU. Choose a context of at "
        f"most {words.number(most)} tokens, or set the layers on the GPU to 0."
    )


log = logging.getLogger("slipstream.engine")

_ROOM = 2
"""A copy stays on the GPU if this many would fit."""


def target_context(
    model: Model, settings: LoadSettings, length: int, threads: Threads, *, has_head: bool = False
) -> Context:
    """With as many snapshots of its running state as there is memory for, or none if it wouldn't fit otherwise."""
    snapshots = _affordable_snapshots(model, settings, threads.batch, has_head=has_head)

    def with_snapshots(count: int) -> Context:
        one, batch = threads
        return Context(
            model,
            settings,
            length=length,
            threads=one,
            batch_threads=batch,
            snapshots=count,
            same_kernels=True,
            branches=settings.branches,
        )

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


def longest_draft(context: Context, owner: str) -> int:
    """How many draft tokens the memory of ``owner`` can undo: tested the first time, then remembered."""
    back = context.checkpoints
    if back.any_length:
        return MAX_DRAFT_LENGTH
    store = KeyedFile(cache_file("rolling_back.json"), RollBackSupport)
    in_place = {"copies_in_place": True} if back.copies_in_place else {}
    key = key_of({"owner": owner, "snapshots": back.snapshots, **in_place})
    tried = store.get(key)
    if tried is None:
        tried = try_out(context, back, context.model.vocabulary_size)
        store.put(key, tried)
    back.use(tried)
    if back.copies_in_place:  # allocates the copy while there is room for it
        context.decode_largest([0], 1, 1)
        context.hold(MAX_DRAFT_LENGTH)
        context.clear()
    return tried.longest_draft


def keep_copies_on_gpu(context: Context, header: GgufHeader, gpu_layers: int) -> None:
    """Let the copy of the running state before a draft, which isn't needed with snapshots, stay on the GPU that has the
    state. If there were no room for it, llama.cpp would end the process."""
    if context.checkpoints.snapshots or not has_state_on_gpu(header, gpu_layers):
        return
    context.decode_largest([0], 1, 1)
    size = context.checkpoints.size()
    context.clear()
    free = min(device.free_bytes for device in devices())
    context.checkpoints.copies_in_place = free >= _ROOM * size
    log.info("a copy of the running state takes %d bytes of %d on the GPU", size, free)


_QUESTION = Message(role="user", content="Well?")
_ANSWER = Message(role="assistant", content="So.", thinking="Hm.")


class ModelThinking:
    """Levels, marks, and what the template makes of thinking in earlier turns."""

    def __init__(self, prompts: PromptBuilder) -> None:
        self._prompts = prompts
        template = prompts.tokenizer.template
        self.levels = levels(template)
        """What can be asked for; empty where there is no choice."""
        self.marks = Marks(prompts.tokenizer.vocabulary, template.source)
        self.may_think = bool(self.levels) or self.marks.are_expected
        self.between = between(template, self.levels.get("on", {}))
        """What the template writes between thinking and answer; empty where that is not known."""
        self._unshared: dict[str, int] = {}

    def variables(self, command: Generate | ScoreTokens | CountTokens | CountPrompt | CheckText) -> TemplateVariables:
        """The template's variables that ``command`` asks for, by name or by its level. Raises `KnownError`."""
        level = command.thinking
        if level and level not in self.levels:
            choice = f"It can be {', '.join(self.levels)}." if self.levels else "It can't be chosen with this model."
            raise KnownError(f"The model's chat template doesn't know the thinking level “{level}”. {choice}")
        return {**self.levels.get(level, {}), **command.template_variables}

    def unshared(self, variables: TemplateVariables) -> int:
        """How many tokens at the end of a prompt the next turn's prompt won't have: most templates leave out the
        thinking, and with it the mark that opens it."""
        key = repr(sorted(variables.items()))
        if key not in self._unshared:
            self._unshared[key] = self._count_unshared(variables)
        return self._unshared[key]

    def _count_unshared(self, variables: TemplateVariables) -> int:
        inputs = self._prompts.inputs([], variables)
        try:
            chats = [_QUESTION], [_QUESTION, _ANSWER, _QUESTION]
            first, second = (self._prompts.tokenizer.chat(chat, inputs) for chat in chats)
        except KnownError:
            return 0
        return len(first) - shared_prefix(first, second)


_SMALL_DRAFT_PARAMETERS = 20_000_000
NO_ROLL_BACK = (
    "Drafting isn't available for this model: its architecture can't undo rejected tokens. Answers "
    "arrive at the model's normal speed."
)
NO_BRANCHES = (
    "Draft trees aren't possible with this model: they need flash attention and an ordinary KV cache, without a "
    "sliding window or a recurrent state."
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
    projector_refused: str | None
    """Why the requested projector isn't used, for the user."""
    asked: object
    """What it was loaded from, and how; another `Load` that asks for the same needn't load it again."""
    drafts_alone: bool
    """Whether a head was requested without a draft model."""
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
        # The memory for copies changes nothing that is loaded.
        self._settings = msgspec.structs.replace(command.settings, chat_cache_mib=0)
        self._options = ModelOptions.of_target(self._settings)
        self._caches = caches
        self._on_progress = on_progress
        self._is_canceled = is_canceled
        self._files = ModelFiles.checked(Path(command.target))
        chosen = self._settings.threads
        usual = chosen or default_threads()
        one = chosen or remembered_threads(self._files.stamp) or usual
        self._threads = Threads(one, self._settings.batch_threads or usual)
        self._head = header_of_head(command, self._files.header)
        self._head_stamp = stamp_of((self._head.path,)) if self._head else None
        self._projector_refused: str | None = None
        self._projector = self._checked_projector()

    def is_loaded(self, target: Target) -> bool:
        """Whether ``target`` is what the command requests, unchanged."""
        has_snapshots = target.context.checkpoints.running_state
        return target.asked == self._asked and not (has_snapshots and target.drafts_alone != self._drafts_alone)

    @property
    def _asked(self) -> object:
        """Everything that a target depends on, except that a head alone leaves memory for more snapshots."""
        projector = self._projector and (self._projector.paths, self._projector.stamp)
        files = self._files.paths, self._files.stamp, self._head_stamp, projector
        return (*files, self._command.chat_template, self._settings)

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
            counter=TokenCounter(prompts),
            thinking=ModelThinking(prompts),
            head=head,
            head_stamp=self._head_stamp,
            head_refused=refused,
            projector_refused=self._projector_refused,
            asked=self._asked,
            drafts_alone=self._drafts_alone,
        )

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
            log.info("the head is not used: %s", error)
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


def _owner(context: Context, files: ModelFiles, options: ModelOptions, projector: ModelFiles | None) -> str:
    """A name for everything that the memory of ``context`` depends on."""
    settings, others = options.settings, dict[str, object]()
    # Only what differs from the defaults, so that copies of earlier versions stay valid.
    if options.placement != WHERE_IT_FITS:
        others["placement"] = repr(options.placement)
    if settings.flash_attention != "auto":
        others["flash_attention"] = settings.flash_attention
    if projector:
        others["projector"] = (*projector.stamp, projector.fingerprint())
    return key_of(
        {
            "file": (*files.stamp, files.fingerprint()),
            "context": (context.length, settings.kv_type, settings.batch_size, settings.micro_batch_size),
            "gpu_layers": options.gpu_layers,
            **others,
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
