"""How the Speed panel says things: the sentence of status, and the definitions behind the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.engine.protocol import Figures, PairLoaded
from app.ui import units
from app.ui.units import NO_BREAK

Mood = Literal["good", "plain", "warning", "bad"]


@dataclass(frozen=True)
class Situation:
    """What the status sentence depends on."""

    pair: PairLoaded | None = None
    engine_state: str = ""
    failure: str | None = None
    draft_length: int = 0
    answering: bool = False
    figures: Figures | None = None
    """Of the answer being written or the last one; ``None`` where there is none."""
    plain_speed: float | None = None

    @property
    def speed_up(self) -> float | None:
        """Decode speed ÷ measured plain speed."""
        if self.figures is None or not self.plain_speed or self.figures.decode_tokens_per_second is None:
            return None
        return self.figures.decode_tokens_per_second / self.plain_speed


@dataclass(frozen=True)
class Status:
    """The status in two parts; `sentence` joins them."""

    heading: str
    detail: str
    mood: Mood = "plain"

    @property
    def sentence(self) -> str:
        """In one line, with ordinary spaces."""
        return f"{self.heading} · {self.detail}".replace(NO_BREAK, " ") if self.detail else self.heading


def status(now: Situation) -> Status:
    """What drafting does at the moment, and why."""
    if now.failure is not None:
        return Status("Engine stopped", now.failure, "bad")
    if now.pair is None:
        return _without_models(now.engine_state)
    if now.pair.draft_refused is not None:
        return Status("Draft refused", f"{_sentence(now.pair.draft_refused)} The target answers alone.", "warning")
    if now.pair.draft is None:
        hint = "Open a small draft model of the same family to go faster."
        return Status("No draft", _figures(now) or f"The target answers alone. {hint}")
    if now.draft_length == 0:
        if now.figures is not None and now.figures.draft.tested:
            return Status("Draft off", "From the next answer on, the target answers alone.")
        return Status("Draft off", _figures(now) or "Draft length is 0: the target answers alone.")
    return _with_draft(now)


def _without_models(engine_state: str) -> Status:
    state = engine_state.strip()
    if state == "stopped":
        return Status("Engine stopped", "The chat says why, and restarts it.", "bad")
    if state and state not in ("ready", "no model"):
        return Status(state[0].upper() + state[1:], "")
    return Status("No models open", "Open a target model, and a draft model if you have one.")


def _with_draft(now: Situation) -> Status:
    guesses = "1 guess" if now.draft_length == 1 else f"{now.draft_length} guesses"
    detail = _figures(now)
    if not detail:
        waiting = "Reading the chat" if now.answering else "Figures come with the next answer"
        return Status("Draft on", f"{waiting} · up to {guesses} a{NO_BREAK}pass", "good")
    if now.speed_up is not None and now.speed_up < 0.97 and not now.answering:
        return Status("Draft on", f"{detail} · slower than plain here: try a shorter draft length", "warning")
    return Status("Draft on", detail, "good")


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
        "One round is one verify pass and what led to it, as a mean over the answer. Draft: the draft model guesses. "
        "Verify: the target checks all guesses in one pass. Rest: sampling, text and bookkeeping."
    ),
    "draft-length": (
        "Draft length: how many tokens the draft model guesses before each verify pass. 0 turns drafting off. Takes "
        "effect with the next answer."
    ),
    "show-drafted": (
        "Tints the tokens of an answer that came from the draft. Point at one to see its round, and at a token of the "
        "target's own to see the guess it replaced."
    ),
}
