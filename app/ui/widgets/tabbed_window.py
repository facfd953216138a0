"""A window with tabs, next to the main window."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QTabWidget, QWidget

from app.ui.widgets import icons, theme
from app.ui.widgets.controls import column


class TabbedWindow(QWidget):
    """Shows one of its pages at a time. ``tabs``: the pages; ``tabs.currentChanged`` tells of another one in front.
    Signal ``closed``: the window is gone from the screen."""

    closed = Signal()

    def __init__(self, title: str, first_size: QSize, minimum_size: QSize) -> None:
        super().__init__(windowTitle=title, windowIcon=icons.application(), minimumSize=minimum_size, size=first_size)
        theme.set_role(self, "reading")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.tabs = QTabWidget(documentMode=True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.tabBar().setAccessibleName(title)
        column(self.tabs, on=self)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self).activated.connect(self.on_escape)

    def show_tab(self, page: QWidget) -> None:
        """Bring this page and the window to the front; ``page`` is what was added to ``tabs``, or inside it."""
        pages = [self.tabs.widget(place) for place in range(self.tabs.count())]
        self.tabs.setCurrentIndex([one is page or (one and one.isAncestorOf(page)) for one in pages].index(True))
        bring_to_front(self)

    @Slot()
    def on_escape(self) -> None:
        """Esc was pressed: close the window."""
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()


def bring_to_front(window: QWidget) -> None:
    """Show a window in front of all others, even if it is minimized."""
    if window.isMinimized():
        window.showNormal()
    window.show()
    window.raise_()
    window.activateWindow()
