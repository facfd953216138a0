"""The memory part of the Open models dialog: how much the pair takes, and alternatives if it doesn't fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSignalBlocker, QSize, Qt, Signal, Slot
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QSlider, QToolTip, QWidget

from app import words
from app.models.machine_memory import MachineMemory
from app.models.memory_shape import ModelShape
from app.models.model_memory import Parts
from app.models.planner import LEAST_CONTEXT, LoadPlan
from app.ui.widgets import theme
from app.ui.widgets.controls import LEFT, clear_layout, column, explain, label, named, small_button
from app.ui.widgets.theme import SPACING
from app.words import printable

_STEPS = 64
"""Steps of the context slider, evenly spaced on a logarithmic scale."""
_CONTEXT_HELP = (
    "How many tokens a chat can hold. A longer context takes more memory; if that runs out, the draft "
    "is left out first."
)
_LAYERS_HELP = "How many layers of the target run on the GPU. The rest runs on the CPU, which is slower."
_BAR, _GAP, _SWATCH = 14, 1, 9
"""In pixels: a bar's height, the gap between its segments, and the size of a color in the legend."""


class MemoryPart(QWidget):
    """Shows a `LoadPlan` and lets the user change its basis.

    Signals:
        context_chosen: Tokens.
        layers_chosen: Layers of the target on the GPU; −1 is as many as fit.
        alternative_chosen: A `LoadPlan` that fits.
    """

    context_chosen = Signal(int)
    layers_chosen = Signal(int)
    alternative_chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._longest = LEAST_CONTEXT
        self._gpu_bars = [MemoryBar()]
        self._gpus = column(*self._gpu_bars)
        self._system = MemoryBar()
        self._sentence = label(role="quiet", wraps=True)
        self._others = column(gap=SPACING)
        self._context = _slider("Context length", _CONTEXT_HELP)
        self._context.setMaximum(_STEPS)
        self._context_text = label(figures=True)
        self._layers = _slider("Layers on the GPU", _LAYERS_HELP)
        self._layers_text = label(figures=True)
        self._layers_title = label("Layers on the GPU", buddy=self._layers)
        sliders = QGridLayout()
        sliders.setHorizontalSpacing(3 * SPACING)
        sliders.setVerticalSpacing(SPACING)
        sliders.setColumnStretch(1, 1)
        rows: tuple[tuple[QLabel, QSlider, QLabel], ...] = (
            (label("Context length", buddy=self._context), self._context, self._context_text),
            (self._layers_title, self._layers, self._layers_text),
        )
        for row, (title, slider, value) in enumerate(rows):
            value.setMinimumWidth(value.fontMetrics().horizontalAdvance("1,000,000 tokens"))
            value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            for place, widget in enumerate((title, slider, value)):
                sliders.addWidget(widget, row, place)
        column(self._gpus, self._system, self._sentence, self._others, sliders, on=self)
        self._context.valueChanged.connect(self._on_context)
        self._layers.valueChanged.connect(self._on_layers)

    def show_plan(
        self,
        plan: LoadPlan,
        others: Sequence[LoadPlan],
        target: ModelShape,
        machine: MachineMemory,
        *,
        longest: int,
        has_draft: bool,
    ) -> None:
        """``others`` are plans that fit if this one doesn't; ``longest`` is the target's training context.

        ``has_draft``: a draft was chosen, whether or not the plan uses it.
        """
        self._show_bars(plan, machine)
        self._sentence.setText(plan.sentence)
        gives_up = plan.gives_up or (has_draft and not (plan.with_draft or plan.with_head))
        theme.set_role(self._sentence, "bad" if not plan.fits else "warning" if gives_up else "quiet")
        clear_layout(self._others)
        for other in others:
            button = small_button(other.sentence)
            button.clicked.connect(lambda _checked=False, other=other: self.alternative_chosen.emit(other))
            self._others.addWidget(button, 0, LEFT)
        self._show_context(plan.context_length, longest)
        self._show_layers(plan, target, bool(machine.devices))

    def _show_bars(self, plan: LoadPlan, machine: MachineMemory) -> None:
        descriptions = {device.name: printable(device.description, 60) for device in machine.devices}
        gpus = zip(plan.gpu_spaces.items(), plan.estimate.gpus, strict=False)
        shown = [
            (name, space, parts) for (name, space), parts in gpus if space or parts.total or len(descriptions) == 1
        ]
        while len(self._gpu_bars) < len(shown):
            self._gpu_bars.append(MemoryBar())
            self._gpus.addWidget(self._gpu_bars[-1])
        for bar in self._gpu_bars[len(shown) :]:
            bar.hide()
        for bar, (name, space, parts) in zip(self._gpu_bars, shown, strict=False):
            title = f"{name} · {descriptions[name]}" if len(shown) > 1 else descriptions[name]
            bar.show_memory(title, _segments(parts), space)
            bar.show()
        left_free = words.size(max(machine.memory_free - plan.system_space, 0))
        self._system.show_memory(
            f"Memory ({left_free} left for other programs)", _segments(plan.estimate.system), plan.system_space
        )

    def _show_context(self, context: int, longest: int) -> None:
        self._longest = max(longest, LEAST_CONTEXT + 1)
        with QSignalBlocker(self._context):
            self._context.setValue(round(_STEPS * self._place(context)))
        self._context_text.setText(f"{words.number(context)} tokens")

    def _show_layers(self, plan: LoadPlan, target: ModelShape, has_gpu: bool) -> None:
        for widget in (self._layers_title, self._layers, self._layers_text):
            widget.setVisible(has_gpu)
        slots = target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        with QSignalBlocker(self._layers):
            self._layers.setMaximum(slots)
            self._layers.setValue(layers)
        self._layers_text.setText(f"{layers} of {slots}")

    def _place(self, context: int) -> float:
        """0 at the shortest context, 1 at the longest."""
        span = math.log(self._longest / LEAST_CONTEXT)
        return min(max(math.log(max(context, 1) / LEAST_CONTEXT) / span, 0.0), 1.0)

    @Slot(int)
    def _on_context(self, step: int) -> None:
        if step == _STEPS:
            context = self._longest
        else:
            exact = LEAST_CONTEXT * (self._longest / LEAST_CONTEXT) ** (step / _STEPS)
            context = max(round(exact / LEAST_CONTEXT), 1) * LEAST_CONTEXT
        self.context_chosen.emit(context)

    @Slot(int)
    def _on_layers(self, layers: int) -> None:
        self.layers_chosen.emit(-1 if layers == self._layers.maximum() else layers)


def _slider(name: str, help_text: str) -> QSlider:
    return explain(named(QSlider(Qt.Orientation.Horizontal), name), help_text)


def _segments(parts: Parts) -> list[Segment]:
    return [
        Segment("Target weights", parts.target_weights, 0),
        Segment("Target KV cache", parts.target_kv, 5),
        Segment("Draft weights", parts.draft_weights, 2),
        Segment("Draft KV cache", parts.draft_kv, 3),
        Segment("Head", parts.head, 1),
        Segment("Projector for images", parts.projector, 6),
        Segment("Compute buffers", parts.compute, 4),
    ]


@dataclass(frozen=True)
class Segment:
    """One part of a bar. ``size`` is in bytes, ``color`` an index in `Theme.series`."""

    name: str
    size: int
    color: int

    def text(self) -> str:
        return f"{self.name} {words.size(self.size)}"


class MemoryBar(QWidget):
    """Segments over the available memory. What doesn't fit extends past its marked end."""

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self._segments: list[Segment] = []
        self._space = 0
        self.setFont(theme.tabular(self.font()))
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme.follow(self, self.update)

    def show_memory(self, title: str, segments: Sequence[Segment], space: int) -> None:
        """``space`` is the memory available for the pair, in bytes."""
        self._title, self._segments, self._space = title, [one for one in segments if one.size > 0], space
        described = ", ".join(one.text() for one in self._segments)
        self.setAccessibleName(f"{title}: {described or 'nothing'}; {words.size(space)} free")
        self.updateGeometry()
        self.update()

    @property
    def taken(self) -> int:
        """The size of all segments in bytes."""
        return sum(one.size for one in self._segments)

    @property
    def fits(self) -> bool:
        return self.taken <= self._space

    def sizeHint(self) -> QSize:
        return QSize(320, self.heightForWidth(self.width() or 320))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.heightForWidth(max(self.width(), 160)))

    def heightForWidth(self, width: int) -> int:
        line = self.fontMetrics().height()
        lines = max((at for _segment, _left, at in self._legend(width)), default=-1) + 1
        return line + SPACING + _BAR + SPACING + lines * (line + 2)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()  # the maximum height follows the size hint, which the layout has cached

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            hit = next((one for one, area in self._areas() if area.contains(QPointF(event.pos()))), None)
            QToolTip.showText(event.globalPos(), f"{hit.name}: {words.size(hit.size)}" if hit else "", self)
            return True
        return super().event(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        colors = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = self.fontMetrics().height()
        painter.setPen(colors.text)
        painter.drawText(QRectF(0, 0, self.width(), line), Qt.AlignmentFlag.AlignLeft, self._title)
        painter.setPen(colors.quiet if self.fits else colors.bad)
        taken, space = words.size(self.taken), words.size(self._space)
        text = f"{taken} of {space} free" if self.fits else f"needs {taken}, {space} free"
        painter.drawText(QRectF(0, 0, self.width(), line), Qt.AlignmentFlag.AlignRight, text)
        track = QRectF(0, self._top(), self.width(), _BAR)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.mix(colors.surface, colors.text, 0.10))
        painter.drawRoundedRect(track, 3, 3)
        for one, area in self._areas():
            painter.setBrush(colors.series[one.color])
            painter.drawRoundedRect(area, 2, 2)
        if not self.fits:
            end = self.width() * self._space / self.taken
            painter.setPen(QPen(colors.bad, 2))
            painter.drawLine(QPointF(end, track.top() - 3), QPointF(end, track.bottom() + 3))
        self._paint_legend(painter)
        painter.end()

    def _top(self) -> float:
        return self.fontMetrics().height() + SPACING

    def _areas(self) -> list[tuple[Segment, QRectF]]:
        whole = max(self._space, self.taken, 1)
        result, left = [], 0.0
        for one in self._segments:
            width = self.width() * one.size / whole
            result.append((one, QRectF(left, self._top(), max(width - _GAP, 1.0), _BAR)))
            left += width
        return result

    def _legend(self, width: int) -> list[tuple[Segment, int, int]]:
        """The position and line of each segment's name: as many per line as fit."""
        places, left, line = [], 0, 0
        for one in self._segments:
            needed = _SWATCH + SPACING + self.fontMetrics().horizontalAdvance(one.text()) + 4 * SPACING
            if left and left + needed - 4 * SPACING > width:
                left, line = 0, line + 1
            places.append((one, left, line))
            left += needed
        return places

    def _paint_legend(self, painter: QPainter) -> None:
        metrics, colors = self.fontMetrics(), theme.current()
        top = self._top() + _BAR + SPACING
        for one, left, line in self._legend(self.width()):
            base = top + line * (metrics.height() + 2)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colors.series[one.color])
            middle = base + (metrics.height() - _SWATCH) / 2
            painter.drawRoundedRect(QRectF(left, middle, _SWATCH, _SWATCH), 2, 2)
            painter.setPen(colors.quiet)
            painter.drawText(QPointF(left + _SWATCH + SPACING, base + metrics.ascent()), one.text())
