"""``slipstream serve`` with SmolLM2, as another program sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.loaded import documents
from tests.support.serve_process import serve_process
from tests.support.served import Client, Json, text_of


@pytest.fixture
def served(smollm2_file: Path, home: Path) -> Iterator[Client]:
    with serve_process("--target", smollm2_file, "--context", "2048", home=home) as (_, port):
        client = Client(port)
        client.wait_until_healthy()
        yield client


def test_a_chat_completion_streamed_and_whole(served: Client) -> None:
    question = f"{documents()[:1200]}\n\nWhat is this about?"
    options = {"seed": 5, "temperature": 0.8, "max_tokens": 40}
    whole = served.chat(question, **options)
    (choice,) = whole["choices"]
    text = choice["message"]["content"]
    assert text and choice["finish_reason"] in ("stop", "length")
    assert 200 < whole["usage"]["prompt_tokens"] < 600 and 0 < whole["usage"]["completion_tokens"] <= 40
    parts = served.streamed(question, **options)
    assert text_of(parts) == text
    assert parts[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]


def test_a_second_turn_comes_from_the_cache_after_two_side_requests(served: Client) -> None:
    """A title of the chat with a prompt of its own, and a topic with the chat's."""
    system: Json = {"role": "system", "content": documents()[:4000]}
    question: Json = {"role": "user", "content": "What is this about?"}
    options: Json = {"max_tokens": 40, "temperature": 0}
    first = served.chat(messages=[system, question], **options)
    served.chat(f"Write a title for a chat with this question. {documents()[4000:6000]}", **options)
    served.chat(messages=[system, {"role": "user", "content": "Is this a new topic: what is this about?"}], **options)
    chat = [system, question, first["choices"][0]["message"], {"role": "user", "content": "And why?"}]
    usage = served.chat(messages=chat, **options)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0.95 * usage["prompt_tokens"] > 900
