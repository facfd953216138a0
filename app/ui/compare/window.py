"""The Compare window: two tabs beside the chat, which goes on."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QTabWidget, QVBoxLayout, QWidget

from app.ui.compare.one_answer import OneAnswer
from app.ui.compare.prompt_set import PromptSet
from app.ui.widgets import icons, theme

FIRST_SIZE = QSize(960, 760)
MINIMUM_SIZE = QSize(480, 420)


class CompareWindow(QWidget):
    """Lays out the tabs.

    Attributes:
        one, many: The tabs.
        escape: Esc is pressed.

    Signals:
        closed: The window is gone from the screen.
    """

    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setWindowTitle("Compare")
        self.setWindowIcon(icons.application())
        self.setMinimumSize(MINIMUM_SIZE)
        self.resize(FIRST_SIZE)
        theme.set_role(self, "reading")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.one = OneAnswer()
        self.many = PromptSet()
        self._tabs = QTabWidget()
        self._tabs.setDocumentMode(True)
        self._tabs.tabBar().setDrawBase(False)
        self._tabs.addTab(self.one, "One answer")
        self._tabs.addTab(self.many, "Prompt set")
        self._tabs.tabBar().setAccessibleName("Compare")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._tabs)
        self.escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        for tab in (self.one, self.many):
            tab.footer.close_button.clicked.connect(self.close)

    def show_tab(self, tab: QWidget) -> None:
        """Bring this tab to the front, and the window too."""
        self._tabs.setCurrentWidget(tab)
        self.raise_window()

    def current_tab(self) -> QWidget:
        return self._tabs.currentWidget()

    @Slot()
    def raise_window(self) -> None:
        if self.isMinimized():
            self.showNormal()
        self.show()
        self.raise_()
        self.activateWindow()

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()
