"""The messages between a window and an engine; `app.protocol.framing` turns them into bytes.

The window sends `Command`s, the engine answers with `Event`s; ``request`` links an event to the command that caused it.
An engine need not be the local child process: fields that only a local engine can fill in (token ids, draft counters)
have empty defaults, and no code may rely on them.
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
    MAX_COUNT,
    MAX_DRAFT_LENGTH,
    MAX_LAYERS,
    MAX_THREADS,
    HeadChoice,
    KvType,
)

PROTOCOL_VERSION = 4

AcceptRule = Literal["coupled", "rejection", "block"]
DrafterName = Literal["model", "ngram", "mtp"]
DrafterChoice = Literal["auto", "model", "ngram", "chain", "none", "mtp"]
"""``chain``, the same as ``auto``: n-grams where their match is more promising, otherwise the draft model or the MTP
head, if there is one.
"""
ProposalMethod = Literal["coupled", "greedy"]
"""How a draft model proposes when sampling: with the target's own noise, or always its most likely token."""
Propose = Literal["auto", "coupled", "greedy"]
DraftLength = Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT_LENGTH)]
"""``auto`` leaves it to the policy, 0 means decoding without a draft."""
SplitMode = Literal["layer", "row", "none"]
"""How a model is spread over several GPUs: whole layers, or the rows of its matrices; ``none``: it is on one."""
FlashAttention = Literal["auto", "on", "off"]
"""``auto``: where llama.cpp's backend has it."""
DraftKvType = Literal["auto", "f16", "q8_0", "q4_0"]
"""``auto``: as the target's."""
Quantization = Literal["q8_0", "q4_k_m", "q4_0"]
"""For weights that are written again (quantized)."""
Role = Literal["system", "user", "assistant"]
Overflow = Literal["stop", "drop_oldest", "keep_ends"]
"""What happens to a chat that no longer fits in the context: it isn't answered; its oldest messages are left out; or
its middle is, while the first turn and the last ones stay. The system prompt always stays.
"""
FinishReason = Literal["end", "stop_string", "length", "context", "cancelled"]
TextKind = Literal["prose", "code", "list", "thinking"]
"""What a token is part of: thinking (`app.engine.decoding.thinking`), or a kind of text, read off the answer's Markdown
(`app.engine.decoding.text_kind`)."""
TemplateVariables = dict[str, bool | int | float | str]
"""Variables of the target's chat template, by name; only those it declares (`ChatTemplate.variables`)."""
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class _Struct(msgspec.Struct, frozen=True, kw_only=True):
    pass


# ---------------------------------------------------------------- settings that are part of commands


class Sampling(_Struct, frozen=True, kw_only=True):
    """How the next token is drawn from the target's logits. The defaults are llama.cpp's."""

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.8
    """0 is greedy: always the most likely token."""
    top_k: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] = 40
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.95
    min_p: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.05
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] = 1.0
    """1 turns it off."""
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-10.0, le=10.0)] = 0.0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-10.0, le=10.0)] = 0.0
    penalty_window: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] = 64
    """How many of the last tokens the penalties apply to; 0 turns them off."""


class Message(_Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
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
    """Tokens in the KV cache; 0 means the target's training context, at most 8,192."""
    threads: Annotated[int, msgspec.Meta(ge=0, le=MAX_THREADS)] = 0
    """For passes over one token. 0 leaves it to the engine, which times two numbers when a model is new."""
    batch_threads: Annotated[int, msgspec.Meta(ge=0, le=MAX_THREADS)] = 0
    """For passes over several tokens: prompts and verify passes. 0 means as many as ``threads`` if that is given,
    otherwise one per physical core."""
    target_gpu_layers: Annotated[int, msgspec.Meta(ge=ALL_LAYERS, le=MAX_COUNT)] = ALL_LAYERS
    """Layers of the target on the GPU; -1 means all of them, 0 none."""
    draft_gpu_layers: Annotated[int, msgspec.Meta(ge=ALL_LAYERS, le=MAX_COUNT)] = ALL_LAYERS
    main_gpu: str = ""
    """The GPU that everything is on with the ``split_mode`` ``none``: `Device.name`; empty means the first."""
    split_mode: SplitMode = "layer"
    tensor_split: tuple[Annotated[float, msgspec.Meta(ge=0.0, le=1e6)], ...] = ()
    """The share of each GPU, in their order, in any unit; empty means by their free memory."""
    draft_device: str = ""
    """The GPU that a draft model is on: `Device.name`; empty means as the target."""
    expert_layers_on_cpu: Annotated[int, msgspec.Meta(ge=0, le=MAX_LAYERS)] = 0
    """Of a mixture-of-experts target, how many layers, counted from the first, keep their experts in system memory
    while the rest of the layer is on the GPU (llama.cpp's ``--n-cpu-moe``). More than it has: all of them."""
    batch_size: Annotated[int, msgspec.Meta(ge=32, le=MAX_CONTEXT_LENGTH)] = DEFAULT_BATCH_SIZE
    """How many prompt tokens are processed before the progress is reported and Stop takes effect."""
    micro_batch_size: Annotated[int, msgspec.Meta(ge=32, le=MAX_CONTEXT_LENGTH)] = DEFAULT_BATCH_SIZE
    kv_type: KvType = "f16"
    flash_attention: FlashAttention = "auto"
    draft_context_length: Annotated[int, msgspec.Meta(ge=0, le=MAX_CONTEXT_LENGTH)] = 0
    """Tokens in the KV cache of a draft model, which doesn't draft in longer chats; 0 means as many as the target."""
    draft_kv_type: DraftKvType = "auto"
    chat_cache_mib: Annotated[int, msgspec.Meta(ge=-1, le=MAX_COUNT)] = -1
    """Memory for the KV caches of recently used chats, in MiB; 0 keeps none, -1 means an eighth of the system's memory,
    at most 2,048.
    """


# ---------------------------------------------------------------- commands: window to engine


class Load(_Struct, frozen=True, kw_only=True, tag="load"):
    """Load a target and, if given, a draft. Whatever was loaded before is unloaded first."""

    request: int
    target: str
    draft: str | None = None
    """A draft model, or a file with the target's MTP head."""
    head: HeadChoice = "auto"
    """Whether to use an MTP head inside the target. It isn't used together with a draft model."""
    settings: LoadSettings = LoadSettings()


class ChatPart(_Struct, frozen=True, kw_only=True, tag="chat_part"):
    """Messages of the chat that the next `CountTokens` or `Generate` is about: a long chat is sent in parts."""

    messages: list[Message]
    kept: int = 0
    """How many messages stand before these. They are the first of those that the process was sent last: only what is
    new of a chat is sent with each letter that is typed, and with each question."""


class Generate(_Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer a chat. If ``seed`` is ``None``, the engine draws one, which `GenerationStarted` reports."""

    request: int
    messages: list[Message]
    kept: int = 0
    """As `ChatPart.kept`."""
    sampling: Sampling = Sampling()
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)] | None = None
    """The maximum number of new tokens. ``None``: until the context is full."""
    stop: list[str] = []
    """Texts that end the answer and aren't shown; they aren't looked for in thinking."""
    continued: list[int] = []
    """The tokens of the answer so far (each `Piece.id`): the answer continues after them as if it had never been cut
    off, and only what is new is sent. Empty: a new answer.
    """
    overflow: Overflow = "drop_oldest"
    private: bool = False
    """Its KV cache is never copied, neither in memory nor to disk, and is overwritten before another chat that isn't
    private is answered.
    """
    draft_length: DraftLength = "auto"
    drafter: DrafterChoice = "auto"
    propose: Propose = "auto"
    """Under ``rejection`` and ``block`` the draft model always samples, and this is ignored."""
    accept: AcceptRule = "coupled"
    raw: bool = False
    """Use the contents as the prompt, without a chat template."""
    thinking: str = ""
    """How much to think, one of `PairLoaded.thinking`; empty: as the model does if it is told nothing."""
    thinking_budget: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    """Tokens, after which the thinking is ended with the model's own closing mark; ``None``: no limit."""
    template_variables: TemplateVariables = {}


class MeasurePlain(_Struct, frozen=True, kw_only=True, tag="measure_plain"):
    """Decode an answer without a draft and without showing it, as a baseline for the speed-up."""

    request: int
    messages: list[Message]
    sampling: Sampling = Sampling()
    seed: int = 0
    max_tokens: Annotated[int, msgspec.Meta(ge=2, le=MAX_COUNT)] = 128
    overflow: Overflow = "drop_oldest"
    private: bool = False
    """As in `Generate.private`."""
    thinking: str = ""
    template_variables: TemplateVariables = {}


class ScoreTokens(_Struct, frozen=True, kw_only=True, tag="score_tokens"):
    """Look again at the target's choice after ``answer`` (token ids): how it scores ``candidates`` there."""

    request: int
    messages: list[Message]
    answer: list[int]
    candidates: list[int]
    sampling: Sampling = Sampling()
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    overflow: Overflow = "drop_oldest"
    """As the answer was asked for, or it would stand behind another prompt."""
    raw: bool = False
    private: bool = False
    """As in `Generate.private`."""
    thinking: str = ""
    template_variables: TemplateVariables = {}


class CountTokens(_Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """How many tokens a chat would take if ``text`` were sent now; answered even during a computation, like `Ping`.

    A newer one replaces one that is still waiting, which is then never answered. There is no answer either if nothing
    is loaded, or if the template rejects the chat.
    """

    request: int
    messages: list[Message]
    """With the system prompt, without ``text``."""
    kept: int = 0
    """As `ChatPart.kept`."""
    text: str = ""
    """What the user has typed; empty if nothing."""
    overflow: Overflow = "drop_oldest"
    thinking: str = ""
    template_variables: TemplateVariables = {}


class CheckText(_Struct, frozen=True, kw_only=True, tag="check_text"):
    """Whether an answer without stored tokens can be continued; answered even during a computation, like `Ping`."""

    request: int
    text: str
    thought: str = ""
    """What the model thought before it. With an empty ``text`` the answer was cut while it thought."""
    thinking: str = ""
    template_variables: TemplateVariables = {}


class Forget(_Struct, frozen=True, kw_only=True, tag="forget"):
    """Erase all saved KV caches, in memory and on disk: nothing of a deleted chat may be left anywhere."""


class Cancel(_Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop whatever is running: loading, prompt processing or decoding. Takes effect within one verify pass."""


class StopThinking(_Struct, frozen=True, kw_only=True, tag="stop_thinking"):
    """Let the answer begin now; nothing where no model is thinking. Takes effect within one verify pass."""


class Ping(_Struct, frozen=True, kw_only=True, tag="ping"):
    """Answered at once by a separate thread, even while the engine computes."""


class ReadMemory(_Struct, frozen=True, kw_only=True, tag="read_memory"):
    """How much memory the engine and its GPUs use now; answered at once, like `Ping`."""


class Quit(_Struct, frozen=True, kw_only=True, tag="quit"):
    pass


Command = (
    Load
    | ChatPart
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
    """Instruction sets it uses, as ggml names them: ``AVX2``, ``AVX512``, …"""
    devices: list[Device] = []
    """GPUs the engine can offload to; empty in a CPU build."""


class StartFailed(_Struct, frozen=True, kw_only=True, tag="start_failed"):
    """Sent instead of `Hello`: the engine can't run here and ends. ``message`` is one or two sentences for the user."""

    message: str


class LoadProgressed(_Struct, frozen=True, kw_only=True, tag="load_progressed"):
    request: int
    stage: Literal["target", "draft", "context"]
    fraction: Fraction


class ModelInfo(_Struct, frozen=True, kw_only=True):
    """What the window shows about a loaded model."""

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
    """Counters of drafting over text of one kind, without the first tokens of answers."""

    kind: TextKind
    tokens: int = 0
    seconds: float = 0.0
    """How long decoding them took."""
    tested: int = 0
    accepted: int = 0
    verify_passes: int = 0


class SpeedChange(_Struct, frozen=True, kw_only=True):
    """A pair has become slower since it was measured with another engine or driver on this machine."""

    before: str
    """What it was measured with before, for display."""
    now: str
    times: float
    """How many times as long a plain pass takes now."""


class PairLoaded(_Struct, frozen=True, kw_only=True, tag="pair_loaded"):
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
    context_length: int = 0
    threads: int = 0
    """For passes over one token."""
    batch_threads: int = 0
    template: Literal["model", "chatml"] = "model"
    """``chatml``: the model has no chat template."""
    thinking: list[str] = []
    """What `Generate.thinking` may be, as the chat template has it: ``off``, ``on``, ``low`` and the like; empty where
    there is no choice."""
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
    history: list[KindFigures] = []
    """The results of drafting in earlier answers of this pair on this machine."""
    slower: SpeedChange | None = None


class LoadFailed(_Struct, frozen=True, kw_only=True, tag="load_failed"):
    request: int
    message: str
    cancelled: bool = False


class GenerationStarted(_Struct, frozen=True, kw_only=True, tag="generation_started"):
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
    template: Literal["model", "chatml", "none"] = "model"


class PromptProgressed(_Struct, frozen=True, kw_only=True, tag="prompt_progressed"):
    request: int
    done: int
    total: int


class Piece(_Struct, frozen=True, kw_only=True):
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


class Pause(_Struct, frozen=True, kw_only=True):
    """Why the policy isn't drafting at the moment."""

    acceptance_rate: Fraction
    """The acceptance rate it expects from the best drafter here."""
    break_even_rate: Fraction
    """The acceptance rate above which drafting would save time on this machine."""


class Round(_Struct, frozen=True, kw_only=True):
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
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    time: float = 0.0
    """Seconds from the arrival of the request to the end of the round."""


class RoundsReceived(_Struct, frozen=True, kw_only=True, tag="rounds_received"):
    """Rounds since the last such event, in order; sent at most about 60 times a second."""

    request: int
    rounds: list[Round]


class DrafterFigures(_Struct, frozen=True, kw_only=True):
    """Counters of one drafter over one answer."""

    name: DrafterName
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    """Passes that tested a draft of this drafter."""


class DraftFigures(_Struct, frozen=True, kw_only=True):
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


class GenerationFinished(_Struct, frozen=True, kw_only=True, tag="generation_finished"):
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


class GenerationFailed(_Struct, frozen=True, kw_only=True, tag="generation_failed"):
    """``message`` is one or two sentences for the user."""

    request: int
    message: str


class PlainMeasured(_Struct, frozen=True, kw_only=True, tag="plain_measured"):
    request: int
    tokens: int
    decode_tokens_per_second: float


class TokensScored(_Struct, frozen=True, kw_only=True, tag="tokens_scored"):
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


class TokensCounted(_Struct, frozen=True, kw_only=True, tag="tokens_counted"):
    """The tokens of the prompt if the text were sent now, without what would be left out; their sum is its length."""

    request: int
    system: int
    """The system prompt."""
    messages: int
    """The messages that would not be left out."""
    text: int
    """The typed text, with what the template adds around it; 0 if there is none."""
    context_length: int
    dropped: int = 0
    """How many messages would be left out."""
    first_dropped: int = 0
    """The index of the first of them in `CountTokens.messages`."""


class TextChecked(_Struct, frozen=True, kw_only=True, tag="text_checked"):
    request: int
    tokens: list[int] | None
    """For `Generate.continued`; ``None`` if no tokens give exactly this text."""


class Pong(_Struct, frozen=True, kw_only=True, tag="pong"):
    busy: bool
    seconds_since_progress: float
    """Seconds since the computation last advanced; grows without limit if it hangs."""


class Forgotten(_Struct, frozen=True, kw_only=True, tag="forgotten"):
    """A `Forget` has been carried out: nothing of earlier chats is left in the engine's memory or files."""


class MemoryRead(_Struct, frozen=True, kw_only=True, tag="memory_read"):
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
    | TextChecked
    | Pong
    | Forgotten
    | MemoryRead
)
