"""Text files: their encoding, and whether they are text at all."""

from __future__ import annotations

import codecs
import re

from app.helper.files.refusal import RefusedError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_TEXT = (b"{\\rtf", b"%!PS", b"\x7fELF", b"MZ\x90")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
"""Those that text doesn't have; a terminal's escape character it may have."""
_MOST_CONTROLS = 0.02
_BLANK_LINES = re.compile(r"\n{4,}")


def decoded(data: bytes, declared: str = "") -> str:
    """The text of ``data``, by its mark, as UTF-8, as it is ``declared``, or as Windows wrote it in Western Europe.

    Raises `RefusedError` for what isn't text.
    """
    if data.startswith(_NOT_TEXT):
        raise RefusedError("binary")
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _checked(data.decode(encoding, "replace"))
    if b"\0" in data:
        raise RefusedError("binary")
    try:
        return _checked(data.decode("utf-8"))
    except UnicodeDecodeError:
        return _checked(data.decode(declared or "cp1252", "replace"))


def tidied(text: str) -> str:
    """With one kind of line end, and without characters that no reader sees."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return text.removeprefix("\ufeff")


def with_fewer_blank_lines(text: str) -> str:
    """Of a text that was laid out for the eye."""
    return _BLANK_LINES.sub("\n\n\n", text)


def _checked(text: str) -> str:
    strange = len(_CONTROLS.findall(text)) + text.count("\ufffd")
    if strange > max(1, _MOST_CONTROLS * len(text)):
        raise RefusedError("binary")
    return text
