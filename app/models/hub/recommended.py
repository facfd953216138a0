"""Default sampling and thinking settings of the loaded target, and who recommends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from app.protocol.events import PairLoaded
from app.protocol.options import Sampling

if TYPE_CHECKING:
    from app.models.hub.catalog import Catalog

Source = Literal["model file", "catalog", "default", "server", "unknown"]
SOURCE_TEXTS: dict[Source, str] = {
    "model file": "recommended by the model's file",
    "catalog": "recommended by the model's authors",
    "default": "the usual value",
    "server": "the server's own value",
    "unknown": "left to the server",
}
"""Shown after a value, in lower case."""


@dataclass(frozen=True)
class Recommended:
    """Values with, for each field of `Sampling`, their source."""

    sampling: Sampling
    sources: dict[str, Source]
    thinking: str = ""
    """The thinking level in use: the chosen one, or the catalog's default; may be empty."""


def recommended(pair: PairLoaded | None, chosen: str = "", catalog: Catalog | None = None) -> Recommended:
    """Field by field: what the target's file recommends, otherwise the catalog, otherwise llama.cpp's defaults.

    ``chosen`` is the user's thinking level, or empty: the catalog has different values for models that think.
    ``catalog`` is by default this version's.
    """
    sampling = pair.sampling if pair else Sampling()
    sources: dict[str, Source] = dict.fromkeys(Sampling.__struct_fields__, "default")
    if pair is None:
        return Recommended(sampling, sources)
    if pair.remote is not None:
        sources = dict.fromkeys(sources, "unknown")
        sources.update(dict.fromkeys(sources.keys() & set(pair.recommended), "server"))
        return Recommended(sampling, sources, pair.usable_thinking(chosen))
    sources.update(dict.fromkeys(sources.keys() & set(pair.recommended), "model file"))
    if catalog is None:
        from app.models.hub.catalog import load_catalog  # not needed before the first picture

        catalog = load_catalog()
    advice = catalog.advice_for(*pair.target.names)
    level = _level(pair.usable_thinking(chosen), pair.usable_thinking(advice.level))
    thinks = level not in ("", "off") or (pair.may_think and not pair.thinking)
    published = advice.sampling(thinks=thinks).chosen()
    added = {key: value for key, value in published.items() if sources[key] == "default"}
    sources.update(dict.fromkeys(added, "catalog"))
    return Recommended(msgspec.structs.replace(sampling, **added), sources, level)


def _level(chosen: str, advised: str) -> str:
    """``on`` doesn't say how much, so the catalog may."""
    leaves_open = not chosen or (chosen == "on" and advised != "off")
    return advised if advised and leaves_open else chosen
