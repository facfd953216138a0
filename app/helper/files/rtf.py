r"""Rich Text (.rtf), with striprtf and what that can't do: notes, hidden text, double-byte characters."""

from __future__ import annotations

import itertools
import re
from typing import BinaryIO

from striprtf.striprtf import rtf_to_text

from app.helper.files.found import FileText, RefusedError, how_many, table
from app.helper.files.plain import with_fewer_blank_lines

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{1,5})")
_HEX_DATA = re.compile(r"(?:[0-9a-fA-F]\s*+){256,}+")
"""Pictures and objects, which striprtf would read digit by digit."""
_PICTURE = re.compile(r"\\pict(?![a-z])")
_COPY = re.compile(r"\\nonshppict(?![a-z])")
"""Precedes a picture's copy for older apps."""
_INNER = r"(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+"
_NOTE = re.compile(rf"\{{\\footnote(?![a-z])({_INNER})\}}")
_HIDDEN = re.compile(r"\\v1?(?![a-z\d])[^{}]*?(?=\\v0|[{}])")
_CELL = re.compile(r"\\intbl(?![a-z]).*?\\cell(?![a-z])", re.DOTALL)
_LINE_END = re.compile(r"\\(?:par|line)(?![a-z]) ?")
_DOUBLE_BYTES = re.compile(r"\\'([89a-fA-F][0-9a-fA-F])(?:\\'([0-9a-fA-F]{2})|([@-\[\]-z|~]))")
_ASIAN = re.compile(r"\\ansicpg9(?:32|36|49|50)\b|\\fcharset1(?:28|29|34|36)\b")


def text_of(file: BinaryIO, _most: int) -> FileText:
    """The text of a document; rows of tables as Markdown. Raises `RefusedError`."""
    data = file.read()
    page = _CODE_PAGE.search(data)
    try:
        written = data.decode(f"cp{int(page[1])}" if page else "cp1252", "replace")
    except LookupError:
        written = data.decode("cp1252", "replace")
    pictures = len(_PICTURE.findall(written)) - len(_COPY.findall(written))
    written = _HIDDEN.sub("", _NOTE.sub(r"{ [Note: \1]}", _HEX_DATA.sub("", written)))
    written = _CELL.sub(lambda cell: _LINE_END.sub(r"\\~", cell[0]), written)
    if _ASIAN.search(written):
        written = _DOUBLE_BYTES.sub(lambda pair: rf"\'{pair[1]}\'{pair[2] or f'{ord(pair[3]):02x}'}", written)
    try:
        text: str = rtf_to_text(written, errors="replace")  # type: ignore[no-untyped-call]
    except (ValueError, LookupError, TypeError, OverflowError):
        raise RefusedError("damaged") from None
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return FileText(with_fewer_blank_lines(_with_tables(text)).strip("\n"), how_many(max(0, pictures), "picture"))


def _with_tables(text: str) -> str:
    """Rebuild tables: striprtf ends each cell with a bar."""
    found: list[str] = []
    for is_table, group in itertools.groupby(text.split("\n"), lambda line: line.rstrip().endswith("|")):
        lines = list(group)
        found += [table([line.split("|")[:-1] for line in lines])] if is_table else lines
    return "\n".join(found)
