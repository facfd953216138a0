"""Drafts for a target: all that exist, the most promising first, those that don't fit last."""

from __future__ import annotations

import math
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app.models.gguf import ASSISTANTS, EAGLE3, ModelFileError, read_header
from app.models.gguf_parser import Tokenizer
from app.models.heads import LAYER_INPUTS
from app.models.library.library import LibraryEntry
from app.models.measurements import FileKey, Trial, Trials
from app.models.pairing import LARGE_DRAFT_SHARE, Difference, Verdict, compare, first_difference, judge

SMALL_DRAFT_SHARE = 1 / 10
"""Drafts of up to this fraction of the target's size are usually best."""
_USUAL_SHARE = 1 / 30
"""From known good pairs: a smaller draft is accepted less often, a larger one takes more time."""


@dataclass(frozen=True)
class RankedDraft:
    """A candidate with arguments for and against it."""

    entry: LibraryEntry
    verdict: Verdict
    share: float
    """Its size ÷ the target's."""
    same_family: bool
    trial: Trial | None
    """The latest trial of this pair on this machine."""


class Ranking(NamedTuple):
    """All drafters for a target."""

    drafts: list[RankedDraft]
    """Other files, the most promising first."""
    own_head: Trial | None
    """The latest trial of the MTP head inside the target on this machine."""


class Judge:
    """Judges pairs of entries: by their summaries, and by the tokens themselves only if necessary."""

    def __init__(self, known: MutableMapping[tuple[str, str], Difference | None]) -> None:
        """``known`` has earlier comparisons of tokens, by fingerprints; new ones are added."""
        self._known = known
        self._target: tuple[Path, Tokenizer] | None = None

    def verdict(self, target: LibraryEntry, draft: LibraryEntry) -> Verdict:
        """Whether ``draft`` can draft for ``target``, with the reason."""
        for role, entry in (("target", target), ("draft", draft)):
            if entry.problem and not (entry is draft and entry.is_head):
                return Verdict(False, entry.problem)
            if not entry.available:
                return Verdict(False, f"The {role} is in a folder that isn't available right now.")
        assert target.summary is not None and draft.summary is not None  # without a summary there is a problem
        try:
            if draft.is_head:
                return self._head_verdict(target, draft)
            return judge(target.summary, draft.summary, lambda: self._difference(target, draft))
        except ModelFileError as error:
            return Verdict(False, str(error))

    def _head_verdict(self, target: LibraryEntry, head: LibraryEntry) -> Verdict:
        """Reads both files, unless they are clearly of different models. Raises `ModelFileError`."""
        assert target.summary is not None and head.summary is not None
        architecture = head.summary.architecture
        is_eagle3, wanted = architecture == EAGLE3, ASSISTANTS.get(architecture, architecture)
        if target.summary.architecture not in (LAYER_INPUTS if is_eagle3 else (wanted,)):
            return Verdict(False, f"The {head.head_title} in this file belongs to another model.")
        return compare(read_header(target.path), read_header(head.path))

    def _difference(self, target: LibraryEntry, draft: LibraryEntry) -> Difference | None:
        """Reads the tokens of both, unless these lists were compared before. Raises `ModelFileError`."""
        key = _fingerprint(target), _fingerprint(draft)
        if key not in self._known:
            if self._target is None or self._target[0] != target.path:
                self._target = target.path, _tokenizer(target.path)
            self._known[key] = first_difference(self._target[1], _tokenizer(draft.path))
        return self._known[key]


def trial_of_own_head(target: LibraryEntry, trials: Trials) -> Trial | None:
    """The latest trial of the MTP head inside ``target``, stored by `app.ui.compare.trial` like that of a pair."""
    if target.summary is None or target.summary.head != "inside" or (key := _file_key(target)) is None:
        return None
    found = trials.get((key, key))
    return found.trial if found else None


def rank_drafts(
    target: LibraryEntry, candidates: Iterable[LibraryEntry], trials: Trials, judge: Judge
) -> list[RankedDraft]:
    """All ``candidates`` except the target itself, best first.

    Measured ones are sorted around untested ones: faster than plain before, slower after. Untested ones begin with the
    target's own head; then they are sorted by size (`SMALL_DRAFT_SHARE`, `LARGE_DRAFT_SHARE`), by family, and by
    how close the size is to that of usual pairs. Those that don't fit come last, with the reason. A head that belongs
    to another model isn't listed.
    """
    key = _file_key(target) if target.available else None
    measured: dict[FileKey | None, Trial] = {row.draft: row.trial for row in trials.all().values() if row.target == key}
    whole = _weights(target)
    drafts = [
        RankedDraft(
            entry=entry,
            verdict=judge.verdict(target, entry),
            share=_weights(entry) / whole if whole else math.inf,
            same_family=_family(target) == _family(entry),
            trial=measured.get(_file_key(entry)) if measured else None,
        )
        for entry in candidates
        if entry.path != target.path
    ]
    return sorted((draft for draft in drafts if draft.verdict.fits or not draft.entry.is_head), key=_rank)


def _rank(draft: RankedDraft) -> tuple[int, float, int, bool, float, str]:
    gain = draft.trial.speed_up if draft.trial else 0.0
    distance = abs(math.log(draft.share / _USUAL_SHARE)) if 0 < draft.share < math.inf else math.inf
    untried = 1 if draft.entry.is_head else 2
    group = 4 if not draft.verdict.fits else untried if draft.trial is None else 0 if gain > 1 else 3
    size_band = 0 if draft.share <= SMALL_DRAFT_SHARE else 1 if draft.share <= LARGE_DRAFT_SHARE else 2
    return group, -gain, size_band, not draft.same_family, distance, draft.entry.title.casefold()


def _file_key(entry: LibraryEntry) -> FileKey | None:
    try:
        return FileKey.of(entry.path)
    except ModelFileError:
        return None


def _weights(entry: LibraryEntry) -> int:
    return entry.summary.tensor_bytes if entry.summary else entry.size


def _family(entry: LibraryEntry) -> str:
    """Models of one family learned from the same texts, with experts or without."""
    architecture = entry.summary.architecture if entry.summary else ""
    return architecture.removesuffix("moe").rstrip("-_")


def _fingerprint(entry: LibraryEntry) -> str:
    tokenizer = entry.summary.tokenizer if entry.summary else None
    return tokenizer.fingerprint if tokenizer else ""


def _tokenizer(path: Path) -> Tokenizer:
    tokenizer = read_header(path).tokenizer
    if tokenizer is None:
        raise ModelFileError(path, "has changed: it no longer has a tokenizer.")
    return tokenizer
