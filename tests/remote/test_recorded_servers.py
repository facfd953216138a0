"""Each server's recorded answers through the real process: what it is, what was asked of it, and its figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.protocol.commands import Message
from app.protocol.events import DraftFigures
from app.protocol.options import AnswerFormat, Sampling
from tests.support import recordings, remote_streams
from tests.support.matrix import in_proof
from tests.support.model_server import Answer, ModelServer, Reply
from tests.support.remote_engine import RemoteEngine
from tests.support.remote_streams import DONE, TEXT, chunk

CHAT = "/v1/chat/completions"
HISTOGRAM = [11, 14, 11, 4, 0, 3]
ACCEPTED = [32, 18, 7, 3, 3]
"""The same, as how many passes accepted a position."""


def checked(draft: DraftFigures, **expected: Any) -> None:
    assert {name: getattr(draft, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("routes", "kind", "version", "context"),
    [
        (remote_streams.llama_server(), "llama.cpp", "b9000-0c1e570", 2048),
        (remote_streams.vllm(), "vllm", "0.29.0", 4096),
        (remote_streams.sglang(), "sglang", "0.6.1", 8192),
        (remote_streams.tensorrt({}), "tensorrt_llm", "1.2.0", 0),
        (remote_streams.tgi(), "tgi", "3.3.6", 4096),
        (remote_streams.ollama(), "ollama", "0.18.1", 16384),
        (remote_streams.lm_studio({}), "lm_studio", "", 32768),
        (remote_streams.openai(), "openai", "", 0),
    ],
)
@pytest.mark.parametrize("ending", ["", *in_proof(["/", "/v1", "/v1/chat/completions"])])
def test_each_is_recognized_and_answers(
    engine: RemoteEngine, routes: dict[str, Answer], kind: str, version: str, context: int, ending: str
) -> None:
    with ModelServer(routes) as server:
        pair = engine.connect(server.url + ending)
        assert pair.remote is not None
        assert (pair.remote.server.kind, pair.remote.server.version) == (kind, version)
        assert pair.context_length == context
        assert pair.remote.server.address == server.url
        assert pair.remote.server.is_loopback
        assert pair.remote.figures_note
        answered = engine.answer(seed=7)
        assert answered.text() == TEXT
        assert answered.finished.finish_reason == "end"
        assert answered.started.seed == 7
        assert answered.finished.figures.time_to_first_token_seconds is not None


def test_llama_server_counts_as_it_goes(engine: RemoteEngine) -> None:
    with ModelServer(remote_streams.llama_server()) as server:
        pair = engine.connect(server.url)
        answered = engine.answer()
    assert pair.target.name == "q"
    assert pair.thinking == ["off", "on"]
    assert (pair.sampling.temperature, pair.sampling.top_k) == (0.6, 20)
    assert set(pair.recommended) == {"temperature", "top_k", "penalty_window"}
    assert (answered.started.prompt_tokens, answered.started.cached_tokens) == (9, 3)
    assert [(one.done, one.total) for one in answered.progress] == [(9, 9)]
    counted = [(one.tokens, one.drafted, one.accepted, one.verify_passes) for one in answered.rounds]
    assert counted == [(1, 0, 0, 0), (3, 3, 2, 1), (2, 3, 1, 1)]
    figures = answered.finished.figures
    assert (figures.prompt_tokens, figures.cached_tokens, figures.completion_tokens) == (9, 3, 6)
    assert figures.prompt_tokens_per_second == 60.0
    checked(figures.draft, source="live", drafted=6, tested=6, accepted=3, verify_passes=2, estimated_passes=True)
    checked(figures.draft, mean_acceptance_length=2.5, accepted_per_position=[2, 1, 0], tested_per_position=[2, 2, 2])


@pytest.mark.parametrize("state", ["drafting", "plain", "keyed"])
def test_vllm_as_it_was_recorded(engine: RemoteEngine, state: str) -> None:
    """Version 0.32.0, with n-grams or without a draft: what our process makes of its words is what they say."""
    kept = json.loads(recordings.place("vllm", state).read_bytes())
    with ModelServer(recordings.routes(kept)) as server:
        pair = engine.connect(server.url)
        answered = engine.answer()
    assert pair.remote is not None and pair.context_length == 4096
    assert (pair.remote.server.version, pair.target.name) == ("0.32.0", "SmolLM2-135M-Instruct")
    assert ("min_p" in pair.remote.refused) is ("min-p" in kept) is (state != "plain")
    chunks = [json.loads(line) for line in kept["stream"] if line.startswith("{")]
    deltas = [choice["delta"] for one in chunks for choice in one["choices"]]
    assert answered.text() == "".join(one.get("content") or "" for one in deltas)
    assert answered.text(thinking=True) == "".join(one.get("reasoning") or "" for one in deltas)
    figures, usage = answered.finished.figures, chunks[-1]["usage"]
    assert (figures.prompt_tokens, figures.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    gained = [counted(kept["after"]).get(name, 0) - count for name, count in counted(kept["before"]).items()]
    drafts, drafted, accepted, *by_position = gained or [0, 0, 0]
    checked(figures.draft, source="reply" if state == "keyed" else "counters", drafted=drafted, tested=drafted)
    checked(figures.draft, accepted=accepted, verify_passes=drafts, accepted_per_position=by_position)
    assert bool(accepted) is (state != "plain")
    if state == "keyed":
        assert (
            figures.draft.mean_acceptance_length
            == chunks[-1]["metrics"]["speculative_decoding"]["mean_acceptance_length"]
        )


def counted(lines: list[str]) -> dict[str, int]:
    """vLLM's counters of drafting: drafts, draft tokens, accepted tokens, and these by position."""
    found = [line.rpartition(" ") for line in lines if line.startswith("vllm:spec_decode") and "_created" not in line]
    return {name: round(float(value)) for name, _, value in found}


@pytest.mark.parametrize(
    ("asked", "cause", "told"),
    [
        ("too long", "context", "maximum context length is 4096 tokens. However, your prompt contains at least 4097"),
        (
            "min-p",
            "refused",
            "min_p and logit_bias sampling parameters are not yet supported with speculative decoding",
        ),
        ("temperature", "refused", "(status 400). It says: temperature must be in [0, 2], got 2.5."),
        ("length", "refused", "max_tokens=10000 cannot be greater than max_model_len=4096."),
    ],
)
def test_what_vllm_refuses(engine: RemoteEngine, asked: str, cause: str, told: str) -> None:
    kept = json.loads(recordings.place("vllm", "drafting").read_bytes())
    status, body = kept[asked]
    with ModelServer({**recordings.routes(kept), CHAT: Reply.of(body, status)}) as server:
        engine.connect(server.url)
        failed = engine.answer().failed
    assert failed.cause == cause and told in failed.message


@pytest.mark.parametrize("state", ["drafting", "plain"])
def test_what_vllm_would_refuse_is_not_sent(engine: RemoteEngine, state: str) -> None:
    kept = json.loads(recordings.place("vllm", state).read_bytes())
    begun = [Message(role="user", content="?"), Message(role="assistant", content="", thinking="Hm")]
    with ModelServer(recordings.routes(kept)) as server:
        pair = engine.connect(server.url)
        engine.answer(sampling=Sampling(min_p=0.1), chosen=["min_p"], max_tokens=4096)
        engine.answer(sampling=Sampling(min_p=0.1), chosen=["min_p"], max_tokens=4095)
        failed = engine.answer(begun, continue_last=True).failed
        whole, less = server.bodies(CHAT)
    assert [body.get("min_p") for body in (whole, less)] == ([None] * 2 if state == "drafting" else [0.1] * 2)
    assert (whole.get("max_tokens"), less["max_tokens"]) == (None, 4095)
    assert failed.cause == "refused" and failed.message.startswith("vLLM can't continue an answer's thinking.")
    assert pair.remote is not None and ("drafts nothing" in pair.remote.figures_note) is (state == "plain")


@pytest.mark.parametrize(("most", "reason"), [(6, "length"), (7, "context"), (None, "context")])
def test_what_ended_an_answer(engine: RemoteEngine, most: int | None, reason: str) -> None:
    """Before its limit it was the context, which only the server counts."""
    usage = {"prompt_tokens": 4090, "completion_tokens": 6}
    ended = Reply.stream(*remote_streams.words(), chunk({}, finish_reason="length"), chunk(usage=usage), DONE)
    with ModelServer({**remote_streams.vllm(), CHAT: ended}) as server:
        engine.connect(server.url)
        assert engine.answer(max_tokens=most).finished.finish_reason == reason


@pytest.mark.parametrize("state", ["drafting", "plain", "keyed"])
def test_the_newest_llama_server_as_it_was_recorded(engine: RemoteEngine, state: str) -> None:
    """b11549."""
    kept = json.loads(recordings.place("llama.cpp", state).read_bytes())
    with ModelServer(recordings.routes(kept)) as server:
        pair = engine.connect(server.url)
        answered = engine.answer()
    assert pair.context_length == 4096 and pair.sampling.top_k == 40
    timings = json.loads(kept["stream"][-2])["timings"]
    figures = answered.finished.figures
    assert figures.completion_tokens == timings["predicted_n"]
    checked(
        figures.draft, source="live", drafted=timings.get("draft_n", 0), accepted=timings.get("draft_n_accepted", 0)
    )
    assert sum(figures.draft.accepted_per_position) == figures.draft.accepted


def test_sglang(engine: RemoteEngine) -> None:
    with ModelServer(remote_streams.sglang(remote_streams.SGLANG_DETAILS)) as server:
        engine.connect(server.url)
        answered = engine.answer()
        assert server.bodies(CHAT)[-1]["return_spec_tokens_details"] is True
    assert answered.text(thinking=True) == "Hm."
    draft = answered.finished.figures.draft
    checked(draft, source="reply", drafted=215, accepted=63, verify_passes=43, mean_acceptance_length=2.465)
    checked(draft, passes_per_accepted=HISTOGRAM, accepted_per_position=ACCEPTED)


def test_tensorrt_today_and_tomorrow(engine: RemoteEngine) -> None:
    with ModelServer(remote_streams.tensorrt(remote_streams.TENSORRT_NOW)) as server:
        engine.connect(server.url)
        draft = engine.answer(sampling=Sampling(top_k=0)).finished.figures.draft
        assert "return_progress" not in server.bodies(CHAT)[-1]
    checked(draft, source="reply", drafted=0, tested=0, mean_acceptance_length=2.46, estimated_passes=True)
    with ModelServer(remote_streams.tensorrt(remote_streams.TENSORRT_NEXT)) as server:
        engine.connect(server.url)
        draft = engine.answer().finished.figures.draft
    checked(draft, source="reply", drafted=215, accepted=63, verify_passes=43, mean_acceptance_length=2.465)


def test_tgi_counts_over_all(engine: RemoteEngine) -> None:
    counters = iter([b"10\ntgi_request_skipped_tokens_count 8", b"25\ntgi_request_skipped_tokens_count 18"])
    routes: dict[str, Answer] = {
        **remote_streams.tgi(),
        "/metrics": lambda asked: Reply([b"tgi_request_skipped_tokens_sum " + next(counters) + b"\n"]),
    }
    with ModelServer(routes) as server:
        engine.connect(server.url)
        draft = engine.answer(sampling=Sampling(top_p=1.0, top_k=9)).finished.figures.draft
        sent = server.bodies(CHAT)[-1]
    assert "top_p" not in sent and "top_k" not in sent
    checked(draft, source="counters", accepted=15, verify_passes=10, mean_acceptance_length=2.5, acceptance_rate=None)


def test_ollama_with_and_without_drafting(engine: RemoteEngine) -> None:
    with ModelServer(remote_streams.ollama()) as server:
        pair = engine.connect(server.url)
        assert pair.remote is not None
        assert pair.remote.can_switch_drafting
        assert [(one.id, one.state) for one in pair.remote.server.models] == [("q:8b", "loaded"), ("r:1b", "unloaded")]
        answered = engine.answer(thinking="off", max_tokens=5, stop=["x"], seed=3)
        engine.answer(draft_length=0)
        sent, plain = server.bodies("/api/chat")
    assert answered.text(thinking=True) == "Hm."
    assert sent["think"] is False
    assert (sent["options"]["num_predict"], sent["options"]["stop"], sent["options"]["seed"]) == (5, ["x"], 3)
    assert "draft_num_predict" not in sent["options"]
    assert plain["options"]["draft_num_predict"] == 0
    figures = answered.finished.figures
    assert (figures.prompt_tokens, figures.completion_tokens) == (26, 298)
    assert figures.prompt_tokens_per_second == pytest.approx(26 / 0.383809)
    assert figures.draft == DraftFigures(source="none")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (chunk(usage={}, metrics=remote_streams.VLLM_METRICS), {"source": "reply", "drafted": 215}),
        (chunk(sglext={"spec_tokens_details": remote_streams.SGLANG_DETAILS}), {"source": "reply", "accepted": 63}),
        (
            chunk(timings=remote_streams.timings(6, 6, 3, 9.0)),
            {"source": "live", "drafted": 6, "accepted": 3, "tested_per_position": []},
        ),
        (
            chunk(timings={**remote_streams.timings(9, 6, 3, 9.0), "draft_rounds": 4, "draft_kind": "mtp"}),
            {"source": "live", "verify_passes": 4, "estimated_passes": False},
        ),
        (chunk({}, choice=remote_streams.TENSORRT_NEXT), {"source": "reply", "verify_passes": 43}),
        (chunk(usage={"completion_tokens_details": {"accepted_prediction_tokens": 9}}), {"source": "none"}),
        (chunk(metrics={"speculative_decoding": None}), {"source": "none"}),
    ],
)
def test_figures_are_recognized_by_their_keys(engine: RemoteEngine, end: bytes, expected: dict[str, Any]) -> None:
    """A proxy may stand before any server."""
    stream = Reply.stream(*remote_streams.words(), chunk({}, finish_reason="stop"), end, DONE)
    with ModelServer({**remote_streams.openai(), CHAT: stream}) as server:
        engine.connect(server.url)
        checked(engine.answer().finished.figures.draft, **expected)


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (
            remote_streams.llama_server(is_drafting=False),
            {"source": "live", "drafted": 0, "accepted": 0, "acceptance_rate": None, "mean_acceptance_length": 1.0},
        ),
        (remote_streams.vllm(), {"source": "none", "drafted": 0, "mean_acceptance_length": None}),
        (
            remote_streams.vllm(
                {
                    "speculative_decoding": {
                        "num_draft_tokens": 5,
                        "num_accepted_draft_tokens": 0,
                        "num_spec_steps": 1,
                        "acceptance_histogram": [1],
                    }
                }
            ),
            {"source": "reply", "drafted": 5, "accepted": 0, "acceptance_rate": 0.0, "mean_acceptance_length": 1.0},
        ),
        (
            remote_streams.lm_studio(remote_streams.LM_STUDIO_STATS),
            {"source": "reply", "drafted": 60, "tested": 58, "accepted": 41, "estimated_passes": True},
        ),
        (remote_streams.lm_studio({"tokens_per_second": 51.4}), {"source": "reply", "drafted": 0, "tested": 0}),
    ],
)
def test_figures_of_servers(engine: RemoteEngine, routes: dict[str, Answer], expected: dict[str, Any]) -> None:
    with ModelServer(routes) as server:
        pair = engine.connect(server.url)
        checked(engine.answer().finished.figures.draft, **expected)
    assert pair.remote is not None
    assert [one.id for one in pair.remote.server.models] in (["/models/q.gguf"], ["m"], ["l"])


# ------------------------------------------------------------ what is sent


def test_only_what_was_chosen_is_sent(engine: RemoteEngine) -> None:
    sampling = Sampling(temperature=0.5, top_k=0, repetition_penalty=1.1, penalty_window=32)
    with ModelServer(remote_streams.llama_server()) as server:
        engine.connect(server.url)
        engine.answer(sampling=sampling, chosen=["temperature", "penalty_window"], seed=5, stop=["\n"], max_tokens=9)
        engine.answer(sampling=sampling)
        sent, everything = server.bodies(CHAT)
    assert (sent["temperature"], sent["repeat_last_n"], sent["seed"], sent["stop"]) == (0.5, 32, 5, ["\n"])
    assert (sent["max_tokens"], sent["stream"], sent["timings_per_token"]) == (9, True, True)
    assert not {"top_k", "top_p", "min_p", "repeat_penalty"} & set(sent)
    assert (everything["top_k"], everything["repeat_penalty"]) == (0, 1.1)


def test_thinking(engine: RemoteEngine) -> None:
    with ModelServer(remote_streams.llama_server()) as server:
        engine.connect(server.url)
        for level in ("off", "on", ""):
            engine.answer(thinking=level, thinking_budget=9)
        off, on, neither = server.bodies(CHAT)
    assert off["chat_template_kwargs"] == {"enable_thinking": False}
    assert on["chat_template_kwargs"] == {"enable_thinking": True}
    assert "chat_template_kwargs" not in neither
    assert neither["thinking_budget_tokens"] == 9


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AnswerFormat(kind="json_object"), {"response_format": {"type": "json_object"}}),
        (
            AnswerFormat(kind="json_schema", source='{"type": "object"}'),
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}},
                }
            },
        ),
        (AnswerFormat(kind="gbnf", source='root ::= "a"'), {"grammar": 'root ::= "a"'}),
    ],
)
def test_formats(engine: RemoteEngine, wanted: AnswerFormat, expected: dict[str, Any]) -> None:
    with ModelServer(remote_streams.llama_server()) as server:
        engine.connect(server.url)
        engine.answer(format=wanted)
        sent = server.bodies(CHAT)[-1]
    assert {name: sent[name] for name in expected} == expected


def test_continuing(engine: RemoteEngine) -> None:
    begun = [Message(role="user", content="a"), Message(role="assistant", content="Two", thinking="Hm.")]
    thought = [begun[0], Message(role="assistant", content="", thinking="Hm.")]
    with ModelServer(remote_streams.llama_server()) as server:
        engine.connect(server.url)
        engine.answer(begun, continue_last=True)
        engine.answer(thought, continue_last=True)
        one, other = server.bodies(CHAT)
        assert engine.answer(begun[:1], continue_last=True).failed.cause == "refused"
    assert (one["continue_final_message"], one["add_generation_prompt"]) == (True, False)
    assert one["messages"][-1] == {"role": "assistant", "content": "Two", "reasoning_content": "Hm."}
    assert other["continue_final_message"] == "reasoning_content"
    with ModelServer(remote_streams.openai()) as server:
        pair = engine.connect(server.url)
        assert pair.remote is not None and not pair.remote.can_continue
        assert engine.answer(begun, continue_last=True).failed.cause == "refused"
