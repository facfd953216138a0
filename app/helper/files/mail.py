"""Mails (.eml), and web pages saved as one file (.mhtml), which have the same format."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from dataclasses import replace
from email.message import EmailMessage, MIMEPart
from typing import BinaryIO

from app.helper.files import html_text, plain
from app.helper.files.found import FileText, RefusedError, how_many

_MOST_BYTES = 100 * 1024 * 1024
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_MOST_NAMES = 5
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_DAMAGED = (LookupError, ValueError, TypeError, AttributeError, RecursionError, AssertionError)
"""What Python's parser raises for malformed mails."""


def is_mail(head: bytes) -> bool:
    """Whether a file begins with the headers of a mail."""
    lines = head.replace(b"\r\n", b"\n").split(b"\n\n")[0].split(b"\n")
    names = {line.partition(b":")[0].strip().lower() for line in lines if b":" in line and not line[:1].isspace()}
    if b":" not in lines[0] or b" " in lines[0].partition(b":")[0]:
        return False
    return bool({b"mime-version", b"content-type"} <= names or {b"from", b"subject", b"date"} <= names)


def text_of(file: BinaryIO, _most: int) -> FileText:
    """A mail's main headers and text, or a saved web page's text. Raises `RefusedError`."""
    try:
        data = file.read(_MOST_BYTES)
        end = _HEAD_END.search(data)
        head, rest = (data[: end.start()], data[end.start() :]) if end else (data, b"")
        if not head.isascii():  # newer mails may have UTF-8 headers
            head = plain.decoded(head).text.encode()
        return _read(email.message_from_bytes(head + rest, policy=email.policy.default))
    except _DAMAGED:
        raise RefusedError("damaged") from None


def _read(message: EmailMessage) -> FileText:
    is_page = message.get_content_type() == "multipart/related" and "received" not in message and "to" not in message
    texts = list(_texts(message))
    head = "" if is_page else "\n".join(f"{name}: {message[name]}" for name in _SHOWN if message[name])
    return FileText(
        "\n\n".join(filter(None, (head, *(one.text.strip("\n") for one in texts)))),
        (*(what for one in texts for what in one.left_out), *_others(message, is_page=is_page)),
        next((one.encoding for one in texts if one.encoding), ""),
    )


def _texts(part: MIMEPart) -> Iterator[FileText]:
    """A mail's texts in order, including those of attached mails; of alternatives, the plainest."""
    kind = part.get_content_type()
    if kind in ("message/rfc822", "multipart/related"):
        for first in list(part.iter_parts())[:1]:
            if isinstance(first, EmailMessage) and kind == "message/rfc822":
                yield FileText("Attached mail:")
                yield replace(_read(first), left_out=())  # `_others` counts those of all mails
            else:
                yield from _texts(first)
    elif kind == "message/delivery-status":
        yield FileText("\n".join(str(one).strip() for one in part.iter_parts()))
    elif kind == "multipart/alternative":
        versions = (list(_texts(one)) for one in sorted(part.iter_parts(), key=_plainness))
        yield from next((one for one in versions if any(text.text.strip() for text in one)), [])
    elif part.is_multipart():
        for one in part.iter_parts():
            yield from _texts(one)
    elif part.get_content_maintype() in ("text", "multipart") and not part.is_attachment():
        yield _text(part)


def _plainness(part: MIMEPart) -> int:
    kind = part.get_content_type()
    return 0 if kind == "text/plain" else 2 if kind in ("text/calendar", "text/x-amp-html") else 1


def _text(part: MIMEPart) -> FileText:
    data = part.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    declared = plain.codec_of(part.get_content_charset("") or "")
    if part.get_content_subtype() != "html":
        return plain.decoded(data, declared)
    found = plain.decoded(data, declared or html_text.declared_encoding(data))
    page = html_text.page_of(found.text)
    return FileText(page.text, (*found.left_out, *page.left_out), found.encoding)


def _others(message: EmailMessage, *, is_page: bool) -> tuple[str, ...]:
    """For `FileText.left_out`."""
    pictures, names, pages = 0, [], 0
    for part in message.walk():
        kind = part.get_content_maintype()
        if part.is_multipart():
            continue
        if part.is_attachment() or (part.get_filename() and kind not in ("text", "image")):
            names.append(part.get_filename() or "without a name")
        pages += part.get_content_type() == "text/html"
        pictures += kind == "image" and not part.is_attachment()
    named = tuple(f"the attachment {name}" for name in names[:_MOST_NAMES])
    more = how_many(max(0, len(names) - _MOST_NAMES), "more attachment")
    return (*named, *more, *how_many(pictures, "picture"), *how_many(max(0, pages - 1) if is_page else 0, "frame"))
