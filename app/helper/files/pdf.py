"""PDF files, through PDFium."""

from __future__ import annotations

import ctypes
import html
import re
from collections import Counter
from contextlib import closing
from typing import BinaryIO

import pypdfium2 as pdfium
from pypdfium2 import raw

from app.helper.files import pdf_page
from app.helper.files.found import FileText, counted
from app.helper.files.plain import with_fewer_blank_lines
from app.helper.files.refusal import RefusedError

MOST_PAGES = 3000
_XFA_DATA = re.compile(r"<xfa:data(?=[\s>])")
_XFA_FIELD = re.compile(r"<(\w[\w.-]*+)[^<>]*+>([^<>]++)</")
_PASSWORD = (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY)


def opened(file: BinaryIO) -> pdfium.PdfDocument:
    """The document, with its form. Raises `RefusedError`."""
    try:
        document = pdfium.PdfDocument(file)
        document.init_forms()
    except pdfium.PdfiumError as error:
        raise RefusedError("encrypted" if error.err_code in _PASSWORD else "damaged") from None
    if len(document) > MOST_PAGES:
        raise RefusedError("too_many_pages", str(len(document)))
    return document


def text_of(file: BinaryIO, most: int) -> FileText:
    """The text of all pages, at most a little more than ``most`` characters: with what forms are filled with, the
    addresses of links, and comments.

    Raises `RefusedError`. What takes too long is ended by whoever started the process.
    """
    with closing(opened(file)) as document:
        texts: list[str] = []
        left_out = Counter[str]()
        for number in range(len(document)):
            try:
                with closing(document[number]) as page:
                    texts.append(pdf_page.text_of(document, page, left_out))
            except pdfium.PdfiumError:
                left_out["page that couldn't be read"] += 1
            if sum(map(len, texts)) > most:
                break
        if document.get_formtype() == raw.FORMTYPE_XFA_FULL:
            texts.append(_xfa_values(document))
        left_out["attached file"] = document.count_attachments()
    return FileText(with_fewer_blank_lines("\n\n".join(filter(None, texts))), counted(left_out))


def _xfa_values(document: pdfium.PdfDocument) -> str:
    """What a form is filled with whose pages another program would have to draw (XFA). Many aren't sound XML."""
    lines: list[str] = []
    size = ctypes.c_ulong()
    for number in range(raw.FPDF_GetXFAPacketCount(document)):
        raw.FPDF_GetXFAPacketContent(document, number, None, 0, size)
        packet = ctypes.create_string_buffer(max(1, size.value))
        raw.FPDF_GetXFAPacketContent(document, number, packet, size.value, size)
        for values in _XFA_DATA.split(packet.raw.decode("utf-8", "replace"), maxsplit=1)[1:]:
            lines += [f"{name}: {html.unescape(text)}" for name, text in _XFA_FIELD.findall(values) if text.strip()]
    return "\n".join(lines)
