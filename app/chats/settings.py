"""How the answers of one chat are written: chosen in its settings, stored with it.

Titles and descriptions are what people read; the form shows them.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app.protocol.messages import DrafterChoice, Overflow, Sampling
from app.storage.json_file import NOT_UNDERSTOOD
from app.storage.lenient import lenient


class SamplingChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody chose of `Sampling`, with the same ranges; ``None`` is as the model recommends."""

    temperature: (
        Annotated[
            float,
            Meta(
                ge=0.0,
                le=10.0,
                title="Temperature",
                description="How varied the wording is. Low keeps to the most likely words, high surprises more often; "
                "0 always takes the most likely one.",
            ),
        ]
        | None
    ) = None
    top_k: (
        Annotated[
            int,
            Meta(
                ge=0,
                title="Top-k",
                description="Only this many of the most likely tokens can come next. 0 allows all of them.",
            ),
        ]
        | None
    ) = None
    top_p: (
        Annotated[
            float,
            Meta(
                gt=0.0,
                le=1.0,
                title="Top-p",
                description="Takes the most likely tokens until their chances add up to this, and leaves out the rest. "
                "1 leaves out none.",
            ),
        ]
        | None
    ) = None
    min_p: (
        Annotated[
            float,
            Meta(
                ge=0.0,
                le=1.0,
                title="Min-p",
                description="Leaves out tokens that are much less likely than the best one: 0.05 means less than "
                "a twentieth as likely. 0 leaves out none.",
            ),
        ]
        | None
    ) = None
    repetition_penalty: (
        Annotated[
            float,
            Meta(
                gt=0.0,
                le=10.0,
                title="Repetition penalty",
                description="Above 1, words that were just used become less likely. Helps when an answer goes in "
                "circles; 1 is off.",
            ),
        ]
        | None
    ) = None
    frequency_penalty: (
        Annotated[
            float,
            Meta(
                ge=-10.0,
                le=10.0,
                title="Frequency penalty",
                description="The more often a word was just used, the less likely it becomes. 0 is off.",
            ),
        ]
        | None
    ) = None
    presence_penalty: (
        Annotated[
            float,
            Meta(
                ge=-10.0,
                le=10.0,
                title="Presence penalty",
                description="Makes every word that was just used less likely, no matter how often, so the answer moves "
                "on to new things. 0 is off.",
            ),
        ]
        | None
    ) = None
    penalty_window: (
        Annotated[
            int,
            Meta(
                ge=0,
                title="Penalty window",
                description="How many of the last tokens the three penalties look at. 0 turns them off.",
            ),
        ]
        | None
    ) = None

    def over(self, recommended: Sampling) -> Sampling:
        """``recommended`` with what was chosen in its place."""
        chosen = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(recommended, **chosen)


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one chat, and what a preset holds."""

    preset: Annotated[
        str,
        Meta(title="Preset", description="A set of these settings, saved under a name."),
    ] = ""
    """Name of the preset the values were taken from; empty for none. They may have been changed since."""
    system_prompt: Annotated[
        str,
        Meta(
            title="System prompt",
            description="What the model is told before the chat begins, for example how to answer. It stays when old "
            "messages are left out.",
        ),
    ] = ""
    sampling: SamplingChoice = SamplingChoice()
    seed: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                title="Seed",
                description="A fixed number gives the same answer to the same question each time. Without one, each "
                "answer is different.",
            ),
        ]
        | None
    ) = None
    """``None`` draws another one for each answer."""
    max_tokens: (
        Annotated[
            int,
            Meta(
                ge=1,
                title="Length limit",
                description="An answer is cut off after this many tokens; a token is a short word or part of a long "
                "one. Without a limit the model decides when it is done.",
            ),
        ]
        | None
    ) = None
    """``None``: until the answer ends or the context is full."""
    stop: Annotated[
        list[str],
        Meta(
            title="Stop strings",
            description="Text that ends an answer as soon as the model writes it; the text itself is left out. One per "
            "line, \\n stands for a line break.",
        ),
    ] = []
    overflow: Annotated[
        Overflow,
        Meta(
            title="When the context is full",
            description="A model can only see so much text at once. When a chat has grown longer than that, you can "
            "end it there, or leave messages out of what the model sees; you still see all of them.",
        ),
    ] = "drop_oldest"
    drafter: Annotated[
        DrafterChoice,
        Meta(
            title="Drafter",
            description="What drafts the next words to speed up answers: a small draft model, or text that is already "
            "in the chat. Answers stay as good as without a draft.",
        ),
    ] = "auto"

    def to_json(self) -> str:
        """As the chat store keeps it; `chat_settings` reads it."""
        text = json.dumps(msgspec.to_builtins(self), ensure_ascii=False)
        return text.encode(errors="replace").decode()  # SQLite takes no halves of surrogate pairs


OVERFLOW_TITLES: dict[Overflow, str] = {
    "stop": "End the chat there",
    "drop_oldest": "Drop the oldest messages",
    "keep_ends": "Keep first and last messages",
}
"""What a list to choose from says, in its order."""


def chat_settings(text: str) -> ChatSettings | None:
    """What `ChatSettings.to_json` wrote, as far as it makes sense; ``None`` for an empty text: nothing was chosen."""
    if not text:
        return None
    try:
        content = msgspec.json.decode(text.encode(errors="replace"), type=dict[str, Any])
    except NOT_UNDERSTOOD:
        return None
    return lenient(ChatSettings, content, [])


def stop_strings_from(text: str) -> list[str]:
    r"""One stop string a line; ``\n``, ``\t`` and ``\\`` stand for a line break, a tab and a backslash."""
    return [re.sub(r"\\(.)", _unescaped, line) for line in text.splitlines() if line]


def stop_strings_as_text(stop: list[str]) -> str:
    """The reverse of `stop_strings_from`."""
    escaped = (text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for text in stop)
    return "\n".join(escaped)


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\"}.get(escape[1], escape[0])
