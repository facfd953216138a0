"""Text files: their encoding, and whether they are text at all."""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import replace

from app.helper.encodings import CODECS
from app.helper.files.found import FileText, how_many
from app.helper.files.guessing import guessed_encoding
from app.helper.files.refusal import RefusedError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOKED_AT = 4096
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NOT_TEXT = (b"%!PS", b"\x7fELF", b"MZ\x90")
_CONTROLS = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
"""Those that text doesn't have; what a terminal was sent may have bells, backspaces and escapes."""
_UNWRITTEN = re.compile(rb"\x00{64,}")
"""A block that was never written, as the power went off."""
_MOST_CONTROLS, _MOST_BESIDE_ZEROS = 0.02, 0.001
_BLANK_LINES = re.compile(r"\n{4,}")
_SAID = re.compile(
    rb"""\A\s*<\?xml[^>]{0,200}encoding\s*=\s*["']([\w.:-]{1,40})|\A@charset "([\w.:-]{1,40})";"""
    rb"""|\A(?:[^\n]*\n)?[ \t\f]*(?:\#|//|/\*|;|%|--|<!--)[^\n]*?coding[:=][ \t]*([\w.-]{1,40})"""
)
"""How XML, CSS, and source code (as Python and Emacs have it) say their encoding."""
_TEXT_CODECS = ("cp", "iso8859", "iso2022", "koi8", "mac", "utf-8", "euc", "big5", "gb", "johab", "shift", "kz", "tis")
_AS_BROWSERS_DO = {
    "gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254",
    "iso8859-11": "cp874", "tis-620": "cp874", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "cp950",
}  # fmt: skip
"""Names that stand for more than they once did, by the WHATWG's Encoding Standard."""


def codec_of(label: str) -> str:
    """The codec of a name in a file; empty if there is none, or if it can't be right."""
    label = label.lower().removeprefix("x-").replace("windows-", "cp")
    try:
        codec = codecs.lookup(label).name
    except (LookupError, UnicodeError):
        return ""
    codec = _AS_BROWSERS_DO.get(codec, codec)
    return codec if codec.startswith(_TEXT_CODECS) else ""


def decoded(data: bytes, declared: str = "", wanted: str = "") -> FileText:
    """The text of ``data``: as ``wanted`` (a name in `CODECS`), by its mark, as UTF-8, as ``declared`` (a codec), or in
    the likeliest encoding. Raises `RefusedError` for what isn't text.
    """
    if data.startswith(_NOT_TEXT):
        raise RefusedError("binary")
    if wanted in CODECS:
        return FileText(data.decode(CODECS[wanted], "replace"), encoding=wanted)
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return FileText(_checked(data.decode(encoding, "replace")))
    if wide := _wide(data):
        return FileText(_checked(data.decode(wide, "replace")))
    zeros = data.count(0)
    if zeros and (guess := guessed_encoding(data)) in ("UTF-16 LE", "UTF-16 BE"):
        return FileText(_checked(data.decode(CODECS[guess], "replace")), encoding=guess)
    written = _UNWRITTEN.sub(b"", data)
    if written.count(0) * 2 > len(written) or not written:
        raise RefusedError("binary")
    found = _narrow(written.replace(b"\0", b""), declared)
    if zeros:
        _checked(found.text, _MOST_BESIDE_ZEROS)
        return replace(found, left_out=(*how_many(zeros, "zero byte"), *found.left_out))
    return found


def _narrow(data: bytes, declared: str) -> FileText:
    """Text without zeros."""
    if b"\x1b$" in data[:_LOOKED_AT]:  # of the escapes of terminals, none is like this
        with contextlib.suppress(UnicodeDecodeError):
            return FileText(data.decode("iso2022_jp_ext"))
    said = _SAID.search(data[:_LOOKED_AT])
    if not declared and said is not None:
        declared = codec_of(next(filter(None, said.groups())).decode("ascii"))
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd") - data.count("\ufffd".encode())
    if bad == 0:
        return FileText(_checked(text))
    good = sum(map(len, _NOT_ASCII.findall(text))) - bad
    if good >= (3 if declared else 2) * bad:
        _checked(text.replace("\ufffd", ""))
        return FileText(text, how_many(bad, "byte that isn't UTF-8"))
    if declared and declared != "utf-8":
        return FileText(_checked(data.decode(declared, "replace")))
    guess = guessed_encoding(data)
    return FileText(_checked(data.decode(CODECS[guess], "replace")), encoding=guess)


def _wide(data: bytes) -> str:
    """The codec of UTF-16 without a mark, where every second byte of much of the text is zero."""
    head = data[: _LOOKED_AT & ~1]
    first, second = head[::2].count(0), head[1::2].count(0)
    if max(first, second) * 5 < len(head) or min(first, second) * 20 > len(head):
        return ""
    return "utf-16-be" if first > second else "utf-16-le"


def tidied(text: str) -> str:
    """With one kind of line end, and without characters that no reader sees."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return text.removeprefix("\ufeff")


def with_fewer_blank_lines(text: str) -> str:
    """Of a text that was laid out for the eye."""
    return _BLANK_LINES.sub("\n\n\n", text)


def _checked(text: str, most: float = _MOST_CONTROLS) -> str:
    strange = len(_CONTROLS.findall(text)) + text.count("\ufffd")
    if strange > max(1, most * len(text)):
        raise RefusedError("binary")
    return text
