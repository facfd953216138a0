"""Write the text of a paragraph, a heading or a cell, with its formulas, as Qt's parser has found it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from PySide6.QtCore import QUrl
from PySide6.QtGui import QTextBlock, QTextBlockFormat, QTextCharFormat, QTextFormat

from app.chats.formats.formulas import Formula, formulas_in
from app.ui.chat.markdown.document_end import DocumentEnd
from app.ui.chat.markdown.formats import Formats, Look
from app.ui.chat.markdown.formula_objects import OBJECT, TYPE
from app.ui.chat.markdown.formula_places import FormulaPlaces, WaitingFormula

ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})

_Property = QTextFormat.Property
_SIGN = "\ufdd2"
"""Stands before the number of a formula in what Qt parses; no other text has it, see `blocks.visible`."""
_FIRST_NUMBER = 0xE000
_MAX_FORMULAS = 0x1000
"""In one block."""
_STAND_IN = re.compile(f"{_SIGN}([\ue000-\uefff])")
_PUNCTUATION = re.compile(r"[.,;:]?(?=\s|\Z)")
_UNFINISHED = re.compile(r"\\\([^\n]*\Z|\\\[[^\n]*\Z|\$\$[^\n]*\Z")


def checked_link(target: str) -> str:
    """The address if it may become a link, else nothing."""
    url = QUrl(target, QUrl.ParsingMode.StrictMode)
    scheme = url.scheme().lower()
    if not url.isValid() or scheme not in ALLOWED_SCHEMES or url.userInfo():
        return ""
    return url.toString() if scheme == "mailto" or url.host() else ""


class InlineWriter:
    """Writes at the end of a document.

    Attributes:
        is_final: Whether the block is finished: what it has of formulas is drawn, else shown as source.
    """

    def __init__(self, end: DocumentEnd, formats: Formats, places: FormulaPlaces | None) -> None:
        """``places``: without them all formulas are shown as source."""
        self.is_final = False
        self._end = end
        self._cursor = end.cursor
        self._formats = formats
        self._places = places
        self._formulas: Sequence[Formula] = ()
        self._resumed: QTextBlockFormat | None = None
        """What goes on behind a formula on a line of its own has this format."""

    def without_formulas(self, source: str) -> str:
        """What Qt shall parse: the same text with stand-ins for its formulas, which are written in their place."""
        found = formulas_in(source)[:_MAX_FORMULAS]
        parts, at = [], 0
        for number, formula in enumerate(found):
            parts += [source[at : formula.start], _SIGN, chr(_FIRST_NUMBER + number)]
            at = formula.end
        rest = source[at:]
        open_one = _UNFINISHED.search(rest) if not self.is_final and "`" not in rest else None
        if open_one is not None and len(found) < _MAX_FORMULAS:  # its signs are not escapes of Markdown
            text = open_one[0].rstrip("*")
            parts += [rest[: open_one.start()], _SIGN, chr(_FIRST_NUMBER + len(found))]
            found = [*found, Formula(0, 0, text, "", is_display=False)]
            rest = ""
        self._formulas = found
        return "".join([*parts, rest]) if found else source

    def with_formulas(self, text: str) -> str:
        """The text with the formulas' sources again, for where they are not drawn."""
        return _STAND_IN.sub(lambda found: self._formula(found[1]).source, text)

    def measured(self, text: str) -> str:
        """The text with something as wide as it in the place of each formula."""

        def as_wide(found: re.Match[str]) -> str:
            formula = self._formula(found[1])
            form = self._form(formula, Look())
            return formula.source if form is None else self._digits(form)

        return _STAND_IN.sub(as_wide, text) if self._formulas else text

    def as_wide_as(self, block: QTextBlock) -> str:
        """Text as wide as that of a block of the document."""
        text = []
        piece = block.begin()
        while not piece.atEnd():
            fragment = piece.fragment()
            is_formula = fragment.charFormat().objectType() == TYPE
            digits = self._digits(fragment.charFormat()) if is_formula else ""
            text.append(digits * fragment.length() if is_formula else fragment.text())
            piece += 1
        return "".join(text)

    def _digits(self, characters: QTextFormat) -> str:
        """Digits as wide as the formula with this format."""
        width = self._places.objects.width_of(characters) if self._places is not None else 0
        return "0" * round(width / self._formats.digit_width + 0.5)

    def _formula(self, number: str) -> Formula:
        return self._formulas[ord(number) - _FIRST_NUMBER]

    # -- writing

    def write(
        self, part: QTextBlock, level: int = 0, *, bold: bool = False, form: QTextBlockFormat | None = None
    ) -> None:
        """Write what a block of Qt's parser has. ``form``: the format of its block here, if formulas in it may stand on
        lines of their own."""
        self._resumed = None
        piece = part.begin()
        image, alt = "", ""
        while not piece.atEnd():
            fragment = piece.fragment()
            text, origin = fragment.text(), fragment.charFormat()
            name = origin.toImageFormat().name() if origin.isImageFormat() else ""
            if alt and name != image:
                self._write_alternative(alt)
                alt = ""
            if origin.isImageFormat():
                # Qt makes several images of one whose text has mark-up.
                image, alt = name, alt + str(origin.property(_Property.ImageAltText.value) or "")
            else:
                look = Look(
                    bold=bold or origin.fontWeight() > 500,
                    italic=origin.fontItalic(),
                    struck=origin.fontStrikeOut(),
                    code=origin.fontFixedPitch(),
                    heading=level,
                    link=checked_link(origin.anchorHref()) if origin.isAnchor() else "",
                )
                self._write_text(text, look, form)
            piece += 1
        if alt:
            self._write_alternative(alt)

    def _write_alternative(self, alt: str) -> None:
        """What stands for an image: its description."""
        self._insert(f"[{self.with_formulas(alt).strip()}]", Look(italic=True, quiet=True))

    def _write_text(self, text: str, look: Look, form: QTextBlockFormat | None) -> None:
        if not self._formulas or _SIGN not in text:
            self._insert(text, look)
            return
        for index, part in enumerate(_STAND_IN.split(text)):
            if index % 2:
                self.write_formula(self._formula(part), look, form)
            elif part:
                self._insert(part, look)

    def _insert(self, text: str, look: Look) -> None:
        characters = self._formats.characters(look)
        if self._resumed is not None:
            sign = _PUNCTUATION.match(text)
            if sign is not None:
                self._cursor.insertText(sign[0], characters)
                text = text[sign.end() :].lstrip(" ")
            if not text:
                return
            self._end.begin(self._resumed, characters)
            self._resumed = None
        self._cursor.insertText(text, characters)

    # -- formulas

    def write_formula(self, formula: Formula, look: Look, form: QTextBlockFormat | None) -> None:
        """Write one formula, on a line of its own where it is such a one and ``form`` is given."""
        block = self._begin_display(form, look) if formula.is_display and form is not None else None
        if block is None and self._resumed is not None:
            self._end.begin(self._resumed, self._formats.characters(look))
        self._resumed = QTextBlockFormat(block) if block is not None else None
        drawn = self._form(formula, look)
        if drawn is not None and self._places is not None:
            if block is not None:
                self._places.add_display(self._cursor.position(), block, drawn)
                self._cursor.setBlockFormat(block)
            self._cursor.insertText(OBJECT, drawn)
            return
        start = self._cursor.position()
        shown = Look(code=True, heading=look.heading, link=look.link, bold=look.bold, italic=look.italic)
        self._cursor.insertText(formula.source.replace("\n", "\u2028"), self._formats.characters(shown))
        if self.is_final and self._places is not None and formula.tex:
            around = self._formats.characters(look)
            self._places.wait(WaitingFormula(start, self._cursor.position(), formula, around, block))

    def _form(self, formula: Formula, look: Look) -> QTextCharFormat | None:
        """The format of its character, if it was drawn."""
        if self._places is None or not self.is_final:
            return None
        return self._places.format(formula, self._formats.characters(look))

    def _begin_display(self, form: QTextBlockFormat, look: Look) -> QTextBlockFormat | None:
        """A block for a formula on a line of its own; ``None`` in the first line of a list's item."""
        block = self._cursor.block()
        if block.length() <= 1 and block.textList() is not None:
            return None
        if block.text().endswith(" "):
            self._cursor.deletePreviousChar()
        result = QTextBlockFormat(form)
        result.clearProperty(_Property.ObjectIndex.value)
        items = block.textList()
        if items is not None:  # PySide's stubs deny the None
            result.setIndent(items.format().indent())
        if block.length() > 1:
            self._end.begin(result, self._formats.characters(look))
        return result
