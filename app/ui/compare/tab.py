"""What both tabs of the Compare window have in common: a verdict, a row of buttons, and why nothing can be started."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPoint, QRect, Qt, Slot
from PySide6.QtGui import QImageWriter
from PySide6.QtWidgets import QFrame, QMenu, QPushButton, QVBoxLayout, QWidget

from app.ui.compare.runner import End
from app.ui.compare.wording import Verdict
from app.ui.widgets import theme
from app.ui.widgets.controls import ElidedLabel, label, plain_tooltip
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

FORMATS = {"Markdown": ".md", "CSV": ".csv", "JSON": ".json", "PNG": ".png"}
"""Name and file extension."""
_ROLES = {"good": "heading", "plain": "heading", "warning": "heading-warning", "bad": "heading-bad"}


def line() -> QFrame:
    """A hairline."""
    result = QFrame()
    theme.set_role(result, "line")
    return result


class VerdictLine(QWidget):
    """The result: one line, with sentences below it if there is more to say."""

    def __init__(self) -> None:
        super().__init__()
        self._heading = label(role="heading", wraps=True, figures=True)
        self._detail = label(role="quiet", wraps=True, figures=True)
        for part in (self._heading, self._detail):
            part.setTextInteractionFlags(
                Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
            )
            part.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        column(self._heading, self._detail, gap=SPACING, on=self)
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
        left, right = (self.run_button, self.stop_button), (self.export_button, self.close_button)
        row(*left, SPACING, (self._status, 1), *right, on=self)
        self.set_state(running=False, can_run=False, can_export=False)

    def set_state(
        self, *, running: bool, can_run: bool, can_export: bool, has_subject: bool = True, why_not: str = ""
    ) -> None:
        """``has_subject``: there is something to run, now or later. ``why_not``: why it can't run now.

        If the focused button disappears, the focus moves to the one that replaces it.
        """
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
        """The progress or the result of an export."""
        self._said = text, role
        self._show_status()

    def _show_status(self) -> None:
        text, role = self._said if self._said[0] else (self._why_not, "quiet")
        self._status.setText(text)
        self._status.setToolTip(plain_tooltip(text))
        theme.set_role(self._status, role)

    @Slot()
    def _on_export(self) -> None:
        height = self.export_menu.sizeHint().height()
        self.export_menu.popup(self.export_button.mapToGlobal(QPoint(0, -height)))


class CompareTab(QWidget):
    """Shows what a runner does; decides nothing. While it does not run it passes over what the runner says.

    Attributes:
        verdict: What came of the comparison.
        footer: The buttons; whoever owns the tab connects them.
    """

    def __init__(self, run_text: str) -> None:
        super().__init__()
        self.verdict = VerdictLine()
        self.footer = Footer(run_text)
        self._blocked = ""
        self._draft_failure = ""

    def is_running(self) -> bool:
        """Whether the runner is working for this tab."""
        raise NotImplementedError

    @Slot(str)
    def note_draft_failure(self, reason: str) -> None:
        """The draft ended before the answer; mentioned below the result."""
        if self.is_running():
            self._draft_failure = f"Drafting stopped during the run. {reason}"

    def set_waiting(self, waits: str) -> None:
        """What the next run is waiting for; empty if nothing."""
        raise NotImplementedError

    def end(self, end: End) -> None:
        """The runner is done."""
        raise NotImplementedError

    def set_blocked(self, why: str) -> None:
        """Nothing can be started now, and why; empty if it can."""
        self._blocked = why
        self._show_state()

    def say(self, verdict: Verdict) -> None:
        self.verdict.show_verdict(verdict)
        self._show_state()

    def picture(self) -> bytes:
        """What the tab shows, without its buttons, as PNG."""
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        shown = self.grab(QRect(0, 0, self.width(), self.footer.y()))
        QImageWriter(buffer, QByteArray(b"PNG")).write(shown.toImage())
        return bytes(buffer.data().data())

    # ------------------------------------------------------------ for the tabs themselves

    def _say_result(self, verdict: Verdict) -> None:
        """Show the result of the run."""
        self.say(replace(verdict, detail=f"{verdict.detail} {self._draft_failure}".strip()))

    def _make_below(self) -> QVBoxLayout:
        """Create the lower part of the tab."""
        margins = (6 * SPACING, 3 * SPACING, 6 * SPACING, 4 * SPACING)
        return column(self.verdict, self.footer, gap=3 * SPACING, margins=margins)

    def _show_state(self) -> None:
        """Update which buttons can be used."""
        raise NotImplementedError
