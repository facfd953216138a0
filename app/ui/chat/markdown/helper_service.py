"""What the window has done by the helper process, one request at a time."""

from __future__ import annotations

import atexit

from PySide6.QtCore import QCoreApplication, QObject, Slot

from app import helper
from app.ui.widgets.tasks import Lane

_PATIENCE_SECONDS = 10.0
"""At the end. The helper is killed before."""


class HelperService(QObject):
    """Asks the helper in a lane of its own. Lives in the window's thread."""

    def __init__(self, name: str, process: helper.Helper | None = None) -> None:
        """``name``: the lane's. ``process``: by default the helper that all share; then this ends with the
        application."""
        super().__init__()
        self._helper = process or helper.shared()
        self._lane = Lane(self, name)
        if process is None:
            if (application := QCoreApplication.instance()) is not None:
                application.aboutToQuit.connect(self.close)
            atexit.register(self.close)

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return self._lane.is_idle()

    @Slot()
    def close(self) -> None:
        """Forget what waits and end the helper process."""
        self._lane.close()
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)
