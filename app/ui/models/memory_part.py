"""The part of the Open models dialog that shows what the pair takes, and who gives way when it is too much."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal, Slot
from PySide6.QtWidgets import QGridLayout, QLabel, QSlider, QWidget

from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import Parts
from app.models.memory_shape import ModelShape
from app.models.planner import LEAST_CONTEXT, LoadPlan
from app.models.text import printable, size_text
from app.ui.models.memory_bar import MemoryBar, Segment
from app.ui.widgets import theme
from app.ui.widgets.controls import clear_layout, explain, label, small_button
from app.ui.widgets.layouts import LEFT, column
from app.ui.widgets.theme import SPACING

_STEPS = 64
"""Of the slider for the context, evenly spaced in the logarithm."""
_ALL = -1
_CONTEXT_HELP = "Tokens a chat can have. A longer context takes more memory; the draft gives way first."
_LAYERS_HELP = "How many layers of the target are computed on the GPU; the rest runs on the processor, slower."
_COLORS = {"target": 0, "target_kv": 5, "draft": 2, "draft_kv": 3, "compute": 4}


class MemoryPart(QWidget):
    """Shows a `LoadPlan` and lets the user change what it goes by.

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
        self._gpu = MemoryBar()
        self._system = MemoryBar()
        self._sentence = label(role="quiet", wraps=True)
        self._others = column(gap=SPACING)
        self._context = _slider("Context length", _CONTEXT_HELP)
        self._context_text = label(figures=True)
        self._layers = _slider("Layers on the GPU", _LAYERS_HELP)
        self._layers_text = label(figures=True)
        self._layers_title = label("Layers on the GPU")
        self._lay_out()
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
        """``others`` are plans that fit where this one does not; ``longest`` is what the target was trained for.

        ``has_draft``: a draft was chosen, whether the plan keeps it or not.
        """
        self._show_bars(plan, machine)
        self._sentence.setText(plan.sentence)
        gives_up = has_draft and not plan.with_draft
        theme.set_role(self._sentence, "bad" if not plan.fits else "warning" if gives_up else "quiet")
        clear_layout(self._others)
        for other in others:
            button = small_button(other.sentence)
            button.clicked.connect(lambda _checked=False, other=other: self.alternative_chosen.emit(other))
            self._others.addWidget(button, 0, LEFT)
        self._show_context(plan.context_length, longest)
        self._show_layers(plan, target, bool(machine.devices))

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        sliders = QGridLayout()
        sliders.setHorizontalSpacing(3 * SPACING)
        sliders.setVerticalSpacing(SPACING)
        sliders.setColumnStretch(1, 1)
        rows: tuple[tuple[QLabel, QSlider, QLabel], ...] = (
            (label("Context length"), self._context, self._context_text),
            (self._layers_title, self._layers, self._layers_text),
        )
        for row, (title, slider, value) in enumerate(rows):
            title.setBuddy(slider)
            value.setMinimumWidth(value.fontMetrics().horizontalAdvance("1,000,000 tokens"))
            value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            for place, widget in enumerate((title, slider, value)):
                sliders.addWidget(widget, row, place)
        column(self._gpu, self._system, self._sentence, self._others, sliders, on=self)

    def _show_bars(self, plan: LoadPlan, machine: MachineMemory) -> None:
        self._gpu.setVisible(bool(machine.devices))
        if machine.devices:
            names = ", ".join(printable(device.description, 60) for device in machine.devices)
            self._gpu.show_memory(names, _segments(plan.estimate.gpu), plan.gpu_space)
        left_free = size_text(max(machine.memory_free - plan.system_space, 0))
        self._system.show_memory(f"Memory ({left_free} kept free)", _segments(plan.estimate.system), plan.system_space)

    def _show_context(self, context: int, longest: int) -> None:
        self._longest = max(longest, LEAST_CONTEXT + 1)
        with QSignalBlocker(self._context):
            self._context.setRange(0, _STEPS)
            self._context.setValue(round(_STEPS * self._place(context)))
        self._context_text.setText(f"{context:,} tokens")

    def _show_layers(self, plan: LoadPlan, target: ModelShape, has_gpu: bool) -> None:
        for widget in (self._layers_title, self._layers, self._layers_text):
            widget.setVisible(has_gpu)
        slots = target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        with QSignalBlocker(self._layers):
            self._layers.setRange(0, slots)
            self._layers.setValue(layers)
        self._layers_text.setText(f"{layers} of {slots}")

    def _place(self, context: int) -> float:
        """0 at the least context, 1 at the longest."""
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
        self.layers_chosen.emit(_ALL if layers == self._layers.maximum() else layers)


def _slider(name: str, help_text: str) -> QSlider:
    slider = QSlider(Qt.Orientation.Horizontal)
    slider.setAccessibleName(name)
    explain(slider, help_text)
    return slider


def _segments(parts: Parts) -> list[Segment]:
    return [
        Segment("Target", parts.target_weights, _COLORS["target"]),
        Segment("its KV cache", parts.target_kv, _COLORS["target_kv"]),
        Segment("Draft", parts.draft_weights, _COLORS["draft"]),
        Segment("its KV cache", parts.draft_kv, _COLORS["draft_kv"]),
        Segment("to compute", parts.compute, _COLORS["compute"]),
    ]
