"""The panel on the right: the speed of answers, and the settings of the chat."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QEvent, QSize, Slot
from PySide6.QtGui import QIcon, QResizeEvent
from PySide6.QtWidgets import QTabWidget, QWidget

from app.ui.widgets import icons, theme


class Page(NamedTuple):
    """A page of the panel."""

    title: str
    icon: str
    """In place of the title where text is so large that the titles have no room."""
    widget: QWidget


class SidePanel(QTabWidget):
    """Shows one page at a time, under a name each."""

    def __init__(self, pages: tuple[Page, ...]) -> None:
        super().__init__(documentMode=True, usesScrollButtons=False)
        theme.set_role(self, "side")
        self._pages = pages
        self.tabBar().setDrawBase(False)
        self.tabBar().setExpanding(True)
        self.setAccessibleName("Side panel")
        self.tabBar().setAccessibleName("Side panel")
        for page in pages:
            place = self.addTab(page.widget, page.title)
            self.tabBar().setAccessibleTabName(place, page.title)
        theme.follow(self, self._name_tabs)

    def minimumSizeHint(self) -> QSize:
        """A page never widens the window."""
        return QSize(0, 0)

    @Slot()
    def _name_tabs(self) -> None:
        """Titles, or icons where these have no room."""
        for place, page in enumerate(self._pages):
            self.setTabText(place, page.title)
            self.setTabIcon(place, QIcon())
            self.setTabToolTip(place, "")
        if self.tabBar().sizeHint().width() <= self.width():
            return
        for place, page in enumerate(self._pages):
            self.setTabText(place, "")
            self.setTabIcon(place, icons.themed(page.icon, theme.current()))
            self.setTabToolTip(place, page.title)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._name_tabs()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._name_tabs()
