"""The messages that come from the user: a question, and another wording of an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.chats.model import Attachment, StoredMessage, to_json
from app.chats.store import ChatStore, new_id
from app.ui.chat.footer import figures_of
from app.ui.chat.unsent import UnsentMessage


def new_question(
    chat_id: str,
    text: str,
    attachments: tuple[Attachment, ...],
    before: Sequence[StoredMessage],
    in_place_of: StoredMessage | None = None,
) -> StoredMessage:
    """A message of the user behind ``before``; ``in_place_of``: the one that it is another version of."""
    versions = 1 if in_place_of is None else in_place_of.versions + 1
    return StoredMessage(
        *(new_id(), chat_id, before[-1].id if before else None, "user", text, "complete", time.time()),
        version=versions,
        versions=versions,
        attachments=attachments,
    )


def edited_answer(old: StoredMessage, text: str) -> StoredMessage:
    """The same answer in the user's wording, as its newest version."""
    return replace(
        old,
        id=new_id(),
        text=text,
        status="complete",
        created_at=time.time(),
        seed=None,
        finish_reason=None,
        figures_json=to_json({"edited": True, "thinking_s": figures_of(old.figures).thinking_seconds}),
        provenance_json="[]",
        tokens=(),
        version=old.versions + 1,
        versions=old.versions + 1,
    )


def question_writer(
    question: StoredMessage, unsent: UnsentMessage, *, first_settings: str | None, is_sent: bool
) -> Callable[[ChatStore], None]:
    """What stores a question, and what is left in the composer if it came from there (``is_sent``).

    ``first_settings``: the settings of the chat that begins with it; ``None``: the store has the chat.
    """
    chat_id, is_first = question.chat_id, first_settings is not None
    text, attachments, knows_unsent = unsent.text, unsent.attachments, unsent.is_known

    def write(store: ChatStore) -> None:
        with store.together():  # a kill in between would leave the text in both places
            if first_settings is not None:
                store.create_chat(chat_id=chat_id, settings=first_settings)
            store.add_message(question)
            if is_sent and knows_unsent:
                for one in (None, chat_id) if is_first else (chat_id,):
                    store.set_unsent(one, text if one else "")
                    if question.attachments:
                        store.set_unsent_attachments(one, attachments if one else ())

    return write
