"""Write the text of a paragraph, a heading or a cell, with its formulas, as the parser has found it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from markdown_it.token import Token
from PySide6.QtCore import QUrl
from PySide6.QtGui import QTextBlock, QTextBlockFormat, QTextCharFormat, QTextFormat

from app.markdown import formulas
from app.markdown.blocks import visible
from app.markdown.dialect import AT, TAG, located
from app.markdown.formulas import Formula
from app.ui.chat.markdown.document_end import DocumentEnd
from app.ui.chat.markdown.formats import Formats, Look
from app.ui.chat.markdown.formula_objects import OBJECT, TYPE
from app.ui.chat.markdown.formula_places import FormulaPlaces, WaitingFormula

ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})
LINE_BREAK = "\u2028"
"""A new line in the same paragraph, for Qt."""
NO_IMAGE = "image"
"""Shown for a picture without a description."""

_Property = QTextFormat.Property
_PUNCTUATION = re.compile(r"[.,;:]?(?=\s|\Z)")


def checked_link(target: str) -> str:
    """The address if it may become a link, else nothing."""
    url = QUrl(target, QUrl.ParsingMode.StrictMode)
    scheme = url.scheme().lower()
    if not url.isValid() or scheme not in ALLOWED_SCHEMES or url.userInfo():
        return ""
    return url.toString() if scheme == "mailto" or url.host() else ""


def text_of(tokens: Sequence[Token]) -> str:
    """What these tokens say, without any marks."""
    parts = []
    for token in tokens:
        if token.type == "image":
            parts.append(text_of(token.children or ()))
        elif token.type == "hardbreak":
            parts.append(LINE_BREAK)
        else:
            parts.append(" " if token.type == "softbreak" else token.content)
    return "".join(parts)


class InlineWriter:
    """Writes at the end of a document.

    Attributes:
        is_final: Whether the block is finished: what it has of formulas is drawn, else shown as source.
        offset: Where what was parsed begins in the source.
        open_look: How what goes on with the last line would look, where more words change nothing of it.
        first: What is before this place of the source was shown already, so it is not noted again.
    """

    def __init__(self, end: DocumentEnd, formats: Formats, places: FormulaPlaces | None) -> None:
        """``places``: without them all formulas are shown as source."""
        self.is_final = False
        self.offset = self.first = 0
        self.open_look: Look | None = None
        self._end = end
        self._cursor = end.cursor
        self._formats = formats
        self._places = places
        self._line: Token | None = None
        """What the tokens that are written are parts of."""
        self._resumed: QTextBlockFormat | None = None
        """What goes on behind a formula on a line of its own has this format."""

    # -- measuring

    def measured(self, tokens: Sequence[Token]) -> str:
        """The longest line of these tokens, with something as wide in the place of each formula."""
        parts = []
        for token in tokens:
            form = self._form(token.meta["formula"], Look()) if token.type == formulas.INLINE else None
            parts.append(text_of([token]) if form is None else self._digits(form))
        return max("".join(parts).split(LINE_BREAK), key=len)

    def as_wide_as(self, block: QTextBlock) -> str:
        """Text as wide as the longest line of a block of the document."""
        text = []
        piece = block.begin()
        while not piece.atEnd():
            fragment = piece.fragment()
            is_formula = fragment.charFormat().objectType() == TYPE
            digits = self._digits(fragment.charFormat()) if is_formula else ""
            text.append(digits * fragment.length() if is_formula else fragment.text())
            piece += 1
        return max("".join(text).split(LINE_BREAK), key=len)

    def _digits(self, characters: QTextFormat) -> str:
        """Digits as wide as the formula with this format."""
        width = self._places.objects.width_of(characters) if self._places is not None else 0
        return "0" * round(width / self._formats.digit_width + 0.5)

    # -- writing

    def start(self, line: Token | None = None) -> None:
        """What is written next are parts of this line, and go on with nothing before it."""
        self._line, self._resumed = line, None

    def write(self, line: Token, tokens: Sequence[Token], look: Look, form: QTextBlockFormat | None = None) -> None:
        """Write the tokens of a line of text. ``form``: the format of its block here, if formulas in it may stand on
        lines of their own."""
        self.start(line)
        marks: Counter[str] = Counter()
        link = ""
        is_begun = False
        for token in tokens:
            name, _, side = token.type.rpartition("_")
            if token.type == TAG:
                marks[token.info] += -1 if token.markup.startswith("</") else 1
            elif name == "link":
                link = checked_link(str(token.attrs.get("href", ""))) if side == "open" else ""
            elif side in ("open", "close"):
                marks[name] += 1 if side == "open" else -1
            elif is_begun or token.type not in ("softbreak", "hardbreak"):
                is_begun = True
                self._write_token(token, _marked(look, marks, link), form)
        is_plain = (
            bool(tokens and tokens[-1].type == "text" and tokens[-1].content) and not link and not any(marks.values())
        )
        self.open_look = look if is_plain and self._resumed is None else None

    def _write_token(self, token: Token, look: Look, form: QTextBlockFormat | None) -> None:
        at = token.meta[AT]
        if token.type == "text":
            self._insert(token.content.replace("\n", " "), look, at)
        elif token.type == "softbreak":
            self._insert(" ", look, at)
        elif token.type == "hardbreak":
            self._insert(LINE_BREAK, look, at, max(1, len(token.markup)))
        elif token.type == "text_special":
            self._insert(visible(token.content).replace("\n", " "), look, at, len(token.markup))
        elif token.type == "code_inline":
            self._insert(token.content, replace(look, code=True), self._code_place(token, at))
        elif token.type == formulas.INLINE:
            self.write_formula(token.meta["formula"], look, form, at)
        elif token.type == "image":
            self._write_image(token, look.link, at)
        else:
            self.write_note(token.content, at)

    def _code_place(self, token: Token, at: int) -> int:
        """Where the text of code within a line begins: a space may be between it and the mark."""
        begin = at + len(token.markup)
        source = self._line.content if self._line is not None else ""
        return begin + (source[begin : begin + len(token.content)].replace("\n", " ") != token.content)

    def _write_image(self, token: Token, link: str, at: int) -> None:
        """What stands for an image: its description."""
        look, text = Look(italic=True, quiet=True, link=link), text_of(token.children or ()).strip()
        self._insert("[", look)
        text = visible(text).replace("\n", " ") or NO_IMAGE
        self._insert(text, look, at + 2, -1 if text == token.content else max(1, len(token.content)))
        self._insert("]", look)

    def write_note(self, label: str, at: int = -1) -> None:
        """Write the number of a footnote."""
        self._insert(f"[{label}]", Look(raised=1), at, len(label) + 3)

    def _insert(self, text: str, look: Look, at: int = -1, size: int = -1) -> None:
        characters = self._formats.characters(look)
        if self._resumed is not None:
            sign = _PUNCTUATION.match(text)
            count = sign.end() if sign is not None else 0
            if count:
                self._put(text[:count], characters, at, size)
            rest = text[count:].lstrip(f" {LINE_BREAK}")
            if not rest:
                return
            self._end.begin(self._resumed, characters)
            self._resumed = None
            at, text = at if at < 0 else at + len(text) - len(rest), rest
        self._put(text, characters, at, size)

    def _put(self, text: str, characters: QTextCharFormat, at: int, size: int) -> None:
        """Insert text for what stands at this place of the line."""
        parts = list(located(self._line, at, len(text) if size < 0 else 1)) if self._line and at >= 0 else []
        if not parts or parts[0][2] + self.offset < self.first:
            self._end.insert(text, characters)
        elif size >= 0:
            self._end.insert(text, characters, parts[0][2] + self.offset, size)
        else:
            for begin, length, place in parts:
                self._end.insert(text[begin - at : begin - at + length], characters, place + self.offset)

    # -- formulas

    def write_formula(self, formula: Formula, look: Look, form: QTextBlockFormat | None, at: int = -1) -> None:
        """Write one formula, on a line of its own where it is such a one and ``form`` is given."""
        block = self._begin_display(form, look) if formula.is_display and form is not None else None
        if block is None and self._resumed is not None:
            self._end.begin(self._resumed, self._formats.characters(look))
        resumed = (
            QTextBlockFormat(block) if block is not None else None
        )  # a drawn formula is centered, and not the rest
        self._resumed = None
        drawn = self._form(formula, look)
        if drawn is not None and self._places is not None:
            if block is not None:
                self._places.add_display(self._cursor.position(), block, drawn)
                self._cursor.setBlockFormat(block)
            self._put(OBJECT, drawn, at, formula.end - formula.start)
        else:
            self._write_source(formula, look, block, at)
        self._resumed = resumed

    def _write_source(self, formula: Formula, look: Look, block: QTextBlockFormat | None, at: int) -> None:
        start = self._cursor.position()
        shown, characters = formula.source.replace("\n", LINE_BREAK), self._formats.characters(replace(look, code=True))
        self._put(shown, characters, at, formula.end - formula.start)
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
        if block.text().endswith((" ", LINE_BREAK)):
            self._end.remove_last()
        result = QTextBlockFormat(form)
        result.clearProperty(_Property.ObjectIndex.value)
        items = block.textList()
        if items is not None:  # PySide's stubs deny the None
            result.setIndent(items.format().indent())
        if block.length() > 1:
            self._end.begin(result, self._formats.characters(look))
        return result


def _marked(look: Look, marks: Counter[str], link: str) -> Look:
    if not link and not any(marks.values()):
        return look
    return replace(
        look,
        bold=look.bold or marks["strong"] > 0 or marks["summary"] > 0,
        italic=look.italic or marks["em"] > 0,
        struck=marks["s"] > 0,
        key=marks["kbd"] > 0,
        raised=(marks["sup"] > 0) - (marks["sub"] > 0),
        link=link,
    )
