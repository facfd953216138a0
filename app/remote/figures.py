"""Drafting figures that servers send, with each reply or as counters over all answers.

| server | where | verify passes |
|---|---|---|
| Slipstream | ``slipstream`` at the root | sent |
| llama-server, mlx-vlm | ``timings`` | worked out; mlx-vlm sends its rounds |
| vLLM | ``metrics.speculative_decoding`` | sent |
| SGLang | ``sglext.spec_tokens_details`` | sent |
| TensorRT-LLM | ``speculative_decoding`` of the choice; before that only ``avg_decoded_tokens_per_iter`` | sent |
| LM Studio | ``stats`` | worked out |

``accepted_prediction_tokens`` in OpenAI's ``usage`` means something else and is ignored.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.protocol.events import DraftFigures
from app.protocol.remote import FiguresFrom, ServerKind
from app.protocol.statistics import drafting
from app.remote.http import Http, RemoteError, counts, mapping, number, real

_VLLM = (
    "num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps", "mean_acceptance_length", "acceptance_histogram"
)  # fmt: skip
_SGLANG = (
    "spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_verify_ct", "spec_accept_length",
    "spec_correct_drafts_histogram",
)  # fmt: skip
_TENSORRT = "total_draft_tokens", "total_accepted_draft_tokens", "num_spec_steps", "", "acceptance_histogram"


@dataclass(frozen=True)
class ServerFigures:
    """The counters of one reply, as the server sent them; ``None``: not sent."""

    drafted: int
    accepted: int
    tested: int
    passes: int | None = None
    mean_length: float | None = None
    histogram: tuple[int, ...] = ()
    """Passes that accepted 0, 1, 2, … tokens."""
    by_position: tuple[int, ...] = ()
    """Tokens accepted at position 1, 2, …, if sent instead of a histogram."""
    source: FiguresFrom = "reply"

    def draft_figures(self, tokens: int, least_passes: int = 0) -> DraftFigures:
        """The figures to show and store. ``tokens``: the whole answer's.

        If the number of passes isn't sent, it is worked out: each pass emits the tokens it accepts and one more, and
        the first token needs no pass. The last pass may emit fewer; ``least_passes``, the number observed, covers that.
        """
        length, passes = self.mean_length, self.passes
        if passes is None and length and not self.tested:
            passes = round(tokens / length)
        elif passes is None:
            passes = max(tokens - 1 - self.accepted, least_passes, 1 if self.tested else 0)
        return drafting(
            self.drafted,
            self.tested,
            self.accepted,
            passes,
            **({"mean_acceptance_length": length} if length is not None else {}),
            accepted_per_position=list(self.by_position)
            or [sum(self.histogram[place:]) for place in range(1, len(self.histogram))],
            passes_per_accepted=list(self.histogram),
            source=self.source,
            estimated_passes=self.passes is None,
        )


def in_reply(root: dict[str, Any], choice: dict[str, Any]) -> ServerFigures | None:
    """The figures in one chunk of a reply, if any."""
    for read, place in (
        (_of_slipstream, root.get("slipstream")),
        (_of_timings, root.get("timings")),
        (partial(_by_keys, _VLLM), mapping(root.get("metrics")).get("speculative_decoding")),
        (partial(_by_keys, _SGLANG), mapping(root.get("sglext")).get("spec_tokens_details")),
        (_of_tensorrt, choice),
        (_of_lm_studio, root.get("stats")),
    ):
        if (found := mapping(place)) and (figures := read(found)) is not None:
            return figures
    return None


def _of_slipstream(found: dict[str, Any]) -> ServerFigures | None:
    drafted, accepted = number(found.get("drafted")), number(found.get("accepted"))
    if drafted is None or accepted is None:
        return None
    return ServerFigures(
        drafted=drafted,
        accepted=accepted,
        tested=_or(number(found.get("tested")), drafted),
        passes=number(found.get("verify_passes")),
        source="live",
    )


def _of_timings(found: dict[str, Any]) -> ServerFigures | None:
    """``predicted_n`` without ``draft_n`` means that nothing was drafted."""
    drafted, accepted = number(found.get("draft_n")), number(found.get("draft_n_accepted"))
    if drafted is None and number(found.get("predicted_n")) is None:
        return None
    return ServerFigures(
        drafted=drafted or 0,
        accepted=accepted or 0,
        tested=drafted or 0,
        passes=number(found.get("draft_rounds")),
        source="live",
    )


def _by_keys(keys: tuple[str, ...], found: dict[str, Any]) -> ServerFigures | None:
    """Figures under five keys: drafted and accepted tokens, passes, tokens per pass, histogram."""
    drafted, accepted, passes, length, histogram = map(found.get, keys)
    if (count := number(drafted)) is None:
        return None
    return ServerFigures(
        drafted=count,
        accepted=_or(number(accepted), 0),
        tested=count,
        passes=number(passes),
        mean_length=real(length),
        histogram=tuple(counts(histogram)),
    )


def _of_tensorrt(choice: dict[str, Any]) -> ServerFigures | None:
    found, mean = mapping(choice.get("speculative_decoding")), real(choice.get("avg_decoded_tokens_per_iter"))
    if (figures := _by_keys(_TENSORRT, found)) is not None:
        return replace(figures, mean_length=mean)
    # Older versions only send the tokens per pass, not how many were drafted.
    return ServerFigures(drafted=0, accepted=0, tested=0, mean_length=mean) if mean else None


def _of_lm_studio(found: dict[str, Any]) -> ServerFigures | None:
    drafted = number(found.get("total_draft_tokens_count"))
    if drafted is None:
        # ``stats`` is sent even if nothing was drafted.
        return ServerFigures(drafted=0, accepted=0, tested=0) if real(found.get("tokens_per_second")) else None
    accepted = _or(number(found.get("accepted_draft_tokens_count")), 0)
    rejected, ignored = (
        number(found.get("rejected_draft_tokens_count")),
        number(found.get("ignored_draft_tokens_count")),
    )
    tested = drafted - (ignored or 0) if rejected is None else accepted + rejected
    return ServerFigures(drafted=drafted, accepted=accepted, tested=max(tested, accepted))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


# Counters over all of a server's answers (``/metrics``), for servers without figures for each one. The difference over
# an answer may include other clients' requests, so it is marked as ``counters``.

_MOST_LINES = 100_000
_POSITION = re.compile(r'\bposition="(\d{1,3})"')
_VLLM_COUNTERS = {
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:spec_decode_num_drafts_total": "passes",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "by_position",
    "vllm:num_requests_running": "",  # present even without drafting
}
_TGI = {"tgi_request_skipped_tokens_sum": "accepted", "tgi_request_skipped_tokens_count": "passes"}
Counters = dict[str | int, float]
"""Since the server was started: ``drafted``, ``accepted``, ``passes``, and accepted tokens by position, from 0. The
empty key is present even without drafting."""
_NAMES: dict[ServerKind, dict[str, str]] = {"vllm": _VLLM_COUNTERS, "tgi": _TGI}


async def read(http: Http, kind: ServerKind) -> Counters | None:
    """The current counters; ``None`` if the server doesn't provide any."""
    names = _NAMES.get(kind)
    if names is None:
        return None
    try:
        answer = await http.get("/metrics")
    except RemoteError:
        return None
    return parse(answer.body.decode("utf-8", "replace"), names) if answer.status == 200 else None


def parse(content: str, names: dict[str, str]) -> Counters | None:
    """Counters from Prometheus's text format; adds up those of several engines."""
    sums: Counters = {}
    for line in content.splitlines()[:_MOST_LINES]:
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        key: str | int | None = names.get(name.strip())
        if key == "by_position":
            place = _POSITION.search(rest)
            key = int(place[1]) if place else None
        try:
            value = float(rest.rpartition("}")[2].split()[0])
        except (ValueError, IndexError):
            continue
        if key is not None and math.isfinite(value):
            sums[key] = sums.get(key, 0.0) + value
    return sums or None


def is_drafting(counters: Counters) -> bool:
    """Whether the server has drafting counters at all."""
    return any(counters.keys() - {""})


def between(before: Counters | None, after: Counters | None) -> ServerFigures | None:
    """The difference; ``None`` if unknown, for example because the server was restarted."""
    if before is None or after is None:
        return None
    found = {key: after.get(key, 0.0) - before.get(key, 0.0) for key in {*before, *after} - {""}}
    if min(found.values(), default=0.0) < 0:
        return None
    drafted, accepted, passes = (round(found.get(name, 0.0)) for name in ("drafted", "accepted", "passes"))
    most = max((key for key in found if isinstance(key, int)), default=-1)
    by_position = tuple(round(found.get(place, 0.0)) for place in range(most + 1))
    return ServerFigures(drafted, accepted, tested=drafted, passes=passes, by_position=by_position, source="counters")
