"""Files that are archives of XML: Word, spreadsheets, presentations, OpenDocument, EPUB.

How the parts of Office's files find each other is in ECMA-376, part 2 (Open Packaging Conventions).
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
"""Of a part, unpacked."""
_USUAL = ("word/document.xml", "xl/workbook.xml", "xl/workbook.bin", "ppt/presentation.xml")
_OFFICE = ("wordprocessingml", "spreadsheetml", "presentationml")
_HEAD_BYTES = 8192
_STRICT = {
    b"http://purl.oclc.org/ooxml/wordprocessingml/main": b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    b"http://purl.oclc.org/ooxml/officeDocument/": b"http://schemas.openxmlformats.org/officeDocument/2006/",
    b"http://purl.oclc.org/ooxml/drawingml/": b"http://schemas.openxmlformats.org/drawingml/2006/",
}
"""Namespaces of documents that are saved as "Strict", and those of all others."""


@contextlib.contextmanager
def unpacked(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """The archive; whatever is wrong with it, or with XML in it, becomes a `RefusedError`."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except DefusedXmlException:
        raise RefusedError("damaged") from None
    except (zipfile.BadZipFile, zlib.error, ParseError, NotImplementedError, EOFError, ValueError, LookupError):
        raise RefusedError("damaged") from None  # LookupError: an encoding that nobody knows
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the beginning of the file
            raise
        raise RefusedError("damaged") from None
    except RuntimeError:  # a password is needed
        raise RefusedError("encrypted") from None


def kind_of(archive: zipfile.ZipFile) -> str:
    """The media type that its first file says (OpenDocument, EPUB), or one of ``wordprocessingml``, ``spreadsheetml``,
    ``presentationml``; empty for other archives."""
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
    """The name of the part of an Office file that the others belong to; empty if there is none."""
    names = set(archive.namelist())
    said = (target for kind, target in relations(archive, "").values() if kind == "officeDocument")
    return next((name for name in (*said, *_USUAL) if name in names), "")


def relations(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """By its id, the kind of each relation of a part (the last word of its type, such as ``image``) and its target: the
    name of another part, or an address outside. ``part``: empty for the archive itself."""
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
    """The root of a part; one that declares entities is refused."""
    data = read_part(archive, name)
    for strict, usual in _STRICT.items():
        data = data.replace(strict, usual)
    root: Element = fromstring(data)
    return root


def local_name(element: Element) -> str:
    """Its name without the namespace."""
    return element.tag.rpartition("}")[2]


def attribute(element: Element, name: str) -> str:
    """One that has a namespace, whichever it is: Office writes two."""
    return next((value for key, value in element.attrib.items() if key.endswith("}" + name)), "")


def read_part(archive: zipfile.ZipFile, name: str) -> bytes:
    """What a part has. Raises `RefusedError` if that is too much."""
    with archive.open(name) as part:
        data = part.read(MOST_BYTES + 1)  # what the archive says about its size may be wrong
    if len(data) > MOST_BYTES:
        raise RefusedError("too_much")
    return data
