"""What a file says, as text for a model. Its content decides what it is, not its name."""

from __future__ import annotations

import mimetypes
import os
import stat
from pathlib import PurePath
from typing import BinaryIO

from app.helper.files import docx, html_text, pdf, plain
from app.helper.files.refusal import RefusedError
from app.helper.messages import FileNotRead, FileRead, ReadFile

MOST_BYTES = 100 * 1024 * 1024
"""Of a file."""
MOST_CHARACTERS = 4_000_000
"""Of its text: about a million tokens."""
_HEAD_BYTES = 4096
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_ISO_IMAGES = (b"avif", b"heic", b"heix", b"mif1")
_WEB_PAGES = (".html", ".htm", ".xhtml")
_WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def answer(request: ReadFile) -> FileRead | FileNotRead:
    """The text of a file, or why there is none."""
    try:
        with _opened(request.path) as file:
            text, media_type = _read(file, PurePath(request.path).name)
    except RefusedError as refusal:
        return FileNotRead(refusal.reason, refusal.detail)
    except OSError as error:
        return FileNotRead("unreadable", error.strerror or str(error))
    text = plain.tidied(text)
    if not text.strip():
        return FileNotRead("no_text" if media_type == "application/pdf" else "empty")
    if len(text) > MOST_CHARACTERS:
        return FileNotRead("too_long", str(len(text)))
    return FileRead(text.encode("utf-8", "replace").decode(), media_type)


def _opened(path: str) -> BinaryIO:
    """Only a real file: a pipe or a device might never end."""
    before = os.stat(path)  # noqa: PTH116 - a name that no path can have raises the same
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


def _read(file: BinaryIO, name: str) -> tuple[str, str]:
    """The text and the media type. Raises `RefusedError`, `OSError`."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if not head:
        raise RefusedError("empty")
    if _is_image(head):
        raise RefusedError("image")
    if b"%PDF-" in head[:1024]:
        return pdf.text_of(file, MOST_CHARACTERS), "application/pdf"
    if head.startswith(b"PK\x03\x04"):
        return docx.text_of(file, MOST_CHARACTERS), _WORD_TYPE
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise RefusedError("old_office")
    data = file.read(MOST_BYTES)
    if _is_web_page(head, name):
        return html_text.text_of(plain.decoded(data, html_text.declared_encoding(data))), "text/html"
    return plain.decoded(data), mimetypes.guess_type(name)[0] or "text/plain"


def _is_image(head: bytes) -> bool:
    is_iso = head[4:8] == b"ftyp" and head[8:12] in _ISO_IMAGES
    is_bitmap = not head.startswith(b"BM") or b"\0" in head[:16]
    return (head.startswith(_IMAGES) and is_bitmap) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or is_iso


def _is_web_page(head: bytes, name: str) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower()
    return name.lower().endswith(_WEB_PAGES) or begins.startswith((b"<!doctype html", b"<html"))
