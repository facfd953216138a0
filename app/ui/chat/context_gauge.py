"""How full the context is, in the top bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Slot
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QFrame, QGridLayout, QLabel, QSizePolicy, QWidget

from app.ui.widgets import theme
from app.ui.widgets.controls import CARD_MARGINS, column, explain, label
from app.ui.widgets.theme import SPACING

if TYPE_CHECKING:
    from app.ui.chat.context_meter import ContextUse

_WIDTH = 260
"""Of the details, in pixels."""


class ContextGauge(QAbstractButton):
    """A few words over a thin bar; pressed, it shows what takes how much. Hidden while nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self._use: ContextUse | None = None
        self._details: ContextDetails | None = None
        self._words = label(role="quiet", figures=True, scale=0.95)
        self._bar = _Bar()
        for part in (self._words, self._bar):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName("Context")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        self._column = column(self._words, self._bar, gap=2, margins=(SPACING, 2, SPACING, 2), on=self)
        self.clicked.connect(self.show_details)
        self.hide()

    def show_use(self, use: ContextUse | None) -> None:
        """``None`` where it is not known. How much of it is shown, `fit` decides."""
        self._use = use
        if use is None:
            self.hide()
            if self._details is not None:
                self._details.close()
            return
        self.setAccessibleName(f"Context: {use.summary()}")
        self.setAccessibleDescription(use.details())
        explain(self, use.details())
        self._bar.show_share(use.share(), is_high=use.is_high)
        if self._details is not None:
            self._details.show_use(use)

    def taken(self) -> int:
        """Pixels it takes now."""
        return 0 if self.isHidden() else self.sizeHint().width()

    def fit(self, room: int) -> None:
        """Say as much as there is room for, in pixels: all, the share alone, or nothing."""
        if self._use is None:
            return
        for text in (self._use.summary(), self._use.percent()):
            self._words.setText(text)
            if self.sizeHint().width() <= room:
                self.show()
                return
        self.hide()

    @Slot()
    def show_details(self) -> None:
        """Show what takes how much, below; closed by any click elsewhere, or a key."""
        if self._use is not None:
            self._details = details = ContextDetails(self)
            details.show_use(self._use)
            details.destroyed.connect(self._on_details_closed)
            corner = self.mapToGlobal(QPoint(self.width() - details.sizeHint().width(), self.height() + SPACING))
            details.move(max(corner.x(), self.window().x()), corner.y())
            details.show()
            details.setFocus()

    @Slot()
    def _on_details_closed(self) -> None:
        self._details = None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        return self._column.sizeHint()

    minimumSizeHint = sizeHint

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, colors = QPainter(self), theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.underMouse() or self.hasFocus():
            painter.setPen(colors.focus_line if self.hasFocus() else Qt.PenStyle.NoPen)
            painter.setBrush(colors.hover if self.underMouse() else Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)


class ContextDetails(QFrame):
    """What takes how much of the context; any key or a click elsewhere closes it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Context")
        theme.set_role(self, "popup")
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(6 * SPACING)
        self._grid.setVerticalSpacing(SPACING)
        self._bar = _Bar()
        self._warning = label(wraps=True)
        title = label("Context", bold=True)
        self._column = column(title, self._bar, self._grid, self._warning, margins=CARD_MARGINS, on=self)
        self.setFixedWidth(theme.px(_WIDTH))

    def show_use(self, use: ContextUse) -> None:
        """Show these numbers."""
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        for line, (name, count) in enumerate(use.rows()):
            number = label(count, figures=True)
            self._grid.addWidget(label(name, "quiet"), line, 0)
            self._grid.addWidget(number, line, 1, Qt.AlignmentFlag.AlignRight)
        self._bar.show_share(use.share(), is_high=use.is_high)
        self._warning.setText(use.warning())
        self._warning.setVisible(bool(use.warning()))
        self.setAccessibleDescription(use.details())
        by_width = self._column.totalHeightForWidth(self.width()) if self._column.hasHeightForWidth() else 0
        self.setFixedHeight(by_width or self._column.totalSizeHint().height())

    def texts(self) -> list[str]:
        """What is to be read."""
        return [one.text() for one in self.findChildren(QLabel) if one.text()]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() not in (Qt.Key.Key_Shift, Qt.Key.Key_Control, Qt.Key.Key_Alt, Qt.Key.Key_Meta):
            self.close()


class _Bar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._share, self._is_high = 0.0, False
        self.setFixedHeight(3)

    def show_share(self, share: float, *, is_high: bool) -> None:
        self._share, self._is_high = share, is_high
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(32, 3)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, colors = QPainter(self), theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.line)
        painter.drawRoundedRect(self.rect(), 1.5, 1.5)
        painter.setBrush(colors.warning if self._is_high else colors.accent)
        painter.drawRoundedRect(QRectF(0, 0, max(self.width() * self._share, 3.0), 3), 1.5, 1.5)
