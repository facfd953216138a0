"""Who drafts, and what can be chosen, with and without a draft model or an MTP head."""

from __future__ import annotations

from typing import get_args

import pytest

from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import DRAFTER_WORDS, DrafterChoice, DrafterName, DraftLength
from app.ui.engine import pair_names

ALONE = PairLoaded(request=1, target=ModelInfo(path="t.gguf", name="t"))
OFF = PairLoaded(request=1, target=ALONE.target, drafting_off="It cannot be rolled back.")
PAIR = PairLoaded(request=1, target=ALONE.target, draft=ModelInfo(path="d.gguf", name="d"))
HEAD = PairLoaded(request=1, target=ALONE.target, head_drafter="mtp")
BOTH = PairLoaded(request=1, target=ALONE.target, draft=PAIR.draft, head_drafter="mtp")


@pytest.mark.parametrize(
    ("chosen", "length", "pair", "using"),
    [
        ("auto", "auto", PAIR, ("model", "ngram")),
        ("chain", 5, PAIR, ("model", "ngram")),
        ("model", "auto", PAIR, ("model",)),
        ("ngram", 16, PAIR, ("ngram",)),
        ("none", "auto", PAIR, ()),
        ("auto", 0, PAIR, ()),
        ("auto", "auto", ALONE, ("ngram",)),
        ("model", "auto", ALONE, ("ngram",)),
        ("ngram", 0, ALONE, ()),
        ("none", 5, ALONE, ()),
        ("auto", "auto", HEAD, ("mtp", "ngram")),
        ("mtp", 3, HEAD, ("mtp",)),
        ("model", 3, HEAD, ("mtp", "ngram")),
        ("ngram", 3, HEAD, ("ngram",)),
        ("mtp", 3, PAIR, ("model", "ngram")),
        ("mtp", 3, ALONE, ("ngram",)),
        ("auto", "auto", BOTH, ("model", "mtp", "ngram")),
        ("mtp", 3, BOTH, ("mtp",)),
        ("model", 3, BOTH, ("model",)),
        ("auto", "auto", OFF, ()),
        ("ngram", 5, OFF, ()),
    ],
)
def test_who_drafts(
    chosen: DrafterChoice, length: DraftLength, pair: PairLoaded, using: tuple[DrafterName, ...]
) -> None:
    assert pair_names.in_use(pair_names.usable(chosen, pair), length, pair) == using


def test_only_what_the_pair_allows_is_offered() -> None:
    def names(chosen: DrafterChoice, pair: PairLoaded | None) -> list[str]:
        return [name for name, _ in pair_names.offered(chosen, pair)]

    assert names("auto", PAIR) == names("chain", PAIR) == ["auto", "model", "ngram"]
    assert names("auto", ALONE) == names("model", ALONE) == names("auto", None) == ["auto"]
    assert names("auto", HEAD) == names("model", HEAD) == ["auto", "mtp", "ngram"]
    assert names("auto", BOTH) == ["auto", "model", "mtp", "ngram"]
    assert names("none", PAIR) == ["auto", "model", "ngram", "none"]
    assert names("none", ALONE) == ["auto", "none"]


def test_every_drafter_has_its_words() -> None:
    assert set(DRAFTER_WORDS) == set(get_args(DrafterName))
