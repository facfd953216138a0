"""What a load or a generation can be asked for, and its limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

MAX_DRAFT_LENGTH = 16
DEFAULT_DRAFT_LENGTH = 5
MAX_CONTEXT_LENGTH = 2**24
MAX_COUNT = 2**30
"""For whole numbers without a limit of their own: what llama.cpp, Qt and JSON can take."""
MAX_THREADS = 512
"""The most that ggml accepts; it aborts the process above that."""
DEFAULT_BATCH_SIZE = 512
"""Prompt tokens that are computed at once."""
MAX_LAYERS = 512
"""The most that llama.cpp can load."""
ALL_LAYERS = -1
"""As a number of GPU layers."""
AS_PLANNED = -1
"""As a number of layers whose experts stay in system memory: the memory plan decides it."""
LEAST_PICKED_VOCABULARY = 200_000
"""From so many tokens on, a GPU picks the largest logits of each row itself (`app.engine.llama.context`). With the
default sampling, copying whole rows took less time for 152,000 tokens on an H100, and more for 248,000
(benchmarks/notes/top_k.md).
"""
MAX_LOGPROBS = 20
"""Likely tokens that are sent with each one of an answer."""
MAX_GRAMMAR_CHARACTERS = 256 * 1024
"""Of a schema, regular expression or grammar that an answer has to follow."""
KvType = Literal["f16", "q8_0", "q4_0"]
SplitMode = Literal["layer", "row", "none"]
"""How a model is spread over several GPUs: whole layers, or the rows of its matrices; ``none``: it is on one."""
HeadChoice = Literal["auto", "on", "off"]
"""Whether an MTP head inside the target is used. ``auto``: where one is expected to save time (`app.models.mtp`)."""
EXACT_WIDTH = MAX_DRAFT_LENGTH
"""Under the accept rule ``exact``, the most tokens of a pass: a number that GPUs have kernels for."""
TARGET_OUTPUTS, DRAFT_OUTPUTS = MAX_DRAFT_LENGTH + 1, 1
"""Positions whose logits are requested at once."""
WAITING_STATES_BYTES = 64 * 1024 * 1024
"""What hidden states may take at most that wait until the target's MTP head processes them. Only what is used takes
memory: an answer after a prompt of a thousand tokens takes less.
"""

_DEFAULT_CONTEXT_LENGTH = 8192
_MOST_SNAPSHOTS, _LEAST_SNAPSHOTS = 8, 2
"""Snapshots cost memory, and time in every pass (8 of them cost 2% in a hybrid model of 0.2 B on a CPU). Drafts that
are longer need a copy of the state, and their accepted tokens have to be processed again.
"""
_HEAD_SNAPSHOTS = 4
"""The most for a target that drafts with its own head: long drafts of a head are seldom right to their end, so 8 cost
more time in every pass than they bring.
"""
_SNAPSHOT_SHARE = 8


def default_context_length(training_context: int | None) -> int:
    """The context length in tokens if none is requested. ``training_context``: from the model's file, if it has one."""
    return min(training_context or _DEFAULT_CONTEXT_LENGTH, _DEFAULT_CONTEXT_LENGTH)


def snapshots_for(state_bytes: int, memory_bytes: int, *, has_head: bool = False) -> int:
    """How many snapshots of a running state of ``state_bytes`` llama.cpp should keep after each pass.

    They may take an eighth of ``memory_bytes``, which is the size of the weights or the free memory, whichever is less.
    ``has_head``: an MTP head drafts, and no draft model.
    """
    most = _HEAD_SNAPSHOTS if has_head else _MOST_SNAPSHOTS
    count = min(memory_bytes // _SNAPSHOT_SHARE // state_bytes, most) if state_bytes else 0
    return count if count >= _LEAST_SNAPSHOTS else 0


def fewer_snapshots(count: int) -> int:
    """What to try next if there was no memory for ``count``."""
    return count // 2 if count >= 2 * _LEAST_SNAPSHOTS else 0


AcceptRule = Literal["coupled", "exact", "rejection", "block"]
"""``exact``: as ``coupled``, in passes padded to widths that give the same logits, where others don't."""
DrafterName = Literal["model", "ngram", "mtp", "grammar"]
DrafterChoice = Literal["auto", "model", "ngram", "chain", "none", "mtp", "grammar"]
"""``chain``, the same as ``auto``: the tokens that a grammar forces, or n-grams, where these are more promising,
otherwise the draft model or the MTP head, if there is one.
"""
SEED_DECIDES: tuple[AcceptRule, ...] = ("coupled", "exact")
"""Rules under which the seed decides the text, whatever is drafted."""
ProposalMethod = Literal["coupled", "greedy"]
"""How a draft model proposes when sampling: with the target's own noise, or always its most likely token."""
Propose = Literal["auto", "coupled", "greedy"]
DraftLength = Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT_LENGTH)]
"""``auto`` leaves it to the policy, 0 means decoding without a draft."""
FlashAttention = Literal["auto", "on", "off"]
"""``auto``: where llama.cpp's backend has it."""
DraftKvType = Literal["auto", "f16", "q8_0", "q4_0"]
"""``auto``: as the target's."""
Quantization = Literal["q8_0", "q4_k_m", "q4_0"]
"""For weights that are written again (quantized)."""
FormatKind = Literal["json_object", "json_schema", "regex", "lark", "gbnf"]
"""What an answer has to be: any JSON object, JSON by a schema, text that a regular expression matches as a whole, or
text by a grammar in Lark's or llama.cpp's notation."""
FormatChoice = Literal["text"] | FormatKind
"""``text``: nothing has to be followed."""
Role = Literal["system", "user", "assistant", "tool"]
Overflow = Literal["stop", "drop_oldest", "keep_ends"]
"""What happens to a chat that no longer fits in the context: it isn't answered; its oldest messages are left out; or
its middle is, while the first turn and the last ones stay. The system prompt always stays.
"""
FinishReason = Literal["end", "stop_string", "length", "context", "cancelled"]
TextKind = Literal["prose", "code", "list", "thinking"]
"""What a token is part of: thinking (`app.engine.decoding.thinking`), or a kind of text, read off the answer's Markdown
(`app.engine.decoding.text`)."""
GeneralTemplate = Literal["chatml", "gemma", "llama3", "phi3"]
"""A chat template for any model, or one of a family."""
TEMPLATE_TITLES: dict[GeneralTemplate, str] = {
    "chatml": "ChatML",
    "gemma": "Gemma",
    "llama3": "Llama 3",
    "phi3": "Phi-3",
}
TemplateKind = Literal["model", "file"] | GeneralTemplate
"""A chat template: the model's own, one from a file, or a general one."""
TemplateVariables = dict[str, bool | int | float | str]
"""Variables of the target's chat template, by name; only those it declares (`ChatTemplate.variables`)."""
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


Temperature = Annotated[float, msgspec.Meta(ge=0.0, le=10.0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
TopP = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
RepetitionPenalty = Annotated[float, msgspec.Meta(gt=0.0, le=10.0)]
Penalty = Annotated[float, msgspec.Meta(ge=-10.0, le=10.0)]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is drawn from the target's logits. The defaults are llama.cpp's."""

    temperature: Temperature = 0.8
    """0 is greedy: always the most likely token."""
    top_k: Count = 40
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: TopP = 0.95
    min_p: Fraction = 0.05
    repetition_penalty: RepetitionPenalty = 1.0
    """1 turns it off."""
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    penalty_window: Count = 64
    """How many of the last tokens the penalties apply to; 0 turns them off."""


class AnswerFormat(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer has to follow; its thinking is free."""

    kind: FormatKind
    source: Annotated[str, msgspec.Meta(max_length=MAX_GRAMMAR_CHARACTERS)] = ""
    """The schema (JSON), the regular expression or the grammar; nothing for ``json_object``."""
    strict: bool = False
    """Refuse a schema by which a finished answer can't be checked."""


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True):
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
    """The share of each GPU, in their order, in any unit; empty leaves it to the memory plan, or means by their free
    memory."""
    draft_device: str = ""
    """The GPU that a draft model is on: `Device.name`; empty leaves it to the memory plan, or means as the target."""
    expert_layers_on_cpu: Annotated[int, msgspec.Meta(ge=AS_PLANNED, le=MAX_LAYERS)] = AS_PLANNED
    """Of a mixture-of-experts target, how many layers, counted from the first, keep their experts in system memory
    while the rest of the layer is on the GPU (llama.cpp's ``--n-cpu-moe``). More than it has: all of them. −1 leaves it
    to the memory plan; the engine, which has none, takes it for 0."""
    batch_size: Annotated[int, msgspec.Meta(ge=32, le=MAX_CONTEXT_LENGTH)] = DEFAULT_BATCH_SIZE
    """How many prompt tokens are processed before the progress is reported and Stop takes effect."""
    micro_batch_size: Annotated[int, msgspec.Meta(ge=32, le=MAX_CONTEXT_LENGTH)] = DEFAULT_BATCH_SIZE
    kv_type: KvType = "f16"
    flash_attention: FlashAttention = "auto"
    exact: bool = False
    """Load the target for the accept rule ``exact``: with kernels of which more agree, but verify passes can take
    longer (`app.engine.host.loading.repacks`)."""
    draft_context_length: Annotated[int, msgspec.Meta(ge=0, le=MAX_CONTEXT_LENGTH)] = 0
    """Tokens in the KV cache of a draft model, which doesn't draft in longer chats; 0 means as many as the target."""
    draft_kv_type: DraftKvType = "auto"
    chat_cache_mib: Annotated[int, msgspec.Meta(ge=-1, le=MAX_COUNT)] = -1
    """Memory for the KV caches of recently used chats, in MiB; 0 keeps none, -1 means an eighth of the system's memory,
    at most 2,048.
    """


SPECIAL_OPTIONS = (
    "batch_threads",
    "main_gpu",
    "split_mode",
    "tensor_split",
    "draft_device",
    "expert_layers_on_cpu",
    "flash_attention",
    "exact",
    "draft_context_length",
    "draft_kv_type",
)
"""The first versions did not have these: what they measured was measured with the defaults."""


def chosen_options(settings: LoadSettings) -> dict[str, Any]:
    """Those of `SPECIAL_OPTIONS` that are not as by default. For an engine, that is 0 `expert_layers_on_cpu`."""
    values, defaults = msgspec.to_builtins(settings), msgspec.to_builtins(LoadSettings())
    values["expert_layers_on_cpu"] = values["expert_layers_on_cpu"] or AS_PLANNED
    return {name: values[name] for name in SPECIAL_OPTIONS if values[name] != defaults[name]}
