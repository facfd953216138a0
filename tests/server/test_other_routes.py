"""Completions, tokens, the model, counters."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.served import Json, Served, events


def test_health_and_models(server: Served) -> None:
    assert server.get("/health").json() == server.get("/v1/health").json() == {"status": "ok"}
    models = server.get("/v1/models").json()
    assert models == server.get("/models").json()
    (model,) = models["data"]
    assert (model["id"], model["object"], model["owned_by"]) == ("endless", "model", "slipstream")
    assert model["meta"]["n_ctx"] == 8192 and model["meta"]["n_ctx_train"] == 32_768
    assert server.get("/v1/models/endless").json() == model
    assert server.get("/v1/models/%65ndless").json() == model  # as clients write other characters
    assert server.get("/v1/models/other").status_code == 404


def test_props_without_a_path(server: Served, endless_pair: tuple[Path, Path]) -> None:
    answer = server.get("/props")
    props = answer.json()
    assert props["default_generation_settings"]["n_ctx"] == 8192 and props["total_slots"] == 1
    assert "enable_thinking" in props["chat_template"]
    assert (props["bos_token"], props["eos_token"]) == ("<s>", "</s>")
    assert props["model_path"] == "endless.gguf" and props["slipstream"]["draft"] == "draft"
    assert props["slipstream"]["template_variables"] == ["enable_thinking"]
    assert str(endless_pair[0].parent) not in answer.text


def test_completions(server: Served) -> None:
    answer = server.post("/v1/completions", {"prompt": "yes</think>", "max_tokens": 5}).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" yes no.", "stop")
    assert answer["object"] == "text_completion" and answer["timings"]["predicted_n"] == 4
    stream = {"prompt": ["yes</think>"], "stream": True, "stream_options": {"include_usage": True}}
    *parts, last = events(server.post("/v1/completions", stream).content)
    assert "".join(part["choices"][0]["text"] for part in parts) == " yes no."
    assert last["usage"]["completion_tokens"] == 4


def test_completions_that_are_refused(server: Served) -> None:
    unsupported: list[Json] = [{"echo": True}, {"suffix": "x"}, {"prompt": ["a", "b"]}, {"prompt": [1, 2]}]
    wrong: list[Json] = [{"prompt": {}}, {"prompt": None}]
    for fields, code in [*((one, 501) for one in unsupported), *((one, 400) for one in wrong)]:
        answer = server.post("/v1/completions", {"prompt": "yes", "max_tokens": 3, **fields})
        assert answer.status_code == code, fields


def test_tokens(server: Served) -> None:
    plain = server.post("/tokenize", {"content": "so</think>"}).json()
    assert plain["count"] == len(plain["tokens"]) and plain["max_model_len"] == 8192
    with_bos = server.post("/tokenize", {"prompt": "so</think>", "add_special": True}).json()
    assert with_bos["tokens"] == [1, *plain["tokens"]]
    pieces = server.post("/tokenize", {"content": "so é", "with_pieces": True}).json()["tokens"]
    spelled = b"".join(
        bytes(one["piece"]) if isinstance(one["piece"], list) else one["piece"].encode() for one in pieces
    )
    assert spelled.decode() == "so é"
    assert server.post("/tokenize", {}).status_code == 400
    assert server.post("/tokenize", {"content": "x" * 1_000_001}).status_code == 400


def test_counters(server: Served) -> None:
    def counters() -> dict[str, float]:
        answer = server.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", answer.text, re.MULTILINE)}

    server.chat(max_tokens=1)  # whatever was asked before is over
    before = counters()
    answer = server.chat(max_tokens=80, temperature=0.0)
    after = counters()

    def grown(name: str) -> float:
        return after[name] - before[name]

    tested, accepted = answer["timings"]["draft_n"], answer["timings"]["draft_n_accepted"]
    label = '{model_name="endless"}'
    assert grown("llamacpp:tokens_predicted_total") == grown(f"vllm:generation_tokens_total{label}") == 80
    assert grown("llamacpp:spec_decode_num_draft_tokens_total") == tested
    assert grown(f"vllm:spec_decode_num_accepted_tokens_total{label}") == accepted
    assert grown('vllm:request_success_total{model_name="endless",finished_reason="length"}') == 1
    by_position = [
        value for name, value in after.items() if name.startswith("llamacpp:spec_decode_num_accepted_tokens_per_pos")
    ]
    assert sum(by_position) == after["llamacpp:spec_decode_num_accepted_tokens_total"]
    assert (
        after[f"vllm:time_to_first_token_seconds_count{label}"]
        == after['vllm:time_to_first_token_seconds_bucket{model_name="endless",le="+Inf"}']
    )
    assert after["llamacpp:requests_processing"] == 0
