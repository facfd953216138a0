"""Reads chats for an import. Runs in the helper process, which has one import at a time open."""

from __future__ import annotations

from pathlib import Path

from app.chats.formats.reading import ChatReading
from app.helper.messages import ChatsNotRead, ChatsRead, ReadChats, ReadMoreChats


class _Open:
    """What is being read."""

    reading: ChatReading | None = None


def answer(request: ReadChats | ReadMoreChats) -> ChatsRead | ChatsNotRead:
    """The next chats, or why there are none."""
    try:
        if isinstance(request, ReadChats):
            _Open.reading = ChatReading([Path(path) for path in request.paths])
        if _Open.reading is None:
            return ChatsNotRead("the helper process was restarted")
        return ChatsRead(_Open.reading.next())
    except OSError as error:
        _Open.reading = None
        return ChatsNotRead(error.strerror or str(error), Path(str(error.filename)).name if error.filename else "")
