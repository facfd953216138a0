"""Load a pair, generate, cancel, measure. Knows no process and no window; worker and command line use it."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from app.engine import llama
from app.engine.cache import RollBackError, shared_prefix
from app.engine.drafters.model import ModelDrafter
from app.engine.prompt import Prompt, PromptBuilder
from app.engine.protocol import (
    DEFAULT_DRAFT_LENGTH,
    MAX_DRAFT_LENGTH,
    Generate,
    GenerationFinished,
    GenerationStarted,
    Load,
    LoadProgressed,
    LoadSettings,
    MeasurePlain,
    ModelInfo,
    PairLoaded,
    PlainMeasured,
    PromptProgressed,
    Round,
    Sampling,
)
from app.engine.sampling import Floats
from app.engine.speculation import Decoding, Task
from app.engine.statistics import Statistics
from app.errors import Cancelled, KnownError
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.pairing import compare

log = logging.getLogger("slipstream.engine")

GenerationEvent = GenerationStarted | PromptProgressed | Round | GenerationFinished
_DEFAULT_CONTEXT = 8192
_SMALL_DRAFT_PARAMETERS = 20_000_000


@dataclass
class _Target:
    path: Path
    settings: LoadSettings
    stamp: tuple[int, int]
    model: llama.Model
    context: llama.Context
    prompts: PromptBuilder
    info: ModelInfo

    def close(self) -> None:
        self.context.close()
        self.model.close()


@dataclass
class _Draft:
    model: llama.Model
    drafter: ModelDrafter
    info: ModelInfo

    def close(self) -> None:
        self.drafter.close()
        self.model.close()


class Engine:
    """One pair at a time, one generation at a time. Only `cancel` may be called from another thread."""

    def __init__(self) -> None:
        llama.start()
        self._target: _Target | None = None
        self._draft: _Draft | None = None
        self._cancel = threading.Event()
        self.last_progress = time.monotonic()
        """When the computation last moved (`time.monotonic`); read by the worker to notice a hang."""
        self.token_ids: list[int] = []
        """The tokens of the last answer."""

    # ------------------------------------------------------------ loading

    def load(self, command: Load, on_progress: Callable[[LoadProgressed], None]) -> PairLoaded:
        """Load a target and its draft.

        A target that is loaded already with the same settings stays as it is. A draft that does not fit or cannot be
        loaded is left out, with the reason in the result. Raises `KnownError`, or `Cancelled` after `cancel`; nothing
        is loaded then.
        """
        try:
            return self._load(command, on_progress)
        except (KnownError, Cancelled):
            self.unload()
            raise

    def _load(self, command: Load, on_progress: Callable[[LoadProgressed], None]) -> PairLoaded:
        started = time.perf_counter()
        settings = command.settings
        header = _checked_header(Path(command.target))
        threads = settings.threads or default_threads()
        self._close_draft()
        target = self._load_target(command, header, threads, on_progress)
        refused, draft_length = None, DEFAULT_DRAFT_LENGTH
        if command.draft:
            try:
                draft_length = self._load_draft(command, header, target, threads, on_progress)
            except KnownError as error:
                refused = str(error)
        return PairLoaded(
            request=command.request,
            target=target.info,
            draft=self._draft.info if self._draft else None,
            draft_refused=refused,
            context_length=target.context.length,
            threads=threads,
            template=target.prompts.template,
            default_draft_length=draft_length,
            sampling=_recommended_sampling(target.model),
            load_seconds=time.perf_counter() - started,
        )

    def _load_target(
        self, command: Load, header: GgufHeader, threads: int, on_progress: Callable[[LoadProgressed], None]
    ) -> _Target:
        path, settings = Path(command.target), command.settings
        old, stamp = self._target, _stamp(path)
        if old and (old.path, old.settings, old.stamp) == (path, settings, stamp):
            return old
        self.unload()
        with contextlib.ExitStack() as undo:
            model = self._load_model(path, settings.target_gpu_layers, command, "target", on_progress)
            undo.callback(model.close)
            if not model.has_decoder_only:
                raise KnownError(f"{path.name} is not a model that writes text token after token.")
            wanted = settings.context_length or min(model.training_context or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
            on_progress(LoadProgressed(request=command.request, stage="context", fraction=0.0))
            context = _new_context(model, settings, wanted, threads, MAX_DRAFT_LENGTH + 1)
            undo.callback(context.close)
            prompts = PromptBuilder(model, context.length)
            _warm_up(context)
            undo.pop_all()
        info = _info(header, model, settings.target_gpu_layers)
        self._target = _Target(path, settings, stamp, model, context, prompts, info)
        return self._target

    def _load_draft(
        self,
        command: Load,
        target_header: GgufHeader,
        target: _Target,
        threads: int,
        on_progress: Callable[[LoadProgressed], None],
    ) -> int:
        """Load the draft of ``command``; returns its default draft length."""
        path, settings = Path(command.draft or ""), command.settings
        header = _checked_header(path)
        verdict = compare(target_header, header)
        if not verdict.fits:
            raise KnownError(verdict.reason)
        if target.model.cannot_roll_back:
            raise KnownError("The target keeps a running state that cannot be rolled back, so drafting is off.")
        with contextlib.ExitStack() as undo:
            model = self._load_model(path, settings.draft_gpu_layers, command, "draft", on_progress)
            undo.callback(model.close)
            if model.cannot_roll_back:
                raise KnownError("The draft keeps a running state that cannot be rolled back, so drafting is off.")
            if model.parameters < _SMALL_DRAFT_PARAMETERS:
                threads = 1  # below this size waiting for each other costs threads more than they share
            context = _new_context(model, settings, target.context.length, threads, 1)
            undo.callback(context.close)
            _warm_up(context)
            undo.pop_all()
        vocabulary = min(model.vocabulary_size, target.model.vocabulary_size)
        self._draft = _Draft(
            model,
            ModelDrafter(context, vocabulary, model.is_end, self._should_abort),
            _info(header, model, settings.draft_gpu_layers),
        )
        return _default_draft_length(model)

    def _load_model(
        self, path: Path, gpu_layers: int, command: Load, stage: str, on_progress: Callable[[LoadProgressed], None]
    ) -> llama.Model:
        last = -1.0

        def report(share: float) -> bool:
            nonlocal last
            self.last_progress = time.monotonic()
            if share - last >= 0.01 or share == 1.0:
                last = share
                event = {"request": command.request, "stage": stage, "fraction": share}
                on_progress(msgspec.convert(event, LoadProgressed))
            return not self._cancel.is_set()

        log.info("loading %s %s", stage, path.name)
        return llama.Model(path, gpu_layers, report)

    def unload(self) -> None:
        """Give up the loaded pair."""
        self._close_draft()
        if self._target:
            self._target.close()
            self._target = None

    def _close_draft(self) -> None:
        if self._draft:
            self._draft.close()
            self._draft = None

    # ------------------------------------------------------------ generating

    def cancel(self) -> None:
        """Stop what runs, from any thread, within one verify pass."""
        self._cancel.set()

    def ready(self) -> None:
        """Forget an earlier `cancel`; called before a new command starts."""
        self._cancel.clear()

    def generate(self, command: Generate) -> Iterator[GenerationEvent]:
        """Answer a chat: `GenerationStarted`, `PromptProgressed`…, `Round`…, `GenerationFinished`.

        Raises `KnownError` before the first event when there is no model or the message does not fit.
        """
        started = time.perf_counter()
        self.last_progress = time.monotonic()
        target = self._loaded()
        prompt = self._prompt(target, command)
        seed = command.seed if command.seed is not None else secrets.randbelow(2**31)
        shared = _reuse(target.context, prompt.tokens)
        statistics = Statistics(prompt_tokens=len(prompt.tokens), cached_tokens=shared)
        self.token_ids = []
        yield GenerationStarted(
            request=command.request,
            seed=seed,
            prompt_tokens=len(prompt.tokens),
            cached_tokens=shared,
            dropped_messages=prompt.dropped_messages,
            template="none" if command.raw else target.prompts.template,
        )
        try:
            logits = yield from self._process(target.context, prompt.tokens, command.request)
        except Cancelled:
            yield self._finished(command.request, statistics, started, None)
            return
        statistics.prompt_seconds = time.perf_counter() - started
        task = Task(
            sampling=command.sampling,
            seed=seed,
            max_tokens=command.max_tokens,
            stops=[*command.stop, *prompt.stops],
            draft_length=command.draft_length,
            accept=command.accept,
        )
        drafter = self._draft.drafter if self._draft else None
        if drafter:
            drafter.configure(task.sampling, task.accept, seed)
        decoding = Decoding(target.context, target.model, drafter, task, started, self._cancel.is_set)
        for round_ in decoding.rounds(logits):
            self.last_progress = time.monotonic()
            statistics.add(round_)
            self.token_ids = decoding.token_ids
            yield round_
        yield self._finished(command.request, statistics, started, decoding)

    def measure_plain(self, command: MeasurePlain) -> PlainMeasured:
        """The plain decode speed of the target on ``command``'s chat. Raises `Cancelled` or `KnownError`."""
        request = Generate(
            request=command.request,
            messages=command.messages,
            sampling=command.sampling,
            seed=command.seed,
            max_tokens=command.max_tokens,
            draft_length=0,
        )
        for event in self.generate(request):
            if isinstance(event, GenerationFinished):
                if event.finish_reason == "cancelled":
                    raise Cancelled
                speed = event.figures.decode_tokens_per_second
                if speed is None:
                    raise KnownError("The answer was too short to measure a speed. Try with another chat.")
                tokens = event.figures.completion_tokens
                return PlainMeasured(request=command.request, tokens=tokens, decode_tokens_per_second=speed)
        raise AssertionError("a generation always finishes")

    def _loaded(self) -> _Target:
        if not self._target:
            raise KnownError("No model is loaded. Open a model first.")
        return self._target

    @staticmethod
    def _prompt(target: _Target, command: Generate) -> Prompt:
        if command.raw:
            return target.prompts.raw("".join(message.content for message in command.messages))
        return target.prompts.chat(command.messages)

    def _process(
        self, context: llama.Context, tokens: list[int], request: int
    ) -> Generator[PromptProgressed, None, Floats]:
        """Feed what is new of a prompt; returns the logits of its last token, shape (1, vocabulary)."""
        logits: Floats | None = None
        with context.aborting(self._should_abort):
            while (done := len(context.tokens)) < len(tokens):
                if self._cancel.is_set():
                    raise Cancelled
                chunk = tokens[done : done + context.chunk]
                last = done + len(chunk) == len(tokens)
                logits = context.decode(chunk, 1 if last else 0)
                self.last_progress = time.monotonic()
                if not last:
                    yield PromptProgressed(request=request, done=len(context.tokens), total=len(tokens))
        assert logits is not None, "at least the last token of a prompt is always fed"
        return logits

    def _should_abort(self) -> bool:
        self.last_progress = time.monotonic()
        return self._cancel.is_set()

    @staticmethod
    def _finished(
        request: int, statistics: Statistics, started: float, decoding: Decoding | None
    ) -> GenerationFinished:
        return GenerationFinished(
            request=request,
            finish_reason=(decoding.finish_reason if decoding else None) or "cancelled",
            figures=statistics.figures(time.perf_counter() - started),
            stop_string=decoding.stop_string if decoding else None,
            draft_failure=decoding.draft_failure if decoding else None,
        )


def default_threads() -> int:
    """The physical cores this process may use."""
    allowed = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or 1, allowed or 1))


def _checked_header(path: Path) -> GgufHeader:
    header = read_header(path)
    check_loadable(header)
    return header


def _new_context(model: llama.Model, settings: LoadSettings, length: int, threads: int, outputs: int) -> llama.Context:
    return llama.Context(
        model,
        length=length,
        batch_size=settings.batch_size,
        micro_batch_size=settings.micro_batch_size,
        threads=threads,
        kv_type=settings.kv_type,
        outputs=outputs,
    )


def _warm_up(context: llama.Context) -> None:
    """One pass before the first question: pages the weights in and sets the compute buffers up."""
    context.decode([0], 1)
    context.clear()


def _default_draft_length(model: llama.Model) -> int:
    value = model.metadata("slipstream.draft_length")
    if value is None or not value.isdigit():
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


def _recommended_sampling(model: llama.Model) -> Sampling:
    found = {name: model.metadata(f"general.sampling.{key}") for name, key in _SAMPLING_KEYS.items()}
    try:
        return msgspec.convert({name: text for name, text in found.items() if text}, Sampling, strict=False)
    except msgspec.ValidationError as error:
        log.info("the sampling that %s recommends is not used: %s", model.path.name, error)
        return Sampling()


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
    if not llama.gpu_devices():
        return 0
    return model.layers if wanted < 0 else min(wanted, model.layers)


def _stamp(path: Path) -> tuple[int, int]:
    """Size in bytes and time of the last change in nanoseconds: a file with the same is taken for the same."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _reuse(context: llama.Context, tokens: list[int]) -> int:
    """Cut the cache to what it shares with ``tokens``, less the last one; how many tokens that are."""
    try:
        context.roll_back(shared_prefix(context.tokens, tokens[:-1]))
    except RollBackError:
        log.info("the cache could not be rolled back; the prompt is processed from its start")
    return len(context.tokens)
