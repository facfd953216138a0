"""The end of a document, where its blocks are begun."""

from __future__ import annotations

from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextCursor, QTextFormat

from app.ui.chat.markdown.formats import CODE, ROLE, Formats

_Property = QTextFormat.Property


class DocumentEnd:
    """Where `BlockWriter` and `InlineWriter` write.

    Attributes:
        cursor: Stands there.
        is_free: Whether the last block is still to be filled, so that no other one has to be added.
    """

    def __init__(self, cursor: QTextCursor, formats: Formats) -> None:
        self.cursor = cursor
        self.is_free = True
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

    def _set_space_above(self, first: QTextBlockFormat) -> None:
        """Qt ignores the space above the first block; a code block needs it for its header."""
        space = self._formats.code_header if first.intProperty(ROLE) == CODE else 0.0
        frame = self.cursor.document().rootFrame()
        form = frame.frameFormat()
        if form.topMargin() != space:
            form.setTopMargin(space)
            frame.setFrameFormat(form)
