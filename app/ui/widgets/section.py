"""A part of a dialog that can be opened and closed; closed, it shows its settings in a few words."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFrame, QToolButton, QWidget

from app.ui.widgets import icons, theme
from app.ui.widgets.controls import ElidedLabel, plain_tooltip
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING


class Section(QWidget):
    """A heading with a triangle, and below it its content while it is open.

    Attributes:
        button: Opens and closes it.
    """

    def __init__(self, title: str, content: QWidget) -> None:
        super().__init__()
        self._title = title
        self._content = content
        self.button = QToolButton(toolButtonStyle=Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setText(title)
        self.button.setCheckable(True)
        theme.set_role(self.button, "section")
        self._summary = ElidedLabel("quiet")
        self._summary.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        line = QFrame()
        theme.set_role(line, "line")
        header = row(self.button, (self._summary, 1), gap=3 * SPACING)
        header.addStretch()
        column(line, header, content, gap=SPACING, on=self)
        self.button.toggled.connect(self._on_toggled)
        theme.follow(self, self._dress)
        self._on_toggled(False)

    def set_summary(self, text: str) -> None:
        """A summary of its settings in a few words."""
        self._summary.setText(text)
        self._summary.setToolTip(plain_tooltip(text))

    def _dress(self) -> None:
        icon = "chevron-down" if self.button.isChecked() else "chevron-right"
        self.button.setIcon(icons.themed(icon, theme.current()))

    @Slot(bool)
    def _on_toggled(self, is_open: bool) -> None:
        self._content.setVisible(is_open)
        self._summary.setVisible(not is_open)
        self.button.setAccessibleName(f"{self._title}, {'open' if is_open else 'closed'}")
        self._dress()
