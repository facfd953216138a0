"""The panel on the right: the speed of answers, and the settings of the chat."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QTabWidget, QWidget

from app.ui.widgets import theme


class SidePanel(QTabWidget):
    """Shows one page at a time, under a name each."""

    def __init__(self, pages: dict[str, QWidget]) -> None:
        super().__init__(documentMode=True)
        theme.set_role(self, "side")
        self.tabBar().setDrawBase(False)
        self.tabBar().setExpanding(True)
        self.setAccessibleName("Side panel")
        self.tabBar().setAccessibleName("Side panel")
        for title, page in pages.items():
            self.addTab(page, title)

    def minimumSizeHint(self) -> QSize:
        """A page never widens the window."""
        return QSize(0, 0)
