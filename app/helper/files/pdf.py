"""PDF files, with PDFium: their text, and pages as pictures for models that see."""

from __future__ import annotations

import ctypes
import html
import itertools
import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple

import pypdfium2 as pdfium
from pypdfium2 import raw

from app.helper.files.found import FileText, RefusedError, counted
from app.helper.files.plain import with_fewer_blank_lines
from app.helper.messages import PageDrawn

# ---------------------------------------------------------------- reading order

_LEAST_LETTERS = 12
"""The median line of a column has at least this many; shorter ones are table cells, which are read row by row."""
_LEAST_CONTINUED = 0.4
"""The share of a column's lines that begin in lower case, in the middle of a sentence; table cells don't."""
_LEAST_LINES = 6
"""Lines side by side, in scripts without lower case."""
_LEAST_GAP = 7.0
"""Points between columns."""


class Character(NamedTuple):
    """``place`` is the index in the file; the box is in points from the page's lower left corner."""

    place: int
    letter: str
    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2

    @property
    def center(self) -> float:
        return (self.left + self.right) / 2

    def is_within(self, place: tuple[float, float, float, float]) -> bool:
        return place[0] <= self.center <= place[2] and place[1] <= self.middle <= place[3]


Line = list[Character]


def in_reading_order(characters: list[Character]) -> list[Character]:
    """``characters`` column by column, if the file's lines run across columns; otherwise unchanged."""
    lines: list[Line] = [[]]
    for one in characters:
        lines[-1].append(one)
        if one.letter == "\n":
            lines.append([])
    return [one for line in _by_columns(lines) for one in line]


def _by_columns(lines: list[Line]) -> list[Line]:
    gaps = {number: wide for number, line in enumerate(lines) if (wide := _gaps(line))}
    border = _border(lines, gaps)
    if border is None:
        return lines
    found: list[Line] = []
    left: list[Line] = []
    right: list[Line] = []
    for number, line in enumerate(lines):
        split = next((at for low, high, at in gaps.get(number, ()) if low <= border <= high), None)
        sides = [one for one in line if not one.letter.isspace()]
        if split is not None:
            left.append([*line[:split], _line_end(line)])
            right.append(line[split:])
        elif sides and sides[-1].right <= border + 2:
            left.append(line)
        elif sides and sides[0].left >= border - 2:
            right.append(line)
        else:  # a heading across the columns, or an empty line
            found += [*_by_columns(left), *_by_columns(right), line]
            left, right = [], []
    return [*found, *_by_columns(left), *_by_columns(right)]


def _line_end(line: Line) -> Character:
    return line[-1]._replace(letter="\n")


def _gaps(line: Line) -> list[tuple[float, float, int]]:
    """The wide gaps of a line: start, end, and the index of the character after it."""
    found = []
    last: Character | None = None
    for place, one in enumerate(line):
        if one.letter.isspace():
            continue
        if last is not None and one.left - last.right >= _LEAST_GAP:
            found.append((last.right, one.left, place))
        last = one
    return found


def _border(lines: list[Line], gaps: dict[int, list[tuple[float, float, int]]]) -> float | None:
    """The x coordinate between two columns; ``None`` if there aren't any."""
    places = Counter(round(high) for found in gaps.values() for _, high, _ in found)
    for place, number in places.most_common(3):
        border = place - 2.0
        split = [
            (_text(lines[number][:at]), _text(lines[number][at:]))
            for number, found in gaps.items()
            for low, high, at in found
            if low <= border <= high
        ]
        if number > 1 and _is_prose(split):
            return border
    return None


def _text(line: Line) -> str:
    return "".join(one.letter for one in line).strip()


def _is_prose(split: list[tuple[str, str]]) -> bool:
    lefts, rights = sorted(len(left) for left, _ in split), sorted(len(right) for _, right in split)
    begins = [text[0] for pair in split[1:] for text in pair if text]
    cased = [letter for letter in begins if letter.isdecimal() or letter.lower() != letter.upper()]
    continued = sum(letter.islower() for letter in cased)
    middle = len(split) // 2
    if min(lefts[middle], rights[middle]) < _LEAST_LETTERS:
        return False
    return continued >= _LEAST_CONTINUED * len(cased) if cased else len(split) >= _LEAST_LINES


# ---------------------------------------------------------------- the text of a page
#
# Its characters in reading order, with the annotations between them. PDFium returns characters in drawing order, which
# in most files is the reading order.

_MOST_UNREADABLE = 0.4
"""The share of a page's characters whose font doesn't say which letters it draws."""
_LEAST_PICTURE = 40.0
"""Points for both sides of a picture; smaller ones are lines, bullets and signs."""
_MOST_TEXT = 20_000
"""Characters of a field or comment."""
_HYPHEN = "\x02"
"""PDFium's mark for a word divided at the end of a line."""
_DIVIDED = re.compile(rf"(\w?){_HYPHEN}\s*(\w?)")
_NOT_SHOWN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_BOXES = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_CHOICES = (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
_PASSWORD_FIELD = 1 << 13


class Note(NamedTuple):
    """An annotation's text. ``at`` is its box on the page: left, bottom, right, top."""

    kind: str
    """``field``, ``box``, ``link``, ``comment`` or ``text``."""
    name: str
    text: str
    at: tuple[float, float, float, float]


def page_text(document: pdfium.PdfDocument, page: pdfium.PdfPage, left_out: Counter[str]) -> str:
    """A page's text; counts what is left out. Raises `pypdfium2.PdfiumError`."""
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
    """Undo PDFium's reversal of the letters in Arabic ligatures, which share one box."""
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
            # A picture of the whole page behind text is a scan with recognized text.
            drawn += min(width, height) >= _LEAST_PICTURE and not (has_text and width * height > 0.8 * area)
    if has_text:
        left_out["picture"] += drawn
    elif objects and is_readable:
        left_out["page that is only a picture"] += 1


# ---------------------------------------------------------------- annotations


def words(function: Callable[..., int], *arguments: Any, encoding: str = "utf-16-le") -> str:
    """The text that a PDFium function writes into a buffer."""
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


# ---------------------------------------------------------------- placing annotations


def _placed(notes: list[Note], shown: list[Character], end: int) -> tuple[defaultdict[int, str], list[str]]:
    """The text to insert before each character, by its index, and the texts to put after the page."""
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
    """The index after a word, or before it (``step`` −1). ``shown`` has no spaces."""
    indexes = {one.place for one in shown}
    return next(index for index in itertools.count(one.place + step, step) if index not in indexes)


def _is_said(address: str, inside: list[Character]) -> bool:
    """Whether a link's text is its address or part of it."""
    text = "".join(one.letter for one in inside).rstrip(".,;/").replace(_HYPHEN, "")
    return text.lower() in address.lower() and len(text) > 3


def _beside(note: Note, shown: list[Character]) -> Character | None:
    """The first character to the right of a box."""
    _, bottom, right, top = note.at
    near = [one for one in shown if bottom - 2 <= one.middle <= top + 2 and -2 <= one.left - right <= 40]
    return min(near, key=lambda one: one.left, default=None)


def _left_or_above(note: Note, shown: list[Character]) -> Character | None:
    """The last character of a field's label, on its line or the line above."""
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


MOST_PAGES = 3000
_XFA_DATA = re.compile(r"<xfa:data(?=[\s>])")
_XFA_FIELD = re.compile(r"<(\w[\w.-]*+)[^<>]*+>([^<>]++)</")
_PASSWORD = (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY)


def open_document(file: BinaryIO) -> pdfium.PdfDocument:
    """Raises `RefusedError`."""
    try:
        document = pdfium.PdfDocument(file)
        document.init_forms()
    except pdfium.PdfiumError as error:
        raise RefusedError("encrypted" if error.err_code in _PASSWORD else "damaged") from None
    if len(document) > MOST_PAGES:
        raise RefusedError("too_many_pages", str(len(document)))
    return document


def text_of(file: BinaryIO, most: int) -> FileText:
    """The pages' text, until it exceeds ``most`` characters, with form values, link addresses and comments.

    Raises `RefusedError`.
    """
    with closing(open_document(file)) as document:
        texts: list[str] = []
        left_out = Counter[str]()
        for number in range(len(document)):
            try:
                with closing(document[number]) as page:
                    texts.append(page_text(document, page, left_out))
            except pdfium.PdfiumError:
                left_out["page that couldn't be read"] += 1
            if sum(map(len, texts)) > most:
                break
        if document.get_formtype() == raw.FORMTYPE_XFA_FULL:
            texts.append(_xfa_values(document))
        left_out["attached file"] = document.count_attachments()
    return FileText(with_fewer_blank_lines("\n\n".join(filter(None, texts))), counted(left_out))


def _xfa_values(document: pdfium.PdfDocument) -> str:
    """The values of an XFA form, which PDFium can't draw. Not parsed as XML, because many aren't well-formed."""
    lines: list[str] = []
    size = ctypes.c_ulong()
    for number in range(raw.FPDF_GetXFAPacketCount(document)):
        raw.FPDF_GetXFAPacketContent(document, number, None, 0, size)
        packet = ctypes.create_string_buffer(max(1, size.value))
        raw.FPDF_GetXFAPacketContent(document, number, packet, size.value, size)
        for values in _XFA_DATA.split(packet.raw.decode("utf-8", "replace"), maxsplit=1)[1:]:
            lines += [f"{name}: {html.unescape(text)}" for name, text in _XFA_FIELD.findall(values) if text.strip()]
    return "\n".join(lines)


# ---------------------------------------------------------------- pages as pictures

_LONGER_SIDE = 1600
"""In pixels; models scale images down to less."""


def drawn(file: BinaryIO, number: int) -> PageDrawn:
    """A page, counted from 0 and capped at the last one, as PNG. Raises `RefusedError`."""
    try:
        with closing(open_document(file)) as document:
            with closing(document[min(number, len(document) - 1)]) as page:
                longest = max(page.get_size())
                if not 0 < longest < float("inf"):
                    raise RefusedError("damaged")
                bitmap = page.render(scale=_LONGER_SIDE / longest, rev_byteorder=True)
            with closing(bitmap):
                return PageDrawn(_png(bitmap), bitmap.width, bitmap.height, len(document))
    except (pdfium.PdfiumError, ValueError, IndexError):
        raise RefusedError("damaged") from None


def _png(bitmap: pdfium.PdfBitmap) -> bytes:
    """A bitmap (RGB, RGB with a fourth byte, or gray) as PNG (ISO 15948)."""
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
