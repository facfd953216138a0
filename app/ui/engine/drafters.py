"""Which drafters a loaded pair can use, and their names in the window."""

from __future__ import annotations

from app.protocol.messages import DrafterChoice, DrafterName, DraftLength, PairLoaded

NAMES: dict[DrafterName, str] = {"model": "draft model", "ngram": "n-grams"}
TITLES: dict[DrafterName, str] = {"model": "Draft model", "ngram": "n-grams"}
"""At the start of a line."""
IN_SENTENCES: dict[DrafterName, str] = {"model": "the draft model", "ngram": "n-grams"}


def has_model(pair: PairLoaded | None) -> bool:
    return pair is not None and pair.draft is not None


def allowed(pair: PairLoaded | None) -> bool:
    """Whether anything can draft for the target."""
    return pair is None or pair.drafting_off is None


def usable(chosen: DrafterChoice, pair: PairLoaded | None) -> DrafterChoice:
    """``chosen``, or the automatic choice if ``chosen`` needs a draft model and there is none."""
    needs_model = chosen in ("model", "chain")
    return "auto" if needs_model and pair is not None and pair.draft is None else chosen


def in_use(chosen: DrafterChoice, length: DraftLength, pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """The drafters of the next answer; empty if drafting is off."""
    if length == 0 or chosen == "none" or not allowed(pair):
        return ()
    if not has_model(pair) or chosen == "ngram":
        return ("ngram",)
    return ("model",) if chosen == "model" else ("model", "ngram")


def offered(chosen: DrafterChoice, pair: PairLoaded | None) -> list[tuple[DrafterChoice, str]]:
    """The choices for this pair with their names. ``chain`` is what the automatic choice does with a pair.

    Draft length 0 turns drafting off; "None" is only listed if the settings file already says so.
    """
    choices: list[tuple[DrafterChoice, str]] = [("auto", "Automatic")]
    if has_model(pair):
        choices += [("model", TITLES["model"]), ("ngram", TITLES["ngram"])]
    if chosen == "none":
        choices.append(("none", "None"))
    return choices
