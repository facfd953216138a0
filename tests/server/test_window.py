"""A window that serves says the same as ``slipstream serve``; its part of that is in `tests.ui.server`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionContentPartParam

from tests.server.conftest import KEY
from tests.support.serve_process import ServingWindow, window_that_serves
from tests.support.served import request, status
from tests.support.vision_models import make_image, make_projector, make_seeing_model

KEYED = f"Authorization: Bearer {KEY}"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingWindow]:
    folder = tmp_path_factory.mktemp("window")
    target = make_seeing_model(folder / "seeing.gguf", "llava")
    make_projector(folder / "mmproj-seeing.gguf", "llava")  # which it finds beside the model
    with window_that_serves(target, home=folder / "home", key=KEY) as serving:
        yield serving


def test_who_may_ask(window: ServingWindow) -> None:
    def asked(*lines: str, path: str = "/v1/models", host: str = "localhost") -> int:
        with window.connected() as client:
            client.send(request("GET", path, b"", *lines, host=host))
            return status(client.receive())

    assert (asked(), asked(KEYED), asked(path="/health")) == (401, 200, 200)
    assert asked(KEYED, host="evil.example") == 403
    assert asked(KEYED, "Origin: https://evil.example") == 403
    assert asked(KEYED, "Origin: app://obsidian.md") == 200
    assert asked(KEYED, path="/v1/models/seeing") == 200


def test_it_sees_a_picture_and_counts(window: ServingWindow, tmp_path: Path) -> None:
    data = base64.b64encode(Path(make_image(tmp_path / "picture.png").path).read_bytes()).decode()
    shown: list[ChatCompletionContentPartParam] = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
    with openai.OpenAI(base_url=f"{window.url}/v1", api_key=KEY, max_retries=0) as client:
        ask = client.chat.completions.create
        seen = ask(model="any", messages=[{"role": "user", "content": shown}], max_tokens=4)
        blind = ask(model="any", messages=[{"role": "user", "content": "What is it?"}], max_tokens=4)
        parts = ask(model="any", messages=[{"role": "user", "content": "What is it?"}], seed=1, stream=True)
        assert next(parts) and next(parts)
        parts.close()  # in the middle; the next one is answered all the same
        again = ask(model="any", messages=[{"role": "user", "content": "What is it?"}], max_tokens=4)
    assert seen.usage and blind.usage and seen.usage.prompt_tokens > blind.usage.prompt_tokens
    assert again.choices[0].finish_reason == "length"
    image: anthropic.types.ImageBlockParam = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }
    message: anthropic.types.MessageParam = {
        "role": "user",
        "content": [image, {"type": "text", "text": "What is it?"}],
    }
    with anthropic.Anthropic(base_url=window.url, api_key=KEY, max_retries=0) as claude:
        usage = claude.messages.create(model="any", max_tokens=4, messages=[message]).usage
        counted = claude.messages.count_tokens(model="any", messages=[message])
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    tokens = window.post("/tokenize", {"content": "What"}, Authorization=f"Bearer {KEY}").json()
    assert tokens["count"] == len(tokens["tokens"]) > 0
    too_long = window.post("/v1/completions", {"prompt": "x " * 40_000}, Authorization=f"Bearer {KEY}").json()
    assert too_long["error"]["type"] == "exceed_context_size_error"
