"""The fields of requests, and warnings about those that are ignored."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from app import system as decoders
from app.server.guard import invalid

T = TypeVar("T")
Number = int | float
"""Any number: `settings` uses the nearest allowed value."""
MOST_STOPS = 64
MOST_BIASES = 1024
StopText = Annotated[str, msgspec.Meta(max_length=1000)]
Content = Any
"""Text, parts, one part, or any value from a tool; ``None``: nothing."""
_NOT_READ = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class JsonSchema(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw()
    """Empty: not sent."""
    strict: Any = None


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"] | None = None
    """Not sent: JSON by the schema if there is one, otherwise text."""
    json_schema: JsonSchema | None = None
    schema: msgspec.Raw = msgspec.Raw()
    """llama-server's, with either JSON type, and ``/v1/responses``'s."""
    name: str | None = None
    strict: Any = None
    """``/v1/responses``'s."""


class StructuredOutputs(msgspec.Struct):
    """vLLM's; its older versions have ``guided_json`` and so on."""

    json: Any = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class OwnOptions(msgspec.Struct):
    """Options that only this server has."""

    exact: bool | None = None
    """Use the accept rule ``exact``."""
    drafter: str | None = None
    """One of `DrafterChoice`, or ``off``."""
    draft_length: int | Literal["auto"] | None = None


class Speculative(msgspec.Struct):
    """llama-server's."""

    n_max: int | None = None


class Settings(msgspec.Struct, kw_only=True):
    """The fields shared by all requests for an answer; ``None``: not sent. Those named as in `Sampling` or `PerChat`
    mean the same (`settings`)."""

    model: str | None = None
    max_tokens: Number | None = None
    """Less than 0: no limit."""
    max_completion_tokens: Number | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Number | None = None
    min_p: Number | None = None
    seed: Number | None = None
    stop: StopText | Annotated[list[StopText | None], msgspec.Meta(max_length=MOST_STOPS)] | None = None
    frequency_penalty: Number | None = None
    presence_penalty: Number | None = None
    repeat_penalty: Number | None = None
    repetition_penalty: Number | None = None
    penalty_window: Number | None = msgspec.field(default=None, name="repeat_last_n")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    response_format: ResponseFormat | None = None
    grammar: str | None = None
    """llama-server's, in GBNF."""
    json_schema: Any = None
    """llama-server's."""
    structured_outputs: StructuredOutputs | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    n: int | None = None
    logit_bias: (
        Annotated[dict[str, Any], msgspec.Meta(max_length=MOST_BIASES)]
        | Annotated[list[Any], msgspec.Meta(max_length=MOST_BIASES)]
        | None
    ) = None
    """By token id, or llama-server's pairs."""
    slipstream: OwnOptions | None = None
    speculative: Speculative | None = None
    speculative_n_max: int | None = msgspec.field(default=None, name="speculative.n_max")

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class CalledFunction(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class ChatToolCall(msgspec.Struct):
    function: CalledFunction | None = None
    custom: dict[str, Any] | None = None
    id: Any = None


class ChatMessage(msgspec.Struct):
    role: str | None = None
    content: Content = None
    name: Any = None
    tool_call_id: Any = None
    reasoning_content: Content = None
    reasoning: Content = None
    """vLLM's name for it."""
    tool_calls: list[ChatToolCall | None] | None = None
    function_call: CalledFunction | None = None
    """The old form of a call."""


class ReasoningOptions(msgspec.Struct):
    effort: str | None = None


class ChatRequest(Settings, kw_only=True):
    """``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    """The old form of ``tools``."""
    function_call: Any = None
    """The old form of ``tool_choice``."""
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning: ReasoningOptions | None = None
    """OpenRouter's form of ``reasoning_effort``."""
    thinking_budget: int | None = msgspec.field(default=None, name="thinking_budget_tokens")
    continue_final_message: bool | Literal["content", "reasoning_content"] | None = None


class CompletionRequest(Settings, kw_only=True):
    """``/v1/completions``."""

    prompt: str | Annotated[list[Any], msgspec.Meta(min_length=1)]
    logprobs: bool | int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class AnthropicMessage(msgspec.Struct):
    role: str
    content: Content = None


class Thinking(msgspec.Struct):
    type: str = "enabled"
    budget_tokens: int | None = None


class OutputConfig(msgspec.Struct):
    """Anthropic's, and ``text`` of ``/v1/responses``."""

    format: ResponseFormat | None = None


class MessagesRequest(Settings, kw_only=True):
    """Anthropic's ``/v1/messages``, and its count of tokens."""

    messages: Annotated[list[AnthropicMessage], msgspec.Meta(min_length=1)]
    system: Content = None
    stop_sequences: Annotated[list[StopText | None], msgspec.Meta(max_length=MOST_STOPS)] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: ResponseFormat | None = None
    """The beta's name for ``output_config.format``."""
    tools: list[Any] | None = None
    tool_choice: Any = None

    @property
    def thinking_budget(self) -> int | None:
        return (self.thinking and self.thinking.budget_tokens) or None


class Item(msgspec.Struct):
    """An item of the chat in ``/v1/responses``: a message, a call, a result, thinking, or another type."""

    type: str | None = "message"
    role: str | None = None
    content: Content = None
    summary: list[Any] | None = None
    call_id: Any = None
    name: Any = None
    namespace: Any = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    output: Any = None


class ResponsesRequest(Settings, kw_only=True):
    """``/v1/responses``."""

    input: str | Annotated[list[Item], msgspec.Meta(min_length=1)]
    instructions: Content = None
    max_output_tokens: Number | None = None
    reasoning: ReasoningOptions | None = None
    text: OutputConfig | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Any = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    background: Any = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """``/tokenize``: llama-server's fields, and vLLM's ``prompt`` for the text."""

    content: str | None = None
    prompt: str | None = None
    add_special: bool | None = None
    """Add the BOS token."""
    parse_special: bool | None = None
    with_pieces: bool | None = None


def mended(body: bytes) -> bytes:
    """A request's JSON with U+FFFD for half surrogate pairs, sent by programs that cut text inside an emoji."""
    if b"\\u" not in body:
        return body
    try:
        decoders.decode(body, msgspec.Raw)
    except msgspec.DecodeError:
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(body), ensure_ascii=False)
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return body


def parsed(body: bytes, kind: type[T]) -> T:
    """A request's JSON as a ``kind``. Raises `ApiError`."""
    try:
        return decoders.decode(body, kind, strict=False)
    except _NOT_READ as error:
        detail = str(error) if isinstance(error, msgspec.ValidationError) else "it isn't valid JSON"
        raise invalid(f"The request can't be used: {detail.rstrip('.')}.") from None


# Warnings say what was ignored in a request. They go into the answer (``slipstream.warnings``), and into the log
# without quotations from the request, which are between “ and ” (`quoted`).

_QUOTED = re.compile(r"“.*”", re.DOTALL)
_LONGEST_QUOTATION = 80
_MOST = 50


class Warnings:
    """The warnings of one request, without repetitions."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._logged: list[str] = []

    def add(self, sentence: str, logged: str = "") -> None:
        """``logged``: the log's version, if ``sentence`` quotes the request without `quoted`."""
        if sentence not in self.sentences and len(self.sentences) < _MOST:
            self.sentences.append(sentence)
            self._logged.append(logged or _QUOTED.sub("“…”", sentence))

    @property
    def for_log(self) -> str:
        """The warnings without words from the request."""
        return " ".join(dict.fromkeys(self._logged))


def quoted(text: object) -> str:
    """A word from the request, for a sentence."""
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in str(text)[:_LONGEST_QUOTATION])
    return f"“{shown}”"


# Other servers' fields that would change an answer but aren't supported here.

_CHANGING = {
    *("prediction", "modalities", "audio", "web_search_options", "guided_grammar", "regex", "ebnf", "min_tokens"),
    *("ignore_eos", "bad_words"),
    *("stop_token_ids", "include_stop_str_in_output", "mirostat", "dynatemp_range", "typical_p", "top_a", "tfs_z"),
    *("dry_multiplier", "xtc_probability", "top_n_sigma", "min_keep", "samplers", "lora", "context_management"),
    *("mcp_servers", "container", "use_beam_search", "length_penalty", "think", "truncate_prompt_tokens"),
}
_NOTHING = (b"null", b"false", b"0", b"0.0", b"[]", b"{}", b'""')
_TEXT_ONLY = b'["text"]'


def unread(body: bytes) -> Warnings:
    """Warnings about unsupported fields of a request."""
    warnings = Warnings()
    for name, value in decoders.decode(body, dict[str, msgspec.Raw]).items():
        if name in _CHANGING and bytes(value) not in (*_NOTHING, _TEXT_ONLY):
            warnings.add(f"The field {name} was left out: this server doesn't have it.")
    return warnings
