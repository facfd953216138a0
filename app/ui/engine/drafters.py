"""Which drafters a loaded pair can use, and their names in the window."""

from __future__ import annotations

from app.models.mtp import TURNED_OFF
from app.protocol.events import PairLoaded
from app.protocol.limits import HeadChoice
from app.protocol.options import DrafterChoice, DrafterName, DraftLength

NAMES: dict[DrafterName, str] = {
    "model": "draft model",
    "ngram": "n-grams",
    "mtp": "MTP head",
    "grammar": "answer format",
}
TITLES: dict[DrafterName, str] = {
    "model": "Draft model",
    "ngram": "n-grams",
    "mtp": "MTP head",
    "grammar": "Answer format",
}
"""At the start of a line."""
IN_SENTENCES: dict[DrafterName, str] = {
    "model": "the draft model",
    "ngram": "n-grams",
    "mtp": "the MTP head",
    "grammar": "the answer's format",
}


_NO_MEMORY = "There isn't enough free memory for it."
_FOR_ONCE = "The model was restarted without a draft. The next time you load it, its head is used as before."


def has_model(pair: PairLoaded | None) -> bool:
    return pair is not None and pair.draft is not None


def has_head(pair: PairLoaded | None) -> bool:
    return pair is not None and pair.has_head


def has_own_head(pair: PairLoaded) -> bool:
    """Whether there is an MTP head inside the target that the user can choose to use."""
    is_inside = pair.has_head and pair.head_file is None
    return allowed(pair) and (is_inside or pair.head_off is not None or pair.head_refused is not None)


def why_no_head(pair: PairLoaded, choice: HeadChoice, *, for_once: bool = False) -> str:
    """Why the MTP head inside the target isn't used, where the user's choice is ``choice``; empty if it is.

    ``for_once``: it is off only for this load.
    """
    if for_once and pair.head_off == TURNED_OFF:
        return _FOR_ONCE
    if pair.head_off == TURNED_OFF and choice != "off":
        return _NO_MEMORY  # the plan turned it off
    return pair.head_off or pair.head_refused or ""


def allowed(pair: PairLoaded | None) -> bool:
    """Whether anything can draft for the target."""
    return pair is None or pair.drafting_off is None


def usable(chosen: DrafterChoice, pair: PairLoaded | None) -> DrafterChoice:
    """``chosen``, or the automatic choice if ``chosen`` needs a draft model or an MTP head and there is none, or isn't
    offered in the window."""
    if chosen == "grammar":
        return "auto"
    if pair is None:
        return chosen
    lacks_model = chosen in ("model", "chain") and pair.draft is None
    return "auto" if lacks_model or (chosen == "mtp" and not pair.has_head) else chosen


def in_use(chosen: DrafterChoice, length: DraftLength, pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """The drafters of the next answer; empty if drafting is off, or a server decides."""
    if pair is not None and pair.remote is not None:
        return ()
    if length == 0 or chosen == "none" or not allowed(pair):
        return ()
    if chosen == "ngram" or not (has_model(pair) or has_head(pair)):
        return ("ngram",)
    return (chosen,) if chosen in _decoding(pair) else (*_decoding(pair), "ngram")


def _decoding(pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """Those of the loaded drafters that decode, the ones beside n-grams."""
    found: list[DrafterName] = ["model"] if has_model(pair) else []
    return (*found, "mtp") if has_head(pair) else tuple(found)


def drafting(pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """The drafters whose tokens answers of this pair can have."""
    return (*(_decoding(pair) or ("model",)), "ngram")


def offered(chosen: DrafterChoice, pair: PairLoaded | None) -> list[tuple[DrafterChoice, str]]:
    """The choices for this pair with their names. ``chain`` is what the automatic choice does with a pair.

    Draft length 0 turns drafting off; "None" is only listed if the settings file already says so.
    """
    choices: list[tuple[DrafterChoice, str]] = [("auto", "Automatic")]
    if decoding := _decoding(pair):
        choices += [(name, TITLES[name]) for name in (*decoding, "ngram")]
    if chosen == "none":
        choices.append(("none", "None"))
    return choices
