"""The memory plan in the Open models dialog: bars, sliders, what would fit, and what the Load button becomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QPushButton, QSlider, QWidget
from pytestqt.qtbot import QtBot

from app.models.gguf import read_header
from app.models.machine_memory import MachineMemory
from app.models.model_memory import shape_of
from app.models.planner import Wishes, make_plan
from app.protocol.events import Device
from app.protocol.options import LoadSettings
from app.settings import Settings
from app.ui.engine.load_planner import MemoryWatch
from app.ui.engine.pair_names import PairFiles
from app.ui.models.memory_part import MemoryBar, Segment
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.widgets.controls import column
from tests.support.gguf_files import make_model

GIB = 2**30
PLENTY = MachineMemory(memory_total=64 * GIB, memory_free=32 * GIB)
WITH_GPU = MachineMemory(
    memory_total=64 * GIB,
    memory_free=32 * GIB,
    devices=[Device(name="CUDA0", description="Made-up GPU", total_bytes=24 * GIB, free_bytes=20 * GIB)],
)


class Memory(QObject):
    """A machine of a size the test chooses, in the place of a `MemoryWatch`."""

    changed = Signal()

    def __init__(self, machine: MachineMemory) -> None:
        super().__init__()
        self._machine = machine

    def machine(self) -> MachineMemory:
        return self._machine

    def refresh(self) -> None:
        pass

    def become(self, machine: MachineMemory) -> None:
        self._machine = machine
        self.changed.emit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "target.gguf", layers=8, width=128, context_length=32_768)
    make_model(folder / "draft.gguf", layers=1, context_length=32_768)
    return folder


Open = Callable[..., tuple[OpenModelsDialog, Memory]]


@pytest.fixture
def open_dialog(qtbot: QtBot, folder: Path) -> Open:
    def open_with(machine: MachineMemory, **load: object) -> tuple[OpenModelsDialog, Memory]:
        choice = PairFiles(
            target=str(folder / "target.gguf"),
            draft=str(folder / "draft.gguf"),
            settings=LoadSettings(**load),  # type: ignore[arg-type]
        )
        memory = Memory(machine)
        dialog = OpenModelsDialog(
            choice, Settings(), gpus=machine.devices, is_loaded=False, memory=cast(MemoryWatch, memory)
        )
        qtbot.addWidget(dialog)
        dialog.show()
        qtbot.waitUntil(lambda: bool(dialog._memory_part._sentence.text()), timeout=10_000)
        return dialog, memory

    return open_with


def needed(folder: Path, *, draft: bool = True, context: int | None = None) -> int:
    """Bytes the pair takes."""
    target = shape_of(read_header(folder / "target.gguf"))
    other = shape_of(read_header(folder / "draft.gguf")) if draft else None
    return make_plan(target, other, PLENTY, Wishes(context_length=context)).needed


def with_room(room: int) -> MachineMemory:
    """A machine where a pair may take ``room`` bytes: a tenth of its memory is left free."""
    return MachineMemory(memory_total=room, memory_free=room + room // 10)


def load_button(dialog: OpenModelsDialog) -> QPushButton:
    return next(one for one in dialog.findChildren(QPushButton) if one.text().startswith("Load"))


def slider(dialog: OpenModelsDialog, name: str) -> QSlider:
    return next(one for one in dialog.findChildren(QSlider) if one.accessibleName() == name)


def test_the_bar_shows_who_takes_what(open_dialog: Open) -> None:
    dialog, _ = open_dialog(PLENTY)
    bars = [bar for bar in dialog.findChildren(MemoryBar) if bar.isVisible()]
    assert len(bars) == 1
    assert [one.name for one in bars[0]._segments] == [
        "Target weights",
        "Target KV cache",
        "Draft weights",
        "Draft KV cache",
        "Compute buffers",
    ]
    assert bars[0].fits
    assert "Target weights" in bars[0].accessibleName()
    assert load_button(dialog).text() == "Load"
    assert not dialog.does_not_fit


def test_a_gpu_has_a_bar_and_a_slider_of_its_own(open_dialog: Open) -> None:
    dialog, _ = open_dialog(WITH_GPU)
    bars = [bar for bar in dialog.findChildren(MemoryBar) if bar.isVisible()]
    assert "Made-up GPU" in bars[0].accessibleName()
    layers = slider(dialog, "Layers on the GPU")
    assert layers.isVisible()
    layers.setValue(3)
    assert dialog.files().settings.target_gpu_layers == 3
    layers.setValue(layers.maximum())
    assert dialog.files().settings.target_gpu_layers == -1  # as many as fit


def test_several_gpus_have_a_bar_each(open_dialog: Open) -> None:
    small = Device(name="CUDA1", description="Small GPU", total_bytes=2 * GIB, free_bytes=1 * GIB)
    several = msgspec.structs.replace(WITH_GPU, devices=[*WITH_GPU.devices, small])
    dialog, memory = open_dialog(several)

    def names() -> list[str]:
        return [bar.accessibleName().split(":")[0] for bar in dialog.findChildren(MemoryBar) if bar.isVisible()]

    assert sorted(names())[:2] == ["CUDA0 · Made-up GPU", "CUDA1 · Small GPU"]
    fields = dialog._special_fields
    fields.set_value("split_mode", "none")
    fields.set_value("main_gpu", "CUDA1")
    assert len(names()) == 2 and "Small GPU" in names()
    memory.become(PLENTY)
    assert len(names()) == 1


def test_the_slider_sets_the_context_and_the_plan_follows(open_dialog: Open) -> None:
    dialog, _ = open_dialog(PLENTY)
    before = next(bar for bar in dialog.findChildren(MemoryBar) if bar.isVisible()).taken
    context = slider(dialog, "Context length")
    context.setValue(context.maximum())
    assert dialog.files().settings.context_length == 32_768
    assert next(bar for bar in dialog.findChildren(MemoryBar) if bar.isVisible()).taken > before
    context.setValue(0)
    assert dialog.files().settings.context_length == 1024


def test_the_draft_gives_way_first_and_the_dialog_says_so(open_dialog: Open, folder: Path) -> None:
    room = (needed(folder) + needed(folder, draft=False)) // 2
    dialog, _ = open_dialog(with_room(room))
    assert dialog._memory_part._sentence.text().startswith("Without the draft")
    assert load_button(dialog).text() == "Load"


def test_what_does_not_fit_is_not_loaded_by_the_way(open_dialog: Open, folder: Path) -> None:
    room = needed(folder, draft=False, context=4096)
    dialog, memory = open_dialog(with_room(room), context_length=32_768)
    assert "free" in dialog._memory_part._sentence.text()
    assert load_button(dialog).text() == "Load anyway"
    assert load_button(dialog).property("role") != "primary"
    assert dialog.does_not_fit
    memory.become(PLENTY)  # another program ended
    assert load_button(dialog).text() == "Load"


def test_a_plan_that_fits_is_one_press_away(open_dialog: Open, folder: Path, qtbot: QtBot) -> None:
    room = needed(folder, context=4096)
    dialog, _ = open_dialog(with_room(room), context_length=32_768)
    offers = [one for one in dialog._memory_part.findChildren(QPushButton) if "instead of" in one.text()]
    assert offers
    shorter = next(one for one in offers if "ontext" in one.text())
    shorter.click()
    qtbot.waitUntil(lambda: not dialog.does_not_fit, timeout=10_000)
    assert 1024 <= dialog.files().settings.context_length < 32_768


def test_a_bar_that_overflows_says_what_it_needs(qtbot: QtBot) -> None:
    bar = MemoryBar()
    qtbot.addWidget(bar)
    bar.show_memory("Memory", [Segment("Target", 9_000_000_000, 0), Segment("nothing", 0, 1)], 8_000_000_000)
    assert not bar.fits
    assert bar.taken == 9_000_000_000
    assert [one.name for one in bar._segments] == ["Target"]
    assert bar.accessibleName() == "Memory: Target 9 GB; 8 GB free"


def test_a_bar_becomes_higher_when_it_becomes_narrow(qtbot: QtBot) -> None:
    window, bar = QWidget(), MemoryBar()
    qtbot.addWidget(window)
    column(bar, None, on=window)
    segments = [Segment(f"part {number}", 10**9, number % 6) for number in range(7)]
    bar.show_memory("A GPU with a long name", segments, 5 * 10**9)
    window.show()
    heights = []
    for width in (900, 400, 200):
        window.resize(width, 400)
        qtbot.waitUntil(lambda: bar.height() == bar.heightForWidth(bar.width()))
        assert not bar.grab().isNull()
        heights.append(bar.heightForWidth(width))
    assert heights == sorted(heights)  # the narrower, the more lines
