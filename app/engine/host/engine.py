"""Loads a pair, answers, cancels, measures; knows nothing of processes and windows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path

from app.engine.decoding.drafting import Drafting
from app.engine.decoding.loop import Decoding
from app.engine.decoding.prompt import Prompt, tokens_of
from app.engine.decoding.sampling import InvalidLogitsError, Logits
from app.engine.decoding.scoring import Choice, logits_behind
from app.engine.decoding.sequence import Task, TokenSequence, piece_end, text_of
from app.engine.decoding.text import answer_text
from app.engine.drafters import Drafter
from app.engine.drafters.medusa import MedusaHeads
from app.engine.host.chat_cache import ChatCaches, memory_limit
from app.engine.host.loading import NO_BRANCHES, NO_ROLL_BACK, LoadedModel, Loader, Target
from app.engine.host.medusa_files import medusa_heads
from app.engine.host.model_files import recommended_sampling
from app.engine.host.pair_costs import (
    PairCosts,
    PairThreads,
    exactness,
    measured_costs,
    pair_drafters,
    pair_threads,
    usual_draft_length,
)
from app.engine.host.tasks import allowed_after, check_tokens, judged_by, task_for, unknown_token
from app.engine.llama import backend
from app.engine.llama.backend import allowed_processors
from app.engine.llama.context import Context
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import CostModel
from app.engine.policy.fixed import FixedPolicy
from app.engine.policy.policy import Policy
from app.protocol.answering import with_fields_of
from app.protocol.commands import (
    CheckText,
    CountPrompt,
    CountTokens,
    Generate,
    Load,
    MeasurePlain,
    Message,
    ScoreTokens,
    Tokenize,
)
from app.protocol.events import (
    GenerationFinished,
    GenerationStarted,
    LoadProgressed,
    PairLoaded,
    PlainMeasured,
    PromptCounted,
    PromptProgressed,
    Round,
    TextChecked,
    Tokenized,
    TokensCounted,
    TokensScored,
)
from app.protocol.options import EXACT_WIDTH
from app.protocol.statistics import Statistics
from app.system import Canceled, KnownError

log = logging.getLogger("slipstream.engine")

_PUT_AWAY_SECONDS = 1.0
"""The window gives the engine two seconds to quit (`app.client.connection.Timings.quit`)."""

Question = CountTokens | CountPrompt | CheckText | Tokenize
Answer = TokensCounted | PromptCounted | TextChecked | Tokenized
GenerationEvent = GenerationStarted | PromptProgressed | Round | GenerationFinished


class Engine:
    """One pair at a time, one answer at a time.

    `cancel` and `stop_thinking` may be called from any other thread, `answer` from one other.
    """

    def __init__(self, caches: ChatCaches | None = None) -> None:
        """``caches`` stores the KV caches of recent chats; by default none of them is stored on disk."""
        backend.start()
        self.caches = caches or ChatCaches()
        self._target: Target | None = None
        self._draft: LoadedModel | None = None
        self._drafters: list[Drafter] = []
        """All drafters of the loaded pair."""
        self._costs: PairCosts | None = None
        self._cancel = threading.Event()
        self._stop_thinking = threading.Event()
        self.last_progress = time.monotonic()
        """When the computation last advanced (`time.monotonic`), so that the worker can notice a hang."""
        self._sequence = TokenSequence()
        """The last prompt and its answer."""
        self._threads: PairThreads | None = None
        """``None``: their number is fixed, or the processor computes nothing."""

    # ------------------------------------------------------------ loading

    def load(self, command: Load, on_progress: Callable[[LoadProgressed], None]) -> PairLoaded:
        """Load a target and its draft.

        A target that is already loaded with the same settings isn't loaded again. A draft that doesn't fit or can't be
        loaded is left out, with the reason in the result. After `KnownError`, and `Canceled`, nothing is loaded.
        """
        try:
            return self._load(command, on_progress)
        except (KnownError, Canceled):
            self.unload()
            raise

    def _load(self, command: Load, on_progress: Callable[[LoadProgressed], None]) -> PairLoaded:
        started = time.perf_counter()
        if self._threads:
            self._threads.restore()
        self.caches.set_limit(memory_limit(command.settings.chat_cache_mib))
        loader = Loader(command, on_progress, self._should_abort, self.caches)
        self._close_draft()
        if not (self._target and loader.is_loaded(self._target)):
            self.unload()
            self._target = loader.target()
        target, refused = self._target, None
        if loader.wants_draft_model:
            try:
                self._draft = loader.draft(target)
            except KnownError as error:
                refused = str(error)
        medusa, no_medusa = self._medusa(target, command.medusa)
        self._drafters = pair_drafters(target, self._draft, medusa, self._should_abort)
        if target.longest_draft:
            self._costs = measured_costs(target, self._draft, self._drafters, self._should_abort)
            self._find_exactness(target)
        costs = self._costs.costs if self._costs else None
        self._threads = pair_threads(target, self._draft, costs)
        sampling, recommended = recommended_sampling(target.model)
        return PairLoaded(
            request=command.request,
            target=target.info,
            draft=self._draft.info if self._draft else None,
            draft_refused=refused,
            head_drafter=target.head.drafter if target.head else None,
            head_refused=target.head_refused,
            head_off=loader.head_off,
            head_file=target.head.file if target.head else None,
            drafting_off=None if target.longest_draft else NO_ROLL_BACK,
            all_drafters=[drafter.name for drafter in self._drafters] if target.longest_draft else [],
            medusa_refused=no_medusa,
            branches_refused=NO_BRANCHES if command.settings.branches and not target.context.branches else None,
            projector=str(target.model.vision.path) if target.model.vision else None,
            projector_refused=target.projector_refused,
            context_length=target.context.length,
            threads=target.context.threads,
            batch_threads=target.context.batch_threads,
            template=target.prompts.tokenizer.templates.kind,
            template_refused=target.prompts.tokenizer.templates.refused,
            thinking=list(target.thinking.levels),
            template_variables=sorted(target.prompts.tokenizer.template.variables),
            tool_format=target.prompts.tokenizer.tool_format,
            may_think=target.thinking.may_think,
            default_draft_length=usual_draft_length(target, self._draft),
            sampling=sampling,
            recommended=recommended,
            load_seconds=time.perf_counter() - started,
            plain_pass_seconds=self._costs.costs.verify[1] if self._costs else 0.0,
            exact_unit=target.exact_unit if self._costs else 0,
            exact_pass_seconds=CostModel(costs, EXACT_WIDTH).verify(target.exact_unit) if costs else 0.0,
            history=self._costs.history.figures() if self._costs else [],
            slower=self._costs.slower if self._costs else None,
        )

    @staticmethod
    def _medusa(target: Target, path: str | None) -> tuple[MedusaHeads | None, str | None]:
        """The Medusa heads in a file; if they can't be used, ``None`` and the reason."""
        target.context.keep_states(False)
        if path is None:
            return None, None
        try:
            target.switcher.before_measuring()
            return medusa_heads(Path(path), target.context), None
        except KnownError as error:
            log.info("the Medusa heads are not used: %s", error)
            target.context.keep_states(False)
            return None, str(error)

    def _find_exactness(self, target: Target) -> None:
        target.switcher.before_measuring()
        target.context.clear()
        found = exactness(target.context, target.files.stamp, target.settings, self._should_abort)
        target.exact_unit = found.unit
        target.context.clear()

    def unload(self) -> None:
        """Unload the pair; large KV caches are written to disk, for about a second.

        That ends before whoever waits for this process may kill it.
        """
        begun = time.perf_counter()
        self._drafters, self._threads = [], None
        if self._target:
            self._target.switcher.put_away()
        self._close_draft()
        if self._target:
            self._target.close()
            self._target = None
        self.caches.files.flush(max(_PUT_AWAY_SECONDS - (time.perf_counter() - begun), 0.0))

    def forget(self, chats: Collection[str] = ()) -> None:
        """Erase what is left of earlier chats: tokens, and KV caches in memory and on disk, with ``chats`` only
        theirs."""
        if self._target and self._target.model.vision:
            chats = ()  # no copy can be used without the images that are forgotten
        for model in (self._target, self._draft) if chats else ():
            if model:
                model.switcher.before_forgetting(chats)
        self.caches.forget(chats)
        self._sequence = TokenSequence()
        for drafter in self._drafters:
            drafter.forget()
        if self._target:
            self._target.context.clear(overwrite=True)
            if self._target.model.vision:
                self._target.model.vision.forget()
            self._target.prompts.forget()
            self._target.counter.forget()
        if self._draft:
            self._draft.context.clear(overwrite=True)

    def _close_draft(self) -> None:
        if self._costs:
            self._costs.save()
            self._costs = None
        if self._draft:
            self._draft.switcher.put_away()
            self._draft.close()
            self._draft = None

    @property
    def uses_all_cores(self) -> bool:
        """Whether passes leave no core to other processes."""
        target = self._target
        if not target or not target.computes_on_cpu:
            return False
        return max(target.context.threads, target.context.batch_threads) >= len(allowed_processors())

    # ------------------------------------------------------------ generating

    def cancel(self) -> None:
        """Stop whatever is running, within one verify pass; may be called from any thread."""
        self._cancel.set()

    def stop_thinking(self) -> None:
        """End the thinking within one verify pass; may be called from any thread."""
        self._stop_thinking.set()

    def ready(self) -> None:
        """Forget an earlier `cancel` or `stop_thinking`; called before a new command starts."""
        self._cancel.clear()
        self._stop_thinking.clear()

    def generate(self, command: Generate) -> Iterator[GenerationEvent]:
        """Answer a chat: `GenerationStarted`, `PromptProgressed`…, `Round`…, `GenerationFinished`.

        Raises `KnownError` before the first event if no model is loaded or the message doesn't fit.
        """
        started = time.perf_counter()
        self.last_progress = time.monotonic()
        target = self._loaded()
        check_tokens(target, command)
        prompt = self._prompt(target, command)
        task = task_for(target, command, prompt)
        tokens = [*prompt.tokens, *command.continued]
        self.caches.chat = command.chat
        shared = self._begin(target, tokens, private=command.private)
        statistics = Statistics(prompt_tokens=len(tokens), cached_tokens=shared)
        has_all = command.raw or target.context.checkpoints.any_length
        unshared = 0 if has_all else target.thinking.unshared(target.thinking.variables(command))
        self._sequence = TokenSequence(tokens, max(len(prompt.tokens) - unshared, 0))
        yield GenerationStarted(
            request=command.request,
            seed=task.seed,
            prompt_tokens=len(tokens),
            cached_tokens=shared,
            dropped_messages=prompt.dropped_messages,
            first_dropped=prompt.first_dropped,
            template="none" if command.raw else target.prompts.tokenizer.templates.kind,
            notes=list(task.grammar.notes) if task.grammar else [],
        )
        try:
            logits = yield from self._process(target, command, task, statistics)
        except Canceled:
            figures = statistics.figures(time.perf_counter() - started)
            yield GenerationFinished(request=command.request, finish_reason="cancelled", figures=figures)
            return
        yield from self._decode(target, command, task, logits, statistics, started)

    def _decode(
        self, target: Target, command: Generate, task: Task, logits: Logits, statistics: Statistics, started: float
    ) -> Iterator[Round | GenerationFinished]:
        """The answer after a processed prompt, whose last token has these ``logits``."""
        drafting, sequence = self._drafting(command), self._sequence
        stops = self._cancel.is_set, self._stop_thinking.is_set
        decoding = Decoding(target.context, sequence, target.model, drafting, task, started, *stops)
        answer = [decoding.text.earlier]
        try:
            for done in decoding.rounds(logits):
                self.last_progress = time.monotonic()
                threads = self._threads if done.verify_passes else None
                round_ = threads.after_round(done, len(sequence), drafting) if threads else done
                statistics.add(round_)
                answer += map(answer_text, round_.pieces)
                yield round_
        except InvalidLogitsError:
            target.context.clear(overwrite=True)  # invalid numbers would spoil the sums of later answers, too
            raise
        figures, curve = statistics.figures(time.perf_counter() - started), []
        if drafting and self._costs:
            learned = drafting.policy.learned()
            self._costs.history.add(figures.kinds, judged_by(command.accept), learned.priors, private=command.private)
            self._costs.costs, curve = learned.costs, learned.curve
        yield GenerationFinished(
            request=command.request,
            finish_reason=decoding.finish_reason or "cancelled",
            figures=figures,
            stop_string=decoding.text.met_stop,
            stop_overlap=decoding.text.overlap,
            draft_failure=drafting.failure if drafting else None,
            curve=curve,
            valid=task.grammar.is_valid("".join(answer)) if task.grammar and decoding.finish_reason == "end" else None,
        )
        if self._costs:
            self._costs.history.save_now_and_then()

    def _drafting(self, command: Generate) -> Drafting | None:
        """With the drafters that ``command`` asks for and this pair has; ``None`` if there are none."""
        is_exact = command.accept == "exact"
        is_open = command.drafter in ("auto", "chain")
        drafters = [one for one in self._drafters if command.drafter == one.name or (is_open and one.is_automatic)]
        if command.draft_length == 0 or not drafters or not self._costs:
            return None
        target = self._loaded()
        limit = min(target.longest_draft, EXACT_WIDTH - 1) if is_exact else target.longest_draft
        fixed = None if command.draft_length == "auto" else min(command.draft_length, limit)
        known = self._costs.history.priors(judged_by(command.accept), private=command.private)
        if not drafters[0].is_automatic:
            policy: Policy = FixedPolicy(drafters[0].name, fixed or limit, self._costs.costs, known)
            return Drafting(policy, drafters, target.model.piece)
        policy = AutoPolicy(
            self._costs.costs,
            limit=limit,
            longest={drafter.name: drafter.longest for drafter in drafters},
            propose=command.propose,
            start=known,
            fixed=fixed,
            samples=judged_by(command.accept) != "coupled",
            unit=target.exact_unit if is_exact else 1,
        )
        return Drafting(policy, drafters, target.model.piece)

    def measure_plain(self, command: MeasurePlain) -> PlainMeasured:
        """The plain decode speed of the target for ``command``'s chat. Raises `Canceled` or `KnownError`."""
        self._loaded().switcher.before_measuring()
        *_, finished = self.generate(with_fields_of(Generate, command, draft_length=0))
        assert isinstance(finished, GenerationFinished)
        if finished.finish_reason == "cancelled":
            raise Canceled
        tokens, speed = finished.figures.completion_tokens, finished.figures.decode_tokens_per_second
        if speed is None:
            raise KnownError("The answer was too short to measure a speed. Try again with another chat.")
        return PlainMeasured(request=command.request, tokens=tokens, decode_tokens_per_second=speed)

    def score_tokens(self, command: ScoreTokens) -> TokensScored:
        """How the target scores ``command``'s candidates after its chat and answer, chosen as under ``coupled``.

        The last 32 tokens are processed one by one, as in decoding without a draft (`logits_behind`); the logits are
        those of the last pass, before penalties. The answers' own logits came from passes of other widths:
        ``could_win`` says what that can explain. Raises `Canceled`, and `KnownError` for ids that the target doesn't
        have and for an answer that doesn't fit in the context.
        """
        target = self._loaded()
        unknown = unknown_token(target, [*command.answer, *command.candidates])
        if unknown is not None:
            raise KnownError(f"The loaded target model has no token {unknown}, so another model wrote these answers.")
        prompt = self._prompt(target, command).tokens
        allowed = allowed_after(target, command, text_of(prompt))
        tokens = [*prompt, *command.answer]
        if len(tokens) > target.context.length:
            raise KnownError("The answer no longer fits into the context. Choose a longer context.")
        target.switcher.before_measuring()
        self.caches.chat = ""
        self._begin(target, tokens, private=command.private)
        logits, rounding = logits_behind(target.context, tokens, self._should_abort)
        choice = Choice(logits, tokens, command.sampling, command.seed or 0, allowed)
        return TokensScored(
            request=command.request,
            logits=[choice.logit(candidate) for candidate in command.candidates],
            scores=[choice.score(candidate) for candidate in command.candidates],
            could_win=[choice.could_win(candidate, rounding) for candidate in command.candidates],
            rounding=rounding,
        )

    def answer(self, question: Question) -> Answer:
        """Raises `KnownError` if there is no answer now."""
        match question:
            case CountTokens():
                return self.count_tokens(question)
            case CountPrompt():
                return self.count_prompt(question)
            case CheckText():
                return self.check_text(question)
            case Tokenize():
                return self.tokenize(question)

    def count_tokens(self, command: CountTokens) -> TokensCounted:
        """How much of the context ``command``'s chat would take."""
        target = self._loaded()
        return target.counter.count(command, target.thinking.variables(command))

    def count_prompt(self, command: CountPrompt) -> PromptCounted:
        """How many tokens the prompt for a chat has, or why there is none."""
        target = self._loaded()
        try:
            tools = command.tools.tools if command.tools else ()
            inputs = target.prompts.inputs(command.messages, target.thinking.variables(command), tools)
            tokens = target.prompts.tokenizer.chat(command.messages, inputs)
        except KnownError as error:
            return PromptCounted(request=command.request, refused=str(error))
        return PromptCounted(request=command.request, tokens=len(tokens))

    def check_text(self, command: CheckText) -> TextChecked:
        """Tokens that give the text, if there are such."""
        target, answer = self._loaded(), Message(role="assistant", content=command.text, thinking=command.thought)
        thinking = target.thinking
        variables = thinking.variables(command)
        tokens = tokens_of(answer, target.prompts, variables, thinking.marks, thinking.between)
        return TextChecked(request=command.request, tokens=tokens)

    def tokenize(self, command: Tokenize) -> Tokenized:
        """The tokens of a text alone."""
        model = self._loaded().model
        tokens = model.tokenize(command.text, special=command.special, bos=command.bos)
        return Tokenized(request=command.request, tokens=tokens, pieces=list(map(model.piece, tokens)))

    def _loaded(self) -> Target:
        target = self._target
        if not target:
            raise KnownError("No model is loaded. Open a model first.")
        return target

    def _begin(self, target: Target, tokens: list[int], *, private: bool = False) -> int:
        """Prepare the target's cache for ``tokens``; returns how many of them it contains, at most all but the last."""
        if not private and self._draft:
            self._draft.switcher.leave_private()
        return target.switcher.begin(tokens[:-1], private=private)

    @staticmethod
    def _prompt(target: Target, command: Generate | ScoreTokens) -> Prompt:
        continued = len(command.continued) if isinstance(command, Generate) else 0
        if command.raw:
            text = "".join(message.content for message in command.messages)
            images = [image for message in command.messages for image in message.images]
            return target.prompts.raw(text, continued, images)
        tools = command.tools.tools if isinstance(command, Generate) and command.tools else ()
        variables = target.thinking.variables(command)
        return target.prompts.chat(command.messages, command.overflow, continued, variables, tools)

    def _process(
        self, target: Target, command: Generate, task: Task, statistics: Statistics
    ) -> Generator[PromptProgressed, None, Logits]:
        """Process the prompt, timed; returns the logits of its last token, one row. Raises `Canceled`."""
        begun, sequence = time.perf_counter(), self._sequence
        if self._threads:
            self._threads.control.begin()
        logits, end = None, sequence.prompt_length
        marks = _marks(target.context, sequence, is_continued=bool(command.continued))
        with target.context.aborting(self._should_abort):
            while (done := len(target.context.tokens)) < end:
                if self._should_abort():
                    raise Canceled
                if done in marks:
                    target.context.remember()
                chunk = _next_chunk(target.context, sequence, marks)
                outputs = 1 if done + len(chunk) == end else 0
                logits = target.context.decode_largest(chunk, outputs, task.needed)
                if self._threads:
                    self._threads.after_chunk()
                if len(target.context.tokens) < end - 1:
                    yield PromptProgressed(request=command.request, done=len(target.context.tokens), total=end)
        assert logits is not None, "at least the last token of a prompt is always fed"
        statistics.prompt_seconds = time.perf_counter() - begun
        target.switcher.processed(end - statistics.cached_tokens, statistics.prompt_seconds)
        return logits

    def _should_abort(self) -> bool:
        self.last_progress = time.monotonic()
        return self._cancel.is_set()


def _marks(context: Context, sequence: TokenSequence, *, is_continued: bool) -> list[int]:
    """Where a memory that can't be cut anywhere prepares for coming back: where the next turn's prompt will begin to
    differ (most templates leave the thinking out of it), and in front of an answer that is continued."""
    places = {sequence.shared_length - 1, sequence.prompt_length - 1 if is_continued else 0}
    return [place for place in places if context.checkpoints.remembers(place)]


def _next_chunk(context: Context, sequence: TokenSequence, marks: list[int]) -> list[int]:
    """The next tokens of a prompt, up to the next of the ``marks``.

    The last token of a long chunk is processed alone, as it is when all others are in the cache: in a wide pass its
    logits would be rounded differently, and the same seed would give another text the second time.
    """
    tokens, done, end = sequence.tokens, len(context.tokens), sequence.prompt_length
    chunk_end = piece_end(tokens, done, context.chunk)
    if tokens[done] < 0:
        return tokens[done:chunk_end]
    chunk_end = min(chunk_end, *(mark for mark in marks if mark > done), end)
    is_long = chunk_end == end and end - done > context.longest_pass
    return tokens[done : end - 1 if is_long else chunk_end]
