"""What an engine sends to the window; ``request`` links an event to the command that caused it.

An engine need not be the local child process: fields that only a local engine can fill in (token ids, draft counters)
have empty defaults, and no code may rely on them.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

import msgspec

from app.protocol.options import (
    DEFAULT_DRAFT_LENGTH,
    DrafterName,
    FinishReason,
    Fraction,
    Sampling,
    TemplateKind,
    TextKind,
)
from app.protocol.remote import FiguresFrom, RemoteModel, ServerFailure, ServerProbed, ServersFound
from app.protocol.tools import ToolFormatName


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as llama.cpp's backend reports it. Bytes."""

    name: str
    """Short and unique on the machine: ``CUDA0``, ``Vulkan1``, ``Metal``."""
    description: str
    """For display: ``NVIDIA GeForce RTX 4060``."""
    kind: Literal["gpu", "integrated"] = "gpu"
    """``integrated`` devices share the system's memory (Apple silicon, laptops)."""
    total_bytes: int = 0
    free_bytes: int = 0
    largest_tensor: int = 0
    """Bytes; it can't compute with a larger one. 0: no limit is known."""


PROTOCOL_VERSION = 6


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of an engine."""

    protocol: int
    engine: str
    """For example ``llama.cpp (llama-cpp-python 0.3.36, zen4 variant)``; from source without the variant."""
    processor_features: list[str] = []
    """Instruction sets it uses, as ggml names them: ``AVX2``, ``AVX512``, …"""
    devices: list[Device] = []
    """GPUs the engine can offload to; empty in a CPU build."""


class StartFailed(msgspec.Struct, frozen=True, kw_only=True, tag="start_failed"):
    """Sent instead of `Hello`: the engine can't run here and ends. ``message`` is one or two sentences for the user."""

    message: str


class LoadProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="load_progressed"):
    request: int
    stage: Literal["target", "draft", "context", "server"]
    """``server``: a server is loading its model, and doesn't say how far it is."""
    fraction: Fraction


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the window shows about a loaded model."""

    path: str
    name: str
    """What people call it."""
    inner_name: str = ""
    """What its file says."""
    architecture: str = ""
    quantization: str = ""
    size_bytes: int = 0
    parameters: int = 0
    layers: int = 0
    gpu_layers: int = 0
    training_context: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be known by."""
        return tuple(filter(None, (self.name, self.inner_name, PurePath(self.path).name)))


class KindFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of drafting over text of one kind, without the first tokens of answers."""

    kind: TextKind
    tokens: int = 0
    seconds: float = 0.0
    """How long decoding them took."""
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A pair has become slower since it was measured with another engine or driver on this machine."""

    before: str
    """What it was measured with before, for display."""
    now: str
    times: float
    """How many times as long a plain pass takes now."""


class PairLoaded(msgspec.Struct, frozen=True, kw_only=True, tag="pair_loaded"):
    request: int
    target: ModelInfo
    draft: ModelInfo | None = None
    draft_refused: str | None = None
    """Why the requested draft isn't used, for the user; only the target is loaded then."""
    has_head: bool = False
    """Whether an MTP head drafts."""
    head_refused: str | None = None
    """Why the requested MTP head isn't used, for the user."""
    head_off: str | None = None
    """Why a head inside the target wasn't requested although it could be used, for the user."""
    head_file: ModelInfo | None = None
    """The file that the head in use is in, if that isn't the target's."""
    drafting_off: str | None = None
    """Why nothing can draft for this target, for the user."""
    projector: str | None = None
    """The file with which the target sees images; ``None``: it can't see any."""
    projector_refused: str | None = None
    """Why the requested projector isn't used, for the user."""
    context_length: int = 0
    threads: int = 0
    """For passes over one token."""
    batch_threads: int = 0
    template: TemplateKind = "model"
    """The chat template in use."""
    template_refused: str | None = None
    """Why it isn't the model's own or the chosen one, for the user."""
    thinking: list[str] = []
    """What `Generate.thinking` may be, as the chat template has it: ``off``, ``on``, ``low`` and the like; empty where
    there is no choice."""
    template_variables: list[str] = []
    """The names that `Generate.template_variables` may have: those that the chat template declares."""
    tool_format: ToolFormatName = "general"
    """How its chat template writes tool calls."""
    may_think: bool = False
    """Whether the target thinks, with or without a choice."""
    default_draft_length: int = DEFAULT_DRAFT_LENGTH
    sampling: Sampling = Sampling()
    """What the target's file recommends, and llama.cpp's defaults for the rest."""
    recommended: list[str] = []
    """The fields of ``sampling`` that the file recommends."""
    load_seconds: float = 0.0
    plain_pass_seconds: float = 0.0
    """One pass of the target over one token, measured here; 0 if it wasn't measured."""
    exact_unit: int = 0
    """Passes over a multiple of so many tokens were found to give the same logits here. 1: all do, so that the text is
    the same with and without a draft; 0: it wasn't tried."""
    exact_pass_seconds: float = 0.0
    """A pass over ``exact_unit`` tokens, which answers without a draft take under the rule ``exact``."""
    history: list[KindFigures] = []
    """The results of drafting in earlier answers of this pair on this machine."""
    slower: SpeedChange | None = None
    remote: RemoteModel | None = None
    """Set for a model on a server. Its name is `ModelInfo.name`; `ModelInfo.path` is empty, and so is all that only
    a local engine knows. ``context_length`` 0: not known."""

    @property
    def models(self) -> list[ModelInfo]:
        """The files in use."""
        return [model for model in (self.target, self.draft, self.head_file) if model is not None]

    def usable_thinking(self, level: str) -> str:
        """``level``, or the model's default where this model doesn't have it."""
        return level if level in self.thinking else ""


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    request: int
    message: str
    cancelled: bool = False
    cause: ServerFailure = ""
    """Of a remote engine."""


class GenerationStarted(msgspec.Struct, frozen=True, kw_only=True, tag="generation_started"):
    request: int
    seed: int
    prompt_tokens: int
    """Including those of `Generate.continued`."""
    cached_tokens: int = 0
    """Tokens of the prompt that were already in the KV cache."""
    dropped_messages: int = 0
    """How many consecutive messages no longer fit in the context."""
    first_dropped: int = 0
    """The index of the first of them in `Generate.messages`."""
    template: TemplateKind | Literal["none"] = "model"
    notes: list[str] = []
    """Sentences about what of `Generate.format` or the parameters of tools is left to the model."""


class PromptProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_progressed"):
    request: int
    done: int
    total: int


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """How likely the target found a token."""

    id: int
    text: bytes
    """What it adds to a text, which may be part of a character; the name of a control token."""
    logprob: float
    """The natural logarithm of its probability."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text that one token adds to the answer; there is one piece for each token, in order.

    A token that ends in the middle of a character has an empty text; the token that completes the character carries all
    of it. A character that the answer doesn't complete isn't shown. The token that ends an answer with the
    `FinishReason` ``end`` has a piece, too, with an empty text, and so do the tokens of the marks around thinking.
    """

    text: str
    thinking: bool = False
    """Part of what the model thought before the answer, or of the marks around that."""
    id: int = -1
    drafter: DrafterName | None = None
    """Which drafter proposed the token; ``None`` if it is the target's own."""
    round: int = 0
    rejected: str | None = None
    """What the drafter had proposed here, if the target disagreed."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The token itself, then the `Generate.logprobs` most likely ones; empty where that wasn't asked for, for a token
    that ended the answer or that nobody chose, and for one behind a stop string."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Why the policy isn't drafting at the moment."""

    acceptance_rate: Fraction
    """The acceptance rate it expects from the best drafter here."""
    break_even_rate: Fraction
    """The acceptance rate above which drafting would save time on this machine."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One verify pass and the drafting before it; the same with and without a draft.

    ``drafted = tested + ignored``, ``tested = accepted + rejected``. Pieces are sent when they may be shown, which is
    after their round if they could be the beginning of a stop string; ``Piece.round`` is the number of their own round.
    """

    index: int
    verify_passes: int
    """1, or 0 for the first token (it comes from prompt processing) and for text released at the end."""
    pieces: list[Piece] = []
    tokens: int = 0
    """Tokens added to the answer: accepted + the target's own + forced."""
    forced: int = 0
    """Tokens that nobody chose: they end the thinking."""
    drafter: DrafterName | None = None
    """Which drafter proposed in this round; ``None`` if none did."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    paused: Pause | None = None
    """Set while the policy doesn't draft because it wouldn't save time."""
    kind: TextKind = "prose"
    """The kind of text when the round began."""
    threads: int = 0
    """How many threads computed it, if fewer than `PairLoaded.batch_threads`: other programs are busy."""
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    time: float = 0.0
    """Seconds from the arrival of the request to the end of the round."""


class RoundsReceived(msgspec.Struct, frozen=True, kw_only=True, tag="rounds_received"):
    """Rounds since the last such event, in order; sent at most 60 times a second, or 15 where each core computes."""

    request: int
    rounds: list[Round]


class DrafterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one drafter over one answer."""

    name: DrafterName
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    """Passes that tested a draft of this drafter."""


class DraftFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of drafting over one answer; defined in ``protocol/statistics.py``."""

    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    mean_acceptance_length: float | None = None
    accepted_per_position: list[int] = []
    tested_per_position: list[int] = []
    """How many drafts had a token tested at position 1, 2, …; empty if that wasn't counted."""
    passes_per_accepted: list[int] = []
    """How many verify passes accepted 0, 1, 2, … tokens, where a server says so."""
    drafters: list[DrafterFigures] = []
    """One entry for each drafter that proposed anything."""
    source: FiguresFrom = "engine"
    """``none``: it isn't known whether anything was drafted, and all counters are 0. ``counters``: they are the
    server's, over this time, and contain what others asked it."""
    estimated_passes: bool = False
    """The server doesn't send ``verify_passes``; they were worked out from its other figures."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the footer of an answer shows. Times are ``…_s`` where they are stored or printed as JSON."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    time_to_first_token_seconds: float | None = msgspec.field(default=None, name="time_to_first_token_s")
    prompt_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    """Tokens after the first ÷ time from the first to the last; ``None`` for fewer than two tokens."""
    total_seconds: float = msgspec.field(default=0.0, name="total_s")
    draft_seconds: float = msgspec.field(default=0.0, name="draft_s")
    verify_seconds: float = msgspec.field(default=0.0, name="verify_s")
    other_seconds: float = msgspec.field(default=0.0, name="other_s")
    draft: DraftFigures = DraftFigures()
    kinds: list[KindFigures] = []
    """One entry for each kind of text in the answer, thinking among them."""
    thinking_tokens: int = 0
    """With the marks around it."""
    thinking_seconds: float = msgspec.field(default=0.0, name="thinking_s")
    """From the first token of the answer to the last of its thinking."""


class GenerationFinished(msgspec.Struct, frozen=True, kw_only=True, tag="generation_finished"):
    request: int
    finish_reason: FinishReason
    figures: Figures
    stop_string: str | None = None
    stop_overlap: int = 0
    """If an answer was continued: how many characters at the end of the earlier text are the beginning of the stop
    string that was found, and should be removed.
    """
    draft_failure: str | None = None
    """Why drafting ended before the answer did, for the user."""
    curve: list[float] = []
    """The tokens per second that each draft length from 0 on would reach on such text, calculated from measured costs
    and acceptance.
    """
    valid: bool | None = None
    """Whether a finished answer is valid by a schema that couldn't be forced as a whole; ``None``: not checked."""

    def has_only_thought(self, thinking: str, text: str) -> bool:
        """Whether the model ended by itself without a word besides its thinking, which then is its answer."""
        return self.finish_reason == "end" and bool(thinking.strip()) and not text.strip()


class GenerationFailed(msgspec.Struct, frozen=True, kw_only=True, tag="generation_failed"):
    """``message`` is one or two sentences for the user."""

    request: int
    message: str
    prompt_tokens: int = 0
    """If the prompt is too long for the context: how many tokens it has."""
    cause: ServerFailure = ""
    """Of a remote engine. ``cut``: what has come is part of the answer, which can be continued or asked for again."""
    figures: Figures | None = None
    """Of what had come until then, if anything."""


class PlainMeasured(msgspec.Struct, frozen=True, kw_only=True, tag="plain_measured"):
    request: int
    tokens: int
    decode_tokens_per_second: float


class TokensScored(msgspec.Struct, frozen=True, kw_only=True, tag="tokens_scored"):
    """One entry per candidate, in the order of the command."""

    request: int
    logits: list[float]
    scores: list[float | None]
    """log p + noise, which decides the target's choice; ``None`` for a token that its sampler excludes."""
    could_win: list[bool] = []
    """Whether the target could choose it if each logit were off by at most ``rounding``."""
    rounding: float = 0.0
    """How much rounding is assumed to change a logit, from passes of different widths that were compared right there.
    """


class TokensCounted(msgspec.Struct, frozen=True, kw_only=True, tag="tokens_counted"):
    """The tokens of the prompt if the text were sent now, without what would be left out; their sum is its length."""

    request: int
    system: int
    """The system prompt."""
    messages: int
    """The messages that would not be left out."""
    text: int
    """The typed text, with what the template adds around it, and what is attached to it; 0 if there is none."""
    context_length: int
    dropped: int = 0
    """How many messages would be left out."""
    first_dropped: int = 0
    """The index of the first of them in `CountTokens.messages`."""
    parts: list[int] = []
    """The tokens of each of `CountTokens.parts`."""
    images: list[int] = []
    """The tokens of each of `CountTokens.images`, which are among those of ``text``."""


class PromptCounted(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_counted"):
    request: int
    tokens: int = 0
    refused: str = ""
    """Why there is no prompt, for the user."""


class TextChecked(msgspec.Struct, frozen=True, kw_only=True, tag="text_checked"):
    request: int
    tokens: list[int] | None
    """For `Generate.continued`; ``None`` if no tokens give exactly this text."""


class Tokenized(msgspec.Struct, frozen=True, kw_only=True, tag="tokenized"):
    request: int
    tokens: list[int]
    pieces: list[bytes]
    """What each of them stands for, which may be part of a character."""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    busy: bool
    seconds_since_progress: float
    """Seconds since the computation last advanced; grows without limit if it hangs."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, tag="forgotten"):
    """A `Forget` has been carried out: nothing of earlier chats is left in the engine's memory or files."""


class MemoryRead(msgspec.Struct, frozen=True, kw_only=True, tag="memory_read"):
    devices: list[Device] = []
    """As in `Hello`, with their current memory."""
    own_bytes: int = 0
    """System memory the engine uses in addition to what it used right after starting, without files and saved chats:
    what becomes free for the next load.
    """


Event = (
    Hello
    | StartFailed
    | LoadProgressed
    | PairLoaded
    | LoadFailed
    | GenerationStarted
    | PromptProgressed
    | RoundsReceived
    | GenerationFinished
    | GenerationFailed
    | PlainMeasured
    | TokensScored
    | TokensCounted
    | PromptCounted
    | TextChecked
    | Tokenized
    | Pong
    | Forgotten
    | MemoryRead
    | ServerProbed
    | ServersFound
)
