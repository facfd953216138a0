"""Counters since the start in the format of Prometheus, under llama-server's names and under vLLM's."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from app.protocol.events import Figures, GenerationFinished
from app.protocol.options import FinishReason

_FIRST_TOKEN_BUCKETS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
)
_REQUEST_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0)
_REASONS: dict[FinishReason, str] = {
    "end": "stop",
    "stop_string": "stop",
    "length": "length",
    "context": "length",
    "cancelled": "abort",
}
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Histogram:
    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...]) -> None:
        self._name, self._help, self._bounds = name, help_text, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, label: str) -> Iterator[str]:
        yield f"# HELP {self._name} {self._help}"
        yield f"# TYPE {self._name} histogram"
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{self._name}_bucket{{{label},le="{bound}"}} {total}'
        yield f"{self._name}_sum{{{label}}} {self._sum}"
        yield f"{self._name}_count{{{label}}} {total}"


class Metrics:
    """What happened since the start.

    Attributes:
        running: Answers that are being written: 0 or 1.
        waiting: Requests that wait for their turn.
        refused: Requests that got 429.
    """

    def __init__(self) -> None:
        self.running = self.waiting = self.refused = 0
        self._counts: Counter[str] = Counter()
        self._seconds = {"prompt": 0.0, "predicted": 0.0}
        self._longest = 0
        self._finished: Counter[str] = Counter()
        self._per_position: Counter[int] = Counter()
        self._last: Figures | None = None
        self._first_token = _Histogram(
            "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", _FIRST_TOKEN_BUCKETS
        )
        self._request = _Histogram(
            "vllm:e2e_request_latency_seconds", "Histogram of request latency in seconds.", _REQUEST_BUCKETS
        )

    def count(self, finished: GenerationFinished) -> None:
        """Count an answer."""
        figures, draft = finished.figures, finished.figures.draft
        processed = figures.prompt_tokens - figures.cached_tokens
        self._last = figures
        self._finished[_REASONS[finished.finish_reason]] += 1
        self._counts.update(
            processed=processed,
            cached=figures.cached_tokens,
            predicted=figures.completion_tokens,
            passes=draft.verify_passes,
            tested=draft.tested,
            accepted=draft.accepted,
            drafts=draft.tested_per_position[0] if draft.tested_per_position else 0,
        )
        if figures.prompt_tokens_per_second:
            self._seconds["prompt"] += processed / figures.prompt_tokens_per_second
        if figures.decode_tokens_per_second:
            self._seconds["predicted"] += figures.completion_tokens / figures.decode_tokens_per_second
        self._longest = max(self._longest, figures.prompt_tokens + figures.completion_tokens)
        self._per_position.update(dict(enumerate(draft.accepted_per_position)))
        if figures.time_to_first_token_seconds is not None:
            self._first_token.add(figures.time_to_first_token_seconds)
        self._request.add(figures.total_seconds)

    def text(self, model: str) -> str:
        """All of them; ``model`` is vLLM's label."""
        return "\n".join([*self._as_llama_server(), *self._as_vllm(model), *self._own(), ""])

    def _as_llama_server(self) -> Iterator[str]:
        counts, last = self._counts, self._last or Figures()
        totals: tuple[tuple[str, str, float], ...] = (
            ("prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens", counts["processed"]),
            ("prompt_tokens_cached_total", "Number of prompt tokens reused from the cache", counts["cached"]),
            ("prompt_seconds_total", "Total time spent processing prompts", self._seconds["prompt"]),
            ("tokens_predicted_total", "Number of generation tokens processed", counts["predicted"]),
            ("tokens_predicted_seconds_total", "Total time spent generating tokens", self._seconds["predicted"]),
            ("n_decode_total", "Total number of passes of the target over answers", counts["passes"]),
            ("n_tokens_max", "Largest observed sequence length (prompt + generation)", self._longest),
            ("spec_decode_num_draft_tokens_total", "Draft tokens that were tested", counts["tested"]),
            ("spec_decode_num_accepted_tokens_total", "Draft tokens that were accepted", counts["accepted"]),
            ("spec_decode_num_drafts_total", "Drafts that were tested", counts["drafts"]),
        )
        for name, help_text, value in totals:
            yield from _single(f"llamacpp:{name}", help_text, "counter", value)
        gauges: tuple[tuple[str, str, float], ...] = (
            ("prompt_tokens_seconds", "Prompt throughput in tokens/s", last.prompt_tokens_per_second or 0),
            ("predicted_tokens_seconds", "Generation throughput in tokens/s", last.decode_tokens_per_second or 0),
            ("requests_processing", "Number of requests processing", self.running),
            ("requests_deferred", "Number of requests deferred", self.waiting),
            ("n_busy_slots_per_decode", "Average number of busy slots per pass", 1 if counts["passes"] else 0),
        )
        for name, help_text, value in gauges:
            yield from _single(f"llamacpp:{name}", help_text, "gauge", value)
        yield from self._positions("llamacpp:spec_decode_num_accepted_tokens_per_pos_total", "")

    def _as_vllm(self, model: str) -> Iterator[str]:
        counts, label = self._counts, f'model_name="{_escaped(model)}"'
        for name, help_text, kind, value in (
            ("num_requests_running", "Number of requests being answered", "gauge", self.running),
            ("num_requests_waiting", "Number of requests waiting", "gauge", self.waiting),
            ("prompt_tokens_total", "Number of prompt tokens", "counter", counts["processed"] + counts["cached"]),
            ("generation_tokens_total", "Number of generated tokens", "counter", counts["predicted"]),
            (
                "prefix_cache_queries_total",
                "Prompt tokens looked for in the cache",
                "counter",
                counts["processed"] + counts["cached"],
            ),
            ("prefix_cache_hits_total", "Prompt tokens found in the cache", "counter", counts["cached"]),
            ("spec_decode_num_drafts_total", "Number of drafts", "counter", counts["drafts"]),
            ("spec_decode_num_draft_tokens_total", "Number of draft tokens", "counter", counts["tested"]),
            ("spec_decode_num_accepted_tokens_total", "Number of accepted tokens", "counter", counts["accepted"]),
        ):
            yield from _single(f"vllm:{name}", help_text, kind, value, label)
        yield from self._positions("vllm:spec_decode_num_accepted_tokens_per_pos_total", f"{label},")
        yield "# HELP vllm:request_success_total Count of finished requests"
        yield "# TYPE vllm:request_success_total counter"
        for reason in sorted(set(_REASONS.values())):
            yield f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {self._finished[reason]}'
        yield from self._first_token.lines(label)
        yield from self._request.lines(label)

    def _own(self) -> Iterator[str]:
        yield from _single("slipstream:requests_refused_total", "Requests that got 429", "counter", self.refused)

    def _positions(self, name: str, label: str) -> Iterator[str]:
        """Nothing before the first draft."""
        if self._per_position:
            yield f"# HELP {name} Accepted draft tokens by position"
            yield f"# TYPE {name} counter"
        for position, accepted in sorted(self._per_position.items()):
            yield f'{name}{{{label}position="{position}"}} {accepted}'


def _single(name: str, help_text: str, kind: str, value: float, label: str = "") -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{label}}} {value}" if label else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
