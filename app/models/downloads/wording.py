"""The text about downloads, for the window and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from app.models.downloads.item import ItemProgress, ItemState
from app.models.text import size_text

_NO_BREAK = "\u00a0"
_STATES = {
    ItemState.QUEUED: "waiting",
    ItemState.PAUSED: "paused",
    ItemState.CANCELED: "canceled; downloaded parts are kept",
    ItemState.FAILED: "stopped",
    ItemState.DONE: "Complete · checksum verified",
}


def figures(progress: ItemProgress) -> str:
    """``1.2 of 5 GB · 34 MB/s · 2 min left``, ``5 GB · Complete · checksum verified``."""
    total = size_text(progress.item.size)
    parts = [total if progress.state is ItemState.DONE else f"{size_text(progress.done)} of {total}"]
    if progress.state is ItemState.RUNNING:
        if progress.speed is not None:
            parts.append(f"{size_text(round(progress.speed))}/s")
        if progress.seconds_left is not None:
            parts.append(f"{duration(progress.seconds_left)} left")
    elif progress.state is ItemState.WAITING:
        when = "" if progress.retry_in is None else f" in {duration(progress.retry_in)}"
        parts.append(f"retrying{when} (attempt {progress.attempt + 1})")
    else:
        parts.append(_STATES[progress.state])
    return " · ".join(parts)


def summary(items: Sequence[ItemProgress]) -> str:
    """``2 running, 1 paused · 34 MB/s``."""
    counted = (
        ("running", (ItemState.RUNNING, ItemState.WAITING)),
        ("waiting", (ItemState.QUEUED,)),
        ("paused", (ItemState.PAUSED, ItemState.CANCELED)),
        ("stopped", (ItemState.FAILED,)),
        ("done", (ItemState.DONE,)),
    )
    numbers = [(sum(one.state in states for one in items), word) for word, states in counted]
    parts = [", ".join(f"{number} {word}" for number, word in numbers if number)]
    speed = sum(one.speed or 0.0 for one in items if one.state is ItemState.RUNNING)
    if speed:
        parts.append(f"{size_text(round(speed))}/s")
    return " · ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """``40 s``, ``2 min``, ``1 h 20 min``; coarse, because it is an estimate."""
    if seconds < 59.5:
        return f"{max(round(seconds), 1)}{_NO_BREAK}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}{_NO_BREAK}min"
    hours, minutes = divmod(round(minutes, -1) if minutes >= 600 else minutes, 60)
    return f"{hours}{_NO_BREAK}h" + (f" {minutes}{_NO_BREAK}min" if minutes and hours < 10 else "")
