"""Messages from an engine; ``request`` links an event to the command that caused it.

The engine may be remote: fields that only a local one can fill in (token ids, draft counters) have empty defaults, and
no code may rely on them.
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
from app.protocol.tools import ToolCall, ToolFormatName


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
    """The size limit of a tensor; 0: none known."""


PROTOCOL_VERSION = 6


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of an engine."""

    protocol: int
    engine: str
    """Such as ``llama.cpp (llama-cpp-python 0.3.36, zen4 variant)``; no variant when run from source."""
    processor_features: list[str] = []
    """The instruction sets in use, by ggml's names: ``AVX2``, ``AVX512``, …"""
    devices: list[Device] = []
    """GPUs the engine can offload to; empty in a CPU build."""


class StartFailed(msgspec.Struct, frozen=True, kw_only=True, tag="start_failed"):
    """Sent instead of `Hello` by an engine that can't run here. ``message`` is one or two sentences for the user."""

    message: str


class LoadProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="load_progressed"):
    request: int
    stage: Literal["target", "draft", "context", "server"]
    """``server``: a server is loading its model without reporting progress."""
    fraction: Fraction


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a loaded model."""

    path: str
    name: str
    """For display."""
    inner_name: str = ""
    """From its file's metadata."""
    architecture: str = ""
    quantization: str = ""
    size_bytes: int = 0
    parameters: int = 0
    layers: int = 0
    gpu_layers: int = 0
    training_context: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All the names it may be known by."""
        return tuple(filter(None, (self.name, self.inner_name, PurePath(self.path).name)))


class KindFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Drafting counters for one kind of text, excluding the first tokens of answers."""

    kind: TextKind
    tokens: int = 0
    seconds: float = 0.0
    """Spent decoding them."""
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True):
    """This pair ran faster on this machine with an earlier engine or driver."""

    before: str
    """The earlier engine or driver, for display."""
    now: str
    times: float
    """A plain pass now ÷ one then."""


class PairLoaded(msgspec.Struct, frozen=True, kw_only=True, tag="pair_loaded"):
    request: int
    target: ModelInfo
    draft: ModelInfo | None = None
    draft_refused: str | None = None
    """Why the requested draft isn't used, for the user; only the target is loaded then."""
    head_drafter: DrafterName | None = None
    """The head that drafts; ``None`` without one."""
    head_refused: str | None = None
    """Why the requested MTP head isn't used, for the user."""
    head_off: str | None = None
    """Why a usable head inside the target wasn't requested, for the user."""
    head_file: ModelInfo | None = None
    """The file of the head in use, if it isn't the target's."""
    drafting_off: str | None = None
    """Why nothing can draft for this target, for the user."""
    all_drafters: list[DrafterName] = []
    """All that can draft for it, including those that must be chosen by name (`Drafter.is_automatic`)."""
    medusa_refused: str | None = None
    """Why the requested Medusa heads aren't used, for the user."""
    branches_refused: str | None = None
    """Why drafts can't have the requested branches, for the user."""
    projector: str | None = None
    """The file that lets the target see images; ``None``: it can't."""
    projector_refused: str | None = None
    """Why the requested projector isn't used, for the user."""
    context_length: int = 0
    threads: int = 0
    """For passes over one token."""
    batch_threads: int = 0
    template: TemplateKind = "model"
    """The chat template in use."""
    template_refused: str | None = None
    """Why that isn't the model's own or the chosen one, for the user."""
    thinking: list[str] = []
    """The template's choices for `Generate.thinking`: ``off``, ``on``, ``low`` and the like; empty: no choice."""
    template_variables: list[str] = []
    """The variables that the chat template declares, for `Generate.template_variables`."""
    tool_format: ToolFormatName = "general"
    """How the chat template writes tool calls."""
    may_think: bool = False
    """Whether the target thinks, by choice or always."""
    default_draft_length: int = DEFAULT_DRAFT_LENGTH
    sampling: Sampling = Sampling()
    """The recommendations in the target's file, with llama.cpp's defaults for the rest."""
    recommended: list[str] = []
    """The fields of ``sampling`` that the file recommends."""
    load_seconds: float = 0.0
    plain_pass_seconds: float = 0.0
    """The target's pass over one token, measured on this machine; 0: not measured."""
    exact_unit: int = 0
    """Passes over multiples of this many tokens gave the same logits on this machine. 1: all passes do, so the text is
    the same with and without a draft; 0: not tested."""
    exact_pass_seconds: float = 0.0
    """A pass over ``exact_unit`` tokens, the cost of a token without a draft under the rule ``exact``."""
    history: list[KindFigures] = []
    """Drafting counters from this pair's earlier answers on this machine."""
    slower: SpeedChange | None = None
    remote: RemoteModel | None = None
    """Set for a model on a server, where `ModelInfo.path` and everything else that only a local engine knows are empty.
    ``context_length`` 0: not known."""

    @property
    def has_head(self) -> bool:
        return self.head_drafter is not None

    @property
    def drafters(self) -> tuple[DrafterName, ...]:
        """Those that a model or head was loaded for."""
        model: tuple[DrafterName, ...] = ("model",) if self.draft is not None else ()
        return (*model, self.head_drafter) if self.head_drafter else model

    @property
    def models(self) -> list[ModelInfo]:
        """The files in use."""
        return [model for model in (self.target, self.draft, self.head_file) if model is not None]

    def usable_thinking(self, level: str) -> str:
        """``level`` if this model has it, otherwise empty (the model's default)."""
        return level if level in self.thinking else ""


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    request: int
    message: str
    cancelled: bool = False
    cause: ServerFailure = ""
    """Set by remote engines."""


class GenerationStarted(msgspec.Struct, frozen=True, kw_only=True, tag="generation_started"):
    request: int
    seed: int
    prompt_tokens: int
    """Including `Generate.continued`."""
    cached_tokens: int = 0
    """Prompt tokens that were already in the KV cache."""
    dropped_messages: int = 0
    """How many consecutive messages were left out because the context is full."""
    first_dropped: int = 0
    """The index of the first of them in `Generate.messages`."""
    template: TemplateKind | Literal["none"] = "model"
    notes: list[str] = []
    """Sentences about parts of `Generate.format` or of tools' parameters that can't be enforced."""


class PromptProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_progressed"):
    request: int
    done: int
    total: int


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """How likely the target found a token."""

    id: int
    text: bytes
    """Its bytes, possibly part of a character; for a control token, its name."""
    logprob: float
    """The natural logarithm of its probability."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text that one token adds to the answer; one piece per token, in order.

    A character that is spread over several tokens is in the piece of the last one; it isn't shown if it never gets
    completed. The token that ends an answer (`FinishReason` ``end``) and the marks around thinking have pieces with an
    empty text.
    """

    text: str
    thinking: bool = False
    """Part of the thinking, or of the marks around it."""
    id: int = -1
    drafter: DrafterName | None = None
    """Which drafter proposed the token; ``None``: the target's own."""
    round: int = 0
    rejected: str | None = None
    """The draft token here, if the target disagreed with it."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The token itself, then the `Generate.logprobs` most likely ones. Empty if not requested, and for tokens that end
    the answer, were forced, or follow a stop string."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Why the policy isn't drafting at the moment."""

    acceptance_rate: Fraction
    """Expected of the best drafter here."""
    break_even_rate: Fraction
    """Above this acceptance rate, drafting would save time on this machine."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One verify pass and the drafting before it; the same with and without a draft.

    ``drafted = tested + ignored``, ``tested = accepted + rejected``. A piece that may begin a stop string is held back
    and sent with a later round; ``Piece.round`` is the one it was decoded in.
    """

    index: int
    verify_passes: int
    """1; 0 for the first token, which comes from prompt processing, and for text released at the end."""
    pieces: list[Piece] = []
    tokens: int = 0
    """Tokens added to the answer: accepted + the target's own + forced."""
    forced: int = 0
    """Tokens inserted to end the thinking early."""
    drafter: DrafterName | None = None
    """``None`` if nothing was drafted."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    continued: int = 0
    """How many of the tested tokens, at the end, come from n-grams, which continued another drafter's draft."""
    paused: Pause | None = None
    """Set while the policy doesn't draft because it wouldn't save time."""
    kind: TextKind = "prose"
    """The kind of text when the round began."""
    threads: int = 0
    """Set while busy programs leave it fewer threads than `PairLoaded.batch_threads`."""
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    time: float = 0.0
    """Seconds from the request's arrival to the end of the round."""


class RoundsReceived(msgspec.Struct, frozen=True, kw_only=True, tag="rounds_received"):
    """Rounds since the last such event, in order; sent at most 60 times a second, 15 if every core computes."""

    request: int
    rounds: list[Round]


class DrafterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One drafter's counters over one answer."""

    name: DrafterName
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    """Passes that tested one of its drafts."""


class DraftFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Drafting counters over one answer; defined in ``protocol/statistics.py``."""

    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    mean_acceptance_length: float | None = None
    accepted_per_position: list[int] = []
    tested_per_position: list[int] = []
    """How many drafts had a token tested at position 1, 2, …; empty: not counted."""
    passes_per_accepted: list[int] = []
    """How many verify passes accepted 0, 1, 2, … tokens, if a server reports it."""
    drafters: list[DrafterFigures] = []
    """One entry for each drafter that proposed anything."""
    source: FiguresFrom = "engine"
    """``none``: unknown, and all counters are 0. ``counters``: the server's totals over this time, which include other
    clients' requests."""
    estimated_passes: bool = False
    """``verify_passes`` was worked out from the server's other figures."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """An answer's figures, shown in its footer. In JSON, times are called ``…_s``."""

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
    """One entry for each kind of text in the answer, including thinking."""
    thinking_tokens: int = 0
    """Including the marks around it."""
    thinking_seconds: float = msgspec.field(default=0.0, name="thinking_s")
    """From the first token of the answer to the last of its thinking."""


class GenerationFinished(msgspec.Struct, frozen=True, kw_only=True, tag="generation_finished"):
    request: int
    finish_reason: FinishReason
    figures: Figures
    stop_string: str | None = None
    stop_overlap: int = 0
    """In a continued answer: how many characters at the end of the earlier text begin the stop string that was found;
    remove them."""
    draft_failure: str | None = None
    """Why drafting ended before the answer did, for the user."""
    curve: list[float] = []
    """Expected tokens per second on such text for draft length 0, 1, …, from measured costs and acceptance."""
    valid: bool | None = None
    """Whether the answer matches a schema that couldn't be enforced completely; ``None``: not checked."""
    tool_calls: list[ToolCall] = []
    """Of a remote engine, whose pieces never have the text of a call: the answer's calls, after its text. Each has a
    JSON object as arguments, and an id of its own in the chat; the name may be none of the tools'."""

    def has_only_thought(self, thinking: str, text: str) -> bool:
        """Whether the model ended by itself and only thought; the thinking is its answer then."""
        is_all = self.finish_reason == "end" and not self.tool_calls
        return is_all and bool(thinking.strip()) and not text.strip()


class GenerationFailed(msgspec.Struct, frozen=True, kw_only=True, tag="generation_failed"):
    """``message`` is one or two sentences for the user."""

    request: int
    message: str
    prompt_tokens: int = 0
    """The length of a prompt that is too long for the context."""
    cause: ServerFailure = ""
    """Set by remote engines. ``cut``: the answer is incomplete; it can be continued or regenerated."""
    figures: Figures | None = None
    """Of the part that arrived, if any did."""


class PlainMeasured(msgspec.Struct, frozen=True, kw_only=True, tag="plain_measured"):
    request: int
    tokens: int
    decode_tokens_per_second: float


class TokensScored(msgspec.Struct, frozen=True, kw_only=True, tag="tokens_scored"):
    """One entry per candidate, in the order of the command."""

    request: int
    logits: list[float]
    scores: list[float | None]
    """log p + noise; the highest is the target's choice. ``None`` if its sampler excludes the token."""
    could_win: list[bool] = []
    """Whether the target could choose it if each logit were off by at most ``rounding``."""
    rounding: float = 0.0
    """The assumed rounding error of a logit, from comparing passes of different widths at this position."""


class TokensCounted(msgspec.Struct, frozen=True, kw_only=True, tag="tokens_counted"):
    """The prompt's tokens if the text were sent now, not counting messages that would be left out; ``system`` +
    ``messages`` + ``text`` + ``tools`` is its length."""

    request: int
    system: int
    messages: int
    """Without those that would be left out."""
    text: int
    """The typed text, its attachments, and what the template adds around them; 0 if there is no text."""
    context_length: int
    dropped: int = 0
    """How many messages would be left out."""
    first_dropped: int = 0
    """The index of the first of them in `CountTokens.messages`."""
    parts: list[int] = []
    """For each of `CountTokens.parts`."""
    images: list[int] = []
    """For each of `CountTokens.images`; included in ``text``."""
    tools: int = 0
    """What the model is told about its tools."""


class PromptCounted(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_counted"):
    request: int
    tokens: int = 0
    refused: str = ""
    """Why there is no prompt, for the user."""


class TextChecked(msgspec.Struct, frozen=True, kw_only=True, tag="text_checked"):
    request: int
    tokens: list[int] | None
    """For `Generate.continued`; ``None`` if no tokens produce exactly this text."""


class Tokenized(msgspec.Struct, frozen=True, kw_only=True, tag="tokenized"):
    request: int
    tokens: list[int]
    pieces: list[bytes]
    """Each token's bytes, possibly part of a character."""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    busy: bool
    seconds_since_progress: float
    """Since the computation last advanced; keeps growing if it hangs."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, tag="forgotten"):
    """A `Forget` is done: nothing of those chats is left in the engine's memory or files."""


class MemoryRead(msgspec.Struct, frozen=True, kw_only=True, tag="memory_read"):
    devices: list[Device] = []
    """As in `Hello`, with their current memory."""
    own_bytes: int = 0
    """System memory that the next load frees: what the engine uses beyond its use right after starting, without mapped
    files and saved chats."""


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
