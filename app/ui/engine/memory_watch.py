"""The memory of this machine as the engine and the system see it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from app.models.machine_memory import MachineMemory, machine_now
from app.protocol.messages import MemoryRead
from app.ui.engine.interface import Engine, EngineExit


class MemoryWatch(QObject):
    """Asks the engine, whose GPUs only it can see, and remembers what it said.

    Signals:
        changed: The engine has told anew.
    """

    changed = Signal()

    def __init__(self, engine: Engine, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._read = MemoryRead()
        self._on_gpu = 0
        self._waiting: list[Callable[[], None]] = []
        engine.memory_read.connect(self._on_read)
        engine.load_failed.connect(lambda: self.note_loaded(0))
        engine.engine_exited.connect(self._on_exited)

    def machine(self) -> MachineMemory:
        """The memory there is now. What the loaded pair holds counts as free: the next one takes its place."""
        return machine_now(self._read.devices, released=self._read.own_bytes, released_gpu=self._on_gpu)

    @Slot(object)
    def note_loaded(self, gpu_bytes: int) -> None:
        """So many bytes of the GPUs the pair takes that is being loaded, by its estimate; 0 where that is not known."""
        self._on_gpu = gpu_bytes

    def refresh(self) -> None:
        """Ask the engine; `changed` answers if it runs."""
        self._engine.read_memory()

    def when_read(self, then: Callable[[], None]) -> None:
        """Start the engine if need be, ask it, and call ``then`` when it has answered or could not."""
        self._waiting.append(then)
        if self._engine.state().has_ended:
            self._engine.start()  # it greets with what it has
        else:
            self._engine.read_memory()

    @Slot(object)
    def _on_read(self, read: MemoryRead) -> None:
        self._read = read
        self.changed.emit()
        self._go_on()

    @Slot(object)
    def _on_exited(self, _ended: EngineExit) -> None:
        self._on_gpu = 0
        self._read = MemoryRead(devices=self._read.devices)
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
