"""The text of the Compare window; no widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from app import words
from app.compare.results import Comparison, Difference, Row, Skipped, summarize
from app.compare.wording import costs, memory
from app.protocol.commands import Generate
from app.protocol.options import DRAFTER_WORDS, SEED_DECIDES, DrafterChoice
from app.words import NO_BREAK, shortened, visible

Mood = Literal["good", "plain", "warning", "bad"]
_LONGEST_TOKEN = 40

NOTHING_YET = (
    "Nothing has been compared yet. Choose “Compare without a draft” in an answer's ⋯ menu, or compare the last answer "
    "of the chat."
)
NO_ANSWER = "This chat has no answer to compare."
STOPPED = "Stopped."
CHAT_DELETED = "The chat with this answer was deleted, and this comparison with it."
WAITS_FOR_OTHER_RUN = "Runs when the other one has finished, so that they don't slow each other down."
NO_SWITCH = (
    "{server} can't switch drafting off for a single answer, so nothing can be compared here. To compare two servers, "
    "run “slipstream compare” with --server and --plain-server."
)
NOT_SENT = (
    "This chat hasn't been sent to {host} yet, so it can't be compared there. Send a message first; Slipstream will "
    "ask you before the chat is sent."
)
READING = "Processing the prompt"


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison: one line, and sentences below it where there is more to say."""

    heading: str
    detail: str = ""
    mood: Mood = "plain"

    @property
    def text(self) -> str:
        """All of it, with ordinary spaces."""
        return " ".join(part for part in (self.heading, self.detail) if part).replace(NO_BREAK, " ")


def verdict(comparison: Comparison, command: Generate) -> Verdict:
    """The result of one finished comparison."""
    tokens = comparison.drafted.figures.completion_tokens
    rate = comparison.drafted.figures.draft.acceptance_rate
    parts = [faster(comparison.speed_up), *([words.accepted(rate)] if rate is not None else [])]
    if comparison.same:
        same = ["✓ Same text", *([words.tokens(tokens)] if tokens else []), "same seed"]
        return Verdict(" · ".join([", ".join(same), *parts]), mood="good")
    difference = comparison.difference
    assert difference is not None
    token = difference.token
    place = (
        f"character {words.number(difference.character + 1)}" if token is None else f"token {words.number(token + 1)}"
    )
    where = f"{place} (while thinking)" if difference.in_thinking else place
    heading = " · ".join([f"Different starting at {where}", *parts])
    is_expected = _only_alike(command) or difference.near_tie
    return Verdict(heading, _why(difference, command), "plain" if is_expected else "warning")


def faster(speed_up: float | None, where: str = "this text") -> str:
    """``1.9× faster``; or a note that it wasn't faster."""
    if speed_up is None:
        return "too short to measure"
    shown = round(speed_up, 1)
    if shown == 1.0:
        return "same speed"
    return (
        f"{words.times(speed_up)}{NO_BREAK}faster"
        if shown > 1.0
        else f"{words.times(speed_up)}: drafting doesn't pay off on {where}"
    )


# ---------------------------------------------------------------- a difference


_EXACT = "With the accept rule “Exact”, both are computed in the same way."


def _why(difference: Difference, command: Generate) -> str:
    choices = _choices(difference)
    if _only_alike(command):
        return (
            f"{choices} That is expected: with the accept rule “{command.accept}”, both answers follow the same "
            "distribution but not word for word. Choose “coupled” to get the same words."
        )
    if difference.near_tie is None:
        return f"{choices} This engine doesn't report how close the two were."
    if difference.near_tie:
        near_tie = (
            f"{choices} This is a near-tie, decided by rounding: {_closeness(difference)}. Neither is more correct."
        )
        return near_tie if command.accept == "exact" else f"{near_tie} {_EXACT}"
    return (
        f"{choices} This isn't a near-tie: {_closeness(difference)}. Please report it and attach an export of this "
        "comparison."
    )


def _choices(difference: Difference) -> str:
    """What each of the two has there."""
    plain = _candidate(difference.plain, difference.plain_id, difference.plain_logit)
    drafted = _candidate(difference.drafted, difference.drafted_id, difference.drafted_logit)
    return f"Without a draft: {plain}. With a draft: {drafted}."


def _candidate(text: str, token: int | None, logit: float | None) -> str:
    shown = f"“{_token(text)}”" if text else "nothing more" if token is None else "the end of the answer"
    return f"{shown} (logit{NO_BREAK}{words.number(logit, 3)})" if logit is not None else shown


def _closeness(difference: Difference) -> str:
    """How far apart the two are, and how much rounding can shift them."""
    rounding = f"rounding shifts logits by up to {difference.rounding or 0:.2g} here"
    if difference.score_gap is None:
        return f"one of them is just at the sampler's cutoff, and {rounding}"
    return f"their scores are {difference.score_gap:.2g} apart, and {rounding}"


def _token(text: str) -> str:
    """A token with its line breaks and tabs shown, shortened if it is long."""
    shown = shortened(text, _LONGEST_TOKEN).replace("\n", "↵").replace("\t", "⇥")
    return visible(shown)


def _only_alike(command: Generate) -> bool:
    """Whether the two answers may have different words."""
    return command.accept not in SEED_DECIDES and command.sampling.temperature > 0


# ---------------------------------------------------------------- a set of prompts


def row_cells(row: Row) -> list[str]:
    """The cells of a table row after its kind."""
    return [
        f"{words.number(row.runs)}",
        words.speed(row.plain_speed),
        words.speed(row.drafted_speed),
        words.times(row.speed_up),
        words.share(row.acceptance_rate),
        words.number(row.mean_acceptance_length, 1),
        f"{words.number(row.same)} of {words.number(row.runs)}",
    ]


def prompt_cells(one: Comparison) -> list[str]:
    """The cells of a prompt's row."""
    return [one.prompt.title, f"seed {one.seed}", *row_cells(summarize([one]).total)[1:-1], sameness(one)]


NO_DRAFT = "No draft"
ONE_DRAFTER = "Only n-grams can draft for this model, so there is nothing to compare."
SERVER_DRAFTS = "A server decides for itself how it drafts."


def drafter_title(drafter: DrafterChoice) -> str:
    """At the start of a line."""
    title = next((about.title for name, about in DRAFTER_WORDS.items() if name == drafter), "Automatic")
    return title[:1].upper() + title[1:]


def plain_cells(row: Row) -> list[str]:
    """The cells of the row without a draft, after its name."""
    return [words.speed(row.plain_speed), *[""] * 4, words.milliseconds(row.plain_pass_seconds), "", ""]


def drafter_cells(row: Row, drafter_bytes: Mapping[DrafterChoice, int]) -> list[str]:
    """The cells of a drafter's row, or of a kind of text below it, after its name."""
    _, _, *speeds, same = row_cells(row)
    return [*speeds, *costs(row), memory(row, drafter_bytes), same]


def drafter_prompt_cells(one: Comparison) -> list[str]:
    """The cells of a prompt's row below them."""
    return [one.prompt.title, *drafter_cells(summarize([one]).total, {})[:-1], sameness(one)]


def with_drafters_as_kinds(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """For the chart, which has a color for each kind."""
    replace = msgspec.structs.replace
    return [replace(one, prompt=replace(one.prompt, kind=drafter_title(one.drafter))) for one in comparisons]


def set_verdict(totals: Sequence[Row], skipped: Sequence[Skipped]) -> Verdict:
    """The result of a whole set, or of the finished part of it; ``totals``: of each drafter."""
    total = max(totals, key=lambda one: one.speed_up or 0.0)
    if not total.runs:
        return Verdict("Nothing was compared.", _skipped(skipped), "plain")
    runs, same = sum(one.runs for one in totals), sum(one.same for one in totals)
    parts = [
        f"✓ Same text in all {words.number(runs)}"
        if same == runs
        else f"Same text in {words.number(same)} of {words.number(runs)}",
        *([f"fastest: {drafter_title(total.drafter)}"] if len(totals) > 1 else []),
        f"{faster(total.speed_up, 'these texts')} (median)",
    ]
    if total.acceptance_rate is not None:
        parts.append(words.accepted(total.acceptance_rate))
    differing, near_ties = runs - same, sum(one.near_ties for one in totals)
    ties = (
        f"Differences at a near-tie, which rounding decides: {words.number(near_ties)} of {words.number(differing)}."
        if differing
        else ""
    )
    detail = " ".join(part for part in (ties, _skipped(skipped)) if part)
    return Verdict(" · ".join(parts), detail, "plain" if differing else "good")


def _skipped(skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return ""
    return f"{words.count(len(skipped), 'prompt was', 'prompts were')} skipped: {skipped[0].reason}"


def sameness(comparison: Comparison) -> str:
    """``yes``, or how far the texts are the same."""
    difference = comparison.difference
    if difference is None:
        return "yes"
    if difference.token is None:
        return f"up to character {words.number(difference.character)}"
    return f"up to token {words.number(difference.token)}"
