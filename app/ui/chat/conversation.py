"""From stored messages to what the engine is asked; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from app.chats.model import StoredMessage
from app.chats.prompt_parts import prompt_images, prompt_text
from app.chats.settings import ChatSettings
from app.models.hub.recommended import recommended
from app.protocol.commands import Generate, Message
from app.protocol.events import PairLoaded
from app.protocol.options import AcceptRule, AnswerFormat, DrafterChoice, DraftLength, Overflow, Propose, Sampling
from app.protocol.remote import RemoteModel
from app.settings import Settings
from app.ui.engine import drafters

EXAMPLE = "What is speculative decoding?"


@dataclass(frozen=True)
class AnswerSettings:
    """How an answer is written, with every value decided."""

    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    system_prompt: str = ""
    overflow: Overflow = "drop_oldest"
    draft_length: DraftLength = "auto"
    drafter: DrafterChoice = "auto"
    propose: Propose = "auto"
    accept: AcceptRule = "coupled"
    thinking: str = ""
    thinking_budget: int | None = None
    format: AnswerFormat | None = None
    chosen: tuple[str, ...] | None = None
    """With a server: which fields of ``sampling`` the user chose; the others are left to it."""

    def command(self, messages: list[Message], seed: int | None = None) -> Generate:
        """What an engine is asked for an answer to ``messages``; ``seed`` goes before the one of the settings."""
        return Generate(
            request=0,
            messages=messages,
            sampling=self.sampling,
            seed=self.seed if seed is None else seed,
            max_tokens=self.max_tokens,
            stop=list(self.stop),
            overflow=self.overflow,
            draft_length=self.draft_length,
            accept=self.accept,
            drafter=self.drafter,
            propose=self.propose,
            thinking=self.thinking,
            thinking_budget=self.thinking_budget,
            format=self.format,
            chosen=None if self.chosen is None else list(self.chosen),
        )


def answer_settings(chat: ChatSettings, values: Settings, pair: PairLoaded | None) -> AnswerSettings:
    """How the next answer of a chat is written; the automatic choice or the model's default
    replaces what the pair doesn't have."""
    found = recommended(pair, chat.thinking)
    settings = AnswerSettings(
        sampling=chat.sampling.over(found.sampling),
        seed=chat.seed,
        max_tokens=chat.max_tokens,
        stop=tuple(chat.stop),
        system_prompt=chat.system_prompt,
        overflow=chat.overflow,
        draft_length="auto" if values.draft_length is None else values.draft_length,
        drafter=drafters.usable(chat.drafter, pair),
        propose=values.propose,
        accept=values.accept,
        thinking=found.thinking,
        thinking_budget=chat.thinking_budget,
        format=chat.format(),
    )
    return settings if pair is None or pair.remote is None else _of_server(settings, chat, pair.remote)


def _of_server(settings: AnswerSettings, chat: ChatSettings, remote: RemoteModel) -> AnswerSettings:
    """The server decides how it drafts, and what the user didn't choose is left to it."""
    sampling, wanted = chat.sampling, settings.format
    return replace(
        settings,
        draft_length="auto",
        drafter="none" if settings.drafter == "none" and remote.can_switch_drafting else "auto",
        format=wanted if wanted is not None and wanted.kind in remote.formats else None,
        chosen=tuple(key for key in sampling.__struct_fields__ if getattr(sampling, key) is not None),
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
