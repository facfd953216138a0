"""EPUB books: their chapters in reading order."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from typing import BinaryIO
from urllib.parse import unquote

from app.helper.files import html_text, plain
from app.helper.files.found import FileText, RefusedError, how_many
from app.helper.files.packages import read_part, unpacked, xml_part

_ENCRYPTION = "META-INF/encryption.xml"
_CIPHER = "{http://www.w3.org/2001/04/xmlenc#}CipherReference"


def text_of(file: BinaryIO, most: int) -> FileText:
    """The chapters' text, until it exceeds ``most`` characters. Raises `RefusedError`."""
    texts: list[str] = []
    with unpacked(file) as archive:
        encrypted = _encrypted(archive)
        unreadable = 0
        root = xml_part(archive, "META-INF/container.xml").find(".//{*}rootfile")
        place = root.get("full-path", "") if root is not None else ""
        book = xml_part(archive, place)
        items = {item.get("id", ""): item for item in book.iterfind("{*}manifest/{*}item")}
        for chapter in book.iterfind("{*}spine/{*}itemref"):
            item = items.get(chapter.get("idref", ""))
            if item is None or "nav" in item.get("properties", "").split():  # the table of contents
                continue
            part = posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(item.get("href", ""))))
            if part in encrypted:
                raise RefusedError("protected")
            try:
                texts.append(_text(read_part(archive, part)))
            except (zipfile.BadZipFile, zlib.error, RefusedError, KeyError):
                unreadable += 1
            if sum(map(len, texts)) > most:
                break
    pictures = sum(item.get("media-type", "").startswith("image/") for item in items.values())
    return FileText(
        "\n\n".join(filter(None, texts)),
        (*how_many(unreadable, "chapter that couldn't be read"), *how_many(pictures, "picture")),
    )


def _encrypted(archive: zipfile.ZipFile) -> set[str]:
    """The encrypted parts (DRM); in many books, only the fonts."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    return {unquote(part.get("URI", "")).lstrip("/") for part in xml_part(archive, _ENCRYPTION).iter(_CIPHER)}


def _text(data: bytes) -> str:
    return html_text.text_of(plain.decoded(data, html_text.declared_encoding(data)).text).strip()
