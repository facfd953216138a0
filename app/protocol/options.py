"""The options of a load or a generation, and their limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

MAX_DRAFT_LENGTH = 16
DEFAULT_DRAFT_LENGTH = 5
MAX_CONTEXT_LENGTH = 2**24
MAX_COUNT = 2**30
"""For integers without a narrower limit: llama.cpp, Qt and JSON can all represent it."""
MAX_THREADS = 512
"""The most that ggml accepts; it aborts the process above that."""
DEFAULT_BATCH_SIZE = 512
"""Prompt tokens per pass."""
MAX_LAYERS = 512
"""The most that llama.cpp can load."""
ALL_LAYERS = -1
"""A value for the number of GPU layers."""
AS_PLANNED = -1
"""A value for ``expert_layers_on_cpu``: the memory plan decides."""
LEAST_PICKED_VOCABULARY = 200_000
"""For vocabularies of this size or more, the GPU picks the largest logits of each row itself
(`app.engine.llama.context`). On an H100 with default sampling, copying whole rows was faster for 152,000 tokens and
slower for 248,000 (benchmarks/notes/top_k.md)."""
MAX_LOGPROBS = 20
"""Alternatives sent with each token of an answer."""
MAX_GRAMMAR_CHARACTERS = 256 * 1024
"""The size limit of a schema, regular expression or grammar."""
KvType = Literal["f16", "q8_0", "q4_0"]
SplitMode = Literal["layer", "row", "none"]
"""How a model is spread over several GPUs: by layer, by matrix row, or not at all."""
HeadChoice = Literal["auto", "on", "off"]
"""Whether to use an MTP head inside the target. ``auto``: if it is expected to save time (`app.models.heads`)."""
EXACT_WIDTH = MAX_DRAFT_LENGTH
"""The widest pass under the accept rule ``exact``, for which GPUs have kernels."""
TARGET_OUTPUTS, DRAFT_OUTPUTS = MAX_DRAFT_LENGTH + 1, 1
"""Rows of logits requested per pass."""
HEAD_PASS, HEAD_OUTPUTS = 64, 8
"""The most tokens in a pass of an EAGLE-3 head, which computes logits for all of them, and in one that returns some."""
WAITING_STATES_BYTES = 64 * 1024 * 1024
"""The limit for hidden states that wait for the target's head. Memory is only taken as needed."""

_DEFAULT_CONTEXT_LENGTH = 8192
_MOST_SNAPSHOTS, _LEAST_SNAPSHOTS = 8, 2
"""Snapshots cost memory, and time in every pass (8 cost 2% in a hybrid 0.2B model on a CPU). Longer drafts need a copy
of the state, and their accepted tokens are processed again."""
_HEAD_SNAPSHOTS = 4
"""For a target that drafts with its own head: long drafts are rarely accepted to the end, so more aren't worth it."""
_SNAPSHOT_SHARE = 8


def default_context_length(training_context: int | None) -> int:
    """The context length in tokens if none is requested; ``training_context`` is the file's, if it has one."""
    return min(training_context or _DEFAULT_CONTEXT_LENGTH, _DEFAULT_CONTEXT_LENGTH)


def snapshots_for(state_bytes: int, memory_bytes: int, *, has_head: bool = False) -> int:
    """How many snapshots of a recurrent state of ``state_bytes`` llama.cpp should keep after each pass.

    They may take an eighth of ``memory_bytes`` (the weights' size or the free memory, whichever is less). ``has_head``:
    an MTP head drafts instead of a draft model.
    """
    most = _HEAD_SNAPSHOTS if has_head else _MOST_SNAPSHOTS
    count = min(memory_bytes // _SNAPSHOT_SHARE // state_bytes, most) if state_bytes else 0
    return count if count >= _LEAST_SNAPSHOTS else 0


def fewer_snapshots(count: int) -> int:
    """The next number to try if there was no memory for ``count``."""
    return count // 2 if count >= 2 * _LEAST_SNAPSHOTS else 0


AcceptRule = Literal["coupled", "exact", "rejection", "block"]
"""``exact`` is ``coupled`` with passes padded to widths that all give the same logits."""
DrafterName = Literal["model", "ngram", "mtp", "grammar", "eagle3", "medusa", "lookahead", "tree"]
DrafterChoice = Literal["auto", "chain", "none", DrafterName]
"""``auto`` (or ``chain``): the policy chooses, among tokens that a grammar forces, n-grams, and the draft model or head
of the pair."""
Tint = Literal["model", "ngram", "head", "grammar"]


class DrafterWords(NamedTuple):
    """What the window calls a drafter."""

    title: str
    sentence: str
    """Within a sentence."""
    tint: Tint
    """Of accepted tokens. Drafters that never run in the same answer share one."""


DRAFTER_WORDS: dict[DrafterName, DrafterWords] = {
    "model": DrafterWords("Draft model", "the draft model", "model"),
    "tree": DrafterWords("Draft tree", "the draft tree", "model"),
    "mtp": DrafterWords("MTP head", "the MTP head", "head"),
    "eagle3": DrafterWords("EAGLE-3 head", "the EAGLE-3 head", "head"),
    "medusa": DrafterWords("Medusa heads", "the Medusa heads", "head"),
    "ngram": DrafterWords("n-grams", "n-grams", "ngram"),
    "lookahead": DrafterWords("Lookahead", "Lookahead", "ngram"),
    "grammar": DrafterWords("Answer format", "the answer's format", "grammar"),
}
HEADS: tuple[DrafterName, ...] = ("mtp", "eagle3")
"""Drafters whose cache follows the target's. A target has at most one of them."""
CONTINUES: DrafterName = "ngram"
"""The drafter that continues other drafters' drafts, for free."""
BRANCHING: tuple[DrafterName, ...] = ("lookahead", "tree", "medusa")
"""Drafters whose drafts have branches, where the target was loaded for that."""
BRANCHES = 7
"""How many they use by default."""
SEED_DECIDES: tuple[AcceptRule, ...] = ("coupled", "exact")
"""Rules under which the seed alone determines the text, whatever is drafted."""
ProposalMethod = Literal["coupled", "greedy"]
"""How a draft model proposes: a sample with the target's own noise, or its most likely token."""
Propose = Literal["auto", "coupled", "greedy"]
DraftLength = Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT_LENGTH)]
"""``auto`` leaves it to the policy; 0 turns drafting off."""
FlashAttention = Literal["auto", "on", "off"]
"""``auto``: if llama.cpp's backend supports it."""
DraftKvType = Literal["auto", "f16", "q8_0", "q4_0"]
"""``auto``: the target's."""
FormatKind = Literal["json_object", "json_schema", "regex", "lark", "gbnf"]
"""Any JSON object, JSON by a schema, text that a regular expression matches as a whole, or text by a grammar in Lark's
or llama.cpp's notation."""
FormatChoice = Literal["text"] | FormatKind
"""``text``: free text."""
Role = Literal["system", "user", "assistant", "tool"]
Overflow = Literal["stop", "drop_oldest", "keep_ends"]
"""What happens when a chat no longer fits in the context: it isn't answered; its oldest messages are left out; or the
middle is, between the first turn and the last ones. The system prompt always stays."""
FinishReason = Literal["end", "stop_string", "length", "context", "cancelled"]
TextKind = Literal["prose", "code", "list", "thinking"]
"""Thinking (`app.engine.decoding.thinking`), or the kind of text, by its Markdown (`app.engine.decoding.text`)."""
GeneralTemplate = Literal["chatml", "gemma", "llama3", "phi3"]
"""A chat template for any model, or for a family."""
TEMPLATE_TITLES: dict[GeneralTemplate, str] = {
    "chatml": "ChatML",
    "gemma": "Gemma",
    "llama3": "Llama 3",
    "phi3": "Phi-3",
}
TemplateKind = Literal["model", "file"] | GeneralTemplate
"""The model's own chat template, one from a file, or a general one."""
TemplateVariables = dict[str, bool | int | float | str]
"""Variables for the target's chat template; only those it declares (`ChatTemplate.variables`)."""
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
    """The format of an answer; thinking stays free."""

    kind: FormatKind
    source: Annotated[str, msgspec.Meta(max_length=MAX_GRAMMAR_CHARACTERS)] = ""
    """The schema (JSON), regular expression or grammar; empty for ``json_object``."""
    strict: bool = False
    """Refuse a schema that a finished answer can't be checked against."""


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a pair is loaded."""

    context_length: Annotated[int, msgspec.Meta(ge=0, le=MAX_CONTEXT_LENGTH)] = 0
    """Tokens in the KV cache; 0: the target's training context, at most 8,192."""
    threads: Annotated[int, msgspec.Meta(ge=0, le=MAX_THREADS)] = 0
    """For passes over one token. 0: the engine times two candidates when it first loads a model."""
    batch_threads: Annotated[int, msgspec.Meta(ge=0, le=MAX_THREADS)] = 0
    """For prompts and verify passes. 0: as ``threads`` if that is set, otherwise one per physical core."""
    target_gpu_layers: Annotated[int, msgspec.Meta(ge=ALL_LAYERS, le=MAX_COUNT)] = ALL_LAYERS
    """Layers of the target on the GPU; -1: all."""
    draft_gpu_layers: Annotated[int, msgspec.Meta(ge=ALL_LAYERS, le=MAX_COUNT)] = ALL_LAYERS
    main_gpu: str = ""
    """The GPU for ``split_mode`` ``none``, by `Device.name`; empty: the first."""
    split_mode: SplitMode = "layer"
    tensor_split: tuple[Annotated[float, msgspec.Meta(ge=0.0, le=1e6)], ...] = ()
    """Each GPU's share, in order, in any unit; empty: by the memory plan, or without one by free memory."""
    draft_device: str = ""
    """The draft model's GPU, by `Device.name`; empty: by the memory plan, or without one the target's."""
    expert_layers_on_cpu: Annotated[int, msgspec.Meta(ge=AS_PLANNED, le=MAX_LAYERS)] = AS_PLANNED
    """For a mixture-of-experts target: how many layers, from the first on, keep their experts in system memory while
    the rest of the layer is on the GPU (llama.cpp's ``--n-cpu-moe``). -1: by the memory plan; to the engine, which has
    no plan, that means 0."""
    batch_size: Annotated[int, msgspec.Meta(ge=32, le=MAX_CONTEXT_LENGTH)] = DEFAULT_BATCH_SIZE
    """Prompt tokens between two progress reports, and until Stop takes effect."""
    micro_batch_size: Annotated[int, msgspec.Meta(ge=32, le=MAX_CONTEXT_LENGTH)] = DEFAULT_BATCH_SIZE
    kv_type: KvType = "f16"
    flash_attention: FlashAttention = "auto"
    exact: bool = False
    """Load the target for the accept rule ``exact``: with kernels that agree for more widths, but may make verify
    passes slower (`app.engine.host.loading.repacks`)."""
    draft_context_length: Annotated[int, msgspec.Meta(ge=0, le=MAX_CONTEXT_LENGTH)] = 0
    """Tokens in a draft model's KV cache; it doesn't draft in longer chats. 0: the target's."""
    draft_kv_type: DraftKvType = "auto"
    branches: Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT_LENGTH)] = 0
    """How many branches a draft may have beside its first chain; 0: all drafts are chains. Each is a sequence in the
    target's KV cache while it is tested."""
    chat_cache_mib: Annotated[int, msgspec.Meta(ge=-1, le=MAX_COUNT)] = -1
    """MiB for the KV caches of recent chats; 0: keep none, -1: an eighth of the system's memory, at most 2,048."""


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
    "branches",
)
"""Measurements from before these options existed were made with their defaults."""


def chosen_options(settings: LoadSettings) -> dict[str, Any]:
    """The `SPECIAL_OPTIONS` that differ from their defaults; 0 `expert_layers_on_cpu` counts as the default."""
    values, defaults = msgspec.to_builtins(settings), msgspec.to_builtins(LoadSettings())
    values["expert_layers_on_cpu"] = values["expert_layers_on_cpu"] or AS_PLANNED
    return {name: values[name] for name in SPECIAL_OPTIONS if values[name] != defaults[name]}
