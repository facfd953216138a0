"""Servers of other people as they answer, in the shape that their code, documents and captures show
(benchmarks/notes/remote.md): what detection asks for, and one streamed answer with the figures that it ends with.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_server import Answer, Reply

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
WORDS = ["Two", " draft", " tokens", " were", " accepted", "."]
TEXT = "".join(WORDS)


def event(content: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def chunk(delta: Json | None = None, **root: Any) -> bytes:
    """A chunk of an answer; without a delta one with ``choices: []``."""
    finish = root.pop("finish_reason", None)
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, **root.pop("choice", {})}]
    return event({"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1, "choices": choices, **root})


def words(**each: Any) -> list[bytes]:
    """The answer, word by word."""
    return [chunk({"role": "assistant", "content": ""}), *(chunk({"content": word}, **each) for word in WORDS)]


USAGE = {"prompt_tokens": 12, "completion_tokens": 106, "total_tokens": 118, "prompt_tokens_details": None}

# ------------------------------------------------------------ vLLM

VLLM_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]}
VLLM_SPECULATIVE = {
    "mean_acceptance_length": 2.465,
    "draft_acceptance_rate": 0.293,
    "acceptance_histogram": [11, 14, 11, 4, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 63,
    "num_draft_tokens": 215,
    "num_spec_tokens": 5,
}
VLLM_METRICS = {
    "time_to_first_token_ms": 41.2,
    "generation_time_ms": 900.1,
    "queue_time_ms": 0.1,
    "mean_itl_ms": 8.6,
    "tokens_per_second": 117.8,
    "speculative_decoding": VLLM_SPECULATIVE,
}
VLLM_USAGE = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 2}}


def vllm(metrics: Json | None = None) -> dict[str, Answer]:
    """Thinking comes as ``reasoning`` there. ``metrics``: what the last chunk has."""
    thinking = [chunk({"reasoning": "Let"}), chunk({"reasoning": " me"})]
    root = {"metrics": metrics} if metrics else {}
    end = [chunk({"content": ""}, finish_reason="stop"), chunk(usage=VLLM_USAGE, **root), DONE]
    return {
        "/v1/models": Reply.of(VLLM_MODELS, Server="uvicorn"),
        "/version": Reply.of({"version": "0.29.0"}),
        "/v1/chat/completions": Reply.stream(*thinking, *words(), *end),
    }


# ------------------------------------------------------------ SGLang

SGLANG_DETAILS = {
    "spec_accept_rate": 0.293,
    "spec_accept_length": 2.465,
    "spec_num_correct_drafts": 63,
    "spec_num_proposed_drafts": 215,
    "spec_verify_ct": 43,
    "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
}


def sglang(details: Json | None = None) -> dict[str, Answer]:
    last = [chunk(sglext={"spec_tokens_details": details})] if details else []
    return {
        "/v1/models": Reply.of({"data": [{"id": "s", "owned_by": "sglang", "max_model_len": 8192}]}),
        "/server_info": Reply.of({"version": "0.6.1"}),
        "/v1/chat/completions": Reply.stream(
            chunk({"reasoning_content": "Hm."}),
            *words(),
            chunk({"content": None}, finish_reason="stop", choice={"matched_stop": 2}),
            chunk(usage=USAGE),
            *last,
            DONE,
        ),
    }


# ------------------------------------------------------------ the others


def tensorrt(choice: Json) -> dict[str, Answer]:
    """It refuses fields that it doesn't know."""
    known = {
        *("model", "messages", "stream", "stream_options", "seed", "max_tokens", "stop", "temperature", "top_p"),
        *("top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "response_format"),
        "chat_template_kwargs",
    }

    def answer(asked: Any) -> Reply:
        if unknown := set(asked.body) - known:
            return Reply.of({"error": f"Extra inputs are not permitted: {', '.join(sorted(unknown))}"}, 400)
        return Reply.stream(*words(), chunk({}, finish_reason="stop", choice=choice), chunk(usage=USAGE), DONE)

    return {
        "/v1/models": Reply.of({"data": [{"id": "t", "owned_by": "tensorrt_llm"}]}),
        "/version": Reply.of({"version": "1.2.0"}),
        "/v1/chat/completions": answer,
    }


TENSORRT_NOW = {"avg_decoded_tokens_per_iter": 2.46}
TENSORRT_NEXT = {
    "avg_decoded_tokens_per_iter": 2.465,
    "speculative_decoding": {
        "acceptance_rate": 0.293,
        "total_accepted_draft_tokens": 63,
        "total_draft_tokens": 215,
        "num_spec_steps": 43,
        "acceptance_histogram": [11, 14, 11, 4, 0, 3],
        "num_spec_tokens": 5,
    },
}


def tgi() -> dict[str, Answer]:
    return {
        "/v1/models": Reply.of(
            {"object": "list", "data": [{"id": "g/model", "object": "model", "owned_by": "g/model"}]}
        ),
        "/info": Reply.of(
            {"model_id": "g/model", "router": "text-generation-router", "version": "3.3.6", "max_total_tokens": 4096}
        ),
        "/metrics": Reply([b"tgi_request_skipped_tokens_sum 10\ntgi_request_skipped_tokens_count 8\n"], 200),
        "/v1/chat/completions": Reply.stream(
            *words(), chunk({"content": ""}, finish_reason="eos_token"), chunk(usage=USAGE), DONE
        ),
    }


def ollama() -> dict[str, Answer]:
    """Its own API, in lines of JSON."""
    thinking = {"model": "q:8b", "message": {"role": "assistant", "content": "", "thinking": "Hm."}, "done": False}
    parts = [{"model": "q:8b", "message": {"role": "assistant", "content": word}, "done": False} for word in WORDS]
    end = {
        "model": "q:8b",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "total_duration": 5191566416,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 383809000,
        "eval_count": 298,
        "eval_duration": 4799921000,
    }
    lines = [json.dumps(one).encode() + b"\n" for one in (thinking, *parts, end)]
    return {
        "/v1/models": Reply.of(
            {"data": [{"id": "q:8b", "owned_by": "library"}, {"id": "r:1b", "owned_by": "library"}]}
        ),
        "/": Reply([b"Ollama is running"], 200),
        "/api/version": Reply.of({"version": "0.18.1"}),
        "/api/ps": Reply.of({"models": [{"name": "q:8b", "context_length": 16384}]}),
        "/api/show": Reply.of(
            {
                "capabilities": ["completion", "thinking", "vision"],
                "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
            }
        ),
        "/api/chat": Reply.stream(*lines),
        "/v1/chat/completions": Reply.stream(
            chunk({"role": "assistant", "content": "", "reasoning": "Hm."}),
            *words(),
            chunk({"role": "assistant", "content": ""}, finish_reason="stop"),
            chunk(usage={"prompt_tokens": 26, "completion_tokens": 298, "total_tokens": 324}),
            DONE,
        ),
    }


LM_STUDIO_STATS = {
    "tokens_per_second": 51.4,
    "time_to_first_token": 0.11,
    "generation_time": 0.95,
    "stop_reason": "eosFound",
    "draft_model": "d",
    "total_draft_tokens_count": 60,
    "accepted_draft_tokens_count": 41,
    "rejected_draft_tokens_count": 17,
    "ignored_draft_tokens_count": 2,
}


def lm_studio(stats: Json) -> dict[str, Answer]:
    older = {
        "data": [
            {"id": "e", "type": "embeddings", "compatibility_type": "gguf", "state": "not-loaded"},
            {"id": "l", "type": "llm", "compatibility_type": "gguf", "state": "loaded", "max_context_length": 32768},
        ]
    }
    return {
        "/v1/models": Reply.of({"data": [{"id": "l", "object": "model", "owned_by": "organization_owner"}]}),
        "/api/v0/models": Reply.of(older),
        "/api/v0/chat/completions": Reply.stream(
            *words(), chunk({}, finish_reason="stop", stats=stats, usage=USAGE, model_info={"arch": "llama"}), DONE
        ),
    }


def openai() -> dict[str, Answer]:
    return {
        "/v1/models": Reply.of({"object": "list", "data": [{"id": "o", "object": "model", "owned_by": "someone"}]}),
        "/v1/chat/completions": Reply.stream(*words(), chunk({}, finish_reason="stop"), chunk(usage=USAGE), DONE),
    }


# ------------------------------------------------------------ llama-server

LLAMA_PROPS = {
    "default_generation_settings": {"n_ctx": 2048, "params": {"temperature": 0.6, "top_k": 20, "repeat_last_n": 64}},
    "modalities": {"vision": True},
    "chat_template": "{% if enable_thinking %}<think>{% endif %}",
    "build_info": "b9000-0c1e570",
}


def timings(predicted: int, drafted: int, accepted: int, milliseconds: float) -> Json:
    found = {"cache_n": 3, "prompt_n": 6, "prompt_per_second": 60.0, "predicted_n": predicted}
    found["predicted_ms"] = milliseconds
    return {**found, "draft_n": drafted, "draft_n_accepted": accepted} if drafted else found


def llama_server(*, is_drafting: bool = True) -> dict[str, Answer]:
    """Six tokens: the first, then a pass with 2 of 3 accepted, then one with 1 of 3."""
    passes = [(1, 0, 0, 0.001), *((n, 3, 2, 9.0) for n in (2, 3, 4)), *((n, 6, 3, 18.0) for n in (5, 6))]
    tokens = [
        chunk({"content": word}, timings=timings(n, drafted * is_drafting, accepted * is_drafting, ms))
        for word, (n, drafted, accepted, ms) in zip(WORDS, passes, strict=True)
    ]
    progress = {"total": 9, "cache": 3, "processed": 9, "time_ms": 10}
    last = timings(6, 6 * is_drafting, 3 * is_drafting, 18.0)
    usage = {"prompt_tokens": 9, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 3}}
    models = {"data": [{"id": "/models/q.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}]}
    return {
        "/v1/models": Reply.of(models, Server="llama.cpp"),
        "/props": Reply.of(LLAMA_PROPS),
        "/v1/chat/completions/input_tokens": lambda asked: Reply.of(
            {
                "input_tokens": sum(len(message["content"]) for message in asked.body["messages"])
                + sum(len(tool["function"]["name"]) for tool in asked.body.get("tools", []))
            }
        ),
        "/v1/chat/completions": Reply.stream(
            chunk({"role": "assistant", "content": None}, prompt_progress=progress),
            *tokens,
            chunk({}, finish_reason="stop"),
            chunk(usage=usage, timings=last),
            DONE,
        ),
    }
