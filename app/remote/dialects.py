"""What each kind of server takes and gives. Sources and versions stand in benchmarks/notes/remote.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.protocol.options import FormatKind
from app.protocol.remote import SERVER_NAMES, FiguresFrom, ServerKind

_BASIC = {name: name for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty")}
_VLLM = {**_BASIC, "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty"}
_LLAMA = {
    **_BASIC,
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
    "penalty_window": "repeat_last_n",
}
_SAMPLING = tuple(_LLAMA)
_JSON: tuple[FormatKind, ...] = ("json_object", "json_schema")


@dataclass(frozen=True)
class Dialect:
    """One kind of server."""

    kind: ServerKind
    sampling: dict[str, str]
    """Fields of `Sampling` it takes, and its names for them."""
    formats: tuple[FormatKind, ...] = ()
    levels: tuple[str, ...] = ()
    """Levels of thinking that can be asked for without knowing the model."""
    has_budget: bool = False
    """It takes a limit for thinking."""
    can_continue: bool = False
    all_top_k: int = 0
    """What stands for "all" in ``top_k``."""
    has_extras: bool = True
    """Fields it doesn't know do no harm."""
    stream_options: dict[str, bool] = field(default_factory=lambda: {"include_usage": True})
    extras: dict[str, bool] = field(default_factory=dict)
    """Fields that make it say more."""
    figures: FiguresFrom = "none"
    note: str = ""
    """For `RemoteModel.figures_note`."""

    @property
    def name(self) -> str:
        return SERVER_NAMES[self.kind]

    def refused(self) -> dict[str, str]:
        """For `RemoteModel.refused`, without what depends on the model."""
        found = {one: f"{self.name} doesn't have this setting." for one in _SAMPLING if one not in self.sampling}
        if not self.has_budget:
            found["thinking_budget"] = f"{self.name} can't limit thinking."
        if not self.formats:
            found["answer_format"] = f"{self.name} can't make answers follow a format."
        if self.kind != "ollama":
            found["drafter"] = f"How {self.name} drafts is decided when it is started."
        found["overflow"] = f"What happens to a chat that is too long is up to {self.name}."
        found["stop_thinking"] = f"{self.name} can't be told to stop thinking."
        return found


_LIVE = {"timings_per_token": True, "return_progress": True}
_LLAMA_NOTE = (
    "llama-server sends its counts of drafted and accepted tokens with every token. If nothing is drafted, start it "
    "with --spec-type, for example draft-simple with --spec-draft-model FILE for a draft model, or ngram-simple."
)
VLLM_WITHOUT_DRAFTING = "This vLLM drafts nothing. To make it draft, start it with --speculative-config."
_DIALECTS = (
    Dialect(
        "slipstream",
        _LLAMA,
        formats=(*_JSON, "gbnf"),
        has_budget=True,
        can_continue=True,
        extras=_LIVE,
        figures="live",
        note="The other Slipstream sends its own counts with every answer.",
    ),
    Dialect(
        "llama.cpp",
        _LLAMA,
        formats=(*_JSON, "gbnf"),
        has_budget=True,
        can_continue=True,
        extras=_LIVE,
        figures="live",
        note=_LLAMA_NOTE,
    ),
    Dialect(
        "vllm",
        _VLLM,
        formats=_JSON,
        levels=("off", "on", "low", "medium", "high"),
        can_continue=True,
        all_top_k=-1,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        figures="counters",
        note="vLLM sends figures with each answer if it was started with --per-request-spec-decode-metrics summary "
        "(0.29 or later). Without that, its counters before and after an answer are compared, which also count what "
        "others ask it.",
    ),
    Dialect(
        "sglang",
        _VLLM,
        formats=_JSON,
        levels=("off", "on"),
        can_continue=True,
        all_top_k=-1,
        extras={"return_spec_tokens_details": True},
        figures="reply",
        note="SGLang sends figures at the end of each answer if it was started with --speculative-algorithm.",
    ),
    Dialect(
        "tensorrt_llm",
        _VLLM,
        formats=_JSON,
        levels=("off", "on"),
        has_extras=False,
        figures="reply",
        note="TensorRT-LLM sends the mean number of tokens per pass with each answer. Newer versions send all figures "
        "if per_request_spec_decode_stats: true is in the file given with --extra_llm_api_options.",
    ),
    Dialect(
        "tgi",
        _BASIC,
        figures="counters",
        note="TGI only has counters for all its answers together. Slipstream compares them before and after an "
        "answer, so they also count other requests.",
    ),
    Dialect(
        "ollama",
        _LLAMA,
        formats=_JSON,
        note="Ollama can draft, but doesn't report its counts. Slipstream can ask for an answer without drafting to "
        "compare the speed.",
    ),
    Dialect(
        "lm_studio",
        {**_BASIC, "top_k": "top_k", "repetition_penalty": "repeat_penalty"},
        formats=("json_schema",),
        figures="reply",
        note="LM Studio sends figures at the end of each answer. It drafts if a draft model is chosen in its settings "
        "of the model.",
    ),
    Dialect(
        "openai",
        _BASIC,
        formats=_JSON,
        note="This server gives no figures about drafting. Speed is measured here.",
    ),
)
DIALECTS: dict[ServerKind, Dialect] = {one.kind: one for one in _DIALECTS}
