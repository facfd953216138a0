"""One part of a streamed answer, whoever sent it: all fields are optional, and of any type but the expected one they
aren't there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.remote.failures import RemoteError, reported
from app.remote.figures import ServerFigures, in_reply
from app.remote.values import first, mapping, number, parsed, real, text

_NANOSECONDS = 1e-9


@dataclass(frozen=True)
class Usage:
    """Counts of tokens; ``None``: not sent."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    thinking: int | None = None


@dataclass(frozen=True)
class Part:
    """What one line of an answer says."""

    text: str = ""
    thinking: str = ""
    finish: str = ""
    """Why it ended, in the server's word."""
    stop: str = ""
    """The stop string that was found."""
    usage: Usage | None = None
    pass_mark: float | None = None
    """Of llama-server: the decoding time so far, which is the same for all tokens of a verify pass."""
    prompt_speed: float | None = None
    """Tokens of the prompt per second, by the server's clock."""
    progress: tuple[int, int] | None = None
    """Tokens of the prompt that are processed, and all of them."""
    cached: int | None = None
    """How many of them were in the server's cache, while the prompt is being processed."""
    figures: ServerFigures | None = None
    error: RemoteError | None = None


def part_of(data: bytes, host: str) -> Part | None:
    """What a line says; ``None`` if it is no object."""
    root = parsed(data)
    if not isinstance(root, dict):
        return None
    if root.get("error"):
        return Part(error=reported(root, 0, host))
    if text(root.get("object")) == "error":
        return Part(error=reported(root, 0, host))
    choice = first(root.get("choices"))
    # Ollama's own API has a message instead of choices, and so has an answer that isn't streamed.
    delta = mapping(choice.get("delta")) or mapping(choice.get("message")) or mapping(root.get("message"))
    timings, progress = mapping(root.get("timings")), mapping(root.get("prompt_progress"))
    total, processed = number(progress.get("total")), number(progress.get("processed"))
    return Part(
        text=_words(delta.get("content")) or text(choice.get("text")),
        thinking=text(delta.get("reasoning_content")) or text(delta.get("reasoning")) or text(delta.get("thinking")),
        finish=text(choice.get("finish_reason")) or _ollama_end(root),
        stop=text(choice.get("stop_reason")) or text(choice.get("matched_stop")),
        usage=_usage(root, timings),
        pass_mark=real(timings.get("predicted_ms")) if timings.get("predicted_n") else None,
        prompt_speed=real(timings.get("prompt_per_second")) or _ollama_prompt_speed(root),
        progress=None if total is None or processed is None else (min(processed, total), total),
        cached=number(progress.get("cache")),
        figures=in_reply(root, choice),
    )


def _words(content: object) -> str:
    """A delta's content, which some send in parts."""
    if isinstance(content, list):
        return "".join(text(mapping(one).get("text")) for one in content)
    return text(content)


def _usage(root: dict[str, Any], timings: dict[str, Any]) -> Usage | None:
    usage = mapping(root.get("usage"))
    if usage:
        return Usage(
            prompt=number(usage.get("prompt_tokens")),
            completion=number(usage.get("completion_tokens")),
            cached=number(mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
            thinking=number(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        )
    if timings:
        cached, processed = number(timings.get("cache_n")), number(timings.get("prompt_n"))
        prompt = None if cached is None or processed is None else cached + processed
        return Usage(prompt=prompt, completion=number(timings.get("predicted_n")), cached=cached)
    if root.get("done") is True:
        return Usage(prompt=number(root.get("prompt_eval_count")), completion=number(root.get("eval_count")))
    return None


def _ollama_end(root: dict[str, Any]) -> str:
    return (text(root.get("done_reason")) or "stop") if root.get("done") is True else ""


def _ollama_prompt_speed(root: dict[str, Any]) -> float | None:
    tokens, taken = number(root.get("prompt_eval_count")), number(root.get("prompt_eval_duration"))
    return tokens / (taken * _NANOSECONDS) if tokens and taken else None
