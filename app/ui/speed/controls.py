"""The rows of the Speed panel one changes something with: draft length, drafter, tints of the drafted tokens."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QSizePolicy, QSlider, QVBoxLayout, QWidget

from app.protocol.limits import DEFAULT_DRAFT_LENGTH, MAX_DRAFT_LENGTH
from app.protocol.messages import DrafterChoice, DraftLength, PairLoaded
from app.ui.engine import drafters
from app.ui.speed import wording
from app.ui.speed.parts import Heading
from app.ui.widgets import theme, units
from app.ui.widgets.controls import explain, label
from app.ui.widgets.theme import SPACING


class _WheelGuard(QObject):
    """Leaves the wheel to the panel, so that scrolling by changes nothing."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Wheel:
            event.ignore()
            return True
        return super().eventFilter(watched, event)


class DraftLengthControl(QWidget):
    """How many tokens to guess: as far as it pays, or a fixed number from off to the longest draft."""

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
        self._slider.setRange(0, MAX_DRAFT_LENGTH)
        self._slider.setPageStep(4)
        self._slider.setAccessibleName("Draft length")
        self._slider.installEventFilter(_WheelGuard(self._slider))
        row = QHBoxLayout()
        row.setSpacing(3 * SPACING)
        row.addWidget(self._auto)
        row.addWidget(self._slider, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACING)
        column.addWidget(self._heading)
        column.addLayout(row)
        for widget in (self, self._auto, self._slider):
            explain(widget, wording.HELP["draft-length"])
        self._auto.clicked.connect(self._on_auto_clicked)
        self._slider.valueChanged.connect(self._on_slider_moved)
        self._show(self._default)

    def value(self) -> DraftLength:
        return "auto" if self._auto.isChecked() else self._slider.value()

    def set_value(self, value: DraftLength) -> None:
        """Without `value_changed`."""
        self._auto.setChecked(value == "auto")
        self._show(self._default if value == "auto" else value)

    def set_default(self, length: int) -> None:
        """The fixed number one begins with."""
        self._default = length
        if self._auto.isChecked():
            self._show(length)

    def set_in_use(self, text: str) -> None:
        """What the automatic choice comes to, such as ``4 now``; may be empty."""
        if text != self._in_use:
            self._in_use = text
            self._describe()

    def fix(self) -> None:
        """Go from the automatic choice to the default, as the user would."""
        if self._auto.isChecked():
            self._auto.click()
        self.take_focus()

    def take_focus(self) -> None:
        """Give the keyboard to what can be changed."""
        (self._auto if self._auto.isChecked() else self._slider).setFocus()

    def _show(self, length: int) -> None:
        self._slider.blockSignals(True)
        self._slider.setValue(length)
        self._slider.blockSignals(False)
        self._slider.setEnabled(not self._auto.isChecked())
        self._describe()

    def _describe(self) -> None:
        value = self.value()
        if value == "auto":
            text = f"Auto · {self._in_use}" if self._in_use else "Auto"
        else:
            text = "Off" if value == 0 else units.tokens(value)
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
    """Who guesses; hidden while the pair leaves no choice."""

    choice_changed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._pair: PairLoaded | None = None
        self._chosen: DrafterChoice = "auto"
        self._box = QComboBox()
        self._box.setAccessibleName("Drafter")
        self._box.view().setAccessibleName("Drafter choices")
        self._box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._box.setMinimumContentsLength(8)
        self._box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self._box.installEventFilter(_WheelGuard(self._box))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(3 * SPACING)
        row.addWidget(label("Drafter", "heading"))
        row.addWidget(self._box, 1)
        for widget in (self, self._box):
            explain(widget, wording.HELP["drafter"])
        self._box.activated.connect(self._on_activated)
        self._offer()

    def choice(self) -> DrafterChoice:
        return self._chosen

    def set_choice(self, choice: DrafterChoice) -> None:
        """Without `choice_changed`."""
        if choice != self._chosen:
            self._chosen = choice
            self._offer()

    def set_pair(self, pair: PairLoaded | None) -> None:
        """Offer what this pair allows; while there is none, what the last one did, so that no row comes and goes."""
        if pair is not None:
            self._pair = pair
            self._offer()

    def _offer(self) -> None:
        choices = drafters.offered(self._chosen, self._pair)
        self._box.clear()
        for choice, text in choices:
            self._box.addItem(text, choice)
        self._box.setCurrentIndex(max(self._box.findData(self._chosen), 0))
        self.setVisible(len(choices) > 1)

    @Slot(int)
    def _on_activated(self, index: int) -> None:
        chosen: DrafterChoice = self._box.itemData(index)
        if chosen != self._chosen:
            self.set_choice(chosen)
            self.choice_changed.emit(chosen)


class _Swatch(QWidget):
    """A piece of the underlay that drafted tokens get."""

    def __init__(self, *, is_ngram: bool) -> None:
        super().__init__()
        self._is_ngram = is_ngram
        self.setFixedSize(self.sizeHint())

    def sizeHint(self) -> QSize:
        return QSize(18, 14)

    def paintEvent(self, _event: QPaintEvent) -> None:
        colors = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.tint_ngram if self._is_ngram else colors.tint_model)
        painter.drawRoundedRect(QRectF(self.rect()), 3, 3)
        if self._is_ngram:
            painter.setPen(QPen(colors.quiet, 1.2, Qt.PenStyle.DotLine))
            painter.drawLine(QPointF(1, self.height() - 1.5), QPointF(self.width() - 1, self.height() - 1.5))
        painter.end()


class ShowDrafted(QWidget):
    """Whether drafted tokens are tinted, which `box` says, and while they are, which tint is whose."""

    def __init__(self) -> None:
        super().__init__()
        self.box = QCheckBox("Show drafted tokens")
        self._legend = QWidget()
        self._legend.setAccessibleName("Tints: draft model, n-grams with a dotted line below")
        row = QHBoxLayout(self._legend)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2 * SPACING)
        for drafter, name in drafters.NAMES.items():
            row.addWidget(_Swatch(is_ngram=drafter == "ngram"))
            row.addWidget(label(name, "quiet"))
            row.addSpacing(SPACING)
        row.addStretch(1)
        self._legend.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACING)
        column.addWidget(self.box)
        column.addWidget(self._legend)
        for widget in (self, self.box, self._legend):
            explain(widget, wording.HELP["show-drafted"])
        self.box.toggled.connect(self._legend.setVisible)
