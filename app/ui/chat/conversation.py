"""What the engine sees of a chat: turns as chat templates expect them, and tool calls with their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import msgspec

from app.chats.attachments import prompt_images, prompt_text
from app.chats.model import StoredCall, StoredMessage, to_json
from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.protocol.tools import ToolCall, template_id
from app.tools.offered import as_object
from app.ui.chat.footer import CUT
from app.ui.engine.pair_names import is_author

EXAMPLE = "What is speculative decoding?"


@dataclass(frozen=True)
class Conversation:
    """Messages for the engine. ``sources[i]`` is the stored message that message ``i`` begins with, not counting the
    system prompt."""

    messages: list[Message]
    sources: list[StoredMessage]

    def under(self, system_prompt: str) -> Conversation:
        """The same with a system prompt, unless the prompt is empty."""
        if not system_prompt.strip():
            return self
        return Conversation([Message(role="system", content=system_prompt), *self.messages], self.sources)

    def fit_for(self, pair: PairLoaded | None) -> Conversation:
        """The same for this pair: without other models' tokens, and without tools' images if it can't see images."""
        sees = pair is None or pair.projector is not None
        if pair is not None and pair.remote is not None:
            sees = "images" not in pair.remote.refused
        authors = {one.pair: is_author(pair, one.pair) for one in self.sources}
        begin = len(self.messages) - len(self.sources)
        turns = [
            _fitting(message, knows_tokens=authors[source.pair], sees_images=sees)
            for message, source in zip(self.messages[begin:], self.sources, strict=True)
        ]
        return Conversation([*self.messages[:begin], *turns], self.sources)

    def first_in_context(self, first_dropped: int, dropped: int) -> str | None:
        """The stored message after those that were left out: ``dropped`` messages from ``first_dropped`` on, counting
        the system prompt."""
        after = first_dropped + dropped - (len(self.messages) - len(self.sources))
        return self.sources[after].id if dropped and 0 <= after < len(self.sources) else None


def conversation(branch: Sequence[StoredMessage], system_prompt: str = "") -> Conversation:
    """What the engine sees of a branch.

    Many chat templates insist on alternating turns, so consecutive messages from one side (after an answer that never
    came) are joined, and empty answers are left out. Each tool call is followed by its result.
    """
    turns: list[Message] = []
    sources: list[StoredMessage] = []
    for message in branch:
        for turn in turns_of(message):
            last = turns[-1] if turns else None
            if last is not None and last.role == turn.role != "tool":
                turns[-1] = msgspec.structs.replace(
                    turn,
                    content=f"{last.content}\n\n{turn.content}",
                    thinking="\n\n".join(filter(None, (last.thinking, turn.thinking))),
                    sent_at=last.sent_at,
                    images=last.images + turn.images,
                    tokens=(),
                )
            else:
                turns.append(turn)
                sources.append(message)
    return Conversation(turns, sources).under(system_prompt)


def turns_of(message: StoredMessage) -> Iterator[Message]:
    """A stored message as the chat template sees it. An answer with calls is several turns: what the model wrote up to
    the calls, a result for each, and so on."""
    text, thinking, start = message.text, message.thinking, Place()
    sent_at, images = message.created_at, prompt_images(message.attachments)
    for _, group in groupby(message.calls, lambda call: call.tokens):
        calls = list(group)
        end = Place.behind(calls[-1])
        yield Message(
            role="assistant",
            content=text[start.text : end.text].removeprefix(BETWEEN if start.text else ""),
            thinking=thinking[start.thinking : end.thinking].removeprefix(BETWEEN if start.thinking else ""),
            sent_at=sent_at,
            tool_calls=tuple(map(_template_call, calls)),
            tokens=tuple(message.tokens[start.tokens : end.tokens]),
        )
        for one in calls:
            shown = tuple(image for image in images if image.sha256 in one.images)
            images = tuple(image for image in images if image not in shown)
            known = template_id(one.id)
            yield Message(role="tool", content=_result(one), images=shown, tool_call_id=known, tool_name=one.name)
        start = end
    content = prompt_text(text[start.text :].removeprefix(BETWEEN if start.text else ""), message.attachments)
    if message.role != "assistant" or (content and not content.isspace()):
        thought = thinking[start.thinking :].removeprefix(BETWEEN if start.thinking else "")
        yield Message(role=message.role, content=content, thinking=thought, sent_at=sent_at, images=images)


BETWEEN = "\n\n"
"""Separates what the model writes before and after a call, in the answer's text and in its thinking."""


class Place(NamedTuple):
    """A place in an answer: how many characters of text and of thinking, and how many tokens, come before it."""

    text: int = 0
    thinking: int = 0
    tokens: int = 0

    @classmethod
    def behind(cls, call: StoredCall) -> Place:
        """The end of the turn that this call belongs to."""
        return cls(call.text, call.thinking, call.tokens)


def last_turn(message: StoredMessage) -> tuple[str, str]:
    """An answer's text and thinking after its last call."""
    start = Place.behind(message.calls[-1]) if message.calls else Place()
    return message.text[start.text :], message.thinking[start.thinking :]


def _result(call: StoredCall) -> str:
    """What the model is told about a call."""
    match call.state:
        case "done":
            return call.result or "The tool returned nothing."
        case "failed":
            return f"The call failed. {call.result}".rstrip()
        case "denied":
            return f"The user denied this call. {call.result}".rstrip()
    return "The call was stopped before it had a result."


def _template_call(call: StoredCall) -> ToolCall:
    """A call that templates can read: the arguments have to be an object."""
    arguments = call.arguments if as_object(call.arguments) is not None else to_json({"arguments": call.arguments})
    return ToolCall(template_id(call.id), call.name, arguments)


def _fitting(turn: Message, *, knows_tokens: bool, sees_images: bool) -> Message:
    if turn.tokens and (not knows_tokens or -1 in turn.tokens):
        turn = msgspec.structs.replace(turn, tokens=())
    if turn.role == "tool" and turn.images and not sees_images:
        count = "an image" if len(turn.images) == 1 else f"{len(turn.images)} images"
        note = f"(The tool also returned {count}, which you can't see.)"
        turn = msgspec.structs.replace(turn, content=f"{turn.content}\n\n{note}", images=())
    return turn


def question_to_measure(branch: Sequence[StoredMessage], system_prompt: str) -> list[Message]:
    """The chat up to its last question, or an example where there is none."""
    last = max((place for place, message in enumerate(branch) if message.role == "user"), default=-1)
    if last < 0:
        return [Message(role="user", content=EXAMPLE)]
    return conversation(branch[: last + 1], system_prompt).messages


def was_cut(message: StoredMessage) -> bool:
    """Whether this is an answer that was cut off before its end."""
    is_cut = message.status in ("stopped", "interrupted") or message.finish_reason in CUT
    has_begun = bool(message.text or message.thinking or message.calls) or len(message.tokens) > 0
    return message.role == "assistant" and is_cut and has_begun


def can_continue(message: StoredMessage) -> bool:
    """Whether an answer was cut off and the tokens to continue from are known; after calls, none are needed."""
    if not was_cut(message):
        return False
    return ends_with_calls(message) or len(message.tokens) >= bool(message.text) + bool(message.thinking)


def ends_with_calls(message: StoredMessage) -> bool:
    """Whether the model has written nothing after an answer's last call."""
    return bool(message.calls) and not any(last_turn(message))
