"""Where the formulas of a document are: those whose source is still shown, and those on lines of their own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextCursor, QTextDocument

from app.markdown.formulas import Formula
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.formula_objects import OBJECT, FormulaObjects
from app.ui.chat.markdown.formulas import FormulaService, formula_service, key_of
from app.ui.chat.markdown.wide import BAR_HEIGHT

_MAX_SPAN = 600
"""Formulas put in place together are in so many characters, because everything between them is laid out again."""
_MAX_TOGETHER = 4


@dataclass(slots=True)
class WaitingFormula:
    """Document positions ``start`` to ``end`` show the source of a formula. ``characters``: the format of the text
    around it; ``block``: that of a block for the drawn formula, if it is to stand on a line of its own."""

    start: int
    end: int
    formula: Formula
    characters: QTextCharFormat
    block: QTextBlockFormat | None
    is_asked: bool = False


@dataclass(slots=True)
class DisplayRun:
    """A drawn formula on a line of its own. ``left``: how far it stands in; ``width``: its own, in pixels."""

    start: int
    left: float
    width: int

    def is_wide(self, available: float) -> bool:
        """Whether it takes more than so many pixels."""
        return 0 < available < self.left + self.width

    def fit(self, form: QTextBlockFormat, available: float, margin: float) -> None:
        """Set what its block looks like in so many pixels, of which ``margin`` are free beside prose: in the middle of
        the prose where it fits in, else at the left, with room for a scroll bar where that doesn't do either."""
        is_wide, fits = self.is_wide(available), not self.is_wide(available - margin)
        form.setAlignment(Qt.AlignmentFlag.AlignHCenter if fits else Qt.AlignmentFlag.AlignLeft)
        form.setRightMargin(margin if fits else 0)
        form.setProperty(formats.PROSE, True) if fits else form.clearProperty(formats.PROSE)
        form.setNonBreakableLines(True)
        form.setLineHeight(100, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        form.setBottomMargin(formats.GAP + (BAR_HEIGHT if is_wide else 0))


class Moves:
    """Where positions of a document are after stretches of it were each replaced by one character.

    Attributes:
        places: Where these stretches began.
    """

    def __init__(self, replaced: Sequence[tuple[int, int]]) -> None:
        """``replaced``: the start and end of each stretch, in order."""
        self.places = [start for start, _ in replaced]
        self._ends = [end for _, end in replaced]
        self._less = [0, *accumulate(end - start - 1 for start, end in replaced)]

    def new(self, position: int) -> int:
        """Where a position outside of these stretches is now."""
        return position - self._less[bisect_right(self._ends, position)]


class FormulaPlaces:
    """Those of one document.

    Attributes:
        objects: Draws them.
        display_runs: Those on lines of their own, from top to bottom.
        width, margin: How many pixels they may take, and how many of these are free beside prose.
    """

    def __init__(self, document: QTextDocument, objects: FormulaObjects) -> None:
        self.objects = objects
        self.display_runs: list[DisplayRun] = []
        self.width = self.margin = 0.0
        self._document = document
        self._service: FormulaService = formula_service()
        self._waiting: list[WaitingFormula] = []
        self._unasked = 0

    def format(self, formula: Formula, characters: QTextCharFormat) -> QTextCharFormat | None:
        """The format of a formula's character, if it was drawn before."""
        drawing = self._service.drawing(key_of(formula))
        return self.objects.format(formula, drawing, characters) if drawing is not None else None

    def wait(self, waiting: WaitingFormula) -> None:
        """Its source was written at the end of the document."""
        if not self._service.is_known(key_of(waiting.formula)):
            self._waiting.append(waiting)
            self._unasked += 1

    def remove_from(self, position: int) -> None:
        """What was written from this position on is removed again."""
        self._waiting = [waiting for waiting in self._waiting if waiting.start < position]
        del self.display_runs[bisect_left(self.display_runs, position, key=lambda one: one.start) :]

    def ask(self, is_wanted: Callable[[], bool], answered: Callable[[], None]) -> None:
        """Have those drawn that are new here."""
        if self._unasked:
            self._unasked = 0
            for waiting in self._waiting:
                if not waiting.is_asked:
                    waiting.is_asked = True
                    self._service.ask(key_of(waiting.formula), is_wanted, answered)

    def add_display(self, position: int, form: QTextBlockFormat, characters: QTextCharFormat) -> None:
        """A drawn formula stands on a line of its own, at this position; makes ``form`` the format of its block."""
        left = form.leftMargin() + form.indent() * self._document.indentWidth()
        run = DisplayRun(position, left, self.objects.width_of(characters))
        insort(self.display_runs, run, key=lambda one: one.start)
        run.fit(form, self.width, self.margin)

    def set_widths(self, width: float, margin: float) -> None:
        """The width that is available has changed."""
        self.width, self.margin = width, margin
        self.objects.width = width - margin
        cursor = QTextCursor(self._document)
        for run in self.display_runs:
            cursor.setPosition(run.start)
            form = cursor.blockFormat()
            run.fit(form, width, margin)
            if form != cursor.blockFormat():
                cursor.setBlockFormat(form)

    # -- putting in place

    def has_answers(self) -> bool:
        """Whether a formula whose source is shown was drawn meanwhile."""
        return any(self._service.is_known(key_of(waiting.formula)) for waiting in self._waiting)

    def place(self) -> Moves | None:
        """Put some of those that were drawn into the place of their sources."""
        found: list[tuple[WaitingFormula, QTextCharFormat]] = []
        left: list[WaitingFormula] = []
        for waiting in self._waiting:
            is_near = not found or waiting.end - found[0][0].start <= _MAX_SPAN
            if not (is_near and len(found) < _MAX_TOGETHER) or not self._service.is_known(key_of(waiting.formula)):
                left.append(waiting)
            elif (form := self.format(waiting.formula, waiting.characters)) is not None:
                found.append((waiting, form))
        self._waiting = left
        if not found:
            return None
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        for waiting, form in reversed(found):
            cursor.setPosition(waiting.start)
            cursor.setPosition(waiting.end, QTextCursor.MoveMode.KeepAnchor)
            cursor.insertText(OBJECT, form)
        moves = Moves([(waiting.start, waiting.end) for waiting, _ in found])
        self._move(moves)
        for waiting, form in found:
            if waiting.block is not None:
                start = moves.new(waiting.start)
                self.add_display(start, waiting.block, form)
                cursor.setPosition(start)
                cursor.setBlockFormat(waiting.block)
        cursor.endEditBlock()
        return moves

    def _move(self, moves: Moves) -> None:
        for waiting in self._waiting:
            waiting.start, waiting.end = moves.new(waiting.start), moves.new(waiting.end)
        for run in self.display_runs[bisect_left(self.display_runs, moves.places[0], key=lambda one: one.start) :]:
            run.start = moves.new(run.start)
