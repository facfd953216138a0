"""The Speed panel: what drafting does, how fast answers are written, and the settings that change it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app import words
from app.protocol.events import Figures, KindFigures, PairLoaded, Round
from app.protocol.options import DEFAULT_DRAFT_LENGTH, DrafterChoice, DraftLength, HeadChoice
from app.protocol.statistics import sums_by_kind
from app.ui.engine import pair_names
from app.ui.engine.pair_names import thinking_lines
from app.ui.speed import wording
from app.ui.speed.controls import DrafterControl, DraftLengthControl, ShowDrafted
from app.ui.speed.drawings import LengthCurve, PositionBars, RoundBar
from app.ui.speed.meter import Meter
from app.ui.speed.parts import Heading, KindsSection, LiveFigure, PlainSpeed, ServerSection, StatusLines
from app.ui.speed.wording import HELP
from app.ui.widgets import theme
from app.ui.widgets.controls import HeadControl, column, explain, stacked
from app.ui.widgets.theme import SPACING

REFRESH_MS = 100
"""The panel redraws at most ten times a second, and not at all while it is hidden or nothing changed."""


class SpeedPanel(QScrollArea):
    """Give it rounds as they arrive; it asks for nothing and computes nothing while it is hidden. ``draft_length``,
    ``drafter``, ``head``, ``show_drafted``, ``plain_speed``: its controls, which hold the user's choices."""

    def __init__(self) -> None:
        super().__init__(widgetResizable=True)
        self.setAccessibleName("Speed panel")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        theme.set_role(self, "side")
        self._meter = Meter()
        self._told = wording.Situation()
        """What the window reported; `_situation` adds the settings and the counts."""
        self._rows = DEFAULT_DRAFT_LENGTH
        self._curve: list[float] = []
        """From the last answer that had one."""
        self._length_used: int | None = None
        """Draft length of the draft model or MTP head in the last answer."""
        self._kinds: list[KindFigures] = []
        """Over all answers of the pair."""
        self._timer = QTimer(self, interval=REFRESH_MS)
        self._timer.timeout.connect(self._on_tick)
        self._build()
        self._refresh()

    # ------------------------------------------------------------ from the window

    def set_pair(self, pair: PairLoaded | None, *, is_remote: bool = False) -> None:
        """A pair was loaded or unloaded: drop what was measured. ``is_remote``: a model on a server is, or was to be,
        used."""
        is_remote = pair.remote is not None if pair is not None else is_remote
        self._told = wording.Situation(pair=pair, engine_state=self._told.engine_state, is_remote=is_remote)
        self._meter = Meter()
        self._curve, self._length_used = [], None
        self._kinds = pair.history if pair else []
        self.drafter.set_pair(pair)
        self.show_drafted.set_pair(pair)
        if pair is not None:
            self.draft_length.set_default(pair.default_draft_length)
            self._status_lines.set_default_length(pair.default_draft_length)
        self._show_place(is_remote=is_remote)
        self._rows = self._least_rows()
        self._note_change()

    def _show_place(self, *, is_remote: bool) -> None:
        """Whether the model is on a server."""
        self._server_section.setVisible(is_remote and self._told.pair is not None)
        for part in self._local:
            part.setVisible(not is_remote)

    def show_head(self, choice: HeadChoice, *, for_once: bool = False) -> None:
        """Show the choice about the MTP head inside the target, or what was set ``for_once``; nothing changes without a
        pair."""
        if (pair := self._told.pair) is not None:
            self.head.show_choice(choice, pair_names.why_no_head(pair, choice, for_once=for_once))
            self.head.setVisible(pair_names.has_own_head(pair))

    def set_engine_state(self, text: str) -> None:
        """One or two words: starting, loading 40%, ready, answering, stopped."""
        self._told.engine_state = text
        self._note_change()

    def set_failure(self, reason: str | None) -> None:
        """Why the engine stopped, for the user; ``None`` when it is back."""
        self._told.failure = reason
        self._told.answering = self._told.answering and reason is None
        self._note_change()

    @Slot()
    def begin_generation(self) -> None:
        """The request was sent, with the current settings."""
        self._meter.begin()
        self._told.answering, self._told.asked = True, self._situation().coming
        self._told.stopped = None
        # Not while the slider is being moved: it would slip away from under the pointer.
        self._rows = self._least_rows()
        self._note_change()

    def add_rounds(self, rounds: Sequence[Round]) -> None:
        """Count rounds. Cheap: nothing is drawn here."""
        self._meter.add(rounds, time.monotonic())
        self._note_change()

    @Slot()
    def wait_for_tools(self) -> None:
        """The answer goes on when its tool calls have ended."""
        self._meter.rest()

    def end_generation(self, figures: Figures | None) -> None:
        """The answer is finished, with the engine's figures unless it failed."""
        self._told.answering = False
        self._meter.pauses.end()
        if figures is not None:
            self._meter.finish(figures)
            self.show_drafted.set_format(any(one.name == "grammar" for one in figures.draft.drafters))
            if self._told.asked and self._told.asked.drafters:
                self._kinds = sums_by_kind(self._kinds, figures.kinds)
                self._length_used = wording.length_used(self._told.asked, figures)
        self._note_change()

    def set_draft_failure(self, reason: str | None) -> None:
        """Why the draft model or the MTP head was no longer used in the answer that has just ended."""
        self._told.stopped = reason
        self._note_change()

    def set_curve(self, speeds: Sequence[float]) -> None:
        """The expected speed at each draft length; if empty, as after an answer without a draft, nothing changes."""
        if speeds:
            self._curve = list(speeds)
            self._note_change()

    def set_plain_speed(self, tokens_per_second: float | None) -> None:
        """The measured speed of this target without a draft; ``None`` if there is none."""
        self._told.plain_speed = tokens_per_second
        self._note_change()

    def set_drafter(self, drafter: DrafterChoice) -> None:
        """Without emitting a signal."""
        self.drafter.set_choice(drafter)
        self._note_change()

    def set_draft_length(self, length: DraftLength) -> None:
        """Without emitting a signal, because the caller already knows."""
        if length == self.draft_length.value():
            return
        self.draft_length.set_value(length)
        if not self._told.asked:
            self._rows = self._least_rows()
        self._note_change()

    # ------------------------------------------------------------ building

    def _build(self) -> None:
        self._status_lines = StatusLines()
        self._speed = LiveFigure("Speed", "Speed over the last minute", HELP["speed"])
        self._acceptance = LiveFigure("Accepted", "Share accepted over the last minute", HELP["acceptance"], 1.0)
        self.plain_speed = PlainSpeed()
        self._positions = PositionBars()
        self._round_heading = Heading("One round")
        self._round = RoundBar()
        self.draft_length = DraftLengthControl()
        self.drafter = DrafterControl()
        self.head = HeadControl()
        self.head.hide()
        self.show_drafted = ShowDrafted()
        self._length_curve = LengthCurve()
        self._curve_section = _explained("curve", Heading("Speed by draft length"), self._length_curve)
        self._curve_section.hide()
        self._kinds_section = KindsSection()
        self.draft_length.value_changed.connect(self._note_change)
        self.drafter.choice_changed.connect(self._note_change)
        self._status_lines.always_draft_button.clicked.connect(self.draft_length.fix)
        self._status_lines.focus_lost.connect(self.draft_length.take_focus)
        self._server_section = ServerSection()
        self._local = (
            _explained("positions", Heading("Accepted by position"), self._positions),
            _explained("round", self._round_heading, self._round),
            stacked(self.draft_length, self.drafter, self.head, self.show_drafted),
        )
        """What a server has nothing of."""
        content = QWidget()
        content.setObjectName("speed-content")
        theme.set_role(content, "side")
        column(
            self._status_lines,
            stacked(self._speed, self._acceptance, self.plain_speed),
            *self._local,
            self._server_section,
            self._curve_section,
            self._kinds_section,
            None,
            gap=5 * SPACING,
            margins=4 * SPACING,
            on=content,
        )
        self.setWidget(content)

    # ------------------------------------------------------------ refreshing

    @Slot()
    def _note_change(self) -> None:
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    @Slot()
    def _on_tick(self) -> None:
        self._refresh()
        # While tokens arrive, the live speed changes with time alone.
        if not (self._told.answering and self._meter.is_writing):
            self._timer.stop()

    def _refresh(self) -> None:
        now = self._situation()
        self._status_lines.show_status(wording.status(now))
        self._status_lines.show_details(thinking_lines(now.figures) if now.figures else [])
        self._refresh_figures(now)
        remote = now.pair.remote if now.pair is not None else None
        if remote is not None:
            shares = wording.accepted_per_pass(now.figures) if now.figures and not now.answering else []
            self._server_section.show_server(wording.server_note(now), shares)
        self.plain_speed.setVisible(remote.can_switch_drafting if remote is not None else not now.is_remote)
        self._acceptance.setVisible(remote is None or wording.has_acceptance(now, remote))
        can_measure = now.pair is not None and now.failure is None and not now.answering
        self.plain_speed.show_speeds(now.plain_speed, now.speed_up, can_measure=can_measure)
        self._positions.show_shares(self._shares(), self._rows)
        self.draft_length.set_in_use(self._length_in_use(now))
        chosen = now.draft_length if now.draft_length != "auto" else None
        self._length_curve.show_curve(self._curve, self._length_used, chosen)
        self._curve_section.setVisible(bool(self._curve))
        self._kinds_section.show_kinds(self._kinds, now.plain_speed)
        for control in (self.draft_length, self.drafter):
            control.setEnabled(now.pair is not None and pair_names.allowed(now.pair))

    def _situation(self) -> wording.Situation:
        meter, asked = self._meter, self._told.asked
        return replace(
            self._told,
            draft_length=self.draft_length.value(),
            drafter=self.drafter.choice(),
            figures=meter.figures() if asked else None,
            paused=meter.pauses.pause if asked else None,
            plain_pass=meter.plain.mean_pass(),
            drafted_pass=meter.drafted.mean_pass(),
        )

    def _least_rows(self) -> int:
        """How many positions to show if nothing is known yet."""
        length = self.draft_length.value()
        if length != "auto":
            return length
        return self._told.pair.default_draft_length if self._told.pair else DEFAULT_DRAFT_LENGTH

    def _shares(self) -> list[float]:
        """Accepted by position, over the same passes as the figure above, without the zeros at the end."""
        meter = self._meter
        shares = meter.live_acceptance_by_position() if self._told.answering else meter.acceptance_by_position()
        while len(shares) > self._rows and not shares[-1]:
            shares.pop()
        return shares

    def _length_in_use(self, now: wording.Situation) -> str:
        """The automatic draft length in the current or last answer, in a word or two."""
        length = self._meter.lengths.length
        if now.asked is None or now.asked.draft_length != "auto":
            return ""
        if now.paused is not None:
            return "paused" if now.is_paused else ""
        return f"{length} {'now' if now.answering else 'recently'}" if length is not None else ""

    def _refresh_figures(self, now: wording.Situation) -> None:
        meter, figures = self._meter, now.figures
        if now.answering:
            speed, acceptance = meter.live_speed(time.monotonic()), meter.live_acceptance()
        else:
            speed = figures.decode_tokens_per_second if figures else None
            acceptance = figures.draft.acceptance_rate if figures else None
        self._speed.show_note(wording.fewer_threads(meter.threads, now.pair) if now.answering else "")
        self._speed.show_figure(words.speed(speed), meter.speed_history(), now.plain_speed)
        self._acceptance.show_figure(words.share(acceptance), meter.acceptance_history())
        parts = meter.round_time.mean()
        self._round.show_parts(parts)
        self._round_heading.set_value(words.milliseconds(sum(parts) if parts else None))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()
        if self._told.answering:
            self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()


def _explained(key: str, *widgets: QWidget) -> QWidget:
    """The widgets in a column, each with the same help text."""
    for widget in widgets:
        explain(widget, HELP[key])
    return stacked(*widgets)
