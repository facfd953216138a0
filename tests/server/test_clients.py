"""The clients that others use, as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from app.server.guard import Guard
from tests.support.served import Served

KEY = "a-key-of-twenty-letters"
WELL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Well?"}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def server(endless_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("server-home")))
        with Served(*endless_pair, guard=Guard(key=KEY)) as served:
            yield served


@pytest.fixture
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_openai_lists_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["endless"]
    assert client.models.retrieve("endless").owned_by == "slipstream"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_openai_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=WELL, extra_body=OFF)
    assert answer.choices[0].message.content == " yes no." and answer.choices[0].finish_reason == "stop"
    assert answer.usage and answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.model_extra and answer.model_extra["timings"]["predicted_n"] == answer.usage.completion_tokens


def test_openai_streams(client: openai.OpenAI) -> None:
    options: openai.types.chat.ChatCompletionStreamOptionsParam = {"include_usage": True}
    with client.chat.completions.create(
        model="any", messages=WELL, max_completion_tokens=8, temperature=0, stream=True, stream_options=options
    ) as stream:
        *chunks, last = list(stream)
    thought = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert thought == "so then so then so then so then"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.choices == [] and last.usage and last.usage.completion_tokens == 8


def test_openai_parses_an_answer_by_a_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model="any",
        messages=WELL,
        seed=1,
        max_tokens=200,
        response_format={"type": "json_schema", "json_schema": {"name": "one", "strict": True, "schema": schema}},
        extra_body=OFF,
    )
    assert isinstance(json.loads(answer.choices[0].message.content or "")["a"], bool)


def test_openai_completes(client: openai.OpenAI) -> None:
    assert client.completions.create(model="any", prompt="so</think>", max_tokens=9).choices[0].text == " yes no."
    parts = client.completions.create(model="any", prompt="so</think>", max_tokens=9, stream=True)
    assert "".join(part.choices[0].text for part in parts) == " yes no."


def test_openai_sees_what_is_wrong(client: openai.OpenAI, server: Served) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="any", messages=WELL, n=3)
    assert refused.value.type == "invalid_request_error"
    tools: list[openai.types.chat.ChatCompletionToolParam] = [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]
    with pytest.raises(openai.InternalServerError) as unsupported:
        client.chat.completions.create(model="any", messages=WELL, tools=tools)
    assert (unsupported.value.status_code, unsupported.value.type) == (501, "not_supported_error")
    other = openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0)
    with other, pytest.raises(openai.AuthenticationError):
        other.models.list()


def test_openai_stops_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="any", messages=WELL, stream=True) as stream:
        next(stream)
    answer = client.chat.completions.create(model="any", messages=WELL, max_tokens=2)  # which waits for the engine
    assert answer.choices[0].finish_reason == "length"


@pytest.fixture
def claude(server: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        yield client


def test_anthropic_asks(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(
        model="any", max_tokens=50, system="Be brief.", messages=[{"role": "user", "content": "Well?"}]
    )
    (block,) = answer.content
    assert block.type == "text" and block.text == " yes no."
    assert (answer.stop_reason, answer.stop_sequence, answer.model) == ("end_turn", None, "endless")
    assert (
        answer.usage.output_tokens == 4 and answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > 0
    )
    stopped = claude.messages.create(
        model="any", max_tokens=50, stop_sequences=["no"], messages=[{"role": "user", "content": "Well?"}]
    )
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "no")


def test_anthropic_streams(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="any", max_tokens=50, messages=[{"role": "user", "content": [{"type": "text", "text": "Well?"}]}]
    ) as stream:
        assert "".join(stream.text_stream) == " yes no."
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 4


def test_anthropic_sees_the_thinking(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="any",
        max_tokens=80,
        thinking={"type": "enabled", "budget_tokens": 10},
        messages=[{"role": "user", "content": "Well?"}],
    ) as stream:
        final = stream.get_final_message()
    thinking, text = final.content
    assert thinking.type == "thinking" and thinking.thinking.startswith("so then so then")
    assert text.type == "text" and text.text.strip() == "yes no."


def test_anthropic_goes_on_with_an_answer(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(
        model="any",
        max_tokens=4,
        messages=[{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "yes"}],
    )
    (block,) = answer.content
    assert block.type == "text" and block.text == " so then so then" and answer.stop_reason == "max_tokens"


def test_anthropic_gets_an_answer_by_a_schema(claude: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    answer = claude.messages.create(
        model="any",
        max_tokens=200,
        messages=[{"role": "user", "content": "Well?"}],
        output_config={"format": {"type": "json_schema", "schema": schema}},
        extra_body={"seed": 1},
    )
    (block,) = answer.content
    assert block.type == "text" and isinstance(json.loads(block.text)["a"], bool)


def test_anthropic_sees_what_is_wrong(claude: anthropic.Anthropic) -> None:
    well: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Well?"}]
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="any", max_tokens=5, messages=well, extra_body={"temperature": -1})
    with pytest.raises(anthropic.APIStatusError) as refused:
        claude.messages.create(
            model="any", max_tokens=5, messages=well, tools=[{"name": "f", "input_schema": {"type": "object"}}]
        )
    assert refused.value.status_code == 501
    image: anthropic.types.ImageBlockParam = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": ""},
    }
    with pytest.raises(anthropic.APIStatusError) as unsupported:
        claude.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": [image]}])
    assert unsupported.value.status_code == 501
