"""Who may draft for a loaded pair, and what the drafters are called in the window."""

from __future__ import annotations

from app.protocol.messages import DrafterChoice, DrafterName, DraftLength, PairLoaded

NAMES: dict[DrafterName, str] = {"model": "draft model", "ngram": "n-grams"}
TITLES: dict[DrafterName, str] = {"model": "Draft model", "ngram": "n-grams"}
"""At the beginning of a line."""
IN_SENTENCES: dict[DrafterName, str] = {"model": "the draft model", "ngram": "n-grams"}


def has_model(pair: PairLoaded | None) -> bool:
    return pair is not None and pair.draft is not None


def allowed(pair: PairLoaded | None) -> bool:
    """Whether anything can draft for the target."""
    return pair is None or pair.drafting_off is None


def usable(chosen: DrafterChoice, pair: PairLoaded | None) -> DrafterChoice:
    """``chosen``, or the automatic choice where it takes a draft model that is not there."""
    needs_model = chosen in ("model", "chain")
    return "auto" if needs_model and pair is not None and pair.draft is None else chosen


def in_use(chosen: DrafterChoice, length: DraftLength, pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """The drafters of the next answer; empty where drafting is off."""
    if length == 0 or chosen == "none" or not allowed(pair):
        return ()
    if not has_model(pair) or chosen == "ngram":
        return ("ngram",)
    return ("model",) if chosen == "model" else ("model", "ngram")


def offered(chosen: DrafterChoice, pair: PairLoaded | None) -> list[tuple[DrafterChoice, str]]:
    """What can be chosen with this pair, with its words. The chain is what the automatic choice does with a pair.

    Drafting is turned off with draft length 0; that nobody drafts is only listed where the settings file says it.
    """
    choices: list[tuple[DrafterChoice, str]] = [("auto", "Automatic")]
    if has_model(pair):
        choices += [("model", TITLES["model"]), ("ngram", TITLES["ngram"])]
    if chosen == "none":
        choices.append(("none", "None"))
    return choices
