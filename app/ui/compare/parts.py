"""What both tabs of the Compare window are made of."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QPushButton, QVBoxLayout, QWidget

from app.ui.compare.wording import Verdict
from app.ui.widgets import theme
from app.ui.widgets.controls import ElidedLabel, label, plain_tooltip
from app.ui.widgets.theme import SPACING

FORMATS = {"Markdown": ".md", "CSV": ".csv", "JSON": ".json", "PNG": ".png"}
"""Name and suffix."""
_ROLES = {"good": "heading", "plain": "heading", "warning": "heading-warning", "bad": "heading-bad"}


def line() -> QFrame:
    """A hairline."""
    result = QFrame()
    theme.set_role(result, "line")
    return result


class VerdictLine(QWidget):
    """What came of it: one line, sentences below where there is more to say."""

    def __init__(self) -> None:
        super().__init__()
        self._heading = label(role="heading", wraps=True, figures=True)
        self._detail = label(role="quiet", wraps=True, figures=True)
        for part in (self._heading, self._detail):
            part.setTextInteractionFlags(
                Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
            )
            part.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACING)
        column.addWidget(self._heading)
        column.addWidget(self._detail)
        self.show_verdict(Verdict(""))

    def show_verdict(self, verdict: Verdict) -> None:
        self._heading.setText(verdict.heading)
        theme.set_role(self._heading, _ROLES[verdict.mood])
        self._detail.setText(verdict.detail)
        self._detail.setVisible(bool(verdict.detail))
        self.setAccessibleName(verdict.text)

    def text(self) -> str:
        return self.accessibleName()


class Footer(QWidget):
    """The row of buttons below: what can be done with it on the left, Export and Close on the right. The button on the
    left is ``run_button`` while nothing runs and ``stop_button`` while something does; the actions of ``export_menu``
    have one of `FORMATS` as their data."""

    def __init__(self, run_text: str) -> None:
        super().__init__()
        self.run_button = QPushButton(run_text)
        theme.set_role(self.run_button, "primary")
        self.stop_button = QPushButton("Stop")
        self.stop_button.setToolTip("Stop (Esc)")
        self.export_button = QPushButton("Export ▾")
        self.export_button.setAccessibleName("Export")
        self.export_button.clicked.connect(self._on_export)
        self.export_menu = QMenu(self.export_button)
        for name in FORMATS:
            self.export_menu.addAction(f"{name}…").setData(name)
        self.close_button = QPushButton("Close")
        self._status = ElidedLabel("quiet")
        self._said = "", "quiet"
        self._why_not = ""
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2 * SPACING)
        row.addWidget(self.run_button)
        row.addWidget(self.stop_button)
        row.addSpacing(SPACING)
        row.addWidget(self._status, 1)
        row.addWidget(self.export_button)
        row.addWidget(self.close_button)
        self.set_state(running=False, can_run=False, can_export=False)

    def set_state(
        self, *, running: bool, can_run: bool, can_export: bool, has_subject: bool = True, why_not: str = ""
    ) -> None:
        """``has_subject``: there is something to run, be it now or later. ``why_not``: why it cannot run now.

        Where the keyboard was on a button that goes, it moves to the one that comes."""
        had_focus = self.window().focusWidget() in (self.run_button, self.stop_button)
        self.run_button.setVisible(has_subject and not running)
        self.run_button.setEnabled(can_run)
        self.stop_button.setVisible(running)
        self.export_button.setEnabled(can_export)
        self.run_button.setToolTip(why_not)
        self._why_not = why_not if has_subject and not running else ""
        self._show_status()
        if had_focus:
            (self.stop_button if running else self.run_button).setFocus()

    def set_status(self, text: str, role: str = "quiet") -> None:
        """How an export goes, or went."""
        self._said = text, role
        self._show_status()

    def _show_status(self) -> None:
        text, role = self._said if self._said[0] else (self._why_not, "quiet")
        self._status.setText(text)
        self._status.setToolTip(plain_tooltip(text))
        theme.set_role(self._status, role)

    def status(self) -> str:
        return self._status.text()

    @Slot()
    def _on_export(self) -> None:
        height = self.export_menu.sizeHint().height()
        self.export_menu.popup(self.export_button.mapToGlobal(QPoint(0, -height)))
