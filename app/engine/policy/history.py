"""The results of drafting in a pair's earlier answers on this machine, by kind of text: for display, and as a start."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from app.engine.policy.acceptance import AcceptancePrior, Priors
from app.protocol.events import KindFigures
from app.protocol.options import AcceptRule, DrafterName, TextKind
from app.protocol.statistics import sums_by_kind
from app.storage.keyed_file import KeyedFile

_HALVED_AT = 20_000
"""After this many tokens of a kind its counters are halved, so that recent answers weigh more."""
_SAVE_SECONDS = 30.0
"""Not after every answer: a crash may lose a little of what was learned, but the file is not written all the time."""


class Remembered(msgspec.Struct, frozen=True):
    """What is stored. Raises `ValueError` for impossible counters."""

    kinds: list[KindFigures] = []
    priors: dict[AcceptRule, dict[DrafterName, dict[TextKind, AcceptancePrior]]] = {}

    def __post_init__(self) -> None:
        names = [one.kind for one in self.kinds]
        if len(set(names)) < len(names) or not all(map(_is_sound, self.kinds)):
            raise ValueError("the counters of a pair are inconsistent")


def history_file(path: Path | None) -> KeyedFile[Remembered]:
    """The pairs' histories at ``path``; nothing is stored without one."""
    return KeyedFile(path, Remembered, version=3)


class PairHistory:
    """Counters and acceptance of one pair."""

    def __init__(self, store: KeyedFile[Remembered], key: str) -> None:
        """Starts with what ``store`` has for ``key``."""
        self._store = store
        self._key = key
        self._known = store.get(key) or Remembered()
        self._private: dict[AcceptRule, Priors] = {}
        """What was learned in private answers since the pair was loaded. It is never stored."""
        self._is_saved = True
        self._saved_at = -math.inf

    def figures(self) -> list[KindFigures]:
        """The results of drafting, by kind of text."""
        return list(self._known.kinds)

    def priors(self, rule: AcceptRule, *, private: bool = False) -> Priors:
        """How often draft tokens are accepted under ``rule``; for a ``private`` answer as private ones had it."""
        known = self._known.priors.get(rule, {})
        return self._private.get(rule, known) if private else known

    def add(self, kinds: Iterable[KindFigures], rule: AcceptRule, priors: Priors, *, private: bool = False) -> None:
        """Add an answer with a draft, and what the policy knows after it. A ``private`` one isn't counted or stored:
        only the next private ones begin with what it taught.
        """
        if private:
            self._private[rule] = priors
            return
        sums = sums_by_kind(self._known.kinds, kinds)
        counters = [_halved(one) if one.tokens > _HALVED_AT else one for one in sums]
        by_drafter = {name: dict(by_kind) for name, by_kind in priors.items()}
        self._known = Remembered(counters, {**self._known.priors, rule: by_drafter})
        self._is_saved = False

    def save_now_and_then(self) -> None:
        """Store what is known, unless that was done a moment ago."""
        if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Store what is known now."""
        if not self._is_saved:
            self._is_saved, self._saved_at = True, time.monotonic()
            self._store.put(self._key, self._known)


def _halved(figures: KindFigures) -> KindFigures:
    return msgspec.structs.replace(
        figures,
        tokens=figures.tokens // 2,
        seconds=figures.seconds / 2,
        tested=figures.tested // 2,
        accepted=figures.accepted // 2,
        verify_passes=figures.verify_passes // 2,
    )


def _is_sound(one: KindFigures) -> bool:
    counts = (one.tokens, one.tested, one.verify_passes)
    return 0 <= one.accepted <= one.tested and min(counts) >= 0 and one.seconds >= 0.0
