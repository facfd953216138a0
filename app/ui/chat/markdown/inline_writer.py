"""Write the text of a paragraph, a heading or a cell, with its formulas, as the parser has found it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from markdown_it.token import Token
from PySide6.QtCore import QUrl, QUrlQuery
from PySide6.QtGui import QDesktopServices, QTextBlock, QTextBlockFormat, QTextCharFormat, QTextCursor, QTextFormat
from PySide6.QtWidgets import QMessageBox, QWidget

from app.markdown import formulas
from app.markdown.blocks import visible
from app.markdown.dialect import AT, TAG, located
from app.markdown.formulas import Formula
from app.ui.chat.markdown.formats import CODE, ROLE, Formats, Look
from app.ui.chat.markdown.formulas import OBJECT, TYPE, FormulaPlaces, WaitingFormula
from app.ui.chat.markdown.underlay import Run, add_run
from app.ui.widgets.questions import ask
from app.words import printable, shortened

_Property = QTextFormat.Property
_WIDE = re.compile("[\U00010000-\U0010ffff]|[^\U00010000-\U0010ffff]+")
"""A character that takes two of Qt's positions, or a run of others."""


class DocumentEnd:
    """Where `BlockWriter` and `InlineWriter` write.

    Attributes:
        cursor: Stands there.
        is_free: Whether the last block is still to be filled, so that no other one has to be added.
        runs: Which parts of the source the inserted text shows.
    """

    def __init__(self, cursor: QTextCursor, formats: Formats) -> None:
        self.cursor = cursor
        self.is_free = True
        self.runs: list[Run] = []
        self._formats = formats

    @property
    def position(self) -> int:
        """The end of what is written."""
        return self.cursor.position()

    @property
    def next_position(self) -> int:
        """Where the text of the next block will begin."""
        return self.cursor.position() + (0 if self.is_free else 1)

    def begin(self, block: QTextBlockFormat, characters: QTextCharFormat) -> None:
        """Begin a block."""
        if not self.is_free:
            self.cursor.insertBlock(block, characters)
            return
        if self.cursor.position() == 0:
            self._set_space_above(block)
        self.cursor.setBlockFormat(block)
        present = self.cursor.blockCharFormat()
        present.clearProperty(_Property.ObjectIndex.value)  # that of the table before
        if present != characters:
            # Only then: it makes Qt lay out a table before it again.
            self.cursor.setBlockCharFormat(characters)
        self.is_free = False

    def insert(self, text: str, characters: QTextCharFormat, source: int = -1, size: int = -1) -> None:
        """Write text that shows ``size`` characters of the source from ``source`` on; -1: as many as it has, and none
        of it."""
        start = self.cursor.position()
        self.cursor.insertText(text, characters)
        if source < 0 or not text:
            return
        if size >= 0 or text.isascii() or max(text, default="") <= "\uffff":
            end = source + (len(text) if size < 0 else size)
            add_run(self.runs, Run(start, self.cursor.position(), source, end, size >= 0))
            return
        for part in _WIDE.findall(text):
            end = start + (2 if part > "\uffff" and len(part) == 1 else len(part))
            add_run(self.runs, Run(start, end, source, source + len(part)))
            start, source = end, source + len(part)

    def remove_last(self) -> None:
        """Remove the last character, a space."""
        self.cursor.deletePreviousChar()
        if self.runs and self.runs[-1].is_linear:
            self.runs[-1].end -= 1
            self.runs[-1].source_end -= 1

    def take_runs(self) -> list[Run]:
        """The runs since the last call."""
        runs, self.runs = self.runs, []
        return runs

    def _set_space_above(self, first: QTextBlockFormat) -> None:
        """Qt ignores the space above the first block; a code block needs it for its header."""
        space = self._formats.code_header if first.intProperty(ROLE) == CODE else 0.0
        frame = self.cursor.document().rootFrame()
        form = frame.frameFormat()
        if form.topMargin() != space:
            form.setTopMargin(space)
            frame.setFrameFormat(form)


ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})
LINE_BREAK = "\u2028"
"""A new line in the same paragraph, for Qt."""
NO_IMAGE = "image"
"""Shown for a picture without a description."""

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
        open_look: The look of words that can simply be appended to the last line; ``None`` if they might change it.
        first: Source before this place is shown already, and not recorded again.
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
        """The line whose tokens are being written."""
        self._resumed: QTextBlockFormat | None = None
        """The format of text that continues after a formula on a line of its own."""

    # -- measuring

    def measured(self, tokens: Sequence[Token]) -> str:
        """The longest line of these tokens, with digits as wide as each formula in its place."""
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
        """Begin a line: what is written next belongs to it."""
        self._line, self._resumed = line, None

    def write(self, line: Token, tokens: Sequence[Token], look: Look, form: QTextBlockFormat | None = None) -> None:
        """Write the tokens of a line. ``form``: the format of its block, if formulas may stand on lines of their
        own."""
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
        """Write the description of an image in its place."""
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


# Ask before an address that a model wrote is opened, and show what it is: nothing hidden, nothing that looks like
# something else, and nothing that a mail program would attach by itself.

_MAX_SHOWN = 300
_MAX_HOST = 100
_ENCODED = QUrl.ComponentFormattingOption.FullyEncoded
_DECODED = QUrl.ComponentFormattingOption.FullyDecoded
_MAIL_HEADERS = ("to", "cc", "bcc", "subject", "body")
"""What a link may fill in (RFC 6068); others may attach files or send somewhere else."""


def safe_url(url: QUrl) -> QUrl:
    """The address as it may be opened: of a mail only the `_MAIL_HEADERS`."""
    if url.scheme().lower() != "mailto":
        return url
    query = QUrlQuery()
    for name, value in QUrlQuery(url).queryItems(_ENCODED):
        if name.lower() in _MAIL_HEADERS:
            query.addQueryItem(name.lower(), value)
    safe = QUrl(url.toString(_ENCODED).partition("#")[0])
    safe.setQuery(query)
    return safe


def host_in_words(url: QUrl) -> str:
    """The host as it is looked up; beside it, where it has other than plain letters, as it would be read."""
    encoded, readable = url.host(_ENCODED), printable(url.host(_DECODED), _MAX_HOST)
    if encoded == readable or not readable:
        return shortened(encoded, _MAX_HOST)
    return f"{shortened(encoded, _MAX_HOST)} (written {readable})"


def link_in_words(url: QUrl) -> str:
    """Where a link leads, for a tool tip: the encoded address, and the host as it is written where that differs."""
    safe = safe_url(url)
    address = shortened(safe.toString(_ENCODED), _MAX_SHOWN)
    if safe.scheme().lower() == "mailto" or safe.host(_ENCODED) == safe.host(_DECODED):
        return address
    return f"{address}\n{host_in_words(safe)}"


def mail_in_words(url: QUrl) -> str:
    """What a mail link fills in, a line each."""
    lines = [("To", QUrl.fromPercentEncoding(url.path(_ENCODED).encode()))]
    lines += [(name.capitalize(), value) for name, value in QUrlQuery(url).queryItems(_DECODED)]
    return "\n".join(f"{name}: {printable(value, _MAX_SHOWN)}" for name, value in lines if value)


def confirm_link(parent: QWidget, url: QUrl) -> None:
    """Show where ``url`` leads, and open it when the user wants to go there; nothing happens where it may not be."""
    if not checked_link(url.toString(_ENCODED)):
        return
    url = safe_url(url)
    if url.scheme().lower() == "mailto":
        question = f"Write an email to {printable(url.path(_DECODED), _MAX_HOST) or 'someone'}?"
        details = mail_in_words(url)
    else:
        question = f"Open {host_in_words(url)} in your browser?"
        details = shortened(url.toString(_ENCODED), _MAX_SHOWN)
    opening = {"Open": lambda: QDesktopServices.openUrl(url)}
    ask(parent, "Open link", question, details=details, safe=opening, icon=QMessageBox.Icon.NoIcon)
