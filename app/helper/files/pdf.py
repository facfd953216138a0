"""PDF files, through pypdf."""

from __future__ import annotations

from typing import BinaryIO

from pypdf import PdfReader
from pypdf.errors import DependencyError, LimitReachedError, PyPdfError

from app.helper.files.found import FileText
from app.helper.files.plain import with_fewer_blank_lines
from app.helper.files.refusal import RefusedError

MOST_PAGES = 3000


def text_of(file: BinaryIO, most: int) -> FileText:
    """The text of all pages, at most a little more than ``most`` characters.

    Raises `RefusedError`. What takes too long is ended by whoever started the process.
    """
    try:
        reader = PdfReader(file, strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise RefusedError("encrypted")
        pages = len(reader.pages)
        if pages > MOST_PAGES:
            raise RefusedError("too_many_pages", str(pages))
        return FileText(_all_pages(reader, most))
    except DependencyError:
        raise RefusedError("encrypted") from None
    except LimitReachedError:
        raise RefusedError("too_much") from None
    except (PyPdfError, RecursionError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
        raise RefusedError("damaged") from None  # pypdf raises these for files that aren't as they should be


def _all_pages(reader: PdfReader, most: int) -> str:
    found: list[str] = []
    size = 0
    for page in reader.pages:
        text = page.extract_text().strip()
        found.append(text)
        size += len(text)
        if size > most:
            break
    return with_fewer_blank_lines("\n\n".join(filter(None, found)))
