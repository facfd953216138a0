"""The text of the Speed panel: the status sentence, and the definitions of the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app import words
from app.protocol.events import Figures, KindFigures, PairLoaded, Pause
from app.protocol.options import DRAFTER_WORDS, DrafterChoice, DrafterName, DraftLength, TextKind
from app.protocol.remote import RemoteModel
from app.protocol.statistics import exported_acceptance_by_position, has_drafted, kind_speed
from app.ui.engine import pair_names
from app.words import NO_BREAK

Mood = Literal["good", "plain", "warning", "bad"]

SLOWER = 0.97
"""Below this factor of the speed without a draft, an answer counts as slower; between this and 1 it is noise."""
KINDS: dict[TextKind, str] = {"prose": "Prose", "code": "Code", "list": "Lists", "thinking": "Thinking"}
"""Kinds of text with their names, in the order in which they are shown."""
_OFF = "Drafting is off"
_NAME = "Model on a server"


@dataclass(frozen=True)
class Asked:
    """The drafting settings an answer is requested with."""

    draft_length: DraftLength
    drafters: tuple[DrafterName, ...]


@dataclass
class Situation:
    """What the status sentence depends on."""

    pair: PairLoaded | None = None
    is_remote: bool = False
    """Whether it is on a server, or was to be."""
    engine_state: str = ""
    failure: str | None = None
    draft_length: DraftLength = "auto"
    """For the next answer, like `drafter`."""
    drafter: DrafterChoice = "auto"
    asked: Asked | None = None
    """The settings of the answer being written or of the last one; ``None`` if there is none."""
    answering: bool = False
    figures: Figures | None = None
    """The figures of the answer being written or of the last one; ``None`` if there is none."""
    paused: Pause | None = None
    """Why drafting is paused in that answer, or was when it ended."""
    stopped: str | None = None
    """Why the draft model or the head was no longer used in that answer, a sentence; known when it has ended."""
    plain_pass: float | None = None
    """Mean seconds of a verify pass without a draft, in that answer."""
    drafted_pass: float | None = None
    """Mean seconds of drafting and verifying together, in that answer."""
    plain_speed: float | None = None

    @property
    def speed_up(self) -> float | None:
        """Decode speed ÷ measured decode speed without a draft."""
        if self.figures is None or not self.plain_speed or self.figures.decode_tokens_per_second is None:
            return None
        return self.figures.decode_tokens_per_second / self.plain_speed

    @property
    def coming(self) -> Asked:
        """The settings of the next answer."""
        return Asked(self.draft_length, pair_names.in_use(self.drafter, self.draft_length, self.pair))

    @property
    def changes(self) -> bool:
        """Whether the next answer will draft differently from the one the figures are about."""
        if self.asked is None or not (self.asked.drafters or self.coming.drafters):
            return False
        return self.asked != self.coming

    @property
    def drafters(self) -> tuple[DrafterName, ...]:
        """The drafters of the answer being written, otherwise of the next one."""
        return self.asked.drafters if self.asked is not None and self.answering else self.coming.drafters

    @property
    def is_paused(self) -> bool:
        """Whether these `drafters` are paused."""
        return self.paused is not None and (self.asked is None or self.asked.drafters == self.drafters)


@dataclass(frozen=True)
class Status:
    """The status in two parts, which `sentence` joins."""

    heading: str
    detail: str
    mood: Mood = "plain"
    why: str = ""
    """Explains a pause that the user can end."""

    @property
    def sentence(self) -> str:
        """All in one line, with ordinary spaces."""
        return f"{self.heading} · {self.detail}".replace(NO_BREAK, " ") if self.detail else self.heading


def status(now: Situation) -> Status:
    """What drafting is doing at the moment, and why."""
    if now.failure is not None:
        return Status("Engine stopped", now.failure, "bad")
    if now.pair is None:
        return _without_models(now.engine_state, is_remote=now.is_remote)
    if now.pair.remote is not None:
        return _on_server(now, now.pair.remote)
    return _here(now, now.pair)


def _here(now: Situation, pair: PairLoaded) -> Status:
    """With a pair on this computer."""
    if pair.drafting_off is not None:
        return Status("No drafting", _sentence(pair.drafting_off))
    if pair.draft_refused is not None and not _has_drafted(now):
        head = pair_names.head_title(pair)
        other = f"The {head} is used instead." if head else "N-grams are used instead."
        instead = other if now.drafters else "Answers are written without a draft."
        return Status("Draft model not used", f"{_sentence(pair.draft_refused)} {instead}", "warning")
    if pair.head_refused is not None and not _has_drafted(now):
        other = "The draft model is used instead." if pair_names.has_model(pair) else "N-grams are used instead."
        instead = f" {other}" if now.drafters else ""
        return Status("Head not used", f"{_sentence(pair.head_refused)}{instead}", "warning")
    if now.changes:
        return _change(now)
    if not now.drafters:
        return _off(now)
    if now.stopped is not None:
        return Status(_stopped_heading(now), _sentence(now.stopped), "warning")
    if now.paused is not None:
        return _paused(now, now.paused)
    return _on(now)


def _on_server(now: Situation, remote: RemoteModel) -> Status:
    """What is known of a server's drafting. No figures, nothing drafted and nothing accepted are different answers."""
    figures = now.figures
    if figures is None or now.answering or figures.draft.source == "engine":  # it hasn't finished
        if detail := _figures(now):
            return Status("Drafting on the server" if figures and figures.draft.tested else _NAME, detail, "good")
        if now.answering:
            return Status(_NAME, "Waiting for the server")
        has_figures = remote.figures != "none"
        return Status(_NAME, "Figures appear with the next answer." if has_figures else "Speed is measured here.")
    draft, detail = figures.draft, _figures(now)
    if draft.source == "none":
        return Status("No drafting figures", detail)
    if not has_drafted(draft):
        return Status("Nothing was drafted", detail)
    if draft.tested and not draft.accepted:
        return Status("No draft token was accepted", detail, "warning")
    return Status("Drafting on the server", detail, "good")


def has_acceptance(now: Situation, remote: RemoteModel) -> bool:
    """Whether there is, or will be, an acceptance rate of a server."""
    if now.figures is None or now.answering or now.figures.draft.source == "engine":
        return remote.figures != "none"
    return now.figures.draft.acceptance_rate is not None


def server_note(now: Situation) -> str:
    """Where the figures of a server come from, what has to be switched on there, or why there are none."""
    if now.pair is None or now.pair.remote is None:
        return ""
    remote, parts = now.pair.remote, [now.pair.remote.figures_note]
    draft = now.figures.draft if now.figures is not None and not now.answering else None
    if not remote.figures_note and remote.figures == "none":
        parts.append("This server gives no drafting figures.")
    if draft is not None and draft.source == "counters":
        parts.append("These figures come from the server's counters, so they include other requests at that time.")
    if draft is not None and draft.estimated_passes:
        parts.append(
            "The server doesn't report its verify passes, so tokens per pass is calculated from its other figures."
        )
    return " ".join(filter(None, parts))


def accepted_per_pass(figures: Figures) -> list[float]:
    """The share of verify passes that accepted at least 1, 2, … draft tokens, as a server counted them; else empty."""
    draft = figures.draft
    if passes := sum(draft.passes_per_accepted):
        counts = draft.passes_per_accepted
        return [sum(counts[least:]) / passes for least in range(1, len(counts))]
    return exported_acceptance_by_position(draft)


def _has_drafted(now: Situation) -> bool:
    """Whether there are figures to show for the n-grams that replace a refused draft model or head."""
    return now.paused is not None or (now.figures is not None and now.figures.draft.tested > 0)


def _without_models(engine_state: str, *, is_remote: bool) -> Status:
    state = engine_state.strip()
    if state == "stopped":
        return Status("Engine stopped", "The chat says why and can restart it.", "bad")
    if state and state not in ("ready", "no model"):
        return Status(state[0].upper() + state[1:], "")
    if is_remote:
        return Status("Not connected", "The chat says why, and what you can do about it.")
    return Status("No model open", "Open a target model, plus a draft model if you have one.")


def _change(now: Situation) -> Status:
    """The heading is about the answer being written, otherwise the next one; the figures belong to other settings."""
    detail = f"Starting with the next answer: {_next(now)}."
    if not now.drafters:
        return Status(_OFF, detail)
    if now.is_paused:
        return Status(_paused_heading(now), detail)
    return Status(_on_heading(now), detail, "good")


def _next(now: Situation) -> str:
    coming = now.coming
    if not coming.drafters:
        return "no drafting"
    if now.asked is None or not now.asked.drafters or now.asked.drafters == coming.drafters:
        return _length(coming.draft_length)
    if len(coming.drafters) > 1:
        *names, last = (DRAFTER_WORDS[name].sentence for name in coming.drafters)
        return f"{', '.join(names)} and {last}"
    return f"only {DRAFTER_WORDS[coming.drafters[0]].sentence}"


def _length(length: DraftLength) -> str:
    return "draft length Auto" if length == "auto" else f"up to {words.draft_tokens(length)} per{NO_BREAK}pass"


def _off(now: Situation) -> Status:
    reason = "Draft length is 0" if now.draft_length == 0 else "No drafter is chosen"
    return Status(_OFF, _figures(now) or f"{reason}, so answers are written without a draft.")


def _on_heading(now: Situation) -> str:
    return "Drafting with n-grams" if now.drafters == ("ngram",) else "Drafting"


def _paused_heading(now: Situation) -> str:
    return f"{_on_heading(now)} is paused"


def _stopped_heading(now: Situation) -> str:
    names = [name for name in now.drafters if name != "ngram"]
    what = DRAFTER_WORDS[names[0]].title if len(names) == 1 else "Part of the drafting"
    return f"{what} stopped in this answer"


def _paused(now: Situation, pause: Pause) -> Status:
    accepted, needed = _told_apart(pause)
    needs = f", and this computer needs about{NO_BREAK}{needed} to break even" if needed else ""
    detail = f"It isn't saving time on this text: about{NO_BREAK}{accepted} of the draft tokens are accepted{needs}."
    if pause.break_even_rate >= 1.0:
        detail = "Right now, even a fully accepted draft wouldn't save time on this computer."
    return Status(_paused_heading(now), detail, why=_why(now, pause, accepted, needed))


def _told_apart(pause: Pause) -> tuple[str, str]:
    """Both shares, with a decimal if they would look the same without; the second is empty if that doesn't help."""
    if pause.acceptance_rate < pause.break_even_rate < 1.0:
        for digits in (0, 1):
            rate, needed = words.share(pause.acceptance_rate, digits), words.share(pause.break_even_rate, digits)
            if rate != needed:
                return rate, needed
    return words.share(pause.acceptance_rate), ""


def _why(now: Situation, pause: Pause, accepted: str, needed: str) -> str:
    costs = "Drafting takes time, and a verify pass takes longer when it has a draft to check."
    if pause.break_even_rate >= 1.0:
        reason = f"{costs} On this computer that costs more than even a fully accepted draft would save."
    elif needed:
        reason = f"{costs} On this computer, drafting saves time once about {needed} of the draft tokens are accepted."
    else:
        reason = f"{costs} That is just below the break-even point on this computer."
    times = ""
    if now.plain_pass is not None and now.drafted_pass is not None:
        drafted, plain = words.milliseconds(now.drafted_pass), words.milliseconds(now.plain_pass)
        times = f" In this answer, a pass took {drafted} with a draft and {plain} without one."
    return (
        f"Going by the latest passes, about {accepted} of the draft tokens are accepted here. {reason}{times}\n"
        "While drafting is paused, the target model writes on its own, which is faster. Slipstream keeps testing a few "
        "draft tokens and resumes on its own."
    )


def _on(now: Situation) -> Status:
    heading = _on_heading(now)
    detail = _figures(now)
    if not detail:
        return Status(heading, _waiting(now), "good")
    if now.drafters == ("ngram",) and now.figures is not None and not now.figures.draft.tested:
        return Status(heading, f"no matches in the chat yet · {detail}", "good")
    if now.speed_up is not None and now.speed_up < SLOWER and not now.answering:
        # Auto doesn't stay slower: more likely the computer was faster when the speed without a draft was measured.
        advice = "try measuring that again" if now.draft_length == "auto" else "try draft length Auto"
        return Status(heading, f"{detail} · slower than without a draft: {advice}", "warning")
    return Status(heading, detail, "good")


def _waiting(now: Situation) -> str:
    if now.answering:
        return f"Processing the prompt · {_length(now.draft_length)}"
    if pair_names.has_model(now.pair) or pair_names.has_head(now.pair):
        return f"Figures appear with the next answer · {_length(now.draft_length)}"
    more = (
        "This model's MTP head isn't in use."
        if now.pair is not None and now.pair.head_off
        else "A small draft model of the same family helps more."
    )
    return f"Draft tokens are taken from the chat itself. {more}"


def _figures(now: Situation) -> str:
    """``68% accepted · 2.9 tokens per pass · 74 tok/s · 1.8× faster``, as far as it is known."""
    parts = []
    if now.figures is not None and has_drafted(now.figures.draft):
        if now.figures.draft.acceptance_rate is not None:
            parts.append(words.accepted(now.figures.draft.acceptance_rate))
        if (per_pass := _tokens_per_pass(now)) is not None:
            parts.append(per_pass)
    if now.figures is not None and now.figures.decode_tokens_per_second is not None:
        parts.append(words.speed(now.figures.decode_tokens_per_second))
    if parts and now.speed_up is not None:
        parts.append(words.speed_up(now.speed_up))
    return " · ".join(parts)


def _tokens_per_pass(now: Situation) -> str | None:
    assert now.figures is not None
    draft = now.figures.draft
    # A server's passes are known only when it has finished.
    if draft.mean_acceptance_length is None or (now.answering and now.pair is not None and now.pair.remote):
        return None
    return words.tokens_per_pass(draft.mean_acceptance_length, is_estimated=draft.estimated_passes)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "…")) else f"{text}."


def length_used(asked: Asked, figures: Figures) -> int | None:
    """The draft length of the draft model or head in an answer: for Auto the mean, 0 if most passes had no draft
    from it. ``None`` if neither was used."""
    name = next((name for name in asked.drafters if name != "ngram"), None)
    if name is None:
        return None
    if asked.draft_length != "auto":
        return asked.draft_length
    draft = figures.draft
    model = next((one for one in draft.drafters if one.name == name), None)
    passes = draft.verify_passes - sum(one.verify_passes for one in draft.drafters if one.name != name)
    if model is None or 2 * model.verify_passes < passes:
        return 0
    return round(model.drafted / model.verify_passes) if model.verify_passes else None


def kind_details(figures: KindFigures, plain: float | None) -> str:
    """The counts behind the row of a kind of text."""
    tested = words.draft_tokens(figures.tested)
    accepted = f"{words.number(figures.accepted)} of {tested} accepted, {words.speed(kind_speed(figures))}"
    against = (
        f"Without a draft: {words.speed(plain)}." if plain else "The speed without a draft hasn't been measured yet."
    )
    return f"{KINDS[figures.kind]}: {words.tokens(figures.tokens)} in this pair's answers, {accepted}. {against}"


def fewer_threads(count: int, pair: PairLoaded | None) -> str:
    """``1 of 2 threads: other programs are busy.``; empty if all of them compute."""
    if not count or pair is None:
        return ""
    return f"{count} of {max(pair.threads, pair.batch_threads)} threads: other programs are busy."


def always_draft(default_length: int) -> str:
    """What the button "Always draft" does."""
    return (
        f"Drafts even when that is slower, with a fixed draft length of {default_length}. This starts with the next "
        "answer and applies to every chat until you set the draft length to Auto again."
    )


HELP = {
    "status": (
        "What drafting is doing now, with the figures of this answer: the acceptance rate, the mean acceptance length "
        "(tokens per pass) and the decode speed."
    ),
    "speed": (
        "While an answer is being written: the tokens of the last 3 s ÷ that time. Afterwards, the decode speed: "
        "tokens after the first ÷ time from the first to the last. Prompt processing is not included. The dashed line "
        "is the measured speed without a draft."
    ),
    "acceptance": (
        "Acceptance rate: accepted ÷ tested draft tokens (those that were checked in a verify pass). While an answer "
        "is being written it covers the last 3 s, afterwards the whole answer."
    ),
    "speed-up": (
        "Speed-up: the decode speed of this answer ÷ the decode speed without a draft, measured on this computer with "
        "the same target model, context length and sampling settings."
    ),
    "measure": (
        "Writes a short answer without a draft and without showing it, to measure how fast the target model is on its "
        "own. Nothing is added to the chat."
    ),
    "positions": (
        "Acceptance by position: of the drafts that had a token at this position, the share whose tokens up to and "
        "including it were all accepted. While an answer is being written it covers the last 3 s, afterwards the whole "
        "answer. Where the bars get short, a longer draft no longer helps."
    ),
    "server": (
        "The server drafts by its own settings, which can't be changed from here. What Slipstream shows is what the "
        "server says about its drafting; speeds and times are measured on this computer."
    ),
    "server-positions": (
        "Of all verify passes of this answer, the share that accepted at least this many draft tokens, as the server "
        "counted them. (vLLM defines acceptance by position like this.)"
    ),
    "round": (
        "A round is one verify pass and the drafting before it; these are means over the answer. Draft: proposing the "
        "draft tokens. Verify: the target model checks all of them in one pass. Other: sampling, text and bookkeeping."
    ),
    "curve": (
        "The speed that each fixed draft length would reach on text like the last answer's. It is calculated from the "
        "measured times of drafting and of verify passes and from the acceptance rate; these lengths were not run. "
        "Length 0 means no draft; columns above the dashed line are faster than that. The filled column is the "
        "length in use (with Auto, the mean of the last answer), the underlined number is the fixed length of the next "
        "answer. Auto can beat its column, because it stops drafting where another token isn't worth its time."
    ),
    "kinds": (
        "How well drafting works with this pair on this computer, by kind of text. It covers all answers, but recent "
        "ones count more. The first figure is the acceptance rate, the second the decode speed on this kind of text "
        "÷ the measured speed without a draft (or just the decode speed where that hasn't been measured). These "
        "figures never leave this computer."
    ),
    "draft-length": (
        "Draft length: how many tokens are drafted before each verify pass. Auto drafts as many as save time, based on "
        "measurements on this computer, and pauses when none do. A fixed length is always used; 0 turns drafting off. "
        "Changes take effect with the next answer."
    ),
    "drafter": (
        "What proposes the draft tokens. A draft model works on any text, and so does a head (MTP or EAGLE-3), which "
        "predicts further tokens from what the model has computed. n-grams repeat what followed the same words earlier "
        "in the chat: they cost almost nothing and work well on repetitive text such as code. Automatic uses whichever "
        "promises more. Changes take effect with the next answer."
    ),
    "show-drafted": (
        "Tints the draft tokens that were accepted in an answer, by drafter: the draft model, n-grams (dotted "
        "underline), the head (solid underline) or the answer's format (dashed underline). Point at one to see its "
        "round; point at one of the target model's own tokens to see the draft token it replaced."
    ),
}
