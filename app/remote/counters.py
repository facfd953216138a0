"""Counters of a server over all its answers (``/metrics``), where it says nothing about a single one.

Their difference before and after an answer is that answer's only if nobody else asked the server in between, so it is
marked as the server's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import zip_longest

from app.protocol.remote import ServerKind
from app.remote.failures import RemoteError
from app.remote.figures import ServerFigures
from app.remote.http import Http

_MOST_LINES = 100_000
_POSITION = re.compile(r'\bposition="(\d{1,3})"')
_VLLM = {
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:spec_decode_num_drafts_total": "passes",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "by_position",
    "vllm:num_requests_running": "",  # there even without drafting
}
_TGI = {"tgi_request_skipped_tokens_sum": "accepted", "tgi_request_skipped_tokens_count": "passes"}
_NAMES: dict[ServerKind, dict[str, str]] = {"vllm": _VLLM, "tgi": _TGI}


@dataclass(frozen=True)
class Counters:
    """Since the server was started."""

    drafted: float = 0.0
    accepted: float = 0.0
    passes: float = 0.0
    by_position: tuple[float, ...] = ()
    """Accepted tokens at position 1, 2, …"""
    is_drafting: bool = False
    """Whether the server has counters of drafting at all."""


async def read(http: Http, kind: ServerKind) -> Counters | None:
    """The counters now; ``None`` if the server has none, or doesn't show them."""
    names = _NAMES.get(kind)
    if names is None:
        return None
    try:
        answer = await http.get("/metrics")
    except RemoteError:
        return None
    return parse(answer.body.decode("utf-8", "replace"), names) if answer.status == 200 else None


def parse(content: str, names: dict[str, str]) -> Counters | None:
    """Prometheus' text format; counters of several engines are added up."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in content.splitlines()[:_MOST_LINES]:
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if (ours := names.get(name.strip())) is None:
            continue
        try:
            value = float(rest.rpartition("}")[2].split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(value) and ours != "by_position":
            sums[ours] = sums.get(ours, 0.0) + value
        elif math.isfinite(value) and (found := _POSITION.search(rest)):
            positions[int(found[1])] = positions.get(int(found[1]), 0.0) + value
    if not sums:
        return None
    by_position = tuple(positions.get(place, 0.0) for place in range(max(positions, default=-1) + 1))
    sums.pop("", None)
    return Counters(**sums, by_position=by_position, is_drafting=bool(sums))


def between(before: Counters | None, after: Counters | None) -> ServerFigures | None:
    """What was counted in between; ``None`` if that isn't known, for example because the server was started anew."""
    if before is None or after is None:
        return None
    drafted, accepted = after.drafted - before.drafted, after.accepted - before.accepted
    passes = after.passes - before.passes
    positions = [new - old for new, old in zip_longest(after.by_position, before.by_position, fillvalue=0.0)]
    if min(drafted, accepted, passes, *positions) < 0:
        return None
    return ServerFigures(
        drafted=round(drafted),
        accepted=round(accepted),
        tested=round(drafted),
        passes=round(passes),
        by_position=tuple(map(round, positions)),
        source="counters",
    )
