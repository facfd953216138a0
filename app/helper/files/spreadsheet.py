"""Spreadsheets (.xlsx, .xlsm, .xlsb, .xls, .ods), with calamine: each sheet as a heading and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import BinaryIO

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from app.helper.files.found import FileText, RefusedError, counted
from app.helper.files.opendocument import refuse_encrypted
from app.helper.files.packages import read_part, unpacked

Value = int | float | str | bool | date | datetime | time | timedelta
_NO_VALUE = re.compile(
    rb"<(?:\w+:)?c\b[^>]*+>\s*<(?:\w+:)?f\b[^>]*+>(?:[^<]*+</(?:\w+:)?f>)?\s*"
    rb"(?:<v\s*/>|<v></v>)?</(?:\w+:)?c>"
)
_ERROR = re.compile(rb"""<(?:\w+:)?c\b[^>]*\bt=["']e["']""")
_COMMENT = re.compile(rb"<(?:\w+:)?(?:comment|annotation)\b")
_PARTS = (
    (re.compile(r"xl/media/|Pictures/."), "picture"),
    (re.compile(r"xl/charts/chart\d*\.xml|Object[^/]*/content\.xml"), "chart"),
)
_OLD = b"\xd0\xcf\x11\xe0"
"""The beginning of Office files from before 2007, and of those with a password."""
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
"""The name of the stream with the encrypted file (MS-OFFCRYPTO, 2.3.4.4)."""


def text_of(file: BinaryIO, most: int) -> FileText:
    """The visible sheets, until they exceed ``most`` characters. Raises `RefusedError`."""
    left_out = Counter[str]()
    is_old = file.read(len(_OLD)) == _OLD
    if is_old and _ENCRYPTED in file.read():
        raise RefusedError("encrypted")
    if not is_old:
        _count_others(file, left_out)
    file.seek(0)
    try:
        with CalamineWorkbook.from_object(file) as book:
            text = "".join(_sheets(book, most, left_out))
    except PasswordError:
        raise RefusedError("encrypted") from None
    except CalamineError:
        raise RefusedError("old_office" if is_old else "damaged") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a Rust library's bug; it isn't an `Exception`
            raise
        raise RefusedError("damaged") from None
    return FileText(text, counted(left_out))


def _count_others(file: BinaryIO, left_out: Counter[str]) -> None:
    with unpacked(file) as archive:
        refuse_encrypted(archive)
        for name in archive.namelist():
            for pattern, what in _PARTS:
                left_out[what] += pattern.match(name) is not None
            if name.startswith("xl/worksheets/") and name.endswith(".xml"):
                sheet = read_part(archive, name)
                left_out["formula without a result"] += len(_NO_VALUE.findall(sheet))
                left_out["cell with an error"] += len(_ERROR.findall(sheet))
            if name.startswith("xl/comments") or name == "content.xml":
                left_out["comment"] += len(_COMMENT.findall(read_part(archive, name)))


def _sheets(book: CalamineWorkbook, most: int, left_out: Counter[str]) -> Iterator[str]:
    size = 0
    for about in book.sheets_metadata:
        if about.typ in (SheetTypeEnum.ChartSheet, SheetTypeEnum.Vba, SheetTypeEnum.MacroSheet):
            continue
        if about.visible != SheetVisibleEnum.Visible:
            left_out["hidden sheet"] += 1
            continue
        heading = f"\n## {about.name}\n\n"
        for line in _lines(book.get_sheet_by_name(about.name)):
            yield heading + line
            heading = ""
            size += len(line)
            if size > most:
                return


def _lines(sheet: CalamineSheet) -> Iterator[str]:
    """A sheet as lines of CSV, without trailing empty cells and without empty lines at the top and bottom."""
    waiting = 0
    begun = False
    for row in sheet.iter_rows():
        cells = [_written(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            waiting += begun
            continue
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        yield "\n" * min(waiting, 1) + line.getvalue()
        waiting, begun = 0, True


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}"  # without the noise of binary fractions
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value.replace(microsecond=0))
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return str(value).strip()
