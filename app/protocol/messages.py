"""The messages between a window and an engine; `app.protocol.framing` turns them into bytes.

The window writes `Command`s, the engine answers with `Event`s; ``request`` ties an event to the command that caused it.

An engine need not be the local child process: fields that only a local one can fill (token ids, draft counters) have
empty defaults, and nothing downstream may rely on them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from app.protocol.devices import Device
from app.protocol.limits import (
    ALL_LAYERS,
    DEFAULT_BATCH_SIZE,
    DEFAULT_DRAFT_LENGTH,
    MAX_CONTEXT_LENGTH,
    MAX_DRAFT_LENGTH,
    MAX_THREADS,
    KvType,
)

PROTOCOL_VERSION = 4

AcceptRule = Literal["coupled", "rejection", "block"]
DrafterName = Literal["model", "ngram"]
DrafterChoice = Literal["auto", "model", "ngram", "chain", "none"]
"""``chain``, which is also ``auto``: n-grams where their match promises more, else the draft model, if there is one."""
ProposalMethod = Literal["coupled", "greedy"]
"""How a draft model proposes where the target samples: with the target's own noise, or always its likeliest token."""
Propose = Literal["auto", "coupled", "greedy"]
DraftLength = Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT_LENGTH)]
"""``auto`` leaves it to the policy, 0 is plain decoding."""
Quantization = Literal["q8_0", "q4_k_m", "q4_0"]
"""Of weights that are written again."""
Role = Literal["system", "user", "assistant"]
Overflow = Literal["stop", "drop_oldest", "keep_ends"]
"""What happens to a chat that no longer fits into the context: it is not answered; its oldest messages are left out; or
its middle is, and the first turn and the last ones stay. The system prompt always stays."""
FinishReason = Literal["end", "stop_string", "length", "context", "cancelled"]
TextKind = Literal["prose", "code", "list", "thinking"]
"""What a token is part of: thinking (`app.engine.decoding.thinking`), or a kind of text, read off the answer's Markdown
(`app.engine.decoding.text_kind`)."""
TemplateVariables = dict[str, bool | int | float | str]
"""Variables of the target's chat template, by name; only those it declares (`ChatTemplate.variables`)."""
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class _Struct(msgspec.Struct, frozen=True, kw_only=True):
    pass


# ---------------------------------------------------------------- settings that travel with commands


class Sampling(_Struct, frozen=True, kw_only=True):
    """How the next token is drawn from the target's logits. The defaults are llama.cpp's."""

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.8
    """0 is greedy: always the most likely token."""
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 40
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.95
    min_p: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.05
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] = 1.0
    """1 is off."""
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-10.0, le=10.0)] = 0.0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-10.0, le=10.0)] = 0.0
    penalty_window: Annotated[int, msgspec.Meta(ge=0)] = 64
    """How many of the last tokens the penalties look at; 0 is none."""


class Message(_Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of a chat as the chat template sees it."""

    role: Role
    content: str
    thinking: str = ""
    """What the model thought before this answer; the template decides whether that goes into the prompt."""
    sent_at: float | None = None
    """Seconds since 1970. The first one of a chat is the time that its template sees, always: a date that changed at
    midnight would change the whole prompt. ``None`` in all of them: now."""


class LoadSettings(_Struct, frozen=True, kw_only=True):
    """How a pair is loaded."""

    context_length: Annotated[int, msgspec.Meta(ge=0, le=MAX_CONTEXT_LENGTH)] = 0
    """Tokens in the KV cache; 0 takes the target's own training length, at most 8,192."""
    threads: Annotated[int, msgspec.Meta(ge=0, le=MAX_THREADS)] = 0
    """0 takes the physical cores."""
    target_gpu_layers: int = ALL_LAYERS
    """Layers of the target on the GPU; -1 is all of them, 0 none."""
    draft_gpu_layers: int = ALL_LAYERS
    batch_size: Annotated[int, msgspec.Meta(ge=32)] = DEFAULT_BATCH_SIZE
    """How many prompt tokens are processed before Stop and the progress are checked again."""
    micro_batch_size: Annotated[int, msgspec.Meta(ge=32)] = DEFAULT_BATCH_SIZE
    kv_type: KvType = "f16"
    chat_cache_mib: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Memory for the KV caches of recently used chats; 0 keeps none, -1 an eighth of the system's, at most 2,048."""


# ---------------------------------------------------------------- commands: window to engine


class Load(_Struct, frozen=True, kw_only=True, tag="load"):
    """Load a target and, if named, a draft. What was loaded before is given up first."""

    request: int
    target: str
    draft: str | None = None
    settings: LoadSettings = LoadSettings()


class Generate(_Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer a chat. ``seed`` of ``None`` lets the engine draw one, which `GenerationStarted` reports."""

    request: int
    messages: list[Message]
    sampling: Sampling = Sampling()
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """New ones. ``None``: until the context is full."""
    stop: list[str] = []
    """Texts that end the answer and are not shown; thinking is not searched for them."""
    continued: list[int] = []
    """The tokens of the answer so far, each `Piece.id` of it: it goes on behind them as if it had never been cut, and
    only what is new is told. Empty: a new answer."""
    overflow: Overflow = "drop_oldest"
    private: bool = False
    """Its KV cache is never copied, in memory or to disk, and is overwritten before another chat that is not private is
    answered."""
    draft_length: DraftLength = "auto"
    drafter: DrafterChoice = "auto"
    propose: Propose = "auto"
    """Under ``rejection`` and ``block`` the draft always samples, and this is ignored."""
    accept: AcceptRule = "coupled"
    raw: bool = False
    """Feed the contents as they are, without a chat template."""
    thinking: str = ""
    """How much to think, one of `PairLoaded.thinking`; empty: as the model does if it is told nothing."""
    thinking_budget: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Tokens, after which the thinking is ended with the model's own closing mark; ``None``: no limit."""
    template_variables: TemplateVariables = {}


class MeasurePlain(_Struct, frozen=True, kw_only=True, tag="measure_plain"):
    """Decode an answer without a draft and without showing it, to have a baseline for the speed-up."""

    request: int
    messages: list[Message]
    sampling: Sampling = Sampling()
    seed: int = 0
    max_tokens: Annotated[int, msgspec.Meta(ge=2)] = 128
    overflow: Overflow = "drop_oldest"
    private: bool = False
    """As `Generate.private`."""
    thinking: str = ""
    template_variables: TemplateVariables = {}


class ScoreTokens(_Struct, frozen=True, kw_only=True, tag="score_tokens"):
    """Look at the target's choice behind ``answer`` (token ids) once more: what it thinks of ``candidates`` there."""

    request: int
    messages: list[Message]
    answer: list[int]
    candidates: list[int]
    sampling: Sampling = Sampling()
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    raw: bool = False
    private: bool = False
    """As `Generate.private`."""
    thinking: str = ""
    template_variables: TemplateVariables = {}


class CountTokens(_Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """How many tokens a chat would take if ``text`` were sent now; answered even during a computation, like `Ping`.

    A newer one takes the place of one that is still waiting, which is then never answered; nor is one for which nothing
    is loaded, or whose chat the template refuses.
    """

    request: int
    messages: list[Message]
    """With the system prompt, without ``text``; without the first ``kept``, which are those of the last `CountTokens`
    to this process: a long chat is not sent with each letter that is typed."""
    kept: int = 0
    text: str = ""
    """What the user has typed; empty: nothing yet."""
    overflow: Overflow = "drop_oldest"
    thinking: str = ""
    template_variables: TemplateVariables = {}


class CheckText(_Struct, frozen=True, kw_only=True, tag="check_text"):
    """Whether an answer without stored tokens can be continued; answered even during a computation, like `Ping`."""

    request: int
    text: str


class Forget(_Struct, frozen=True, kw_only=True, tag="forget"):
    """Erase all saved KV caches, in memory and on disk: nothing of a deleted chat may remain anywhere."""


class Cancel(_Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop whatever runs: a load, prompt processing or decoding. Takes effect within one verify pass."""


class StopThinking(_Struct, frozen=True, kw_only=True, tag="stop_thinking"):
    """Let the answer begin now; nothing where no model is thinking. Takes effect within one verify pass."""


class Ping(_Struct, frozen=True, kw_only=True, tag="ping"):
    """Answered at once from a thread of its own, also while the engine computes."""


class ReadMemory(_Struct, frozen=True, kw_only=True, tag="read_memory"):
    """How much memory the engine and its GPUs use now; answered at once like `Ping`."""


class Quit(_Struct, frozen=True, kw_only=True, tag="quit"):
    pass


Command = (
    Load
    | Generate
    | MeasurePlain
    | ScoreTokens
    | CountTokens
    | CheckText
    | Forget
    | Cancel
    | StopThinking
    | Ping
    | ReadMemory
    | Quit
)


# ---------------------------------------------------------------- events: engine to window


class Hello(_Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of an engine."""

    protocol: int
    engine: str
    """For example ``llama.cpp (llama-cpp-python 0.3.36, zen4 variant)``; from source without the variant."""
    processor_features: list[str] = []
    """Instruction sets it computes with, as ggml names them: ``AVX2``, ``AVX512``, …"""
    devices: list[Device] = []
    """GPUs the engine can offload to; empty on a CPU build."""


class StartFailed(_Struct, frozen=True, kw_only=True, tag="start_failed"):
    """Sent instead of `Hello`: the engine can't run here and ends. ``message`` is one or two sentences for the user."""

    message: str


class LoadProgressed(_Struct, frozen=True, kw_only=True, tag="load_progressed"):
    request: int
    stage: Literal["target", "draft", "context"]
    fraction: Fraction


class ModelInfo(_Struct, frozen=True, kw_only=True):
    """What the window shows of a loaded model."""

    path: str
    name: str
    architecture: str = ""
    quantization: str = ""
    size_bytes: int = 0
    parameters: int = 0
    layers: int = 0
    gpu_layers: int = 0
    training_context: int = 0


class KindFigures(_Struct, frozen=True, kw_only=True):
    """Counters of drafting over text of one kind, first tokens of answers left out."""

    kind: TextKind
    tokens: int = 0
    seconds: float = 0.0
    """Decoding them took."""
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0


class SpeedChange(_Struct, frozen=True, kw_only=True):
    """A pair got slower since it was measured with another engine or driver on this machine."""

    before: str
    """What it was measured with then, for people."""
    now: str
    times: float
    """A plain pass takes so many times as long as it did."""


class PairLoaded(_Struct, frozen=True, kw_only=True, tag="pair_loaded"):
    request: int
    target: ModelInfo
    draft: ModelInfo | None = None
    draft_refused: str | None = None
    """Why the asked draft is not used, in words for the user; the target alone is loaded then."""
    drafting_off: str | None = None
    """Why nothing can draft for this target, in words for the user."""
    context_length: int = 0
    threads: int = 0
    template: Literal["model", "chatml"] = "model"
    """``chatml``: the model brings no chat template."""
    thinking: list[str] = []
    """What `Generate.thinking` may be, as the chat template has it: ``off``, ``on``, ``low`` and the like; empty where
    there is no choice."""
    default_draft_length: int = DEFAULT_DRAFT_LENGTH
    sampling: Sampling = Sampling()
    """What the target's file recommends, llama.cpp's defaults for the rest."""
    recommended: list[str] = []
    """The fields of ``sampling`` that the file says something about."""
    load_seconds: float = 0.0
    plain_pass_seconds: float = 0.0
    """One pass of the target over one token, measured here; 0 where it was not."""
    history: list[KindFigures] = []
    """What drafting brought in earlier answers of this pair on this machine."""
    slower: SpeedChange | None = None


class LoadFailed(_Struct, frozen=True, kw_only=True, tag="load_failed"):
    request: int
    message: str
    cancelled: bool = False


class GenerationStarted(_Struct, frozen=True, kw_only=True, tag="generation_started"):
    request: int
    seed: int
    prompt_tokens: int
    """Those of `Generate.continued` included."""
    cached_tokens: int = 0
    """Tokens of the prompt that were in the KV cache already."""
    dropped_messages: int = 0
    """How many messages, one behind the other, no longer fit into the context."""
    first_dropped: int = 0
    """The index of the first of them in `Generate.messages`."""
    template: Literal["model", "chatml", "none"] = "model"


class PromptProgressed(_Struct, frozen=True, kw_only=True, tag="prompt_progressed"):
    request: int
    done: int
    total: int


class Piece(_Struct, frozen=True, kw_only=True):
    """Text one token added to the answer: one piece for each of its tokens, in their order.

    A token that ends in the middle of a character has an empty text; the token that completes it carries the whole. A
    character that the answer does not complete is not shown. The token that ends an answer with the `FinishReason`
    ``end`` has a piece, too, with an empty text, and so have the tokens of the marks around thinking.
    """

    text: str
    thinking: bool = False
    """Part of what the model thought before the answer, or of the marks around that."""
    id: int = -1
    drafter: DrafterName | None = None
    """Which drafter proposed the token; ``None`` is the target's own."""
    round: int = 0
    rejected: str | None = None
    """What the drafter had proposed here when the target disagreed."""


class Pause(_Struct, frozen=True, kw_only=True):
    """Why the policy does not draft at the moment."""

    acceptance_rate: Fraction
    """Acceptance rate it expects from the best drafter here."""
    break_even_rate: Fraction
    """Acceptance rate from which on drafting would pay on this machine."""


class Round(_Struct, frozen=True, kw_only=True):
    """One verify pass and what led to it; the same with and without a draft.

    ``drafted = tested + ignored``, ``tested = accepted + rejected``. Pieces appear when they may be shown, which is
    later than their round while they could be the beginning of a stop string; ``Piece.round`` names their own round.
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
    """Who proposed in this round; ``None`` where nobody did."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    paused: Pause | None = None
    """Set while the policy leaves drafting out because it does not pay."""
    kind: TextKind = "prose"
    """What the text was when the round began."""
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    time: float = 0.0
    """Seconds since the request arrived, at the end of the round."""


class RoundsReceived(_Struct, frozen=True, kw_only=True, tag="rounds_received"):
    """Rounds since the last such event, in order; sent at most about 60 times a second."""

    request: int
    rounds: list[Round]


class DrafterFigures(_Struct, frozen=True, kw_only=True):
    """Counters of one drafter over one generation."""

    name: DrafterName
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    """Passes that tested a draft of its own."""


class DraftFigures(_Struct, frozen=True, kw_only=True):
    """Counters of drafting over one generation; definitions in ``protocol/statistics.py``."""

    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    mean_acceptance_length: float | None = None
    accepted_per_position: list[int] = []
    tested_per_position: list[int] = []
    """Drafts that had a token at position 1, 2, … tested; empty where that was not counted."""
    drafters: list[DrafterFigures] = []
    """One entry for each drafter that proposed anything."""


class Figures(_Struct, frozen=True, kw_only=True):
    """What the footer of an answer shows. Times are ``…_s`` where they are stored or printed as JSON."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    time_to_first_token_seconds: float | None = msgspec.field(default=None, name="time_to_first_token_s")
    prompt_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    """Tokens after the first ÷ time from the first to the last; ``None`` below two tokens."""
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


class GenerationFinished(_Struct, frozen=True, kw_only=True, tag="generation_finished"):
    request: int
    finish_reason: FinishReason
    figures: Figures
    stop_string: str | None = None
    stop_overlap: int = 0
    """Where an answer was continued: how many characters at the end of what was there before are the beginning of the
    met stop string, and should be taken off."""
    draft_failure: str | None = None
    """Why drafting ended before the answer did, in words for the user."""
    curve: list[float] = []
    """Tokens per second each draft length from 0 on would bring on such text, from measured costs and acceptance."""


class GenerationFailed(_Struct, frozen=True, kw_only=True, tag="generation_failed"):
    """``message`` is one or two sentences for the user."""

    request: int
    message: str


class PlainMeasured(_Struct, frozen=True, kw_only=True, tag="plain_measured"):
    request: int
    tokens: int
    decode_tokens_per_second: float


class TokensScored(_Struct, frozen=True, kw_only=True, tag="tokens_scored"):
    """One entry a candidate, in the order of the command."""

    request: int
    logits: list[float]
    scores: list[float | None]
    """log p + noise, by which the target chooses; ``None`` for what its sampler leaves out."""
    could_win: list[bool] = []
    """Whether the target could choose it if each logit were off by at most ``rounding``."""
    rounding: float = 0.0
    """How far rounding is taken to put a logit, from passes of different width that were compared just there."""


class TokensCounted(_Struct, frozen=True, kw_only=True, tag="tokens_counted"):
    """The tokens of the prompt if the text were sent now, without what would be left out; their sum is its length."""

    request: int
    system: int
    """The system prompt."""
    messages: int
    """The messages that would not be left out."""
    text: int
    """The typed text, with what the template writes around it; 0 where there is none."""
    context_length: int
    dropped: int = 0
    """How many messages would be left out."""
    first_dropped: int = 0
    """The index of the first of them in `CountTokens.messages`."""


class TextChecked(_Struct, frozen=True, kw_only=True, tag="text_checked"):
    request: int
    tokens: list[int] | None
    """For `Generate.continued`; ``None`` where there are no tokens that give exactly this text."""


class Pong(_Struct, frozen=True, kw_only=True, tag="pong"):
    busy: bool
    seconds_since_progress: float
    """Time since the computation last moved; grows without bound when it hangs."""


class Forgotten(_Struct, frozen=True, kw_only=True, tag="forgotten"):
    """A `Forget` has been carried out: nothing of earlier chats is in the engine's memory or in its files."""


class MemoryRead(_Struct, frozen=True, kw_only=True, tag="memory_read"):
    devices: list[Device] = []
    """As in `Hello`, with their memory as it is now."""
    own_bytes: int = 0
    """System memory the engine holds more than right after its start, without files and saved chats: what the next load
    gets back."""


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
    | TextChecked
    | Pong
    | Forgotten
    | MemoryRead
)
