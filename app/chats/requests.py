"""What the command line asks of the chats: of its own store, or of the window, which has the file for itself."""

from __future__ import annotations

import msgspec

from app import decoders
from app.chats.formats.records import ChatRecord
from app.chats.model import Chat
from app.chats.store import ChatStore
from app.chats.transfer import Added
from app.errors import KnownError


class ListChats(msgspec.Struct, frozen=True, tag=True):
    """All chats that aren't in the trash. Answered by `Listed`."""


class SearchChats(msgspec.Struct, frozen=True, tag=True):
    """The chats with all of these words. Answered by `Listed`."""

    text: str
    limit: int


class ReadChat(msgspec.Struct, frozen=True, tag=True):
    """A chat with everything in it. Answered by `ChatRead`."""

    chat_id: str


class AddChats(msgspec.Struct, frozen=True, tag=True):
    """Add chats of an import. Answered by `ChatsAdded`."""

    chats: list[ChatRecord]
    folder: str


class ChatLine(msgspec.Struct, frozen=True):
    """A chat in a list. Times are seconds since 1970, UTC."""

    id: str
    title: str
    created_at: float
    updated_at: float
    folder: str
    is_pinned: bool
    passages: list[str] = []
    """Of a search: lines that were found, at most three."""


class Listed(msgspec.Struct, frozen=True, tag=True):
    """Chats, newest first."""

    chats: list[ChatLine]


class ChatRead(msgspec.Struct, frozen=True, tag=True):
    chat: ChatRecord


class ChatsAdded(msgspec.Struct, frozen=True, tag=True):
    added: Added


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It couldn't be done; ``reason`` is a sentence for the user."""

    reason: str


Request = ListChats | SearchChats | ReadChat | AddChats
Answer = Listed | ChatRead | ChatsAdded | Refused

REQUESTS: decoders.Decoder[Request] = decoders.decoder(Request)
ANSWERS: decoders.Decoder[Answer] = decoders.decoder(Answer)


def carry_out(store: ChatStore, request: Request) -> Answer:
    """Do what is asked. Raises `KnownError`."""
    match request:
        case ListChats():
            names = _folder_names(store)
            return Listed([_line(chat, names) for chat in store.chats()])
        case SearchChats():
            names = _folder_names(store)
            found = store.search(request.text, request.limit)
            return Listed([_line(one.chat, names, [snippet.text for snippet in one.snippets]) for one in found])
        case ReadChat():
            try:
                return ChatRead(store.record(request.chat_id))
            except LookupError:
                raise KnownError("The chat isn't there any more.") from None
        case AddChats():
            return ChatsAdded(store.add_records(request.chats, request.folder))


def _folder_names(store: ChatStore) -> dict[str | None, str]:
    return {folder.id: folder.name for folder in store.folders()}


def _line(chat: Chat, names: dict[str | None, str], passages: list[str] | None = None) -> ChatLine:
    return ChatLine(
        chat.id,
        chat.title,
        chat.created_at,
        chat.updated_at,
        names.get(chat.folder_id, ""),
        chat.pinned_at is not None,
        passages or [],
    )
