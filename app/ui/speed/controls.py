"""The Speed panel's settings: draft length, drafter, tinting of drafted tokens."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal, Slot
from PySide6.QtWidgets import QCheckBox, QSlider, QWidget

from app import words
from app.protocol.events import PairLoaded
from app.protocol.options import (
    DEFAULT_DRAFT_LENGTH,
    DRAFTER_WORDS,
    MAX_DRAFT_LENGTH,
    DrafterChoice,
    DrafterName,
    DraftLength,
)
from app.ui.engine import pair_names
from app.ui.speed.drawings import Swatch
from app.ui.speed.parts import Heading
from app.ui.speed.wording import HELP
from app.ui.widgets.controls import Choice, column, explain, guard_wheel, label, row
from app.ui.widgets.theme import SPACING, UNDERLINES


class DraftLengthControl(QWidget):
    """The draft length: automatic, or a fixed number from off to the longest draft."""

    value_changed = Signal(object)
    """Carries a `DraftLength`."""

    def __init__(self) -> None:
        super().__init__()
        self._default = DEFAULT_DRAFT_LENGTH
        self._in_use = ""
        self._heading = Heading("Draft length")
        self._auto = QCheckBox("Auto")
        self._auto.setChecked(True)
        self._auto.setAccessibleName("Draft length: Auto")
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setMaximum(MAX_DRAFT_LENGTH)
        self._slider.setPageStep(4)
        self._slider.setAccessibleName("Draft length")
        guard_wheel(self._slider, even_focused=True)
        column(self._heading, row(self._auto, (self._slider, 1), gap=3 * SPACING), gap=SPACING, on=self)
        for widget in (self, self._auto, self._slider):
            explain(widget, HELP["draft-length"])
        self._auto.clicked.connect(self._on_auto_clicked)
        self._slider.valueChanged.connect(self._on_slider_moved)
        self._show(self._default)

    def value(self) -> DraftLength:
        return "auto" if self._auto.isChecked() else self._slider.value()

    def set_value(self, value: DraftLength) -> None:
        """Set it without emitting `value_changed`."""
        self._auto.setChecked(value == "auto")
        self._show(self._default if value == "auto" else value)

    def set_default(self, length: int) -> None:
        """The fixed number that turning Auto off starts with."""
        self._default = length
        if self._auto.isChecked():
            self._show(length)

    def set_in_use(self, text: str) -> None:
        """What the automatic choice currently is, such as ``4 now``; may be empty."""
        if text != self._in_use:
            self._in_use = text
            self._describe()

    def fix(self) -> None:
        """Switch from Auto to the default length, as the user would."""
        if self._auto.isChecked():
            self._auto.click()
        self.take_focus()

    def take_focus(self) -> None:
        """Move the keyboard focus to whichever control is enabled."""
        (self._auto if self._auto.isChecked() else self._slider).setFocus()

    def _show(self, length: int) -> None:
        with QSignalBlocker(self._slider):
            self._slider.setValue(length)
        self._slider.setEnabled(not self._auto.isChecked())
        self._describe()

    def _describe(self) -> None:
        value = self.value()
        if value == "auto":
            text = f"Auto · {self._in_use}" if self._in_use else "Auto"
        else:
            text = "Off" if value == 0 else words.tokens(value)
        self._heading.set_value(text)
        self._auto.setAccessibleDescription(text)
        self._slider.setAccessibleDescription(text)

    @Slot()
    def _on_auto_clicked(self) -> None:
        self._show(self._default)
        self.value_changed.emit(self.value())

    @Slot(int)
    def _on_slider_moved(self, length: int) -> None:
        self._describe()
        self.value_changed.emit(length)


class DrafterControl(QWidget):
    """Which drafter to use; hidden if the pair leaves no choice."""

    choice_changed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._pair: PairLoaded | None = None
        self._chosen: DrafterChoice = "auto"
        self._box = Choice("Drafter")
        row(label("Drafter", "heading"), (self._box, 1), gap=3 * SPACING, on=self)
        for widget in (self, self._box):
            explain(widget, HELP["drafter"])
        self._box.activated.connect(self._on_activated)
        self._offer()

    def choice(self) -> DrafterChoice:
        return self._chosen

    def set_choice(self, choice: DrafterChoice) -> None:
        """Set it without emitting `choice_changed`."""
        if choice != self._chosen:
            self._chosen = choice
            self._offer()

    def set_pair(self, pair: PairLoaded | None) -> None:
        """Offer what this pair allows; while none is loaded, what the last one did, so that nothing moves."""
        if pair is not None:
            self._pair = pair
            self._offer()

    def _offer(self) -> None:
        choices = pair_names.offered(self._chosen, self._pair)
        self._box.offer(choices)
        self._box.show_value(self._chosen)
        self.setVisible(len(choices) > 1)

    @Slot(int)
    def _on_activated(self, index: int) -> None:
        chosen: DrafterChoice = self._box.itemData(index)
        if chosen != self._chosen:
            self.set_choice(chosen)
            self.choice_changed.emit(chosen)


class ShowDrafted(QWidget):
    """The check box for tinting drafted tokens and, while they are tinted, a legend of the tints."""

    def __init__(self) -> None:
        super().__init__()
        self.box = QCheckBox("Show drafted tokens")
        self._legend = QWidget()
        self._samples = {name: _sample(name) for name in DRAFTER_WORDS}
        row(*self._samples.values(), None, gap=2 * SPACING, on=self._legend)
        self._legend.hide()
        column(self.box, self._legend, gap=SPACING, on=self)
        for widget in (self, self.box, self._legend):
            explain(widget, HELP["show-drafted"])
        self.box.toggled.connect(self._legend.setVisible)
        self._pair: PairLoaded | None = None
        self._has_format = False
        self._show_tints()

    def set_pair(self, pair: PairLoaded | None) -> None:
        """Show the tints that answers of this pair can have; while none is loaded, those of the last one."""
        if pair is not None:
            self._pair = pair
            self._show_tints()

    def set_format(self, has_format: bool) -> None:
        """Whether answers follow a format, which has a tint of its own."""
        self._has_format = has_format
        self._show_tints()

    def _show_tints(self) -> None:
        shown = (*pair_names.drafting(self._pair), *(("grammar",) if self._has_format else ()))
        for name, sample in self._samples.items():
            sample.setVisible(name in shown)
        self._legend.setAccessibleName(f"Tints: {', '.join(map(_described, shown))}")


def _described(drafter: DrafterName) -> str:
    """Its tint, for those who don't see it."""
    words_of = DRAFTER_WORDS[drafter]
    line = UNDERLINES.get(words_of.tint)
    return f"{words_of.title} with a {line[0]} underline" if line else words_of.title


def _sample(drafter: DrafterName) -> QWidget:
    """A tint with its name."""
    sample = QWidget()
    row(Swatch(DRAFTER_WORDS[drafter].tint), label(DRAFTER_WORDS[drafter].title, "quiet"), on=sample)
    return sample
