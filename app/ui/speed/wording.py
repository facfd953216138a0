"""How the Speed panel says things: the sentence of status, and the definitions behind the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.engine.protocol import DrafterChoice, DrafterName, DraftLength, Figures, PairLoaded, Pause
from app.ui import drafters, units
from app.ui.units import NO_BREAK

Mood = Literal["good", "plain", "warning", "bad"]


@dataclass(frozen=True)
class Situation:
    """What the status sentence depends on."""

    pair: PairLoaded | None = None
    engine_state: str = ""
    failure: str | None = None
    draft_length: DraftLength = "auto"
    drafter: DrafterChoice = "auto"
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
    def drafters(self) -> tuple[DrafterName, ...]:
        """Who drafts in the next answer."""
        return drafters.in_use(self.drafter, self.draft_length, self.pair)


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
    if now.pair.draft_refused is not None:
        instead = "n-grams help instead." if now.drafters else "The target answers alone."
        return Status("Draft refused", f"{_sentence(now.pair.draft_refused)} {instead}", "warning")
    if not now.drafters:
        return _off(now)
    if now.paused is not None:
        return _paused(now, now.paused)
    return _on(now)


def _without_models(engine_state: str) -> Status:
    state = engine_state.strip()
    if state == "stopped":
        return Status("Engine stopped", "The chat says why, and restarts it.", "bad")
    if state and state not in ("ready", "no model"):
        return Status(state[0].upper() + state[1:], "")
    return Status("No models open", "Open a target model, and a draft model if you have one.")


def _off(now: Situation) -> Status:
    if now.figures is not None and now.figures.draft.tested:
        return Status("Draft off", "From the next answer on, the target answers alone.")
    reason = "Draft length is 0" if now.draft_length == 0 else "No drafter is chosen"
    return Status("Draft off", _figures(now) or f"{reason}: the target answers alone.")


def _subject(now: Situation) -> str:
    return "Draft" if "model" in now.drafters else "n-grams"


def _paused(now: Situation, pause: Pause) -> Status:
    heading = f"{_subject(now)} paused"
    if now.draft_length != "auto":
        return Status(heading, f"From the next answer on, up to {units.guesses(now.draft_length)} a{NO_BREAK}pass.")
    it_costs = "it costs more than it saves" if "model" in now.drafters else "they cost more than they save"
    kept, needed = _told_apart(pause.kept, pause.needed)
    detail = f"on this text {it_costs} ({kept}{NO_BREAK}kept, needs{NO_BREAK}{needed})"
    return Status(heading, detail, joint=": ", why=_why(now, kept, needed))


def _told_apart(kept: float, needed: float) -> tuple[str, str]:
    """Two shares; with a decimal where they would else read the same."""
    digits = 0 if units.share(kept) != units.share(needed) else 1
    return units.share(kept, digits), units.share(needed, digits)


def _why(now: Situation, kept: str, needed: str) -> str:
    times = ""
    if now.plain_pass is not None and now.drafted_pass is not None:
        with_guesses, plain = units.milliseconds(now.drafted_pass), units.milliseconds(now.plain_pass)
        times = f" In this answer a pass took {with_guesses} with its guesses and {plain} without any."
    return (
        f"Kept is {kept}: about so many of the guesses made here are what the target says itself. Needed is {needed}: "
        "guessing takes time, and a verify pass over guesses takes longer than a plain one, so on this machine "
        f"drafting pays only from there on.{times}\n"
        "Until then the target answers alone, which is quicker. A few guesses are tried from time to time, and "
        "drafting goes on by itself once it pays."
    )


def _on(now: Situation) -> Status:
    heading = f"{_subject(now)} on"
    if now.figures is not None and not now.answering and _drafted_otherwise(now.figures, now.drafters):
        who = "the draft model guesses" if now.drafters == ("model",) else "n-grams guess"
        return Status(heading, f"From the next answer on, {who} alone.", "good")
    detail = _figures(now)
    if not detail:
        return Status(heading, _waiting(now), "good")
    if now.drafters == ("ngram",) and now.figures is not None and not now.figures.draft.tested:
        return Status(heading, f"nothing to guess from yet · {detail}", "good")
    if now.speed_up is not None and now.speed_up < 0.97 and not now.answering:
        advice = "" if now.draft_length == "auto" else ": try draft length Auto"
        return Status(heading, f"{detail} · slower than plain here{advice}", "warning")
    return Status(heading, detail, "good")


def _drafted_otherwise(figures: Figures, using: tuple[DrafterName, ...]) -> bool:
    """Whether somebody drafted in the last answer who will not in the next one."""
    return any(one.tested and one.name not in using for one in figures.draft.drafters)


def _waiting(now: Situation) -> str:
    if now.draft_length == "auto":
        guesses = "as many guesses as pay"
    else:
        guesses = f"up to {units.guesses(now.draft_length)} a{NO_BREAK}pass"
    if now.answering:
        return f"Reading the chat · {guesses}"
    if drafters.has_model(now.pair):
        return f"Figures come with the next answer · {guesses}"
    return "Guesses come from the chat itself. A small draft model of the same family helps more."


def _figures(now: Situation) -> str:
    """``68 % kept · 2.9 tokens a pass · 74 tok/s · 1.8× plain``, as much of it as is known."""
    parts = []
    if now.figures is not None and now.figures.draft.acceptance_rate is not None:
        parts.append(units.kept(now.figures.draft.acceptance_rate))
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


def keep_on(default_length: int) -> str:
    """What the button "Keep on" does."""
    return (
        f"From the next answer on, draft with the fixed draft length of this pair, {default_length}, also where it "
        "does not pay. Draft length Auto takes that back."
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
    "kept": (
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
        "Acceptance by position: verify passes that accepted the guess at this position ÷ all verify passes of the "
        "answer. Where it gets low, a longer draft no longer pays."
    ),
    "round": (
        "One round is one verify pass and what led to it, as a mean over the answer. Draft: the guesses are made. "
        "Verify: the target checks all guesses in one pass. Rest: sampling, text and bookkeeping."
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
