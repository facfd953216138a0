"""The line under an answer: its figures and why it stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

from app import decoders, words
from app.chats.model import StoredMessage
from app.models.text import shortened
from app.protocol.events import DrafterFigures, DraftFigures, Figures, KindFigures
from app.protocol.options import TEMPLATE_TITLES
from app.protocol.statistics import has_drafted
from app.ui.engine import drafters
from app.ui.engine.pair_names import thinking_lines

HELP = (
    "From left to right: the decode speed (tokens after the first ÷ time from the first to the last), the tokens in "
    "the answer including any thinking, the time from Send to the first token, the acceptance rate (accepted ÷ tested "
    "draft tokens), the mean acceptance length (1 + accepted ÷ verify passes) and, if the answer was cut short, the "
    "reason."
)
_LONGEST_STOP = 20
_ENDS = {
    "stop_string": "stopped at a stop string",
    "length": "reached the length limit",
    "context": "context full",
    "cancelled": "stopped by you",
    "repeats": "stopped because it kept repeating itself",
}
CUT = ("length", "context", "cancelled")
WHILE_WRITTEN = " while this answer was being written. Everything up to here was saved."
_BEFORE = " before this answer began."


def figures_of(stored: Mapping[str, object]) -> Figures:
    """The figures stored with an answer; empty ones if they cannot be read.

    Unknown drafters and kinds of text are left out.
    """
    figures, draft = dict(stored), stored.get("draft")
    if isinstance(draft, dict) and isinstance(draft.get("drafters"), list):
        figures["draft"] = {**draft, "drafters": _readable(draft["drafters"], DrafterFigures)}
    if isinstance(kinds := stored.get("kinds"), list):
        figures["kinds"] = _readable(kinds, KindFigures)
    try:
        return decoders.convert(figures, Figures)
    except msgspec.ValidationError:
        return Figures()


def _readable(entries: list[object], kind: type) -> list[object]:
    found: list[object] = []
    for entry in entries:
        with contextlib.suppress(msgspec.ValidationError):
            found.append(decoders.convert(entry, kind))
    return found


def footer_of(message: StoredMessage) -> str:
    """The footer of a finished answer; figures that were not measured are left out."""
    stored = message.figures
    figures = figures_of(stored)
    parts = []
    if figures.decode_tokens_per_second:
        parts.append(words.speed(figures.decode_tokens_per_second))
    if figures.completion_tokens:
        parts.append(words.tokens(figures.completion_tokens))
    if figures.time_to_first_token_seconds is not None:
        parts.append(f"{words.seconds(figures.time_to_first_token_seconds)} to first token")
    parts += _draft_parts(figures.draft)
    if stored.get("edited") is True:
        parts.append("edited")
    parts.append(_end(message))
    template = message.settings.get("template")
    parts += [f"{title} template" for name, title in TEMPLATE_TITLES.items() if template == name]
    return " · ".join(part for part in parts if part)


def _draft_parts(draft: DraftFigures) -> list[str]:
    """``68% accepted``, ``2.9 tokens per pass``; of a server's figures what they are."""
    if not has_drafted(draft):
        return []
    parts = [words.accepted(draft.acceptance_rate)] if draft.tested and draft.acceptance_rate is not None else []
    if draft.mean_acceptance_length is not None and (parts or draft.source != "engine"):
        parts.append(words.tokens_per_pass(draft.mean_acceptance_length, is_estimated=draft.estimated_passes))
    return [*parts, "drafting figures from the server's counters"] if draft.source == "counters" else parts


def details_of(message: StoredMessage) -> str:
    """One per line: thinking and answer, if there was thinking; what each drafter did, if there was more than one."""
    figures = figures_of(message.figures)
    helped = [one for one in figures.draft.drafters if one.tested]
    drafted = [_drafter_line(one) for one in helped] if len(helped) > 1 else []
    return "\n".join([*thinking_lines(figures), *drafted])


def _drafter_line(figures: DrafterFigures) -> str:
    """``Draft model: 120 of 160 draft tokens accepted (75%) in 40 verify passes``."""
    word = "pass" if figures.verify_passes == 1 else "passes"
    passes = f"{words.number(figures.verify_passes)}{words.NO_BREAK}verify{words.NO_BREAK}{word}"
    tested, rate = words.draft_tokens(figures.tested), words.share(figures.acceptance_rate)
    accepted = f"{words.number(figures.accepted)} of {tested} accepted ({rate})"
    return f"{drafters.TITLES[figures.name]}: {accepted} in {passes}"


def _end(message: StoredMessage) -> str:
    if message.status in ("interrupted", "failed"):
        return ""
    stop = message.figures.get("stop_string")
    if message.finish_reason == "stop_string" and isinstance(stop, str):
        return f"stopped at “{shortened(stop, _LONGEST_STOP)}”"
    return _ENDS.get(message.finish_reason or "", "")


def thinking_title(message: StoredMessage) -> str:
    """What stands above the thinking of a finished answer."""
    seconds = figures_of(message.figures).thinking_seconds
    took = words.duration(seconds) if seconds else ""
    if (message.status == "complete" and message.finish_reason not in CUT) or message.text.strip():
        return thought_for(seconds)
    return f"Stopped thinking after {took}" if took else "Stopped thinking"


def thought_for(seconds: float) -> str:
    """``Thought for 12 s``; without the time where that isn't known."""
    return f"Thought for {words.duration(seconds)}" if seconds else "Thinking"


def note_of(message: StoredMessage) -> str | None:
    """A sentence under an answer that did not end by itself."""
    failure = message.figures.get("failure")
    if message.status == "interrupted" and not isinstance(failure, str):
        failure = f"Slipstream closed{WHILE_WRITTEN}"
    if isinstance(failure, str):
        return failure if message.text or message.thinking else failure.replace(WHILE_WRITTEN, _BEFORE)
    if message.status == "failed":
        return "Something went wrong, and there is no answer."
    if message.finish_reason in ("end", "stop_string") and not message.text.strip():
        after = "The model stopped after thinking, without writing an answer."
        return after if message.thinking.strip() else "The model ended its answer before the first word."
    return None
