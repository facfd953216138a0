"""How the window reaches the presets: what asks looks into memory, what changes something writes beside the window."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.chats.presets import Presets
from app.errors import KnownError
from app.ui import notices
from app.ui.notices import NoticeList
from app.ui.widgets.tasks import Lane

T = TypeVar("T")

_PATIENCE_SECONDS = 5.0
"""At the end."""


class StoredPresets(QObject):
    """One for a window.

    Attributes:
        presets: To be asked; changed by `change` alone.

    Signals:
        changed: The presets, or which are the default, are others now.
    """

    changed = Signal()

    def __init__(self, presets: Presets, notice_list: NoticeList, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.presets = presets
        self._notice_list = notice_list
        self._lane = Lane(self, "presets")
        if presets.notice:
            notice_list.show("presets", notices.plain_text(presets.notice))

    def change(
        self,
        function: Callable[[Presets], T],
        done: Callable[[T], object] | None = None,
        failed: Callable[[KnownError], object] | None = None,
    ) -> None:
        """Run ``function`` on the presets, then ``done`` with its result or ``failed`` in this thread; one at a time.

        For reading and writing a preset's file, too. Without ``failed`` a notice tells what went wrong.
        """

        def changed(result: T) -> None:
            self.changed.emit()
            if done is not None:
                done(result)

        def told(error: KnownError) -> None:
            self.changed.emit()  # what could not be written counts until the end
            if failed is not None:
                failed(error)
            else:
                self._notice_list.show("presets", notices.plain_text(str(error)))

        self._lane.submit(lambda: function(self.presets), changed, told)

    def close(self) -> None:
        """What was asked for is written, if the disk lets us."""
        self._lane.close(_PATIENCE_SECONDS, finish=True)
