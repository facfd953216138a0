"""Reads a file as text for a model. Its content decides what kind of file it is, not its name."""

from __future__ import annotations

import mimetypes
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import BinaryIO

from app.helper.files import (
    docx,
    epub,
    html_text,
    mail,
    notebook,
    opendocument,
    packages,
    pdf,
    plain,
    rtf,
    slides,
    spreadsheet,
)
from app.helper.files.found import FileText, RefusedError
from app.helper.messages import (
    DrawPage,
    FileNotRead,
    FileRead,
    ImageLookedAt,
    LookAtImage,
    PageDrawn,
    ReadFile,
)
from app.protocol.images import HEAD_BYTES, read_head

MOST_BYTES = 100 * 1024 * 1024
"""The largest file."""
MOST_CHARACTERS = 4_000_000
"""The longest text: about a million tokens."""
_HEAD_BYTES = 4096
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_ISO_IMAGES = (b"avif", b"heic", b"heix", b"mif1")
_WEB_PAGES = (".html", ".htm", ".xhtml")


@dataclass(frozen=True)
class Kind:
    """A kind of file. ``text_of`` takes the file and the number of characters that suffice; raises `RefusedError`."""

    media_type: str
    text_of: Callable[[BinaryIO, int], FileText]


_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN = "application/vnd.oasis.opendocument."
_BY_BEGINNING: dict[bytes, Kind] = {
    b"%PDF-": Kind("application/pdf", pdf.text_of),
    b"{\\rtf": Kind("application/rtf", rtf.text_of),
    b"\xd0\xcf\x11\xe0": Kind("application/vnd.ms-excel", spreadsheet.text_of),
}
_PACKED: dict[str, Kind] = {
    "wordprocessingml": Kind(f"{_OFFICE}wordprocessingml.document", docx.text_of),
    "spreadsheetml": Kind(f"{_OFFICE}spreadsheetml.sheet", spreadsheet.text_of),
    "presentationml": Kind(f"{_OFFICE}presentationml.presentation", slides.text_of),
    f"{_OPEN}text": Kind(f"{_OPEN}text", opendocument.text_of),
    f"{_OPEN}text-template": Kind(f"{_OPEN}text", opendocument.text_of),
    f"{_OPEN}presentation": Kind(f"{_OPEN}presentation", opendocument.text_of),
    f"{_OPEN}spreadsheet": Kind(f"{_OPEN}spreadsheet", spreadsheet.text_of),
    "application/epub+zip": Kind("application/epub+zip", epub.text_of),
}
"""Archives, by `packages.kind_of`."""
_NAMED: dict[str, Kind] = {".ipynb": Kind("application/x-ipynb+json", notebook.text_of)}
"""Text formats, by file extension."""
_MAIL, _MAILS = Kind("message/rfc822", mail.text_of), (".eml", ".mhtml", ".mht")


def answer(request: ReadFile | LookAtImage | DrawPage) -> FileRead | ImageLookedAt | PageDrawn | FileNotRead:
    """A file's text, its image's kind and size, or one of its pages; or why there is none."""
    try:
        with opened(request.path) as file:
            match request:
                case ReadFile():
                    return _text(file, request)
                case LookAtImage():
                    head = read_head(file.read(HEAD_BYTES))
                    return FileNotRead("image") if head is None else ImageLookedAt(head.kind, head.width, head.height)
                case DrawPage():
                    return pdf.drawn(file, request.page)
    except RefusedError as refusal:
        return FileNotRead(refusal.reason, refusal.detail)
    except OSError as error:
        return FileNotRead("unreadable", error.strerror or str(error))


def _text(file: BinaryIO, request: ReadFile) -> FileRead | FileNotRead:
    found, media_type = _read(file, PurePath(request.path).name, request)
    text = plain.tidied(found.text)
    if not text.strip():
        return FileNotRead("no_text" if media_type == "application/pdf" else "empty")
    if len(text) > MOST_CHARACTERS:
        return FileNotRead("too_long", str(len(text)))
    return FileRead(text.encode("utf-8", "replace").decode(), media_type, list(found.left_out), found.encoding)


def opened(path: str) -> BinaryIO:
    """Open a regular file: a pipe or a device might never end. Raises `RefusedError` and `OSError`."""
    try:
        before = os.stat(path)  # noqa: PTH116 - the path stays as it was given
    except ValueError as error:  # a NUL in the name
        raise RefusedError("unreadable", str(error)) from None
    if stat.S_ISDIR(before.st_mode):
        raise RefusedError("folder")
    if not stat.S_ISREG(before.st_mode):
        raise RefusedError("special")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    now = os.fstat(descriptor)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(now.st_mode):
        file.close()
        raise RefusedError("special")
    if now.st_size > MOST_BYTES:
        file.close()
        raise RefusedError("too_large")
    return file


def _read(file: BinaryIO, name: str, request: ReadFile) -> tuple[FileText, str]:
    """The text and the media type. Raises `RefusedError`, `OSError`."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if not head:
        raise RefusedError("empty")
    if _is_image(head):
        raise RefusedError("image")
    if (kind := _kind_of(file, head, name)) is not None:
        file.seek(0)
        return kind.text_of(file, MOST_CHARACTERS), kind.media_type
    data = file.read(MOST_BYTES)
    if not _is_web_page(head, name):
        return plain.decoded(data, wanted=request.encoding), mimetypes.guess_type(name)[0] or "text/plain"
    found = plain.decoded(data, html_text.declared_encoding(data), request.encoding)
    if request.form == "source" or (request.form != "text" and html_text.is_code(found.text)):
        return found, "text/html"
    page = html_text.page_of(found.text)
    return replace(page, left_out=(*found.left_out, *page.left_out), encoding=found.encoding), "text/html"


def _kind_of(file: BinaryIO, head: bytes, name: str) -> Kind | None:
    for beginning, kind in _BY_BEGINNING.items():
        if beginning in head[:1024] and (beginning == b"%PDF-" or head.startswith(beginning)):
            return kind
    if head.startswith(b"PK\x03\x04"):
        with packages.unpacked(file) as archive:
            packed = _PACKED.get(packages.kind_of(archive))
        if packed is None:
            raise RefusedError("binary")
        return packed
    if name.lower().endswith(_MAILS) or mail.is_mail(head):
        return _MAIL
    return next((kind for end, kind in _NAMED.items() if name.lower().endswith(end)), None)


def _is_image(head: bytes) -> bool:
    is_iso = head[4:8] == b"ftyp" and head[8:12] in _ISO_IMAGES
    is_bitmap = not head.startswith(b"BM") or b"\0" in head[:16]
    return (head.startswith(_IMAGES) and is_bitmap) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or is_iso


def _is_web_page(head: bytes, name: str) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower()
    return name.lower().endswith(_WEB_PAGES) or begins.startswith((b"<!doctype html", b"<html"))
