"""View → Zoom in, Zoom out and Actual size, Ctrl and the wheel over the chat, and what says how large text is now."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QFrame

from app.ui.context import AppContext
from app.ui.settings.general_page import apply, zoom_beside
from app.ui.shell.main_window import MainWindow
from app.ui.widgets import theme
from app.ui.widgets.announcing import announce
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import row
from app.ui.widgets.reading_place import ReadingPlace
from app.ui.widgets.theme import SPACING

SHOWN_MS = 1500
_NOTCH = 120
"""What Qt counts for a notch of the wheel."""


class Zoom(QObject):
    """Changes the zoom in the settings and carries it out."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._settings = ctx.settings
        self._values = ctx.settings.values
        self._turned = 0
        self.sign = ZoomSign(window)
        ReadingPlace(window.transcript.column)
        window.transcript.column.viewport().installEventFilter(self)
        theme.follow_zoom(self, ctx.actions.refresh)

    def percent(self) -> int:
        return self._values.zoom

    def step(self, steps: int) -> None:
        """So many steps larger, or smaller."""
        self.set(zoom_beside(self._values.zoom, steps))

    def set(self, percent: int) -> None:
        self._values.zoom = percent
        apply(self._values)
        self.sign.say(percent)
        self._settings.save_soon()

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if event.type() is not QEvent.Type.Wheel or not isinstance(event, QWheelEvent):
            return False
        if not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self._turned = 0
            return False
        self._turned += event.angleDelta().y()
        steps = int(self._turned / _NOTCH)
        self._turned -= steps * _NOTCH
        if steps:
            self.step(steps)
        return True


class ZoomSign(QFrame):
    """``125%`` in the corner of a window, for a moment."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        theme.set_role(self, "card")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.text = label(figures=True)
        row(self.text, margins=(3 * SPACING, 2 * SPACING, 3 * SPACING, 2 * SPACING), on=self)
        self._timer = QTimer(self, singleShot=True, interval=SHOWN_MS)
        self._timer.timeout.connect(self.hide)
        self.hide()

    def say(self, percent: int) -> None:
        self.text.setText(f"{percent}%")
        self.text.setAccessibleName(f"Zoom {percent}%")
        self.ensurePolished()
        self.adjustSize()
        below = self._window.top_bar.mapTo(self._window, self._window.top_bar.rect().bottomRight())
        self.move(below.x() - self.width() - 3 * SPACING, below.y() + 3 * SPACING)
        self.show()
        self.raise_()
        announce(self, self.text.accessibleName())
        self._timer.start()
