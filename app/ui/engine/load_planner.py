"""Before a load: reads the memory, plans how to load the pair and whether it fits; keeps the keys of servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.heads import find_projector, is_head_only, projector_bytes
from app.models.machine_memory import MachineMemory, machine_now
from app.models.model_memory import ModelShape, shape_of
from app.models.pairing import compare
from app.models.planner import LoadPlan, Wishes, make_plan
from app.protocol.events import Device, MemoryRead
from app.protocol.options import HeadChoice, LoadSettings
from app.protocol.remote import Connect
from app.settings import Settings
from app.storage.secrets import SecretPlace, SecretStore, backend_name
from app.system import KnownError
from app.ui import notices
from app.ui.engine.client import EngineClient, EngineExit
from app.ui.engine.pair_names import PairFiles
from app.ui.notices import NoticeList
from app.ui.widgets.tasks import Lane

AT_ONCE = 4
"""The number of concurrent reads, so that an unresponsive drive doesn't delay the others."""
_MOST_HEADERS = 4
"""The current pair and the previous one. A vocabulary takes tens of megabytes."""
NO_MEMORY_FOR_IMAGES = "There isn't enough memory for the file with which this model sees images, so it can't see any."
SLOW_MS = 2000
"""Milliseconds before the user is told what the app is waiting for."""


class Headers:
    """Reads headers and caches the last few while their files are unchanged. Safe from any thread."""

    def __init__(self) -> None:
        self._header = lru_cache(_MOST_HEADERS)(_draft_header)

    def read_draft(self, path: str) -> GgufHeader:
        """The header of a loadable model, or of a file with only a head. Raises `KnownError`."""
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return _draft_header(path)  # raises the error
        return self._header(path, status.st_mtime_ns, status.st_size)

    def read(self, path: str) -> GgufHeader:
        """The header of a loadable model. Raises `KnownError`."""
        header = self.read_draft(path)
        check_loadable(header)
        return header


def _draft_header(path: str, *_state: int) -> GgufHeader:
    """``_state``: the file's state, only used as a cache key."""
    header = read_header(path)
    check_loadable(header, as_head=is_head_only(header))
    return header


@dataclass(frozen=True)
class FittedPair:
    """A pair and how to load it."""

    files: PairFiles
    fits: bool = True
    remark: str = ""
    """What the plan had to give up, or why the pair doesn't fit; empty if it is as requested."""
    gpu_bytes: Mapping[str, int] = field(default_factory=dict)
    """The estimated memory on each GPU, by `Device.name`."""
    missing: Path | None = None
    """The first missing file; all else is unknown then."""
    connect: Connect | None = None
    """For a model on a server: the command with its key."""


class MemoryWatch(QObject):
    """Gets the current memory from the engine, which alone sees the GPUs, and remembers it. Signal ``changed``: new
    values arrived.
    """

    changed = Signal()

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._read = MemoryRead()
        self._on_gpus: Mapping[str, int] = {}
        self._waiting: list[Callable[[], None]] = []
        engine.memory_read.connect(self._on_read)
        engine.load_failed.connect(lambda: self.note_loaded({}))
        engine.engine_exited.connect(self._on_exited)

    def devices(self) -> Sequence[Device]:
        """The GPUs, if our own engine has reported them."""
        return self._read.devices

    def machine(self) -> MachineMemory:
        """The current memory. What the loaded pair uses counts as free, because the next one replaces it.

        May be called from any thread.
        """
        read = self._read
        return machine_now(read.devices, released=read.own_bytes, released_gpus=self._on_gpus)

    def note_loaded(self, gpu_bytes: Mapping[str, int]) -> None:
        """`FittedPair.gpu_bytes` of the pair that is being loaded; empty if unknown."""
        self._on_gpus = gpu_bytes

    def refresh(self) -> None:
        """Ask the engine; `changed` follows if it is running."""
        self._engine.read_memory()

    def when_read(self, then: Callable[[], None]) -> None:
        """Start the engine if necessary, ask it, and call ``then`` when it has answered or couldn't."""
        self._waiting.append(then)
        if self._engine.state().has_ended:
            self._engine.start()  # its greeting contains the memory
        else:
            self._engine.read_memory()

    @Slot(object)
    def _on_read(self, read: MemoryRead) -> None:
        self._read = read
        self.changed.emit()
        self._go_on()

    @Slot(object)
    def _on_exited(self, _ended: EngineExit) -> None:
        self._on_gpus = {}
        self._read = MemoryRead(devices=self._read.devices)
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


class ServerKeys:
    """Keys of servers, read outside the window's thread, because a keyring may ask for its password. A key belongs to
    an address as in `app.protocol.remote.Server.address`.
    """

    def __init__(self, owner: QObject) -> None:
        self._store = SecretStore()
        self._lane = Lane(owner, "server keys")

    def get(self, address: str, done: Callable[[str, SecretPlace], None]) -> None:
        """``done`` gets the key (empty if there is none) and where it is stored."""
        store = self._store
        self._lane.submit(lambda: (store.get(address) or "", store.where(address)), lambda found: done(*found))

    def has_keyring(self, done: Callable[[bool], None]) -> None:
        """Whether this system can store keys."""
        self._lane.submit(lambda: backend_name() is not None, done)

    def put(self, address: str, key: str, done: Callable[[], None], failed: Callable[[KnownError], None]) -> None:
        """Store a key, replacing an earlier one; an empty one deletes it."""

        def put() -> None:
            if key:
                self._store.set(address, key)
            elif self._store.get(address):
                self._store.delete(address)

        self._lane.submit(put, lambda _: done(), failed)

    def close(self) -> None:
        """Call nothing back any more."""
        self._lane.close()


class LoadPlanner:
    """Reads headers outside the window's thread and plans with the current ``memory``. Tells the user if a drive is
    slow. ``keys``: those of servers.
    """

    def __init__(self, engine: EngineClient, notice_list: NoticeList, values: Settings, parent: QObject) -> None:
        self.memory = MemoryWatch(engine, parent)
        self.keys = ServerKeys(parent)
        self._notice_list = notice_list
        self._values = values
        self._slow = QTimer(parent, singleShot=True, interval=SLOW_MS)
        self._slow.timeout.connect(lambda: notice_list.show("drive", notices.slow_drive()))
        self._awaited: PairFiles | None = None
        """The latest files, while they are being read."""
        self._headers = Headers()
        self._lane = Lane(parent, "plans", at_once=AT_ONCE)

    def plan(self, files: PairFiles, done: Callable[[FittedPair], None]) -> None:
        """``done`` gets the pair and how best to load it. Files that aren't models are left to the engine to refuse."""
        self.stop_waiting()
        if files.server:
            self.keys.get(files.server, lambda key, _place: done(self._connecting(files, key)))
        else:
            self._awaited = files
            self.memory.when_read(partial(self._read, files, done))

    def _connecting(self, files: PairFiles, key: str) -> FittedPair:
        offline = self._values.offline
        asked = Connect(request=0, address=files.server, key=key, model=files.target, loopback_only=offline)
        return FittedPair(files, connect=asked)

    def close(self) -> None:
        """Call nothing back any more."""
        self._slow.stop()
        self._lane.close()
        self.keys.close()

    def _read(self, files: PairFiles, done: Callable[[FittedPair], None]) -> None:
        if self._lane.is_closed():
            return
        if files is self._awaited:
            self._slow.start()

        def planned(pair: FittedPair) -> None:
            if files is self._awaited:
                self.stop_waiting()
            done(pair)

        self._lane.submit(partial(self._planned, files), planned, lambda _error: planned(FittedPair(files)))

    def stop_waiting(self) -> None:
        """Another pair is loaded without a plan, so the files being read no longer matter."""
        self._awaited = None
        self._slow.stop()
        self._notice_list.remove("drive")

    def _planned(self, files: PairFiles) -> FittedPair:
        """Runs in the lane. Raises `KnownError` if the target isn't a model."""
        if (missing := files.missing()) is not None:
            return FittedPair(files, missing=missing)
        _read_catalog()
        target = self._headers.read(files.target)
        draft: ModelShape | None = None
        if files.draft is not None:
            with contextlib.suppress(KnownError):  # then only the target is loaded
                header = self._headers.read_draft(files.draft)
                draft = shape_of(header) if compare(target, header).fits else None
        shapes = shape_of(target), draft
        is_refused = files.draft is not None and draft is None
        wishes = wishes_of(files.settings, "off" if is_refused else files.head)
        machine = self.memory.machine()
        if (found := find_projector(target)) is None:
            return fitted(files, make_plan(*shapes, machine, wishes), shapes)
        plan, sees = plan_for_images(*shapes, machine, wishes, projector_bytes(found))
        if sees:
            return fitted(replace(files, projector=str(found.path)), plan, shapes)
        pair = fitted(files, plan, shapes)
        return replace(pair, remark=" ".join(filter(None, (pair.remark, NO_MEMORY_FOR_IMAGES))))


def plan_for_images(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes, projector_bytes: int
) -> tuple[LoadPlan, bool]:
    """The plan for a target with a projector, and whether to load the projector: not if something else would be left
    out for it.
    """
    plan = make_plan(target, draft, machine, wishes)
    if not projector_bytes:
        return plan, False
    seeing = make_plan(target, draft, machine, msgspec.structs.replace(wishes, projector_bytes=projector_bytes))
    if plan.fits and (not seeing.fits or (seeing.gives_up and not plan.gives_up)):
        return plan, False
    return seeing, True


def _read_catalog() -> None:
    """Read the catalog early: the window's thread needs its recommended settings as soon as the pair is loaded."""
    from app.models.hub.catalog import load_catalog  # not needed before the first picture

    load_catalog()


def wishes_of(settings: LoadSettings, head: HeadChoice = "auto") -> Wishes:
    """What the settings request; automatic values are left to the plan. The KV type is always a request.

    ``head`` is about a head inside the target. It is ``off`` if there is also a draft that doesn't fit, which the
    engine still gets: then it uses neither.
    """
    return Wishes(
        context_length=settings.context_length or None,
        kv_type=settings.kv_type,
        target_gpu_layers=None if settings.target_gpu_layers < 0 else settings.target_gpu_layers,
        draft_gpu_layers=None if settings.draft_gpu_layers < 0 else settings.draft_gpu_layers,
        batch_size=settings.micro_batch_size,
        head=head,
        expert_layers_on_cpu=None if settings.expert_layers_on_cpu < 0 else settings.expert_layers_on_cpu,
        draft_context_length=settings.draft_context_length or None,
        draft_kv_type=None if settings.draft_kv_type == "auto" else settings.draft_kv_type,
        split_mode=settings.split_mode,
        main_gpu=settings.main_gpu,
        tensor_split=settings.tensor_split,
        draft_device=settings.draft_device,
    )


def fitted(files: PairFiles, plan: LoadPlan, shapes: tuple[ModelShape, ModelShape | None]) -> FittedPair:
    """``files`` with the settings of ``plan``; if it doesn't fit, with those requested."""
    target, draft = shapes
    if not plan.fits:
        return FittedPair(files, fits=False, remark=plan.sentence)
    shortened = not files.settings.context_length and plan.context_length < target.default_context
    settings = msgspec.structs.replace(
        files.settings,
        context_length=plan.context_length if shortened else files.settings.context_length,
        target_gpu_layers=plan.target_gpu_layers,
        draft_gpu_layers=plan.draft_gpu_layers,
        expert_layers_on_cpu=plan.expert_layers_on_cpu or files.settings.expert_layers_on_cpu,
        tensor_split=plan.tensor_split,
        draft_device=plan.draft_device,
    )
    # The engine gets an unsuitable draft, too, so that it can report it.
    keeps_draft = draft is None or (plan.with_head if draft.is_head_only else plan.with_draft)
    gives_up_head = plan.gives_up and not plan.with_head
    return FittedPair(
        replace(
            files,
            settings=settings,
            draft=files.draft if keeps_draft else None,
            head="off" if gives_up_head else files.head,
        ),
        remark=plan.sentence if plan.gives_up else "",
        gpu_bytes={name: parts.total for name, parts in zip(plan.gpu_spaces, plan.estimate.gpus, strict=False)},
    )
