"""What both tabs of the Compare window have: a verdict, a row of buttons, and why nothing can be started."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.ui.compare.parts import Footer, VerdictLine
from app.ui.compare.runner import End
from app.ui.compare.wording import Verdict
from app.ui.widgets.theme import SPACING


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
        """Whether what the runner does is this tab's."""
        raise NotImplementedError

    @Slot(str)
    def note_draft_failure(self, reason: str) -> None:
        """The draft ended before the answer; said below what comes of it."""
        if self.is_running():
            self._draft_failure = f"The draft failed in between. {reason}"

    def set_waiting(self, waits: str) -> None:
        """What the next run waits for; empty: nothing."""
        raise NotImplementedError

    def end(self, end: End) -> None:
        """The runner is done."""
        raise NotImplementedError

    def set_blocked(self, why: str) -> None:
        """Nothing can be started now, and why; empty: it can."""
        self._blocked = why
        self._show_state()

    def say(self, verdict: Verdict) -> None:
        self.verdict.show_verdict(verdict)
        self._show_state()

    # ------------------------------------------------------------ for the tabs themselves

    def _say_result(self, verdict: Verdict) -> None:
        """What came of what ran."""
        self.say(replace(verdict, detail=f"{verdict.detail} {self._draft_failure}".strip()))

    def _make_below(self) -> QVBoxLayout:
        """The lower part of the tab."""
        below = QVBoxLayout()
        below.setContentsMargins(6 * SPACING, 3 * SPACING, 6 * SPACING, 4 * SPACING)
        below.setSpacing(3 * SPACING)
        below.addWidget(self.verdict)
        below.addWidget(self.footer)
        return below

    def _show_state(self) -> None:
        """Show which buttons can be used."""
        raise NotImplementedError
