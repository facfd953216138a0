"""Notifications of the operating system, for what happens while the user is elsewhere."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from app.ui.widgets import icons

SHOWN_MS = 10_000


class Notifier(QObject):
    """Notifies only while no window of the app is active. One for the whole app, because each has a tray icon."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._clicked: Callable[[], object] | None = None
        self._icon: QSystemTrayIcon | None = None

    def tell(self, title: str, text: str, clicked: Callable[[], object]) -> None:
        """Show a notification, if the system has them. Plain text; ``clicked`` is called when the user clicks it."""
        if QApplication.activeWindow() is not None or not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._icon is None:
            # Qt's way to the system's notifications; the icon is only there while there is a notification.
            self._icon = QSystemTrayIcon(icons.application(), self)
            self._icon.messageClicked.connect(self._on_clicked)
            self._icon.activated.connect(self._on_clicked)
            QGuiApplication.instance().applicationStateChanged.connect(self._on_state_changed)  # type: ignore[union-attr]
        self._clicked = clicked  # the last one's, because the system doesn't say which was clicked
        self._icon.show()
        # On Linux the text may contain markup, so a model's text has to be escaped; the title never does.
        text = html.escape(text, quote=False) if sys.platform == "linux" else text
        self._icon.showMessage(title, text, icons.application(), SHOWN_MS)

    def clear(self) -> None:
        """The user has seen it, or the app ends."""
        if self._icon is not None:
            self._icon.hide()

    @Slot()
    def _on_clicked(self) -> None:
        if self._clicked is not None:
            self._clicked()

    @Slot(Qt.ApplicationState)
    def _on_state_changed(self, state: Qt.ApplicationState) -> None:
        if state is Qt.ApplicationState.ApplicationActive:
            self.clear()
