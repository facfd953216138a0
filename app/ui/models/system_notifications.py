"""Notifications of the operating system, for what is done while the user is elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from app.ui.widgets import icons

SHOWN_MS = 10_000


class Notifier(QObject):
    """Tells only while no window of the app is active."""

    def __init__(self, clicked: Callable[[], object], parent: QObject | None = None) -> None:
        """``clicked`` is called when the user clicks a notification."""
        super().__init__(parent)
        self._clicked = clicked
        self._icon: QSystemTrayIcon | None = None

    def tell(self, title: str, text: str) -> None:
        """Show a notification, where the system has them. Plain text."""
        if QApplication.activeWindow() is not None or not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._icon is None:
            # Qt's way to the system's notifications; the icon itself is there as long as there is something to tell.
            self._icon = QSystemTrayIcon(icons.application(), self)
            self._icon.messageClicked.connect(self._clicked)
            self._icon.activated.connect(lambda _reason: self._clicked())
            QGuiApplication.instance().applicationStateChanged.connect(self._on_state_changed)  # type: ignore[union-attr]
        self._icon.show()
        self._icon.showMessage(title, text, icons.application(), SHOWN_MS)

    def clear(self) -> None:
        """The user has seen it, or the app ends."""
        if self._icon is not None:
            self._icon.hide()

    @Slot(Qt.ApplicationState)
    def _on_state_changed(self, state: Qt.ApplicationState) -> None:
        if state is Qt.ApplicationState.ApplicationActive:
            self.clear()
