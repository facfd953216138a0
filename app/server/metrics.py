"""Figures of an answer in several dialects, counters since the start, and a record of each request."""

from __future__ import annotations

import logging
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from app.protocol.events import DraftFigures, Figures, GenerationFinished
from app.protocol.options import FinishReason
from app.protocol.serving import RequestEnded
from app.protocol.statistics import exported, exported_acceptance_by_position
from app.server.fields import Warnings
from app.server.guard import ApiError, Headers

_FIRST_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
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
    """Counters since the start.

    Attributes:
        running: Answers being written: 0 or 1.
        waiting: Requests waiting for their turn.
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
        """All counters in Prometheus's format; ``model`` is vLLM's label."""
        name, about = "slipstream:requests_refused_total", "Requests that got 429"
        refused = _single(name, about, "counter", self.refused)
        return "\n".join([*self._as_llama_server(), *self._as_vllm(model), *refused, ""])

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

    def _positions(self, name: str, label: str) -> Iterator[str]:
        """Empty before the first draft."""
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


def usage(figures: Figures) -> dict[str, Any]:
    """OpenAI's token counts."""
    return {
        "prompt_tokens": figures.prompt_tokens,
        "completion_tokens": figures.completion_tokens,
        "total_tokens": figures.prompt_tokens + figures.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": figures.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": figures.thinking_tokens},
    }


def timings(figures: Figures) -> dict[str, Any]:
    """llama-server's ``timings``; like there, without ``draft_n`` if nothing was drafted."""
    processed, written = figures.prompt_tokens - figures.cached_tokens, figures.completion_tokens
    found = {
        "cache_n": figures.cached_tokens,
        **_timed("prompt", processed, processed, figures.prompt_tokens_per_second),
        **_timed("predicted", written, written - 1, figures.decode_tokens_per_second),
    }
    if figures.draft.tested:
        found |= {"draft_n": figures.draft.tested, "draft_n_accepted": figures.draft.accepted}
    return found


def vllm_metrics(figures: Figures) -> dict[str, Any]:
    """vLLM's ``metrics`` of a request; without ``speculative_decoding`` if nothing was drafted."""
    speed = figures.decode_tokens_per_second
    first = figures.time_to_first_token_seconds
    found: dict[str, Any] = {
        "time_to_first_token_ms": None if first is None else _milliseconds(first),
        "generation_time_ms": None if first is None else _milliseconds(figures.total_seconds - first),
        "mean_itl_ms": _milliseconds(1 / speed) if speed else None,
        "tokens_per_second": speed,
    }
    draft = figures.draft
    if draft.tested:
        found["speculative_decoding"] = {
            "mean_acceptance_length": draft.mean_acceptance_length,
            "draft_acceptance_rate": draft.acceptance_rate,
            "acceptance_histogram": acceptance_histogram(draft),
            "num_spec_steps": draft.verify_passes,
            "num_accepted_draft_tokens": draft.accepted,
            "num_draft_tokens": draft.tested,
            "num_spec_tokens": len(draft.tested_per_position),
        }
    return found


def own_figures(figures: Figures, seed: int, plain_pass_seconds: float) -> dict[str, Any]:
    """The figures of `app.protocol.statistics`. ``speed_up_estimate`` is the decode speed ÷ that of plain passes with
    an empty context, measured when the pair was loaded; ``plain_pass_seconds`` 0: not measured.
    """
    draft, speed = figures.draft, figures.decode_tokens_per_second
    return {
        "seed": seed,
        **exported(draft),
        "acceptance_by_position": exported_acceptance_by_position(draft),
        "drafters": msgspec.to_builtins(draft.drafters),
        "time_to_first_token_s": figures.time_to_first_token_seconds,
        "decode_tokens_per_second": speed,
        "speed_up_estimate": speed * plain_pass_seconds if speed and plain_pass_seconds else None,
        "draft_s": figures.draft_seconds,
        "verify_s": figures.verify_seconds,
        "other_s": figures.other_seconds,
        "total_s": figures.total_seconds,
        "thinking_tokens": figures.thinking_tokens,
    }


def acceptance_histogram(draft: DraftFigures) -> list[int]:
    """Entry i: the number of verify passes that accepted exactly i tokens."""
    at_least = [draft.verify_passes, *draft.accepted_per_position]
    return [more - fewer for more, fewer in pairwise([*at_least, 0])]


def _timed(name: str, tokens: int, steps: int, speed: float | None) -> dict[str, Any]:
    """``speed`` is over ``steps`` tokens, because an answer's first token comes from its prompt."""
    per_token = 1e3 / speed if speed else 0.0
    return {
        f"{name}_n": tokens,
        f"{name}_ms": max(steps, 0) * per_token,
        f"{name}_per_token_ms": per_token,
        f"{name}_per_second": speed or 0.0,
    }


def _milliseconds(seconds: float) -> float:
    return 1e3 * max(seconds, 0.0)


_log = logging.getLogger("slipstream.server")
_CLIENT = re.compile(rb"[A-Za-z0-9._+-]{1,40}(?:/[A-Za-z0-9._+-]{1,20})?")

OnEnded = Callable[[RequestEnded], None]


class Record:
    """Logs and reports how one request went, without any of its text."""

    def __init__(self, path: str, client: str, on_ended: OnEnded) -> None:
        """``path``: empty if it isn't one of ours."""
        self._path = path
        self._client = client
        self._on_ended = on_ended
        self._begun = time.monotonic()
        self._has_ended = False

    def finished(self, event: GenerationFinished, warnings: Warnings) -> None:
        """An answer was written, perhaps with ``warnings``."""
        if warnings.sentences:
            _log.info("%s %s: %s", self._path, self._client, warnings.for_log)
        figures, seconds = event.figures, time.monotonic() - self._begun
        _log.info(
            "%s %s: %d + %d tokens in %.1f s, %s",
            self._path,
            self._client,
            figures.prompt_tokens,
            figures.completion_tokens,
            seconds,
            event.finish_reason,
        )
        self._end(200, figures.prompt_tokens, figures.completion_tokens)

    def refused(self, error: ApiError) -> None:
        """The request was refused or failed."""
        _log.info("%s %s: %d %s", self._path or "an unknown path", self._client, error.status, error.kind)
        self._end(error.status)

    def answered(self) -> None:
        """The request got a whole answer."""
        self._end(200)

    def left(self) -> None:
        """Nothing more is sent; unless the end was recorded before, the client left early."""
        self._end(0)

    def _end(self, status: int, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        ended = RequestEnded(
            path=self._path,
            client=self._client,
            status=status,
            seconds=time.monotonic() - self._begun,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )
        self._on_ended(ended)


def client_of(headers: Headers) -> str:
    """The client's name for itself; ``?`` without a presentable one."""
    agent = next((value for name, value in headers if name == b"user-agent"), b"")
    match = _CLIENT.match(agent)
    return match.group().decode() if match else "?"
