"""Pages of PDF files as pictures, for models that see."""

from __future__ import annotations

import struct
import zlib
from contextlib import closing

import pypdfium2 as pdfium

from app.helper.files import pdf
from app.helper.files.found import RefusedError
from app.helper.files.reading import opened
from app.helper.messages import DrawPage, FileNotRead, PageDrawn

_LONGER_SIDE = 1600
"""In pixels: what models make of an image is smaller."""


def answer(request: DrawPage) -> PageDrawn | FileNotRead:
    """A page as PNG, or why there is none."""
    try:
        with opened(request.path) as file, closing(pdf.open_document(file)) as document:
            with closing(document[min(request.page, len(document) - 1)]) as page:
                longest = max(page.get_size())
                if not 0 < longest < float("inf"):
                    raise RefusedError("damaged")
                bitmap = page.render(scale=_LONGER_SIDE / longest, rev_byteorder=True)
            with closing(bitmap):
                return PageDrawn(_png(bitmap), bitmap.width, bitmap.height, len(document))
    except RefusedError as refusal:
        return FileNotRead(refusal.reason, refusal.detail)
    except (pdfium.PdfiumError, ValueError, IndexError):
        return FileNotRead("damaged")
    except OSError as error:
        return FileNotRead("unreadable", error.strerror or str(error))


def _png(bitmap: pdfium.PdfBitmap) -> bytes:
    """The bitmap, in RGB with or without a fourth byte, or gray, as PNG (ISO 15948)."""
    pixels = bytearray(bitmap.buffer)
    if bitmap.n_channels == 4:
        del pixels[3::4]
    channels = min(bitmap.n_channels, 3)
    stride = bitmap.stride * channels // bitmap.n_channels
    length = bitmap.width * channels
    rows = b"".join(b"\0" + pixels[at : at + length] for at in range(0, stride * bitmap.height, stride))
    head = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
