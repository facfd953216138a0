"""The text of one page of a PDF file: its characters in reading order, and between them what annotations say.

PDFium gives characters in the order in which the page draws them, which is the order of reading in most files.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pypdfium2 as pdfium
from pypdfium2 import raw

from app.helper.files.reading_order import Character, in_reading_order

_MOST_UNREADABLE = 0.4
"""Of the characters of a page: fonts may not say which letters they draw."""
_LEAST_PICTURE = 40.0
"""Both sides of a picture, in points (1/72 inch): smaller ones are lines, bullets and signs."""
_MOST_TEXT = 20_000
"""Of a field or comment."""
_HYPHEN = "\x02"
"""Where a word is divided at the end of a line."""
_DIVIDED = re.compile(rf"(\w?){_HYPHEN}\s*(\w?)")
_NOT_SHOWN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_BOXES = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_CHOICES = (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
_PASSWORD_FIELD = 1 << 13


class Note(NamedTuple):
    """Something that an annotation says. ``at``: the place on the page, as left, bottom, right, top."""

    kind: str
    """``field``, ``box``, ``link``, ``comment`` or ``text``."""
    name: str
    text: str
    at: tuple[float, float, float, float]


def text_of(document: pdfium.PdfDocument, page: pdfium.PdfPage, left_out: Counter[str]) -> str:
    """The text of a page; what is left out of it is counted. Raises `pypdfium2.PdfiumError`."""
    with closing(page.get_textpage()) as text_page:
        count = max(0, raw.FPDFText_CountChars(text_page))
        characters = _with_ligatures([_character(text_page, index) for index in range(count)])
        shown = [one for one in characters if not one.letter.isspace()]
        wrong = sum(raw.FPDFText_HasUnicodeMapError(text_page, one.place) == 1 for one in shown)
    notes = list(_notes(document, page))
    is_readable = wrong <= _MOST_UNREADABLE * len(shown)
    if not is_readable:
        left_out["page that couldn't be read"] += 1
        characters, shown = [], []
    _count_pictures(page, left_out, has_text=bool(shown or notes), is_readable=is_readable)
    before, behind = _placed(notes, shown, len(characters))
    parts = (before[one.place] + one.letter for one in in_reading_order(characters))
    text = "".join(parts) + before[len(characters)]
    return "\n".join([_tidied(text), *behind]).strip()


def _character(text_page: pdfium.PdfTextPage, index: int) -> Character:
    box = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(text_page, index, box)
    letter = chr(raw.FPDFText_GetUnicode(text_page, index))
    return Character(index, letter, box.left, box.bottom, box.right, box.top)


def _with_ligatures(characters: list[Character]) -> list[Character]:
    """PDFium reverses the letters of Arabic ligatures along with the line: they share one place."""
    found: list[Character] = []
    for _, group in itertools.groupby(characters, lambda one: one[2:]):
        shared = list(group)
        if len(shared) > 1 and all("\u0600" <= one.letter <= "\u06ff" for one in shared):
            letters = [one.letter for one in reversed(shared)]
            shared = [one._replace(letter=letter) for one, letter in zip(shared, letters, strict=True)]
        found += shared
    return found


def _tidied(text: str) -> str:
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _DIVIDED.sub(lambda ends: ends[1] + ("" if (ends[1] + ends[2]).islower() else "-") + ends[2], text)
    text = text.replace("\r\n", "\n").replace("\uf0b7", "•").replace("\ufffe", "").replace("\0", "")
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _count_pictures(page: pdfium.PdfPage, left_out: Counter[str], *, has_text: bool, is_readable: bool) -> None:
    area = page.get_width() * page.get_height()
    objects = drawn = 0
    for one in page.get_objects(max_depth=3):
        objects += 1
        if one.type == raw.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = one.get_bounds()
            width, height = right - left, top - bottom
            # A picture of the whole page behind its text is a scan whose text was recognized.
            drawn += min(width, height) >= _LEAST_PICTURE and not (has_text and width * height > 0.8 * area)
    if has_text:
        left_out["picture"] += drawn
    elif objects and is_readable:
        left_out["page that is only a picture"] += 1


# ---------------------------------------------------------------- annotations


def words(function: Callable[..., int], *arguments: Any, encoding: str = "utf-16-le") -> str:
    """What a function of PDFium writes into a buffer."""
    size = min(function(*arguments, None, 0), 2 * _MOST_TEXT)
    if size <= 0:
        return ""
    buffer = ctypes.create_string_buffer(size)
    pointer = ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)) if encoding == "utf-16-le" else buffer
    function(*arguments, pointer, size)
    return buffer.raw.decode(encoding, "replace").partition("\0")[0].replace("\r\n", "\n").replace("\r", "\n").strip()


def _notes(document: pdfium.PdfDocument, page: pdfium.PdfPage) -> Iterator[Note]:
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        if annotation := raw.FPDFPage_GetAnnot(page, index):
            try:
                note = _note(document, annotation)
            finally:
                raw.FPDFPage_CloseAnnot(annotation)
            if note is not None and (note.text or note.kind == "box"):
                yield note


def _note(document: pdfium.PdfDocument, annotation: Any) -> Note | None:
    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if raw.FPDFAnnot_GetFlags(annotation) & _NOT_SHOWN or kind == raw.FPDF_ANNOT_POPUP:
        return None
    box = raw.FS_RECTF()
    raw.FPDFAnnot_GetRect(annotation, box)
    at = (box.left, box.bottom, box.right, box.top)
    if kind == raw.FPDF_ANNOT_WIDGET:
        return _field(document.formenv, annotation, at) if document.formenv else None
    if kind == raw.FPDF_ANNOT_LINK:
        action = raw.FPDFLink_GetAction(raw.FPDFAnnot_GetLink(annotation))
        return Note("link", "", words(raw.FPDFAction_GetURIPath, document, action, encoding="utf-8"), at)
    text = words(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
    return Note("text" if kind == raw.FPDF_ANNOT_FREETEXT else "comment", "", text, at)


def _field(form: Any, annotation: Any, at: tuple[float, float, float, float]) -> Note | None:
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    name = words(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or words(raw.FPDFAnnot_GetFormFieldName, form, annotation)
    if kind in _BOXES:
        return Note("box", name, "[x]" if raw.FPDFAnnot_IsChecked(form, annotation) else "[ ]", at)
    if kind == raw.FPDF_FORMFIELD_PUSHBUTTON or raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD_FIELD:
        return None
    value = words(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    if kind in _CHOICES:
        options = range(max(0, raw.FPDFAnnot_GetOptionCount(form, annotation)))
        chosen = [option for option in options if raw.FPDFAnnot_IsOptionSelected(form, annotation, option)]
        labels = (words(raw.FPDFAnnot_GetOptionLabel, form, annotation, option) for option in chosen)
        value = ", ".join(labels) or value
    return Note("field", name, value, at)


# ---------------------------------------------------------------- where they belong


def _placed(notes: list[Note], shown: list[Character], end: int) -> tuple[defaultdict[int, str], list[str]]:
    """What to write before each character, by its index, and what to write behind the page."""
    before: defaultdict[int, str] = defaultdict(str)
    behind: list[str] = []
    for number, note in enumerate(notes):
        if note.kind in ("link", "comment"):
            inside = [one for one in shown if one.is_within(note.at)]
            goes_on = [(one.kind, one.text) for one in notes[number + 1 : number + 2]] == [("link", note.text)]
            if note.kind == "link" and (not inside or _is_said(note.text, inside) or goes_on):
                continue
            place, text = (inside[-1].place + 1 if inside else None), f" ({note.text})"
            if note.kind == "comment":
                place, text = (_word_end(inside[-1], shown) if inside else None), f" [Comment: {note.text}]"
        elif note.kind == "box" and (label := _beside(note, shown)) is not None:
            place, text = _word_end(label, shown, -1) + 1, f"{note.text} "
        else:
            anchor = None if note.kind == "text" else _left_or_above(note, shown)
            place, text = (None if anchor is None else anchor.place + 1), f" {note.text}"
        if place is None:
            behind.append(f"{note.name}: {note.text}" if note.name else text.strip())
        else:
            before[min(place, end)] += text
    return before, behind


def _word_end(one: Character, shown: list[Character], step: int = 1) -> int:
    """The index beside a word: behind it, or before it (``step`` −1). ``shown`` lacks spaces."""
    indexes = {one.place for one in shown}
    return next(index for index in itertools.count(one.place + step, step) if index not in indexes)


def _is_said(address: str, inside: list[Character]) -> bool:
    """Whether the text of a link is its address, or the part of it that people read."""
    text = "".join(one.letter for one in inside).rstrip(".,;/").replace(_HYPHEN, "")
    return text.lower() in address.lower() and len(text) > 3


def _beside(note: Note, shown: list[Character]) -> Character | None:
    """The first character to the right of a box."""
    _, bottom, right, top = note.at
    near = [one for one in shown if bottom - 2 <= one.middle <= top + 2 and -2 <= one.left - right <= 40]
    return min(near, key=lambda one: one.left, default=None)


def _left_or_above(note: Note, shown: list[Character]) -> Character | None:
    """The last character of what stands before a field, on its line or the line above."""
    left, bottom, right, top = note.at
    line = [
        one
        for one in shown
        if (bottom - 2 <= one.middle <= top + 2 and one.center < left + 2) or one.is_within(note.at)
    ]
    if line:
        return min(line, key=lambda one: (abs(top - one.top) // 8, -one.right))
    above = [one for one in shown if 0 < one.middle - top <= 18 and one.right > left and one.left < right]
    return max(above, key=lambda one: (-(one.middle // 4), one.right), default=None)
