"""The settings of an answer: chosen in a chat, sent to the engine, stored with the answer, repeated by Compare.

To add one to chats: a line in `PerChat`, its words in `WORDS`, and its use in the engine. Form, presets, command line,
reports and the API's field of the same name follow.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta
from msgspec.inspect import FloatType, IntType, Metadata, Type, UnionType, type_info

from app.protocol.options import (
    MAX_COUNT,
    AcceptRule,
    AnswerFormat,
    Count,
    DrafterChoice,
    DraftLength,
    Fraction,
    Overflow,
    Penalty,
    Propose,
    RepetitionPenalty,
    Sampling,
    Temperature,
    TopP,
)

S = TypeVar("S", bound=msgspec.Struct)


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

    def chosen(self) -> dict[str, float]:
        """The values that aren't ``None``."""
        return {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}

    def over(self, recommended: Sampling) -> Sampling:
        """``recommended``, with its values replaced by the chosen ones."""
        return msgspec.structs.replace(recommended, **self.chosen())


class PerChat(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that chats and answers share."""

    system_prompt: str = ""
    """Empty in commands, where it is the first message."""
    thinking: str = ""
    """One of `PairLoaded.thinking`; empty: the model's default. A chat keeps its choice even while the loaded model
    doesn't offer it."""
    thinking_budget: Count | None = None
    """After this many tokens, thinking is ended with the model's own closing mark; ``None``: no limit."""
    stop: list[str] = []
    """Texts that end the answer and aren't shown; ignored inside thinking."""
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    """``None``: until the answer ends or the context is full."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """``None``: the engine draws one, which `GenerationStarted` reports."""
    overflow: Overflow = "drop_oldest"
    drafter: DrafterChoice = "auto"


class AnswerSettings(PerChat, frozen=True, kw_only=True):
    """The settings of one answer, with nothing left open."""

    sampling: Sampling = Sampling()
    chosen: list[str] | None = None
    """For a server: the fields of ``sampling`` to send, the others being its choice; ``None``: all."""
    format: AnswerFormat | None = None
    """``None``: free text."""
    draft_length: DraftLength = "auto"
    propose: Propose = "auto"
    """Ignored under ``rejection`` and ``block``, where the draft model always samples."""
    accept: AcceptRule = "coupled"


def with_fields_of(kind: type[S], source: msgspec.Struct, **others: Any) -> S:
    """A ``kind`` with the fields of ``source`` that it shares, overridden by ``others``."""
    same = set(kind.__struct_fields__) & set(source.__struct_fields__)
    return kind(**({name: getattr(source, name) for name in same} | others))


def differing(settings: PerChat, *but: str) -> dict[str, Any]:
    """The chat settings that differ from their defaults, without those named in ``but``."""
    defaults, names = PerChat(), (name for name in PerChat.__struct_fields__ if name not in but)
    return {name: value for name in names if (value := getattr(settings, name)) != getattr(defaults, name)}


@cache
def kind_of(table: type[msgspec.Struct], key: str) -> Type:
    """The type of field ``key`` of ``table``, without ``None``."""
    kind = type_info(next(field.type for field in msgspec.structs.fields(table) if field.name == key))
    kind = kind.types[0] if isinstance(kind, UnionType) else kind
    return kind.type if isinstance(kind, Metadata) else kind


def range_of(table: type[msgspec.Struct], key: str) -> tuple[Any, Any]:
    """The minimum and maximum of a numeric field."""
    kind = kind_of(table, key)
    assert isinstance(kind, IntType | FloatType)
    return 1e-6 if kind.ge is None else kind.ge, kind.le


# ---------------------------------------------------------------- on screen


class Words(NamedTuple):
    """A setting's name, its explanation, and what is shown for no value."""

    title: str
    description: str
    empty: str = ""
    unit: str = ""


WORDS: dict[str, Words] = {
    "temperature": Words(
        "Temperature",
        "How varied the wording is. Low values stick to the most likely words, high values are more surprising. 0 "
        "always picks the most likely token.",
    ),
    "top_k": Words("Top-k", "Only this many of the most likely tokens are considered. 0 considers all of them."),
    "top_p": Words(
        "Top-p",
        "Only the most likely tokens are considered, until their probabilities add up to this value. 1 turns it off.",
    ),
    "min_p": Words(
        "Min-p",
        "Ignores tokens that are much less likely than the most likely one: at 0.05, those less than a twentieth "
        "as likely. 0 turns it off.",
    ),
    "repetition_penalty": Words(
        "Repetition penalty",
        "Values above 1 make recently used words less likely, which helps when an answer goes in circles. 1 turns "
        "it off.",
    ),
    "frequency_penalty": Words(
        "Frequency penalty", "Makes a word less likely the more often it was recently used. 0 turns it off."
    ),
    "presence_penalty": Words(
        "Presence penalty",
        "Makes all recently used words less likely, no matter how often they were used, so that the answer moves "
        "on to something new. 0 turns it off.",
    ),
    "penalty_window": Words(
        "Penalty window", "How many of the most recent tokens the three penalties apply to. 0 turns them off."
    ),
    "preset": Words("Preset", "A named set of these settings."),
    "system_prompt": Words(
        "System prompt",
        "Instructions for the model, for example how it should answer. They stay in the context when old messages "
        "are dropped.",
        empty="For example: Answer in short sentences",
    ),
    "thinking": Words(
        "Thinking",
        "How much the model thinks before it answers. Thinking helps with difficult questions, but the answer "
        "takes longer to begin.",
    ),
    "thinking_budget": Words(
        "Thinking limit",
        "Thinking ends after this many tokens, and the answer begins. Without a limit, the model decides when it "
        "is ready to answer.",
        empty="No limit",
        unit="tokens",
    ),
    "seed": Words(
        "Seed",
        "With a fixed seed, the same question gets the same answer every time. Without one, every answer is different.",
        empty="Random",
    ),
    "max_tokens": Words(
        "Length limit",
        "Answers are cut off after this many tokens. A token is a short word or part of a longer one. Without a "
        "limit, the model decides when it is finished.",
        empty="No limit",
        unit="tokens",
    ),
    "stop": Words(
        "Stop strings",
        "An answer ends as soon as the model writes one of these texts, which is not shown. One per line; \\n "
        "stands for a line break.",
    ),
    "answer_format": Words(
        "Answer format",
        "Free text, or only what follows a format: JSON, JSON by a schema, text that a regular expression "
        "matches, or a grammar. Thinking stays free.",
    ),
    "format_source": Words(
        "Schema or grammar", "The JSON schema, the regular expression or the grammar that answers follow."
    ),
    "tools": Words(
        "Tools",
        "Which tools the model may call in this chat. You are asked before a tool runs, unless you have allowed it.",
    ),
    "folders": Words("Folders", "Folders that the built-in tools may read in this chat."),
    "overflow": Words(
        "When the context is full",
        "A model can only see a limited amount of text at once. When a chat grows longer than that, it can end "
        "there, or the model stops seeing some of the messages. You still see all of them.",
    ),
    "drafter": Words(
        "Drafter",
        "What drafts the next words to make answers faster: a small draft model, a part of the model that "
        "predicts further words (a head), or text that is already in the chat. Answers are just as good as "
        "without a draft.",
    ),
}
TITLES: dict[str, dict[str, str]] = {
    "answer_format": {
        "text": "Free text",
        "json_object": "JSON",
        "json_schema": "JSON by a schema",
        "regex": "Regular expression",
        "lark": "Grammar (Lark)",
        "gbnf": "Grammar (GBNF)",
    },
    "overflow": {
        "stop": "End the chat there",
        "drop_oldest": "Drop the oldest messages",
        "keep_ends": "Drop messages from the middle",
    },
}
"""The names of these settings' values, in the order in which they are offered."""
