"""``slipstream models pair``: whether a draft fits a target, or which drafts in the library do, best first."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from app import system, words
from app.commands.models import choosing
from app.commands.options import command, option
from app.commands.output import show_result
from app.models.library.library import LibraryEntry
from app.models.names import printable, size_text
from app.models.ranking import Judge, RankedDraft, rank_drafts
from app.models.trials import Trial, trials_file


@command(
    "pair",
    "list the drafts that fit a target, most promising first",
    option("target", metavar="TARGET"),
    option("draft", nargs="?", metavar="DRAFT", help="only consider this draft (default: all models in the library)"),
)
def list_drafts(options: argparse.Namespace) -> int:
    """The exit status is 1 if nothing fits."""
    library = choosing.library()
    entries = library.scan()
    target = choosing.model(library, options.target, entries)
    choosing.check_usable(target)
    candidates = [choosing.model(library, options.draft, entries)] if options.draft else entries
    ranked = rank_drafts(target, candidates, trials_file(system.data_dir()), Judge(library.differences))
    library.save()
    drafts = [_described(place, draft) for place, draft in enumerate(ranked, 1)]
    show_result(options, {"target": choosing.described(target), "drafts": drafts}, _lines(target, ranked))
    return 0 if any(draft.verdict.fits for draft in ranked) else 1


def _described(position: int, draft: RankedDraft) -> dict[str, Any]:
    verdict = draft.verdict
    return {
        "position": position,
        "draft": choosing.described(draft.entry),
        "fits": verdict.fits,
        "reason": verdict.reason,
        "warning": verdict.warning,
        "note": verdict.note,
        "target_tokens": verdict.target_tokens,
        "draft_tokens": verdict.draft_tokens,
        "first_difference": verdict.first_difference,
        "share": draft.share if draft.share < math.inf else None,
        "same_family": draft.same_family,
        "trial": {**msgspec.to_builtins(draft.trial), "speed_up": draft.trial.speed_up} if draft.trial else None,
    }


def _lines(target: LibraryEntry, ranked: Sequence[RankedDraft]) -> list[str]:
    lines = [f"Drafts for {printable(target.where)} ({size_text(target.size)}):"]
    for position, draft in enumerate(ranked, 1):
        share = f", {draft.share:.0%} of the target" if draft.share < math.inf else ""
        lines.append(f"{position:>3}. {printable(draft.entry.where)} ({size_text(draft.entry.size)}{share})")
        verdict = draft.verdict
        told = (verdict.reason, _measured(draft.trial), verdict.warning, verdict.note)
        lines += [f"     {line}" for line in told if line]
    return lines if ranked else ["There are no other models in the library."]


def _measured(trial: Trial | None) -> str:
    if trial is None:
        return ""
    accepted = "" if trial.acceptance_rate is None else f", {trial.acceptance_rate:.0%} accepted"
    return f"Measured on this computer: {words.times(trial.speed_up)} as fast as without the draft{accepted}."
