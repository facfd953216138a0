"""The clients that others use, as they come: tools, the Responses API, images, logprobs; and JavaScript."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anthropic
import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseInputParam

from app.server.guard import Guard
from tests.support.serve_process import window_that_serves
from tests.support.served import Client, Served
from tests.support.tool_models import LIGHT, make_tool_model
from tests.support.vision_models import make_image, make_projector, make_seeing_model

KEY = "a-key-of-twenty-letters"
Start = Callable[..., Client]
WELL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Well?"}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {"name": LIGHT.name, "description": "Switches a light.", "parameters": LIGHT.parameters},
    }
]


class Light(pydantic.BaseModel):
    """The arguments of the tool, and an answer by a schema."""

    model_config = pydantic.ConfigDict(extra="forbid")
    on: bool


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("server-home")))
        yield


@pytest.fixture(scope="module", params=["headless", "window"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _home: None) -> Iterator[Start]:
    """Both ways to start a server: alone, and by the switch in the settings of a window."""
    with ExitStack() as stack:

        def start_it(target: Path, draft: Path | None = None, projector: Path | None = None) -> Client:
            if request.param == "window":  # it finds the projector beside the model
                home = tmp_path_factory.mktemp("window-home")
                return stack.enter_context(window_that_serves(target, draft, home=home, key=KEY))
            return stack.enter_context(Served(target, draft, projector=projector, guard=Guard(key=KEY)))

        yield start_it


@pytest.fixture(scope="module")
def server(endless_pair: tuple[Path, Path], start: Start) -> Client:
    return start(*endless_pair)


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory, start: Start) -> Client:
    """It calls tools, as Qwen's and many others do."""
    return start(make_tool_model(tmp_path_factory.mktemp("calling") / "calling.gguf", "hermes"))


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory, start: Start) -> Client:
    folder = tmp_path_factory.mktemp("seeing")
    target = make_seeing_model(folder / "seeing.gguf", "llava")
    served = start(target, projector=make_projector(folder / "mmproj-seeing.gguf", "llava"))
    with openai_client(served) as client:
        client.chat.completions.create(model="any", messages=[picture(folder)], max_tokens=1)  # starts a thread
    return served


def openai_client(server: Client) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)


def claude_client(server: Client) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)


def picture(folder: Path) -> ChatCompletionMessageParam:
    data = base64.b64encode(Path(make_image(folder / "picture.png").path).read_bytes()).decode()
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        ],
    }


# ------------------------------------------------------------ chat completions


def test_openai_gets_logprobs(server: Client) -> None:
    with openai_client(server) as client:
        answer = client.chat.completions.create(
            model="any", messages=WELL, logprobs=True, top_logprobs=2, extra_body=OFF
        )
        likely = answer.choices[0].logprobs
        assert likely and likely.content
        assert "".join(one.token for one in likely.content) == answer.choices[0].message.content == " yes no."
        assert all(len(one.top_logprobs) == 2 and one.logprob <= 0 for one in likely.content)
        completion = client.completions.create(model="any", prompt="so</think>", max_tokens=9, logprobs=1)
        found = completion.choices[0].logprobs
        assert found and found.tokens == [" yes", " no", "."] and found.text_offset == [0, 4, 7]


def test_openai_calls_a_tool_and_sends_its_result(calling: Client) -> None:
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


def test_openai_streams_a_call(calling: Client) -> None:
    with (
        openai_client(calling) as client,
        client.chat.completions.stream(
            model="any", messages=WELL, tools=[openai.pydantic_function_tool(Light)], tool_choice="required", seed=1
        ) as stream,
    ):
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in events
    calls = final.choices[0].message.tool_calls or []
    assert calls and all(isinstance(call.function.parsed_arguments, Light) for call in calls)


def test_openai_shows_a_picture(seeing: Client, tmp_path: Path) -> None:
    with openai_client(seeing) as client:
        seen = client.chat.completions.create(model="any", messages=[picture(tmp_path)], max_tokens=4)
        blind = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "What is it?"}], max_tokens=4
        )
    assert seen.usage and blind.usage and seen.usage.prompt_tokens > blind.usage.prompt_tokens


# ------------------------------------------------------------ responses


def test_openai_responds(server: Client) -> None:
    with openai_client(server) as client:
        response = client.responses.create(model="any", input="Well?", reasoning={"effort": "none"})
        assert response.output_text == " yes no." and response.status == "completed" and not response.error
        assert response.usage and response.usage.output_tokens == 4
        thinking = client.responses.create(model="any", input="Well?", max_output_tokens=5)
        assert thinking.status == "incomplete" and thinking.output[0].type == "reasoning"
        with pytest.raises(openai.InternalServerError) as refused:
            client.responses.create(model="any", input="Well?", previous_response_id=response.id)
        assert refused.value.status_code == 501


def test_openai_streams_a_response(server: Client) -> None:
    with (
        openai_client(server) as client,
        client.responses.stream(model="any", input="Well?", reasoning={"effort": "none"}) as stream,
    ):
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == " yes no."


def test_openai_parses_a_response_by_a_schema(server: Client) -> None:
    with openai_client(server) as client:
        response = client.responses.parse(
            model="any",
            input="Well?",
            text_format=Light,
            reasoning={"effort": "none"},
            max_output_tokens=200,
            extra_body={"seed": 1},
        )
    assert isinstance(response.output_parsed, Light)


def test_openai_responds_with_a_call(calling: Client) -> None:
    tool: FunctionToolParam = {"type": "function", "name": LIGHT.name, "parameters": LIGHT.parameters, "strict": True}
    with openai_client(calling) as client:
        with client.responses.stream(
            model="any", input="Well?", tools=[tool], tool_choice="required", parallel_tool_calls=False
        ) as stream:
            for _ in stream:
                pass
            response = stream.get_final_response()
        (call,) = response.output
        assert call.type == "function_call" and isinstance(json.loads(call.arguments)["on"], bool)
        chat: ResponseInputParam = [
            {"role": "user", "content": "Well?"},
            {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "Done."},
        ]
        back = client.responses.create(model="any", input=chat, tools=[tool], temperature=0)
    assert back.output_text == " yes no."


# ------------------------------------------------------------ anthropic


def test_anthropic_calls_a_tool_and_sends_its_result(calling: Client) -> None:
    tool: anthropic.types.ToolParam = {"name": LIGHT.name, "input_schema": LIGHT.parameters}
    well: anthropic.types.MessageParam = {"role": "user", "content": "Well?"}
    with claude_client(calling) as client:
        with client.messages.stream(
            model="any",
            max_tokens=300,
            messages=[well],
            tools=[tool],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
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
                well,
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "Done."}]},
            ],
        )
        assert [one.type for one in back.content] == ["text"] and back.stop_reason == "end_turn"
        counted = client.messages.count_tokens(model="any", messages=[well], tools=[tool])
        assert counted.input_tokens > client.messages.count_tokens(model="any", messages=[well]).input_tokens


def test_anthropic_shows_a_picture(seeing: Client, tmp_path: Path) -> None:
    data = base64.b64encode(Path(make_image(tmp_path / "picture.png").path).read_bytes()).decode()
    image: anthropic.types.ImageBlockParam = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }
    with claude_client(seeing) as client:
        seen = client.messages.create(
            model="any",
            max_tokens=4,
            messages=[{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}],
        )
    assert seen.usage.output_tokens == 4


# ------------------------------------------------------------ JavaScript


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_openai_for_javascript(server: Client, calling: Client) -> None:
    """`tests/server/openai_client.cjs` needs ``npm install openai`` in a folder that NODE_PATH names."""
    script = Path(__file__).with_name("openai_client.cjs")
    command = ["node", str(script), f"{server.url}/v1", f"{calling.url}/v1", KEY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "Cannot find module 'openai'" in done.stderr:
        pytest.skip("needs the npm package openai, found through NODE_PATH")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "models": ["endless"],
        "whole": " yes no.",
        "likely": [" yes", " no", "."],
        "streamed": " yes no.",
        "usage": True,
        "response": " yes no.",
        "deltas": " yes no.",
        "final": "completed",
        "refused": 501,
        "called": "switch-light",
        "on": "boolean",
        "reason": "tool_calls",
        "back": True,
    }
