"""Mails (.eml) and web pages that are saved as one file (.mhtml), which have the same form."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage, MIMEPart
from typing import BinaryIO

from app.helper.files import html_text, plain
from app.helper.files.found import FileText, how_many
from app.helper.files.refusal import RefusedError

_MOST_BYTES = 100 * 1024 * 1024
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_MOST_NAMES = 5
_DAMAGED = (LookupError, ValueError, TypeError, AttributeError, RecursionError, AssertionError)
"""What Python's parser raises for mails that aren't as they should be."""


def is_mail(head: bytes) -> bool:
    """Whether a file begins with the headers of a mail."""
    lines = head.replace(b"\r\n", b"\n").split(b"\n\n")[0].split(b"\n")
    names = {line.partition(b":")[0].strip().lower() for line in lines if b":" in line and not line[:1].isspace()}
    if b":" not in lines[0] or b" " in lines[0].partition(b":")[0]:
        return False
    return bool({b"mime-version", b"content-type"} <= names or {b"from", b"subject", b"date"} <= names)


def text_of(file: BinaryIO, _most: int) -> FileText:
    """Who wrote it to whom, and its text or that of its web page. Raises `RefusedError`."""
    try:
        message = email.message_from_bytes(file.read(_MOST_BYTES), policy=email.policy.default)
        return _read(message)
    except _DAMAGED:
        raise RefusedError("damaged") from None


def _read(message: EmailMessage) -> FileText:
    is_page = message.get_content_type() == "multipart/related" and "received" not in message and "to" not in message
    body = message.get_body(("html",) if is_page else ("plain", "html"))
    found = _text(body) if body is not None else FileText("")
    if not is_page and not found.text.strip() and (body := message.get_body(("html",))) is not None:
        found = _text(body)
    head = "" if is_page else "\n".join(f"{name}: {message[name]}" for name in _SHOWN if message[name])
    return FileText(f"{head}\n\n{found.text}".strip("\n"), (*found.left_out, *_others(message, body)), found.encoding)


def _text(part: MIMEPart) -> FileText:
    data = part.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    declared = plain.codec_of(part.get_content_charset("") or "")
    if part.get_content_subtype() != "html":
        return plain.decoded(data, declared)
    found = plain.decoded(data, declared or html_text.declared_encoding(data))
    page = html_text.page_of(found.text)
    return FileText(page.text, (*found.left_out, *page.left_out), found.encoding)


def _others(message: EmailMessage, body: MIMEPart | None) -> tuple[str, ...]:
    """What it has besides its text."""
    pictures, names, frames = 0, [], 0
    for part in message.walk():
        if part is body or part.is_multipart():
            continue
        kind = part.get_content_maintype()
        if part.is_attachment() or (part.get_filename() and kind not in ("text", "image")):
            names.append(part.get_filename() or "without a name")
        elif kind == "image":
            pictures += 1
        else:
            frames += (
                part.get_content_type() == "text/html" and body is not None and body.get_content_subtype() == "html"
            )
    named = tuple(f"the attachment {name}" for name in names[:_MOST_NAMES])
    more = how_many(len(names) - _MOST_NAMES, "more attachment") if len(names) > _MOST_NAMES else ()
    return (*named, *more, *how_many(pictures, "picture"), *how_many(frames, "frame"))
