"""How likely the tokens of an answer were, over HTTP; and a bias for some of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.served import Json, Served, text_of

OFF: Json = {"chat_template_kwargs": {"enable_thinking": False}, "seed": 1}


def likely(choice: Json) -> list[Json]:
    found: list[Json] = choice["logprobs"]["content"]
    return found


def test_tokens_of_a_chat_s_answer(server: Served) -> None:
    (choice,) = server.chat(logprobs=True, top_logprobs=2, **OFF)["choices"]
    entries = likely(choice)
    assert [one["token"] for one in entries] == [" yes", " no", "."]
    assert "".join(one["token"] for one in entries) == choice["message"]["content"]
    for one in entries:
        assert bytes(one["bytes"]).decode() == one["token"]
        assert one["logprob"] == pytest.approx(0.0, abs=1e-3), "this model is sure"
        assert one["top_logprobs"][0]["token"] == one["token"] and len(one["top_logprobs"]) == 2
        assert one["top_logprobs"][0]["logprob"] == one["logprob"] > one["top_logprobs"][1]["logprob"]


def test_a_stream_says_the_same(server: Served) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 1, "temperature": 1.5, "max_tokens": 30, **OFF}
    (whole,) = server.chat(**fields)["choices"]
    parts = server.streamed(**fields)
    streamed = [one for part in parts if part["choices"][0]["logprobs"] for one in likely(part["choices"][0])]
    assert text_of(parts) == whole["message"]["content"]
    assert [one["token"] for one in streamed] == [one["token"] for one in likely(whole)]
    told = [one["logprob"] for one in streamed]
    assert told == pytest.approx([one["logprob"] for one in likely(whole)], abs=1e-3)


def test_completions(server: Served) -> None:
    for count in (True, 0, 3, None):
        body = {"prompt": "so</think>", "max_tokens": 9, "logprobs": count, "seed": 1}
        (choice,) = server.post("/v1/completions", body).json()["choices"]
        assert choice["text"] == " yes no."
        if (found := choice["logprobs"]) is not None:
            assert found["tokens"] == [" yes", " no", "."] and found["text_offset"] == [0, 4, 7]
            assert all(math.exp(one) == pytest.approx(1.0, abs=1e-3) for one in found["token_logprobs"])
            assert [len(one) for one in found["top_logprobs"]] == [int(count or 0)] * 3
        assert (found is None) is (count is None)


def test_a_bias(server: Served) -> None:
    found = server.post("/tokenize", {"content": "no", "with_pieces": True}).json()["tokens"][-1]
    answer = server.chat(logit_bias={str(found["id"]): 100}, max_tokens=3, **OFF)
    assert answer["choices"][0]["message"]["content"] == found["piece"] * 3
