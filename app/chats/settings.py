"""How the answers of one chat are written: chosen in its settings, stored with it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app import decoders
from app.protocol.limits import MAX_COUNT, MAX_GRAMMAR_CHARACTERS
from app.protocol.options import (
    AnswerFormat,
    Count,
    DrafterChoice,
    FormatChoice,
    Fraction,
    Overflow,
    Penalty,
    RepetitionPenalty,
    Sampling,
    Temperature,
    TopP,
)
from app.storage.json_file import NOT_UNDERSTOOD
from app.storage.lenient import lenient


class SamplingChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choices for `Sampling`; ``None``: as the model recommends."""

    temperature: Temperature | None = None
    top_k: Count | None = None
    top_p: TopP | None = None
    min_p: Fraction | None = None
    repetition_penalty: RepetitionPenalty | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    penalty_window: Count | None = None

    def over(self, recommended: Sampling) -> Sampling:
        """``recommended``, with its values replaced by the chosen ones."""
        chosen = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(recommended, **chosen)


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one chat, and the content of a preset."""

    preset: str = ""
    """Name of the preset the values came from; empty for none. They may have been changed since."""
    system_prompt: str = ""
    thinking: str = ""
    """One of `PairLoaded.thinking`; empty: the model's default. Kept while a model is loaded that doesn't have it."""
    thinking_budget: Count | None = None
    """``None``: no limit."""
    sampling: SamplingChoice = SamplingChoice()
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """``None``: a different seed for each answer."""
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    """``None``: until the answer ends or the context is full."""
    stop: list[str] = []
    answer_format: FormatChoice = "text"
    format_source: Annotated[str, Meta(max_length=MAX_GRAMMAR_CHARACTERS)] = ""
    overflow: Overflow = "drop_oldest"
    drafter: DrafterChoice = "auto"

    def format(self) -> AnswerFormat | None:
        """What answers have to follow; ``None`` for free text."""
        if self.answer_format == "text":
            return None
        source = "" if self.answer_format == "json_object" else self.format_source
        return AnswerFormat(kind=self.answer_format, source=source)

    def to_json(self) -> str:
        """In the form in which the chat store keeps it; `chat_settings` reads it."""
        text = json.dumps(msgspec.to_builtins(self), ensure_ascii=False)
        return text.encode(errors="replace").decode()  # SQLite doesn't accept half a surrogate pair


WORDS = {
    "temperature": (
        "Temperature",
        "How varied the wording is. Low values stick to the most likely words, high values are more surprising. 0 "
        "always picks the most likely token.",
    ),
    "top_k": ("Top-k", "Only this many of the most likely tokens are considered. 0 considers all of them."),
    "top_p": (
        "Top-p",
        "Only the most likely tokens are considered, until their probabilities add up to this value. 1 turns it off.",
    ),
    "min_p": (
        "Min-p",
        "Ignores tokens that are much less likely than the most likely one: at 0.05, those less than a twentieth "
        "as likely. 0 turns it off.",
    ),
    "repetition_penalty": (
        "Repetition penalty",
        "Values above 1 make recently used words less likely, which helps when an answer goes in circles. 1 turns "
        "it off.",
    ),
    "frequency_penalty": (
        "Frequency penalty",
        "Makes a word less likely the more often it was recently used. 0 turns it off.",
    ),
    "presence_penalty": (
        "Presence penalty",
        "Makes all recently used words less likely, no matter how often they were used, so that the answer moves "
        "on to something new. 0 turns it off.",
    ),
    "penalty_window": (
        "Penalty window",
        "How many of the most recent tokens the three penalties apply to. 0 turns them off.",
    ),
    "preset": ("Preset", "A named set of these settings."),
    "system_prompt": (
        "System prompt",
        "Instructions for the model, for example how it should answer. They stay in the context when old messages "
        "are dropped.",
    ),
    "thinking": (
        "Thinking",
        "How much the model thinks before it answers. Thinking helps with difficult questions, but the answer "
        "takes longer to begin.",
    ),
    "thinking_budget": (
        "Thinking limit",
        "Thinking ends after this many tokens, and the answer begins. Without a limit, the model decides when it "
        "is ready to answer.",
    ),
    "seed": (
        "Seed",
        "With a fixed seed, the same question gets the same answer every time. Without one, every answer is different.",
    ),
    "max_tokens": (
        "Length limit",
        "Answers are cut off after this many tokens. A token is a short word or part of a longer one. Without a "
        "limit, the model decides when it is finished.",
    ),
    "stop": (
        "Stop strings",
        "An answer ends as soon as the model writes one of these texts, which is not shown. One per line; \\n "
        "stands for a line break.",
    ),
    "answer_format": (
        "Answer format",
        "Free text, or only what follows a format: JSON, JSON by a schema, text that a regular expression "
        "matches, or a grammar. Thinking stays free.",
    ),
    "format_source": (
        "Schema or grammar",
        "The JSON schema, the regular expression or the grammar that answers follow.",
    ),
    "overflow": (
        "When the context is full",
        "A model can only see a limited amount of text at once. When a chat grows longer than that, it can end "
        "there, or the model stops seeing some of the messages. You still see all of them.",
    ),
    "drafter": (
        "Drafter",
        "What drafts the next words to make answers faster: a small draft model, a part of the model that "
        "predicts further words (MTP head), or text that is already in the chat. Answers are just as good as "
        "without a draft.",
    ),
}
"""What each setting is called, and what it does, on screen."""
FORMAT_TITLES: dict[FormatChoice, str] = {
    "text": "Free text",
    "json_object": "JSON",
    "json_schema": "JSON by a schema",
    "regex": "Regular expression",
    "lark": "Grammar (Lark)",
    "gbnf": "Grammar (GBNF)",
}
"""The options of the drop-down list, in order."""
OVERFLOW_TITLES: dict[Overflow, str] = {
    "stop": "End the chat there",
    "drop_oldest": "Drop the oldest messages",
    "keep_ends": "Drop messages from the middle",
}
"""The options of the drop-down list, in order."""


def chat_settings(text: str) -> ChatSettings | None:
    """Settings from `ChatSettings.to_json`, without invalid values; ``None`` for an empty text, which means nothing was
    chosen.
    """
    if not text:
        return None
    try:
        content = decoders.decode(text.encode(errors="replace"), dict[str, Any])
    except NOT_UNDERSTOOD:
        return None
    return lenient(ChatSettings, content, [])


def stop_strings_from(text: str) -> list[str]:
    r"""One stop string per line; ``\n``, ``\t`` and ``\\`` stand for a line break, a tab and a backslash."""
    return [re.sub(r"\\(.)", _unescaped, line) for line in text.splitlines() if line]


def stop_strings_as_text(stop: list[str]) -> str:
    """The reverse of `stop_strings_from`."""
    escaped = (text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for text in stop)
    return "\n".join(escaped)


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\"}.get(escape[1], escape[0])
