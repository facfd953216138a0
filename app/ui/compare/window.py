"""The Compare window: two tabs; chats can be used at the same time."""

from __future__ import annotations

from PySide6.QtCore import QSize, Slot

from app.ui.compare.one_answer import OneAnswer
from app.ui.compare.prompt_set import PromptSet
from app.ui.widgets.tabbed_window import TabbedWindow

FIRST_SIZE = QSize(960, 760)
MINIMUM_SIZE = QSize(480, 420)


class CompareWindow(TabbedWindow):
    """Lays out the tabs.

    Attributes:
        one, many: The tabs.
    """

    def __init__(self) -> None:
        super().__init__("Compare", FIRST_SIZE, MINIMUM_SIZE)
        self.one = OneAnswer()
        self.many = PromptSet()
        self.tabs.addTab(self.one, "One answer")
        self.tabs.addTab(self.many, "Prompt set")
        for tab in (self.one, self.many):
            tab.footer.close_button.clicked.connect(self.close)

    @Slot()
    def on_escape(self) -> None:
        """Stop what is running, otherwise close the window."""
        running = [tab for tab in (self.one, self.many) if tab.is_running()]
        if running:
            running[0].footer.stop_button.click()
        else:
            self.close()
