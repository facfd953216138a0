"""How the Speed panel says things: the sentence of status, and the definitions behind the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.protocol.messages import (
    DrafterChoice,
    DrafterName,
    DraftLength,
    Figures,
    KindFigures,
    PairLoaded,
    Pause,
    TextKind,
)
from app.protocol.statistics import kind_speed
from app.ui.engine import drafters
from app.ui.widgets import units
from app.ui.widgets.units import NO_BREAK

Mood = Literal["good", "plain", "warning", "bad"]

SLOWER = 0.97
"""Below this factor on plain speed an answer was slower; above it is noise."""
KINDS: dict[TextKind, str] = {"prose": "Prose", "code": "Code", "list": "Lists", "thinking": "Thinking"}
"""Kinds of text, as they are called and in the order they are shown."""


@dataclass(frozen=True)
class Asked:
    """What an answer is asked with, as far as drafting goes."""

    draft_length: DraftLength
    drafters: tuple[DrafterName, ...]


@dataclass
class Situation:
    """What the status sentence depends on."""

    pair: PairLoaded | None = None
    engine_state: str = ""
    failure: str | None = None
    draft_length: DraftLength = "auto"
    """Of the next answer, as `drafter`."""
    drafter: DrafterChoice = "auto"
    asked: Asked | None = None
    """What the answer being written or the last one was asked with; ``None`` where there is none."""
    answering: bool = False
    figures: Figures | None = None
    """Of the answer being written or the last one; ``None`` where there is none."""
    paused: Pause | None = None
    """Why the drafting of that answer is paused, or was at its end."""
    plain_pass: float | None = None
    """Mean seconds of a verify pass without a draft, in that answer."""
    drafted_pass: float | None = None
    """Mean seconds of guessing and verifying together, in that answer."""
    plain_speed: float | None = None

    @property
    def speed_up(self) -> float | None:
        """Decode speed ÷ measured plain speed."""
        if self.figures is None or not self.plain_speed or self.figures.decode_tokens_per_second is None:
            return None
        return self.figures.decode_tokens_per_second / self.plain_speed

    @property
    def coming(self) -> Asked:
        """What the next answer is asked with."""
        return Asked(self.draft_length, drafters.in_use(self.drafter, self.draft_length, self.pair))

    @property
    def changes(self) -> bool:
        """Whether the next answer drafts otherwise than the figures are of."""
        if self.asked is None or not (self.asked.drafters or self.coming.drafters):
            return False
        return self.asked != self.coming

    @property
    def drafters(self) -> tuple[DrafterName, ...]:
        """Who drafts: in the answer being written, else in the next one."""
        return self.asked.drafters if self.asked is not None and self.answering else self.coming.drafters

    @property
    def is_paused(self) -> bool:
        """Whether those `drafters` are paused."""
        return self.paused is not None and (self.asked is None or self.asked.drafters == self.drafters)


@dataclass(frozen=True)
class Status:
    """The status in two parts; `sentence` joins them."""

    heading: str
    detail: str
    mood: Mood = "plain"
    joint: str = " · "
    why: str = ""
    """Explains a pause that the user may end."""

    @property
    def sentence(self) -> str:
        """In one line, with ordinary spaces."""
        return f"{self.heading}{self.joint}{self.detail}".replace(NO_BREAK, " ") if self.detail else self.heading


def status(now: Situation) -> Status:
    """What drafting does at the moment, and why."""
    if now.failure is not None:
        return Status("Engine stopped", now.failure, "bad")
    if now.pair is None:
        return _without_models(now.engine_state)
    if now.pair.drafting_off is not None:
        return Status("Draft off", f"{_sentence(now.pair.drafting_off)} The target answers alone.")
    if now.pair.draft_refused is not None and not _has_drafted(now):
        instead = "n-grams help instead." if now.drafters else "The target answers alone."
        return Status("Draft refused", f"{_sentence(now.pair.draft_refused)} {instead}", "warning")
    if now.changes:
        return _change(now)
    if not now.drafters:
        return _off(now)
    if now.paused is not None:
        return _paused(now, now.paused)
    return _on(now)


def _has_drafted(now: Situation) -> bool:
    """Whether there is something to say of what n-grams do in place of a refused draft."""
    return now.paused is not None or (now.figures is not None and now.figures.draft.tested > 0)


def _without_models(engine_state: str) -> Status:
    state = engine_state.strip()
    if state == "stopped":
        return Status("Engine stopped", "The chat says why, and restarts it.", "bad")
    if state and state not in ("ready", "no model"):
        return Status(state[0].upper() + state[1:], "")
    return Status("No models open", "Open a target model, and a draft model if you have one.")


def _change(now: Situation) -> Status:
    """The heading is of the answer being written, else of the next one; the figures are of another way to draft."""
    detail = f"From the next answer on, {_next(now)}."
    if not now.drafters:
        return Status("Draft off", detail)
    if now.is_paused:
        return Status(f"{_subject(now)} paused", detail)
    return Status(f"{_subject(now)} on", detail, "good")


def _next(now: Situation) -> str:
    coming = now.coming
    if not coming.drafters:
        return "the target answers alone"
    if now.asked is None or not now.asked.drafters or now.asked.drafters == coming.drafters:
        return _amount(coming.draft_length)
    if len(coming.drafters) > 1:
        return f"{' and '.join(drafters.IN_SENTENCES[name] for name in coming.drafters)} guess"
    return "the draft model guesses alone" if coming.drafters == ("model",) else "n-grams guess alone"


def _amount(length: DraftLength) -> str:
    return "as many guesses as pay" if length == "auto" else f"up to {units.guesses(length)} a{NO_BREAK}pass"


def _off(now: Situation) -> Status:
    reason = "Draft length is 0" if now.draft_length == 0 else "No drafter is chosen"
    return Status("Draft off", _figures(now) or f"{reason}: the target answers alone.")


def _subject(now: Situation) -> str:
    return "Draft" if "model" in now.drafters else "n-grams"


def _paused(now: Situation, pause: Pause) -> Status:
    it_costs = "it costs more than it saves" if "model" in now.drafters else "they cost more than they save"
    accepted, needed = _told_apart(pause)
    needs = f", needs{NO_BREAK}{needed}" if needed else ""
    detail = f"on this text {it_costs} ({accepted}{NO_BREAK}kept{needs})"
    return Status(f"{_subject(now)} paused", detail, joint=": ", why=_why(now, pause, accepted, needed))


def _told_apart(pause: Pause) -> tuple[str, str]:
    """The two shares, with a decimal where they would else read the same; the second is empty where none helps."""
    if pause.acceptance_rate < pause.break_even_rate < 1.0:
        for digits in (0, 1):
            rate, needed = units.share(pause.acceptance_rate, digits), units.share(pause.break_even_rate, digits)
            if rate != needed:
                return rate, needed
    return units.share(pause.acceptance_rate), ""


def _why(now: Situation, pause: Pause, accepted: str, needed: str) -> str:
    costs = "guessing takes time, and a verify pass over guesses takes longer than a plain one"
    if pause.break_even_rate >= 1.0:
        reason = f"No share of kept guesses would pay here: on this machine {costs}, by more than guesses can save."
    elif needed:
        reason = f"Needed is {needed}: {costs}, so on this machine drafting pays only from there on."
    else:
        reason = f"That is just under what pays here: {costs}."
    times = ""
    if now.plain_pass is not None and now.drafted_pass is not None:
        with_guesses, plain = units.milliseconds(now.drafted_pass), units.milliseconds(now.plain_pass)
        times = f" In this answer a pass took {with_guesses} with its guesses and {plain} without any."
    return (
        f"Kept is {accepted}: about so many of the guesses made here are what the target says itself. {reason}{times}\n"
        "Meanwhile the target answers alone, which is quicker. A few guesses are tried from time to time, and "
        "drafting goes on by itself once it pays."
    )


def _on(now: Situation) -> Status:
    heading = f"{_subject(now)} on"
    detail = _figures(now)
    if not detail:
        return Status(heading, _waiting(now), "good")
    if now.drafters == ("ngram",) and now.figures is not None and not now.figures.draft.tested:
        return Status(heading, f"nothing to guess from yet · {detail}", "good")
    if now.speed_up is not None and now.speed_up < SLOWER and not now.answering:
        # Auto does not stay slower: more likely plain speed was measured when the machine was quicker.
        advice = "measure plain speed again" if now.draft_length == "auto" else "try draft length Auto"
        return Status(heading, f"{detail} · slower than plain here: {advice}", "warning")
    return Status(heading, detail, "good")


def _waiting(now: Situation) -> str:
    if now.answering:
        return f"Reading the chat · {_amount(now.draft_length)}"
    if drafters.has_model(now.pair):
        return f"Figures come with the next answer · {_amount(now.draft_length)}"
    return "Guesses come from the chat itself. A small draft model of the same family helps more."


def _figures(now: Situation) -> str:
    """``68 % kept · 2.9 tokens a pass · 74 tok/s · 1.8× plain``, as much of it as is known."""
    parts = []
    if now.figures is not None and now.figures.draft.acceptance_rate is not None:
        parts.append(units.accepted(now.figures.draft.acceptance_rate))
        if now.figures.draft.mean_acceptance_length is not None:
            parts.append(units.tokens_a_pass(now.figures.draft.mean_acceptance_length))
    if now.figures is not None and now.figures.decode_tokens_per_second is not None:
        parts.append(units.speed(now.figures.decode_tokens_per_second))
    if parts and now.speed_up is not None:
        parts.append(units.factor(now.speed_up))
    return " · ".join(parts)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "…")) else f"{text}."


def length_used(asked: Asked, figures: Figures) -> int | None:
    """The draft length of the draft model in an answer; for Auto its mean, 0 where most passes went without.

    ``None`` where the draft model was not asked.
    """
    if "model" not in asked.drafters:
        return None
    if asked.draft_length != "auto":
        return asked.draft_length
    draft = figures.draft
    model = next((one for one in draft.drafters if one.name == "model"), None)
    passes = draft.verify_passes - sum(one.verify_passes for one in draft.drafters if one.name != "model")
    if model is None or 2 * model.verify_passes < passes:
        return 0
    return round(model.drafted / model.verify_passes) if model.verify_passes else None


def kind_details(figures: KindFigures, plain: float | None) -> str:
    """What stands behind the row of a kind of text."""
    accepted = f"{figures.accepted:,} of {units.guesses(figures.tested)} kept, {units.speed(kind_speed(figures))}"
    against = f"Plain {units.speed(plain)}." if plain else "Plain speed is not measured yet."
    return f"{KINDS[figures.kind]}: {units.tokens(figures.tokens)} of this pair's answers, {accepted}. {against}"


def always_draft(default_length: int) -> str:
    """What the button "Keep on" does."""
    return (
        f"Drafts with the fixed draft length {default_length}, also where that does not pay: from the next answer on, "
        "in every chat, until Draft length is Auto again."
    )


HELP = {
    "status": (
        "What drafting does now. Kept is the acceptance rate of this answer, tokens a pass its mean acceptance length, "
        "tok/s its decode speed."
    ),
    "speed": (
        "Live speed while an answer is written: tokens of the last 3 s ÷ that time. After it, decode speed: tokens "
        "after the first ÷ time from the first to the last. Prompt processing is not in it. The dashed line is plain "
        "speed, once it is measured."
    ),
    "acceptance": (
        "Acceptance rate: accepted ÷ tested guesses (draft tokens that were given to a verify pass). While an answer "
        "is written over the last 3 s, after it over the whole answer."
    ),
    "speed-up": (
        "Speed-up: decode speed of the answer ÷ the plain decode speed that was measured on this machine with the "
        "same target, context length and sampler."
    ),
    "measure": (
        "Writes a short answer without a draft and without showing it, to have the plain decode speed of this target "
        "as a baseline. Nothing is added to the chat."
    ),
    "positions": (
        "Acceptance by position: of the drafts that were this long, the share in which every token up to this position "
        "was accepted; over the last 3 s while an answer is being written, over the whole answer afterwards. Where it "
        "gets low, a longer draft no longer pays."
    ),
    "round": (
        "One round is one verify pass and what led to it, as a mean over the answer. Draft: the guesses are made. "
        "Verify: the target checks all guesses in one pass. Rest: sampling, text and bookkeeping."
    ),
    "curve": (
        "Tokens per second that each fixed draft length would bring on text like the last answer's: worked out from "
        "the measured times of guessing and of verify passes and from how often guesses were kept, not run. 0 is "
        "plain: above its dashed line is what is gained. The full column is the length in use, for Auto its mean in "
        "the last answer; underlined is the fixed length of the next one. Auto can do better than its column: it stops "
        "where a guess is not worth its time."
    ),
    "kinds": (
        "What drafting brought with this pair on this machine by kind of text, over all answers, of which old ones "
        "count less and less. Kept is the acceptance rate. Speed-up: decode speed on this kind of text ÷ measured "
        "plain speed; as long as that is not measured, the decode speed. It stays on this machine."
    ),
    "draft-length": (
        "Draft length: how many tokens are guessed before each verify pass. Takes effect with the next answer. Auto "
        "guesses as far as that pays, by what was measured on this machine, and pauses where it does not. A fixed "
        "length is always used; 0 turns drafting off."
    ),
    "drafter": (
        "Who guesses. The draft model works on any text. n-grams repeat what followed the same words earlier in the "
        "chat: they cost next to nothing and are strong where text comes back, as in code. Automatic takes n-grams "
        "where they have a match, else the draft model. Takes effect with the next answer."
    ),
    "show-drafted": (
        "Tints the guesses that were kept in an answer, by who made them: the draft model, or n-grams (dotted below). "
        "Point at one to see its round, and at a token of the target's own to see the guess it replaced."
    ),
}
