"""The fields of requests that are read; others are ignored, and what can't be done is refused by name (`settings`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from app import decoders
from app.protocol.limits import MAX_COUNT, MAX_LOGPROBS
from app.server.errors import invalid

T = TypeVar("T")
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
OrAll = Annotated[int, msgspec.Meta(ge=-1, le=MAX_COUNT)]
"""-1: as many as there can be."""
Penalty = Annotated[float, msgspec.Meta(ge=-10.0, le=10.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Bias = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]
Likely = Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)]
MOST_STOPS = 64
MOST_BIASES = 1024
StopText = Annotated[str, msgspec.Meta(max_length=1000)]
_NOT_READ = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class JsonSchema(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw()
    """Empty: not given."""


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: msgspec.Raw = msgspec.Raw()
    """llama-server's, with either of the JSON types; and that of ``/v1/responses``."""
    name: str | None = None


class OwnOptions(msgspec.Struct):
    """What only this server has."""

    exact: bool = False
    """Use the accept rule ``exact``."""


class Settings(msgspec.Struct, kw_only=True):
    """What all requests for an answer have; ``None``: not given."""

    model: str | None = None
    max_tokens: OrAll | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] | None = None
    top_p: Share | None = None
    top_k: OrAll | None = None
    min_p: Share | None = None
    seed: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], msgspec.Meta(max_length=MOST_STOPS)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repeat_penalty: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] | None = None
    repeat_last_n: OrAll | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    response_format: ResponseFormat | None = None
    grammar: str | None = None
    """In GBNF, llama-server's."""
    n: int | None = None
    logit_bias: Annotated[dict[int, Bias], msgspec.Meta(max_length=MOST_BIASES)] | None = None
    slipstream: OwnOptions | None = None

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ImageUrl(msgspec.Struct):
    url: str


class ImageSource(msgspec.Struct):
    """Anthropic's."""

    type: str
    data: str | None = None
    url: str | None = None


class Part(msgspec.Struct):
    """A part of a message's content."""

    type: str
    text: str | None = None
    image_url: str | ImageUrl | None = None
    source: ImageSource | None = None


class CalledFunction(msgspec.Struct):
    name: str
    arguments: str = "{}"


class ChatToolCall(msgspec.Struct):
    function: CalledFunction
    id: str = ""


class Function(msgspec.Struct):
    """What a tool is."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(msgspec.Struct):
    type: str
    function: Function | None = None


class NamedFunction(msgspec.Struct):
    name: str


class NamedChoice(msgspec.Struct):
    """The one tool that has to be called."""

    type: str
    function: NamedFunction | None = None
    name: str | None = None
    """In ``/v1/responses``."""


ToolChoice = Literal["none", "auto", "required"] | NamedChoice


class ChatMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    tool_call_id: str = ""
    reasoning_content: str | None = None
    reasoning: str | None = None
    """vLLM's name for it."""
    tool_calls: list[ChatToolCall] | None = None


class ChatRequest(Settings, kw_only=True):
    """``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_completion_tokens: OrAll | None = None
    logprobs: bool | None = None
    top_logprobs: Likely | None = None
    tools: list[ChatTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[msgspec.Raw] | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None
    reasoning_effort: str | None = None
    thinking_budget_tokens: OrAll | None = None
    continue_final_message: bool | Literal["content", "reasoning_content"] | None = None


class CompletionRequest(Settings, kw_only=True):
    """``/v1/completions``."""

    prompt: str | Annotated[list[Any], msgspec.Meta(min_length=1)]
    logprobs: bool | Likely | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class Block(Part):
    """A part of a message's content in ``/v1/messages``."""

    thinking: str | None = None
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    tool_use_id: str = ""
    content: str | list[Part] | None = None


class AnthropicMessage(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Thinking(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Positive | None = None


class OutputConfig(msgspec.Struct):
    format: ResponseFormat | None = None


class AnthropicTool(msgspec.Struct):
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    """``None``, like ``custom``: a function; others are run by a server."""


class AnthropicToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class MessagesRequest(Settings, kw_only=True):
    """``/v1/messages`` and the count of their tokens, Anthropic's."""

    messages: Annotated[list[AnthropicMessage], msgspec.Meta(min_length=1)]
    system: str | list[Part] | None = None
    stop_sequences: Annotated[list[StopText], msgspec.Meta(max_length=MOST_STOPS)] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None


class ReasoningOptions(msgspec.Struct):
    effort: str | None = None


class TextOptions(msgspec.Struct):
    format: ResponseFormat | None = None


class ResponsesTool(msgspec.Struct):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Item(msgspec.Struct):
    """A part of the chat in ``/v1/responses``: a message, a call, its result, or a thought."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None
    summary: list[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[Part] | None = None


class ResponsesRequest(Settings, kw_only=True):
    """``/v1/responses``. Fields without a type of their own are refused unless they are empty."""

    input: str | Annotated[list[Item], msgspec.Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: OrAll | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: int | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    background: Any = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """``/tokenize``: llama-server's fields, and vLLM's ``prompt`` for the text."""

    content: str | None = None
    prompt: str | None = None
    add_special: bool | None = None
    """With the BOS token."""
    parse_special: bool | None = None
    with_pieces: bool | None = None


def parsed(body: bytes, kind: type[T]) -> T:
    """The JSON of a request. Raises `ApiError`."""
    try:
        return decoders.decode(body, kind)
    except _NOT_READ as error:
        detail = str(error) if isinstance(error, msgspec.ValidationError) else "it is no valid JSON"
        raise invalid(f"The request can't be used: {detail.rstrip('.')}.") from None
