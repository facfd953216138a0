"""Files to attach, made by hand: PDF and Word documents, sound and hostile ones."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from app.helper.messages import FileNotRead, FileRead

Read = Callable[[str, bytes | str], FileRead | FileNotRead]
"""Writes a file of this name and reads it."""

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
LINKED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
OTHERS = f'xmlns:m="{MATH}" xmlns:r="{LINKED}"'

EQUATION = (
    "<m:nary><m:sub><m:r><m:t>i=1</m:t></m:r></m:sub><m:sup/><m:e><m:f><m:num><m:r><m:t>a</m:t></m:r></m:num>"
    "<m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:e></m:nary>"
)
MAIL = (
    b"Received: by mx.example\nFrom: =?iso-8859-1?Q?J=FCrgen?= <j@tea.example>\nTo: a@tea.example\nSubject: Tea\n"
    b"Date: Mon, 2 Nov 2026 10:00:00 +0100\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=M\n\n--M\n"
    b"Content-Type: multipart/alternative; boundary=A\n\n--A\nContent-Type: text/plain\n\n--A\n"
    b"Content-Type: text/html; charset=utf-8\n\n<p>80 <b>degrees</b>\n--A--\n--M\nContent-Type: application/pdf\n"
    b'Content-Disposition: attachment; filename="tea.pdf"\n\n%PDF\n--M--\n'
)


def text_of(found: FileRead | FileNotRead) -> str:
    """The text of a file that was read."""
    assert isinstance(found, FileRead), found
    return found.text


def pdf(
    pages: Sequence[str],
    *,
    tree: str = "",
    packed: bytes = b"",
    annotations: str = "",
    objects: Sequence[str] = (),
    more: str = "",
    second_font: str = "",
) -> bytes:
    """A PDF file with one line of text on each page, or what a page draws, if that begins with ``BT``. ``tree``:
    another page tree than that of the pages; ``packed``: what all pages draw, compressed; ``annotations``: of the first
    page; ``objects``: more of them, from number 6 on if there is one page; ``more``: of the catalog; ``second_font``:
    called F2.
    """
    font = 3 + 2 * len(pages)
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    added, second_font = objects, second_font and f"/F2 {second_font}"
    tree = tree or f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>"
    objects = [f"<< /Type /Catalog /Pages 2 0 R {more} >>", tree]
    for number, text in enumerate(pages):
        words = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        content = text if text.startswith("BT") else f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET" if text else ""
        coding = "/Filter /FlateDecode" if packed else ""
        content = packed.decode("latin-1") or content
        notes = f"/Annots [{annotations}]" if annotations and not number else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /Resources << /Font << /F1 {font} 0 R {second_font} >> >> "
            f"/MediaBox [0 0 612 792] /Contents {4 + 2 * number} 0 R {notes} >>"
        )
        objects.append(f"<< /Length {len(content)} {coding} >>\nstream\n{content}\nendstream")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    objects += added
    written = b"%PDF-1.4\n"
    places = []
    for number, one in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{one}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return written + head.encode() + trailer.encode()


def docx(body: str, **parts: str) -> bytes:
    """A Word document with this in its body; ``parts``: ``styles``, ``numbering``, ``footnotes``, ``header1``, …"""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        document = (
            body
            if body.startswith("<?xml")
            else f'<w:document xmlns:w="{WORD}" {OTHERS}><w:body>{body}</w:body></w:document>'
        )
        archive.writestr("word/document.xml", document)
        for name, content in parts.items():
            archive.writestr(f"word/{name}.xml", f'<w:{name} xmlns:w="{WORD}">{content}</w:{name}>')
        links = "".join(
            f'<Relationship Id="{name}" Type="{LINKED}/{name.rstrip("0123456789")}" Target="{name}.xml"/>'
            for name in parts
        )
        links += (
            f'<Relationship Id="link" Type="{LINKED}/hyperlink" Target="https://tea.example" TargetMode="External"/>'
        )
        archive.writestr("word/_rels/document.xml.rels", f"<Relationships>{links}</Relationships>")
    return written.getvalue()


def paragraph(text: str, settings: str = "") -> str:
    return f"<w:p><w:pPr>{settings}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def item(text: str, list_id: int, level: int = 0) -> str:
    return paragraph(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list_id}"/></w:numPr>')


def bomb(path: Path, size: int) -> None:
    """A Word document whose body becomes ``size`` bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as part:
        part.write(f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>'.encode())
        for _ in range(size // 1_000_000):
            part.write(b"a" * 1_000_000)
        part.write(b"</w:t></w:r></w:p></w:body></w:document>")
