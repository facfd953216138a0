"""The figures of an answer in three dialects: llama-server's, vLLM's and ours."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from app.protocol.events import DraftFigures, Figures
from app.protocol.statistics import exported, exported_acceptance_by_position


def usage(figures: Figures) -> dict[str, Any]:
    """OpenAI's counts of tokens."""
    return {
        "prompt_tokens": figures.prompt_tokens,
        "completion_tokens": figures.completion_tokens,
        "total_tokens": figures.prompt_tokens + figures.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": figures.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": figures.thinking_tokens},
    }


def timings(figures: Figures) -> dict[str, Any]:
    """llama-server's; without ``draft_n`` where nothing was drafted, as there."""
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
    """vLLM's ``metrics`` of a request; without ``speculative_decoding`` where nothing was drafted."""
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
    """What `app.protocol.statistics` defines. ``speed_up_estimate`` is the decode speed ÷ that of plain passes as they
    were measured when the pair was loaded, with an empty context; ``plain_pass_seconds`` is 0 if that wasn't measured.
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
    """Entry i: verify passes that accepted exactly i tokens; their sum is the number of all passes."""
    at_least = [draft.verify_passes, *draft.accepted_per_position]
    return [more - fewer for more, fewer in pairwise([*at_least, 0])]


def _timed(name: str, tokens: int, steps: int, speed: float | None) -> dict[str, Any]:
    """``speed`` in tokens per second over ``steps`` of them: an answer's first token comes from its prompt."""
    per_token = 1e3 / speed if speed else 0.0
    return {
        f"{name}_n": tokens,
        f"{name}_ms": max(steps, 0) * per_token,
        f"{name}_per_token_ms": per_token,
        f"{name}_per_second": speed or 0.0,
    }


def _milliseconds(seconds: float) -> float:
    return 1e3 * max(seconds, 0.0)
