"""How full the context is, in the top bar."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui.chat.context_meter import ContextUse
from app.ui.widgets import theme
from app.ui.widgets.controls import explain, label
from app.ui.widgets.layouts import column
from app.ui.widgets.theme import SPACING

HIGH = 0.85
"""From this share on the bar warns."""


class ContextGauge(QWidget):
    """A few words over a thin bar; what takes how much is in its tooltip. Hidden while nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self._use: ContextUse | None = None
        self._text = label(role="quiet", figures=True, scale=0.95)
        self._bar = _Bar()
        self.setAccessibleName("Context")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        column(self._text, self._bar, gap=2, margins=(SPACING, 0, SPACING, 0), on=self)
        self.hide()

    def show_use(self, use: ContextUse | None) -> None:
        """``None`` where it is not known."""
        if use != self._use:
            self._use = use
            self.setVisible(use is not None)
            if use is not None:
                self._text.setText(use.summary())
                self.setAccessibleName(f"Context: {use.summary()}")
                self.setAccessibleDescription(use.details())
                explain(self, use.details())
                self._bar.show_share(use.share(), is_high=use.dropped > 0 or use.share() >= HIGH)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(theme.current().focus_line)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)


class _Bar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._share, self._is_high = 0.0, False
        self.setFixedHeight(3)

    def show_share(self, share: float, *, is_high: bool) -> None:
        self._share, self._is_high = share, is_high
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(40, 3)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, colors = QPainter(self), theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.line)
        painter.drawRoundedRect(self.rect(), 1.5, 1.5)
        painter.setBrush(colors.warning if self._is_high else colors.accent)
        painter.drawRoundedRect(QRectF(0, 0, max(self.width() * self._share, 3.0), 3), 1.5, 1.5)
