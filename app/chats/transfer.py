"""Moves chats between records and the store, and reads files to attach."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable

import msgspec

from app import words
from app.chats.attachments import AttachmentFiles, Content
from app.chats.formats import slipstream
from app.chats.formats.records import AttachmentRecord, ChatRecord, MessageRecord
from app.chats.model import Attachment, Chat, StoredMessage, calls_to_json, title_of, to_json
from app.chats.settings import chat_settings, without_folders
from app.chats.tree import CHAT, MESSAGE_AS_STORED, insert, message_of, storable
from app.helper import Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory
from app.helper.messages import DrawPage, FileNotRead, FileReason, Form, ReadFile
from app.system import KnownError

_ID = re.compile(r"[0-9a-f]{32}")
_LONGEST_NAME = 200


class Added(msgspec.Struct, frozen=True):
    """The result of adding chats; the lists contain ids of the store."""

    added: list[str]
    known: list[str]
    """Existing ones, left unchanged."""
    restored: list[str]
    """Existing ones, restored from the trash."""


def record_of(connection: sqlite3.Connection, chat_id: str, files: AttachmentFiles) -> ChatRecord:
    """A chat with all of its messages. Raises `LookupError`."""
    row = connection.execute(f"SELECT {CHAT} FROM chats WHERE id = ?", (chat_id,)).fetchone()
    if row is None:
        raise LookupError(chat_id)
    chat = Chat(*row)
    folder = connection.execute("SELECT name FROM folders WHERE id = ?", (chat.folder_id,)).fetchone()
    query = f"SELECT {MESSAGE_AS_STORED} FROM messages m WHERE m.chat_id = ? ORDER BY m.seq"
    settings = chat_settings(chat.settings)
    return ChatRecord(
        source=slipstream.NAME,
        id=chat.id,
        title=chat.title,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        current=chat.leaf_id,
        folder=folder[0] if folder else "",
        pinned_at=chat.pinned_at,
        settings=msgspec.to_builtins(without_folders(settings)) if settings is not None else {},
        messages=[_message_record(message_of(row), files) for row in connection.execute(query, (chat_id,))],
    )


def add(
    connection: sqlite3.Connection, records: Iterable[ChatRecord], folder: str, now: float, files: AttachmentFiles
) -> Added:
    """Add chats that aren't there yet. ``folder``: the name for chats without one; empty for none.

    A chat's id is derived from its origin and content, so that the same chat is never added twice.
    """
    done = Added([], [], [])
    for record in records:
        chat_id = _known_id(connection, record, files)
        found = connection.execute("SELECT deleted_at FROM chats WHERE id = ?", (chat_id,)).fetchone()
        if found is None:
            _add_chat(connection, chat_id, record, _folder_id(connection, record.folder or folder, now), now, files)
            done.added.append(chat_id)
        elif found[0] is not None:
            connection.execute("UPDATE chats SET deleted_at = NULL WHERE id = ?", (chat_id,))
            done.restored.append(chat_id)
        else:
            done.known.append(chat_id)
    return done


def _known_id(connection: sqlite3.Connection, record: ChatRecord, files: AttachmentFiles) -> str:
    """The id that a chat has or would get in this store."""
    said = _digest(record)
    if record.source == slipstream.NAME and _ID.fullmatch(record.id):
        try:
            if _digest(record_of(connection, record.id, files)) == said:
                return record.id
        except LookupError:
            return record.id
    return _hashed(record.source, record.id, said)


def _digest(record: ChatRecord) -> str:
    """A hash of a chat's messages, without its title, which may have been changed since."""
    places = {message.id: place for place, message in enumerate(record.messages)}
    said = [
        # Without attachments and calls, the same as before these existed, so that earlier imports are recognized.
        (
            *(places.get(one.parent or ""), one.role, one.text, one.thinking),
            *(part.sha256() for part in one.attachments),
            *(part for call in one.calls for part in (call.name, call.arguments, call.result)),
        )
        for one in record.messages
    ]
    return hashlib.sha256(storable(json.dumps(said)).encode()).hexdigest()


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(storable(part) for part in parts).encode()).hexdigest()[:32]


def _folder_id(connection: sqlite3.Connection, name: str, now: float) -> str | None:
    """The id of the folder with this name, created if needed; ``None`` without a name."""
    name = storable(" ".join(name.split()))[:_LONGEST_NAME]
    if not name:
        return None
    found = connection.execute("SELECT id FROM folders WHERE name = ? ORDER BY created_at", (name,)).fetchone()
    if found is not None:
        return str(found[0])
    folder_id = _hashed("folder", name, str(now))
    connection.execute("INSERT INTO folders VALUES (?, ?, ?)", (folder_id, name, now))
    return folder_id


def _add_chat(
    connection: sqlite3.Connection,
    chat_id: str,
    record: ChatRecord,
    folder_id: str | None,
    now: float,
    files: AttachmentFiles,
) -> None:
    dates = [message.created_at for message in record.messages if message.created_at is not None]
    created = record.created_at or min(dates, default=record.updated_at or now)
    updated = record.updated_at or max(dates, default=created)
    asked = next((message for message in record.messages if message.role == "user"), None)
    texts = [asked.text, *(one.name for one in asked.attachments)] if asked is not None else []
    title = " ".join(record.title.split())[:_LONGEST_NAME] or next(filter(None, map(title_of, texts)), "")
    settings = chat_settings(to_json(record.settings)) if record.settings else None
    connection.execute(
        """
        INSERT INTO chats (id, title, created_at, updated_at, settings, pinned_at, folder_id, number)
        SELECT ?, ?, ?, ?, ?, ?, ?, coalesce(max(number), 0) + 1 FROM chats
        """,
        (
            *(chat_id, storable(title), created, updated),
            *(without_folders(settings).to_json() if settings is not None else "", record.pinned_at, folder_id),
        ),
    )
    ids = {message.id: _hashed(chat_id, message.id) for message in record.messages}
    for message in record.messages:
        stored = _stored(message, chat_id, ids, created, files)
        insert(connection, stored)
        files.use(stored.attachments)
    leaf = ids.get(record.current or "") or (list(ids.values())[-1] if ids else None)
    connection.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (leaf, chat_id))


def _stored(
    message: MessageRecord, chat_id: str, ids: dict[str, str], created: float, files: AttachmentFiles
) -> StoredMessage:
    kept = tuple(_kept(one, files) for one in message.attachments)
    known = {one.sha256 for one in kept}.__contains__
    calls = [msgspec.structs.replace(one, images=tuple(filter(known, one.images))) for one in message.calls]
    return StoredMessage(
        id=ids[message.id],
        chat_id=chat_id,
        parent_id=ids.get(message.parent or ""),
        role=message.role,
        text=message.text,
        status=message.status,
        created_at=created if message.created_at is None else message.created_at,
        seed=message.seed,
        finish_reason=None if message.finish_reason is None else storable(message.finish_reason[:_LONGEST_NAME]),
        pair=storable(message.model[:_LONGEST_NAME]) or None,
        settings_json=to_json(message.settings),
        figures_json=to_json(message.figures),
        provenance_json=to_json(message.provenance),
        thinking=message.thinking,
        tokens=message.tokens,
        calls_json=calls_to_json(calls),
        attachments=kept,
    )


def _kept(one: AttachmentRecord, files: AttachmentFiles) -> Attachment:
    name = storable(" ".join(one.name.split())[:_LONGEST_NAME])
    media_type = storable(one.media_type[:_LONGEST_NAME])
    return files.keep(Content(one.kind, name, one.content(), media_type, one.width, one.height))


def _attachment_record(attachment: Attachment, files: AttachmentFiles) -> AttachmentRecord:
    one = files.filled(attachment)
    return AttachmentRecord(
        kind=one.kind,
        name=one.name,
        text=one.text,
        data=files.read(one.sha256) or b"" if one.kind == "image" else b"",
        media_type=one.media_type,
        width=one.width,
        height=one.height,
    )


def _message_record(message: StoredMessage, files: AttachmentFiles) -> MessageRecord:
    return MessageRecord(
        id=message.id,
        parent=message.parent_id,
        role=message.role,
        text=message.text,
        created_at=message.created_at,
        thinking=message.thinking,
        model=message.pair or "",
        status="interrupted" if message.status == "streaming" else message.status,
        finish_reason=message.finish_reason,
        seed=message.seed,
        settings=message.settings,
        figures=message.figures,
        provenance=list(message.provenance),
        tokens=list(message.tokens),
        attachments=[_attachment_record(one, files) for one in message.attachments],
        calls=list(message.calls),
    )


# Reads files to attach, through a helper process, and says why one can't be read.

_REFUSALS: dict[FileReason, str] = {
    "unreadable": "{name} can't be read: {detail}.",
    "folder": "{name} is a folder. Attach the files in it instead.",
    "special": "{name} is a device or a pipe, and not a file that can be attached.",
    "empty": "{name} has no text in it.",
    "too_large": "{name} is larger than 100 MB, which is the most that can be attached.",
    "too_long": "{name} has {detail} characters of text. The most that can be attached is 4,000,000.",
    "too_much": "{name} becomes far too large when it is unpacked. It may be damaged.",
    "too_many_pages": "{name} has {detail} pages. The most that can be attached is 3,000.",
    "image": "{name} is a picture that can't be read. It may be damaged, or in a format other than PNG, JPEG, GIF, "
    "BMP and WebP.",
    "binary": "{name} isn't a kind of file that can be attached. "
    "Text, code, web pages, PDF files, Word documents, spreadsheets, presentations, books and notebooks can.",
    "old_office": "{name} is in an older Office format, or protected with a password. "
    "Save it as .docx, .pptx or PDF and attach that.",
    "encrypted": "{name} is protected with a password. Attach a copy that isn't.",
    "protected": "{name} is protected against copying (DRM), so only the apps of its shop can read it.",
    "no_text": "This PDF has no text that can be read: {name} may be a scan, which is only pictures of pages. "
    "Run text recognition (OCR) on it in another app first, or load a model that sees images and attach its pages.",
    "damaged": "{name} is damaged, so it can't be read.",
}


class NoTextError(KnownError):
    """A PDF file without text; its pages can be attached as pictures."""


def content_of(path: str, name: str, helper: Helper, encoding: str = "", form: Form = "") -> Content:
    """The text of a file. ``name`` is shown to the user; ``encoding``, ``form``: see `ReadFile`. Raises `KnownError`,
    `NoTextError` if pictures may help.
    """
    try:
        found = helper.ask(ReadFile(path, encoding, form))
    except HelperError as error:
        raise KnownError(_failure(error, name)) from error
    if isinstance(found, FileNotRead):
        raise _refusal(found, name)
    left_out = ", ".join(found.left_out)
    return Content("text", name, found.text.encode(), found.media_type, encoding=found.encoding, left_out=left_out)


def pages_of(path: str, name: str, most: int, helper: Helper) -> tuple[list[Content], int]:
    """The first ``most`` pages of a PDF file as pictures, and its number of pages. Raises `KnownError`."""
    drawn: list[Content] = []
    pages = 1
    while len(drawn) < min(most, pages):
        try:
            page = helper.ask(DrawPage(path, len(drawn)))
        except HelperError as error:
            raise KnownError(_failure(error, name)) from error
        if isinstance(page, FileNotRead):
            raise _refusal(page, name)
        called = f"{name}, page {len(drawn) + 1}.png"
        drawn.append(Content("image", called, page.png, "image/png", page.width, page.height))
        pages = page.pages
    return drawn, pages


def _refusal(found: FileNotRead, name: str) -> KnownError:
    detail = words.number(int(found.detail)) if found.detail.isdecimal() else found.detail
    sentence = _REFUSALS[found.reason].format(name=name, detail=detail)
    return NoTextError(sentence) if found.reason == "no_text" else KnownError(sentence)


def _failure(error: HelperError, name: str) -> str:
    match error:
        case TookTooLong():
            return f"Reading {name} takes too long. It may be very large or damaged."
        case TooMuchMemory():
            return f"{name} needs too much memory to be read. It may be very large or damaged."
        case NotStarted():
            return f"{name} can't be read because a process couldn't be started: {error}."
    return f"{name} can't be read: the process that reads it ended unexpectedly."
