"""From stored messages to what the engine is asked; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from app.chats.model import StoredMessage
from app.chats.prompt_parts import prompt_images, prompt_text
from app.chats.settings import ChatSettings
from app.models.hub.recommended import recommended
from app.protocol.answering import AnswerSettings, with_fields_of
from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.settings import Settings
from app.ui.engine import drafters

EXAMPLE = "What is speculative decoding?"


def answer_settings(chat: ChatSettings, values: Settings, pair: PairLoaded | None) -> AnswerSettings:
    """How the next answer of a chat is written; the automatic choice or the model's default
    replaces what the pair doesn't have."""
    found = recommended(pair, chat.thinking)
    settings = with_fields_of(
        AnswerSettings,
        chat,
        sampling=chat.sampling.over(found.sampling),
        draft_length="auto" if values.draft_length is None else values.draft_length,
        drafter=drafters.usable(chat.drafter, pair),
        propose=values.propose,
        accept=values.accept,
        thinking=found.thinking,
        format=chat.format(),
    )
    if pair is None or pair.remote is None:
        return settings
    # The server decides how it drafts, and what the user didn't choose is left to it.
    can_switch, wanted = pair.remote.can_switch_drafting, settings.format
    return msgspec.structs.replace(
        settings,
        draft_length="auto",
        drafter="none" if settings.drafter == "none" and can_switch else "auto",
        format=wanted if wanted is not None and wanted.kind in pair.remote.formats else None,
        chosen=list(chat.sampling.chosen()),
    )


@dataclass(frozen=True)
class Conversation:
    """Messages for the engine. ``sources[i]`` is the id of the stored message that message ``i`` begins with, without
    the system prompt."""

    messages: list[Message]
    sources: list[str]

    def under(self, system_prompt: str) -> Conversation:
        """The same with a system prompt, unless that is empty."""
        if not system_prompt.strip():
            return self
        return Conversation([Message(role="system", content=system_prompt), *self.messages], self.sources)

    def first_in_context(self, first_dropped: int, dropped: int) -> str | None:
        """The stored message behind those that were left out: ``dropped`` messages from ``first_dropped`` on.

        Both count as the engine does, the system prompt included.
        """
        after = first_dropped + dropped - (len(self.messages) - len(self.sources))
        return self.sources[after] if dropped and 0 <= after < len(self.sources) else None


def conversation(branch: Sequence[StoredMessage], system_prompt: str = "") -> Conversation:
    """What the engine sees of a branch.

    Many chat templates insist on turns that alternate, so messages of one side that follow each other (after an answer
    that never came) are joined, and empty answers left out.
    """
    turns: list[Message] = []
    sources: list[str] = []
    for message in branch:
        thinking, text = message.thinking, prompt_text(message.text, message.attachments)
        images = prompt_images(message.attachments)
        if message.role == "assistant" and (not text or text.isspace()):
            continue
        if turns and turns[-1].role == message.role:
            last = turns[-1]
            joined = "\n\n".join(filter(None, (last.thinking, thinking)))
            content = f"{last.content}\n\n{text}"
            turns[-1] = msgspec.structs.replace(last, content=content, thinking=joined, images=last.images + images)
        else:
            sent_at = message.created_at
            turns.append(Message(role=message.role, content=text, thinking=thinking, sent_at=sent_at, images=images))
            sources.append(message.id)
    return Conversation(turns, sources).under(system_prompt)


def question_to_measure(branch: Sequence[StoredMessage], system_prompt: str) -> list[Message]:
    """The chat up to its last question, or an example where there is none."""
    last = max((place for place, message in enumerate(branch) if message.role == "user"), default=-1)
    if last < 0:
        return [Message(role="user", content=EXAMPLE)]
    return conversation(branch[: last + 1], system_prompt).messages
