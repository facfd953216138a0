"""The end of a document, where its blocks are begun."""

from __future__ import annotations

import re

from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextCursor, QTextFormat

from app.ui.chat.markdown.formats import CODE, ROLE, Formats
from app.ui.chat.markdown.places import Run, add_run

_Property = QTextFormat.Property
_WIDE = re.compile("[\U00010000-\U0010ffff]|[^\U00010000-\U0010ffff]+")
"""A character that takes two positions of Qt's, or others."""


class DocumentEnd:
    """Where `BlockWriter` and `InlineWriter` write.

    Attributes:
        cursor: Stands there.
        is_free: Whether the last block is still to be filled, so that no other one has to be added.
        runs: What was inserted shows which parts of the source.
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
        """Write text that shows ``size`` characters of the source from ``source`` on. -1: as many as it has itself;
        without ``source``, none of it."""
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
        """Take back the last character, a space."""
        self.cursor.deletePreviousChar()
        if self.runs and self.runs[-1].is_linear:
            self.runs[-1].end -= 1
            self.runs[-1].source_end -= 1

    def take_runs(self) -> list[Run]:
        """Those since the last time."""
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
