"""Reads files that are to be attached, through a helper process, and says why one can't be."""

from __future__ import annotations

from app.chats.attachments import Content
from app.errors import KnownError
from app.helper import Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory
from app.helper.messages import DrawPage, FileNotRead, FileReason, Form, ReadFile

_SENTENCES: dict[FileReason, str] = {
    "unreadable": "{name} can't be read: {detail}.",
    "folder": "{name} is a folder. Attach the files in it instead.",
    "special": "{name} is a device or a pipe, and not a file that can be attached.",
    "empty": "{name} has no text in it.",
    "too_large": "{name} is larger than 100 MB, which is the most that can be attached.",
    "too_long": "{name} has {detail} characters of text. The most that can be attached is 4,000,000.",
    "too_much": "{name} becomes far too large when it is unpacked. It may be damaged.",
    "too_many_pages": "{name} has {detail} pages. The most that can be attached is 3,000.",
    "image": "{name} is a picture that can't be read. It may be damaged, or in a format other than PNG, JPEG, GIF, "
    "BMP and WebP.",
    "binary": "{name} isn't a kind of file that can be attached. "
    "Text, code, web pages, PDF files, Word documents, spreadsheets, presentations, books and notebooks can.",
    "old_office": "{name} is in an older Office format, or protected with a password. "
    "Save it as .docx, .pptx or PDF and attach that.",
    "encrypted": "{name} is protected with a password. Attach a copy that isn't.",
    "protected": "{name} is protected against copying (DRM), so only the apps of its shop can read it.",
    "no_text": "This PDF has no text that can be read: {name} may be a scan, which is only pictures of pages. "
    "Run text recognition (OCR) on it in another app first, or load a model that sees images and attach its pages.",
    "damaged": "{name} is damaged, so it can't be read.",
}


class NoTextError(KnownError):
    """A PDF file without text; its pages can be attached as pictures."""


def content_of(path: str, name: str, helper: Helper, encoding: str = "", form: Form = "") -> Content:
    """The text of a file. ``name``: how to call it; ``encoding``, ``form``: see `ReadFile`. Raises `KnownError`,
    `NoTextError` if pictures may help."""
    try:
        found = helper.read_file(ReadFile(path, encoding, form))
    except HelperError as error:
        raise KnownError(_failure(error, name)) from error
    if isinstance(found, FileNotRead):
        raise _refusal(found, name)
    left_out = ", ".join(found.left_out)
    return Content("text", name, found.text.encode(), found.media_type, encoding=found.encoding, left_out=left_out)


def pages_of(path: str, name: str, most: int, helper: Helper) -> tuple[list[Content], int]:
    """The first ``most`` pages of a PDF file as pictures, and how many it has. Raises `KnownError`."""
    drawn: list[Content] = []
    pages = 1
    while len(drawn) < min(most, pages):
        try:
            page = helper.draw_page(DrawPage(path, len(drawn)))
        except HelperError as error:
            raise KnownError(_failure(error, name)) from error
        if isinstance(page, FileNotRead):
            raise _refusal(page, name)
        called = f"{name}, page {len(drawn) + 1}.png"
        drawn.append(Content("image", called, page.png, "image/png", page.width, page.height))
        pages = page.pages
    return drawn, pages


def _refusal(found: FileNotRead, name: str) -> KnownError:
    detail = f"{int(found.detail):,}" if found.detail.isdecimal() else found.detail
    sentence = _SENTENCES[found.reason].format(name=name, detail=detail)
    return NoTextError(sentence) if found.reason == "no_text" else KnownError(sentence)


def _failure(error: HelperError, name: str) -> str:
    match error:
        case TookTooLong():
            return f"Reading {name} takes too long. It may be very large or damaged."
        case TooMuchMemory():
            return f"{name} needs too much memory to be read. It may be very large or damaged."
        case NotStarted():
            return f"{name} can't be read because a process couldn't be started: {error}."
    return f"{name} can't be read: the process that reads it ended unexpectedly."
