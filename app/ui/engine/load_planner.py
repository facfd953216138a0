"""Before a pair is loaded: whether it fits the memory there is now, and how it is best loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.errors import KnownError
from app.models.header_cache import AT_ONCE, Headers
from app.models.memory_estimate import ModelShape, shape_of
from app.models.pairing import compare
from app.models.planner import LoadPlan, Wishes, make_plan
from app.protocol.messages import LoadSettings
from app.ui.engine.memory_watch import MemoryWatch
from app.ui.engine.pair_files import PairFiles
from app.ui.widgets.tasks import Lane

SLOW_MS = 2000
"""After which the user is told what is being waited for."""


@dataclass(frozen=True)
class FittedPair:
    """A pair as it is to be loaded."""

    files: PairFiles
    fits: bool = True
    remark: str = ""
    """What the plan gave up, or why it does not fit; empty where all is as wished."""
    gpu_bytes: int = 0
    """What it will take there."""
    missing: Path | None = None
    """The first file that is not there; nothing else is known then."""


class _MissingError(KnownError):
    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name} is not there.")
        self.path = path


class LoadPlanner(QObject):
    """Reads headers beside the window's thread and plans with the memory as it is then.

    Signals:
        waits_for_drive: Reading the files takes long, or does no longer.
    """

    waits_for_drive = Signal(bool)

    def __init__(self, watch: MemoryWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._watch = watch
        self._slow = QTimer(self, singleShot=True, interval=SLOW_MS)
        self._slow.timeout.connect(lambda: self.waits_for_drive.emit(True))
        self._awaited: PairFiles | None = None
        """The latest files, until they are read."""
        self._headers = Headers()
        self._lane = Lane(self, "plans", at_once=AT_ONCE)

    def plan(self, files: PairFiles, done: Callable[[FittedPair], None]) -> None:
        """``done`` gets the pair as it is best loaded. A file that is no model is left to the engine to refuse."""
        self._awaited = files
        self._watch.when_read(partial(self._read, files, done))

    def close(self) -> None:
        """Answer nothing any more."""
        self._slow.stop()
        self._lane.close()

    def _read(self, files: PairFiles, done: Callable[[FittedPair], None]) -> None:
        if self._lane.is_closed():
            return
        if files is self._awaited:
            self._slow.start()

        def read(shapes: tuple[ModelShape, ModelShape | None]) -> None:
            self._end_waiting(files)
            self._on_shapes(files, shapes, done)

        def failed(error: KnownError) -> None:
            self._end_waiting(files)
            done(FittedPair(files, missing=error.path if isinstance(error, _MissingError) else None))

        self._lane.submit(partial(self._shapes, files), read, failed)

    @Slot()
    def stop_waiting(self) -> None:
        """Another pair is loaded without a plan: whether these files are read makes no difference any more."""
        self._awaited = None
        self._slow.stop()
        self.waits_for_drive.emit(False)

    def _end_waiting(self, files: PairFiles) -> None:
        if files is self._awaited:
            self.stop_waiting()

    def _shapes(self, files: PairFiles) -> tuple[ModelShape, ModelShape | None]:
        if (missing := files.missing()) is not None:
            raise _MissingError(missing)
        target = self._headers.read(files.target)
        if files.draft is None:
            return shape_of(target), None
        try:
            draft = self._headers.read(files.draft)
        except KnownError:
            return shape_of(target), None  # the target alone is loaded
        return shape_of(target), shape_of(draft) if compare(target, draft).fits else None

    def _on_shapes(
        self, files: PairFiles, shapes: tuple[ModelShape, ModelShape | None], done: Callable[[FittedPair], None]
    ) -> None:
        target, draft = shapes
        plan = make_plan(target, draft, self._watch.machine(), wishes_of(files.settings))
        done(fitted(files, plan, shapes))


def wishes_of(settings: LoadSettings) -> Wishes:
    """What the settings ask for; automatic values are the plan's to choose. The KV type is always a choice."""
    return Wishes(
        context_length=settings.context_length or None,
        kv_type=settings.kv_type,
        target_gpu_layers=None if settings.target_gpu_layers < 0 else settings.target_gpu_layers,
        draft_gpu_layers=None if settings.draft_gpu_layers < 0 else settings.draft_gpu_layers,
        batch_size=settings.micro_batch_size,
    )


def fitted(files: PairFiles, plan: LoadPlan, shapes: tuple[ModelShape, ModelShape | None]) -> FittedPair:
    """``files`` as ``plan`` has it; what does not fit is left as it was wished for."""
    target, draft = shapes
    if not plan.fits:
        return FittedPair(files, fits=False, remark=plan.sentence)
    shortened = not files.settings.context_length and plan.context_length < target.default_context
    settings = msgspec.structs.replace(
        files.settings,
        context_length=plan.context_length if shortened else files.settings.context_length,
        target_gpu_layers=plan.target_gpu_layers,
        draft_gpu_layers=plan.draft_gpu_layers,
    )
    gave_up = shortened or (draft is not None and not plan.with_draft)
    # A draft that does not fit its target stays, for the engine to say so.
    keeps_draft = plan.with_draft or draft is None
    return FittedPair(
        replace(files, settings=settings, draft=files.draft if keeps_draft else None),
        remark=plan.sentence if gave_up else "",
        gpu_bytes=plan.estimate.gpu.total,
    )
