"""The QApplication: its names, its look, and the files macOS hands to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from PySide6.QtCore import QEvent, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication

from app import APPLICATION_ID, __version__
from app.ui.widgets import icons, stylesheet

SWITCH_INTERVAL_SECONDS = 0.001
"""The window's thread waits so long at most for one that works something out; Python's own value is five times that."""


class Application(QApplication):
    """Passes on what the system asks of the app itself.

    Signals:
        file_requested: A path or an address to be opened; only macOS asks so.
    """

    file_requested = Signal(str)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent):
            self.file_requested.emit(event.file() or event.url().toString())
            return True
        return super().event(event)


def make_application(arguments: Sequence[str]) -> Application:
    """The QApplication with name, icon and theme."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    application = Application([sys.argv[0], *arguments])
    application.setApplicationName("Slipstream")
    application.setApplicationDisplayName("Slipstream")
    application.setApplicationVersion(__version__)
    application.setDesktopFileName(APPLICATION_ID)
    application.setWindowIcon(icons.application())
    stylesheet.apply(application)
    return application
