"""Archives of XML: Word, spreadsheets, presentations, OpenDocument, EPUB.

The parts of Office files find each other by the Open Packaging Conventions (ECMA-376, part 2).
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from app.helper.files.found import RefusedError

MOST_BYTES = 64 * 1024 * 1024
"""The size limit of an unpacked part."""
_USUAL = ("word/document.xml", "xl/workbook.xml", "xl/workbook.bin", "ppt/presentation.xml")
_OFFICE = ("wordprocessingml", "spreadsheetml", "presentationml")
_HEAD_BYTES = 8192
_STRICT = {
    b"http://purl.oclc.org/ooxml/wordprocessingml/main": b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    b"http://purl.oclc.org/ooxml/officeDocument/": b"http://schemas.openxmlformats.org/officeDocument/2006/",
    b"http://purl.oclc.org/ooxml/drawingml/": b"http://schemas.openxmlformats.org/drawingml/2006/",
}
"""Namespaces of documents saved as "Strict", and their usual counterparts."""


@contextlib.contextmanager
def unpacked(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """The archive. Any problem with it or its XML becomes a `RefusedError`."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except DefusedXmlException:
        raise RefusedError("damaged") from None
    except (zipfile.BadZipFile, zlib.error, ParseError, NotImplementedError, EOFError, ValueError, LookupError):
        raise RefusedError("damaged") from None  # LookupError: an unknown encoding
    except OSError as error:
        if error.errno != errno.EINVAL:  # a seek to before the beginning of the file
            raise
        raise RefusedError("damaged") from None
    except RuntimeError:  # a password is needed
        raise RefusedError("encrypted") from None


def kind_of(archive: zipfile.ZipFile) -> str:
    """The media type of an OpenDocument or EPUB file, or ``wordprocessingml``, ``spreadsheetml`` or ``presentationml``;
    empty for other archives."""
    if "mimetype" in archive.namelist():
        return read_part(archive, "mimetype")[:200].decode("ascii", "replace").strip()
    if "META-INF/container.xml" in archive.namelist():
        return "application/epub+zip"
    main = main_part(archive)
    if not main:
        return ""
    with archive.open(main) as part:
        head = part.read(_HEAD_BYTES)
    found = next((kind for kind in _OFFICE if kind.encode() in head), "")
    return found or dict(zip(("word", "xl", "ppt"), _OFFICE, strict=True)).get(main.partition("/")[0], "")


def main_part(archive: zipfile.ZipFile) -> str:
    """The name of an Office file's main part; empty if there is none."""
    names = set(archive.namelist())
    named = (target for kind, target in relations(archive, "").values() if kind == "officeDocument")
    return next((name for name in (*named, *_USUAL) if name in names), "")


def relations(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """A part's relations by id: the kind (the last word of the type, such as ``image``) and the target, another part's
    name or an external address. ``part``: empty for the archive itself."""
    folder, name = posixpath.split(part)
    place = posixpath.join(folder, "_rels", f"{name}.rels")
    found: dict[str, tuple[str, str]] = {}
    if place not in archive.namelist():
        return found
    for one in xml_part(archive, place):
        target = one.get("Target", "")
        if one.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")
        found[one.get("Id", "")] = (one.get("Type", "").rpartition("/")[2], target)
    return found


def xml_part(archive: zipfile.ZipFile, name: str) -> Element:
    """The root element of a part. Raises `DefusedXmlException` if it declares entities."""
    data = read_part(archive, name)
    for strict, usual in _STRICT.items():
        data = data.replace(strict, usual)
    root: Element = fromstring(data)
    return root


def local_name(element: Element) -> str:
    """The element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def attribute(element: Element, name: str) -> str:
    """An attribute in any namespace: Office uses two."""
    return next((value for key, value in element.attrib.items() if key.endswith("}" + name)), "")


def read_part(archive: zipfile.ZipFile, name: str) -> bytes:
    """A part's content. Raises `RefusedError` if it is too large."""
    with archive.open(name) as part:
        data = part.read(MOST_BYTES + 1)  # the archive may lie about the size
    if len(data) > MOST_BYTES:
        raise RefusedError("too_much")
    return data
