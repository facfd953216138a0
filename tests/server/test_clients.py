"""The clients that others use, as they come: `test_window` has images, `test_chat` and others what is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.server.conftest import KEY
from tests.support.served import Served
from tests.support.tool_models import LIGHT

WELL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Well?"}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": LIGHT.name, "description": "On?", "parameters": LIGHT.parameters}}
]
ASKED: anthropic.types.MessageParam = {"role": "user", "content": "Well?"}


class Light(pydantic.BaseModel):
    """The arguments of the tool, and an answer by a schema."""

    model_config = pydantic.ConfigDict(extra="forbid")
    on: bool


def openai_client(server: Served, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def claude_client(server: Served, key: str = KEY) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


@pytest.fixture
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai_client(server) as client:
        yield client


@pytest.fixture
def claude(server: Served) -> Iterator[anthropic.Anthropic]:
    with claude_client(server) as client:
        yield client


def test_openai_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=WELL, extra_body=OFF, logprobs=True, top_logprobs=2)
    (choice,), usage = answer.choices, answer.usage
    assert (choice.message.content, choice.finish_reason) == (" yes no.", "stop")
    assert usage and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert answer.model_extra and answer.model_extra["timings"]["predicted_n"] == usage.completion_tokens
    assert choice.logprobs and choice.logprobs.content
    assert [(one.token, len(one.top_logprobs)) for one in choice.logprobs.content] == [
        (" yes", 2),
        (" no", 2),
        (".", 2),
    ]
    options: openai.types.chat.ChatCompletionStreamOptionsParam = {"include_usage": True}
    with client.chat.completions.create(
        model="any", messages=WELL, max_completion_tokens=8, temperature=0, stream=True, stream_options=options
    ) as stream:
        *chunks, last = list(stream)
    thought = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert thought == "so then so then so then so then"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.choices == [] and last.usage and last.usage.completion_tokens == 8


def test_openai_stops_a_stream_and_sees_what_is_wrong(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="any", messages=WELL, stream=True) as stream:
        next(stream)
    answer = client.chat.completions.create(model="any", messages=WELL, max_tokens=2)  # which waits for the engine
    assert answer.choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="any", messages=[])
    assert refused.value.type == "invalid_request_error"
    picture: openai.types.chat.ChatCompletionContentPartImageParam = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,"},
    }
    with pytest.raises(openai.InternalServerError) as unsupported:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": [picture]}])
    assert (unsupported.value.status_code, unsupported.value.type) == (501, "not_supported_error")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_openai_calls_a_tool_and_sends_its_result(calling: Served) -> None:
    with openai_client(calling) as client:
        answer = client.chat.completions.create(
            model="any", messages=WELL, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=1
        )
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        (call,) = choice.message.tool_calls or []
        assert call.type == "function" and isinstance(Light.model_validate_json(call.function.arguments).on, bool)
        back = client.chat.completions.create(
            model="any",
            messages=[
                *WELL,
                choice.message.model_dump(exclude_none=True),  # type: ignore[list-item] # as clients do
                {"role": "tool", "tool_call_id": call.id, "content": "Done."},
            ],
            tools=TOOLS,
            extra_body={"temperature": 0},
        )
        assert back.choices[0].message.content == " yes no." and back.choices[0].finish_reason == "stop"


def test_openai_responds(client: openai.OpenAI) -> None:
    off: Any = {"model": "any", "input": "Well?", "reasoning": {"effort": "none"}}
    response = client.responses.create(**off)
    assert response.output_text == " yes no." and response.status == "completed" and not response.error
    assert response.usage and response.usage.output_tokens == 4
    thinking = client.responses.create(model="any", input="Well?", max_output_tokens=5)
    assert thinking.status == "incomplete" and thinking.output[0].type == "reasoning"
    with client.responses.stream(**off) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert text == stream.get_final_response().output_text == " yes no."
    parsed = client.responses.parse(**off, text_format=Light, max_output_tokens=200, extra_body={"seed": 1})
    assert isinstance(parsed.output_parsed, Light)
    with pytest.raises(openai.InternalServerError) as refused:
        client.responses.create(model="any", input="Well?", previous_response_id=response.id)
    assert refused.value.status_code == 501


# ------------------------------------------------------------ anthropic


def test_anthropic_asks(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model="any", max_tokens=50, system="Be brief.", messages=[ASKED])
    (block,), usage = answer.content, answer.usage
    assert block.type == "text" and block.text == " yes no."
    assert (answer.stop_reason, answer.stop_sequence, answer.model) == ("end_turn", None, "endless")
    assert usage.output_tokens == 4 and usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0
    stopped = claude.messages.create(model="any", max_tokens=50, stop_sequences=["no"], messages=[ASKED])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "no")
    begun: anthropic.types.MessageParam = {"role": "assistant", "content": "yes"}
    answer = claude.messages.create(model="any", max_tokens=4, messages=[ASKED, begun])
    (block,) = answer.content
    assert block.type == "text" and block.text == " so then so then" and answer.stop_reason == "max_tokens"


def test_anthropic_streams(claude: anthropic.Anthropic) -> None:
    parts: anthropic.types.MessageParam = {"role": "user", "content": [{"type": "text", "text": "Well?"}]}
    with claude.messages.stream(model="any", max_tokens=50, messages=[parts]) as stream:
        assert "".join(stream.text_stream) == " yes no."
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 4
    with claude.messages.stream(
        model="any", max_tokens=80, thinking={"type": "enabled", "budget_tokens": 10}, messages=[ASKED]
    ) as stream:
        thinking, text = stream.get_final_message().content
    assert thinking.type == "thinking" and thinking.thinking.startswith("so then so then")
    assert text.type == "text" and text.text.strip() == "yes no."


def test_anthropic_sees_what_is_wrong(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="any", max_tokens=5, messages=[])
    image: anthropic.types.ImageBlockParam = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": ""},
    }
    with pytest.raises(anthropic.APIStatusError) as unsupported:
        claude.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": [image]}])
    assert unsupported.value.status_code == 501


def test_anthropic_calls_a_tool_and_sends_its_result(calling: Served) -> None:
    tool: anthropic.types.ToolParam = {"name": LIGHT.name, "input_schema": LIGHT.parameters}
    choice: anthropic.types.ToolChoiceAnyParam = {"type": "any", "disable_parallel_tool_use": True}
    with claude_client(calling) as client:
        with client.messages.stream(
            model="any", max_tokens=300, messages=[ASKED], tools=[tool], tool_choice=choice
        ) as stream:
            answer = stream.get_final_message()
        (block,) = answer.content
        assert block.type == "tool_use" and answer.stop_reason == "tool_use"
        assert isinstance(Light.model_validate(block.input).on, bool)
        back = client.messages.create(
            model="any",
            max_tokens=20,
            extra_body={"temperature": 0},
            tools=[tool],
            messages=[
                ASKED,
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "Done."}]},
            ],
        )
        assert [one.type for one in back.content] == ["text"] and back.stop_reason == "end_turn"
        counted = client.messages.count_tokens(model="any", messages=[ASKED], tools=[tool])
        assert counted.input_tokens > client.messages.count_tokens(model="any", messages=[ASKED]).input_tokens


# ------------------------------------------------------------ JavaScript
