"""The loaded pair: loading it, and restarting it after a crash. No widgets."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app import words
from app.models.names import model_name
from app.protocol.events import LoadFailed, LoadProgressed, MemoryRead, PairLoaded
from app.protocol.options import HeadChoice, LoadSettings
from app.protocol.remote import RemoteModel
from app.settings import Settings
from app.ui import notices
from app.ui.engine.client import CrashTracker, EngineClient, EngineExit, EngineState, ExitCause
from app.ui.engine.load_planner import NO_MEMORY_FOR_IMAGES, FittedPair, LoadPlanner
from app.ui.engine.pair_names import GUIDE_NAME, LoadingMarker, PairFiles, is_guide
from app.ui.notices import Notice, NoticeList

if TYPE_CHECKING:
    from app.models.hub.catalog import CatalogModel

_log = logging.getLogger(__name__)

_STAGES = {"target": (0.0, 0.8), "draft": (0.8, 0.1), "context": (0.9, 0.1), "server": (0.0, 1.0)}
_CRASHES = (ExitCause.ABORTED, ExitCause.CRASHED, ExitCause.EXITED)
ENGINE_NOTICES = ("engine", "load", "draft", "drafting", "template", "images", "blind", "stall", "server")


class PairLoader(QObject):
    """Keeps an engine with a pair in it.

    Attributes:
        planner: Plans loads with the current memory, and has the keys of servers.

    Signals:
        pair_changed: The `PairLoaded` in use, or ``None``.
        load_begun: The engine starts loading a pair.
        load_progressed: The fraction of the load that is done.
        pair_opened: The `PairFiles` of a successful load, to be remembered.
        pair_refused: The pair isn't loaded, and the engine wasn't asked; see `refused`.
        pair_given_up: The current pair is about to be replaced: what the engine was doing is over.
        engine_lost: The engine went away while it may have been busy.
    """

    pair_changed = Signal(object)
    load_begun = Signal()
    load_progressed = Signal(float)
    pair_opened = Signal(object)
    pair_refused = Signal()
    pair_given_up = Signal()
    engine_lost = Signal()

    def __init__(
        self,
        engine: EngineClient,
        notice_list: NoticeList,
        marker: LoadingMarker,
        values: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._notice_list = notice_list
        self._marker = marker
        self.planner = LoadPlanner(engine, notice_list, values, self)
        self._tracker = CrashTracker()
        self._last_exit: EngineExit | None = None
        self._files: PairFiles | None = None
        self._given: PairFiles | None = None
        """What the engine was last told to load."""
        self._refused: PairFiles | None = None
        self._pair: PairLoaded | None = None
        self._load_request = 0
        self._asked = 0
        """The number of the latest load request; plans for earlier ones are ignored."""
        self._is_planning = self._has_failed = False
        self._remark = ""
        """What the load plan had to give up; empty if it is loaded as requested."""
        self._has_gpu = False
        engine.memory_read.connect(self._on_memory_read)
        engine.load_progressed.connect(self._on_load_progressed)
        engine.pair_loaded.connect(self._on_pair_loaded)
        engine.load_failed.connect(self._on_load_failed)
        engine.engine_exited.connect(self._on_engine_exited)
        engine.engine_stalled.connect(self._on_engine_stalled)
        engine.state_changed.connect(self._on_state_changed)

    # ------------------------------------------------------------ state

    def pair(self) -> PairLoaded | None:
        return self._pair

    def files(self) -> PairFiles | None:
        """What is loaded or about to be."""
        return self._files

    def load_settings(self) -> LoadSettings:
        """How it is loaded."""
        return self._files.settings if self._files else LoadSettings()

    def refused(self) -> PairFiles | None:
        """The last request, if it was refused because it doesn't fit or doesn't exist."""
        return self._refused

    def is_remote(self) -> bool:
        """Whether a server's model is in use, or about to be."""
        return self._given is not None and bool(self._given.server)

    def remote(self) -> RemoteModel | None:
        """The server's model in use, if any."""
        return self._pair.remote if self._pair is not None else None

    def is_planning(self) -> bool:
        """Whether a load is still being planned."""
        return self._is_planning

    def bring_back(self) -> None:
        """A message waits: restart a dead engine unless it dies often; tell the user if there is no model."""
        state = self._engine.state()
        if state is EngineState.DIED and self._files is not None and not self._tracker.is_exhausted(time.monotonic()):
            self.restart()
        elif state is EngineState.EMPTY and not (self._is_planning or self._has_failed):
            self._notice_list.show("load", notices.no_model())

    def is_loaded(self, path: str) -> bool:
        """Whether the engine has loaded this file, or is loading it."""
        in_use: tuple[str | None, ...] = ()
        if self._pair is not None:
            in_use = tuple(model.path for model in self._pair.models)
        elif self._files is not None and self._engine.state() is EngineState.LOADING:
            in_use = self._files.target, self._files.draft
        return any(name is not None and Path(name) == Path(path) for name in in_use)

    def report(self) -> str:
        """The report of the last crash; empty if there was none."""
        return self._last_exit.report() if self._last_exit else ""

    # ------------------------------------------------------------ images

    def sees(self) -> bool:
        """Whether the loaded model can see images."""
        return self._pair is not None and self.why_no_images() is None

    def why_no_images(self) -> Notice | None:
        """What to tell the user if the loaded model can't see images; ``None`` if it can, or none is loaded."""
        pair = self._pair
        if pair is not None and pair.remote is not None:
            reason = pair.remote.refused.get("images")
            return notices.plain_text(reason) if reason else None
        if pair is None or pair.projector is not None:
            return None
        model = self.seeing_model()
        size = model.mmproj.size if model is not None and model.mmproj is not None else None
        left_out = NO_MEMORY_FOR_IMAGES if NO_MEMORY_FOR_IMAGES in self._remark else None
        return notices.cannot_see(
            "" if model is None else f"{words.size(size)} to download" if size else "mmproj",
            pair.projector_refused or left_out,
        )

    def seeing_model(self) -> CatalogModel | None:
        """The loaded model's catalog entry, if it can see images."""
        from app.models.hub.catalog import load_catalog  # not needed before the first picture

        return load_catalog().seeing(*self._pair.target.names) if self._pair is not None else None

    # ------------------------------------------------------------ loading

    def open_at_start(self, files: PairFiles) -> None:
        """Load a pair at the start of the app, unless it crashed the app last time."""
        left = self._marker.left_behind()
        self._marker.clear()
        if left is not None and not files.server and (left.target, left.draft) == (files.target, files.draft):
            self._files, self._has_failed = files, True
            self._notice_list.show("load", notices.died_while_loading(_name(files)))
            self._engine.start()
        else:
            self.load(files)

    def load(self, files: PairFiles, *, anyway: bool = False) -> None:
        """Load a pair, replacing the current one; failures are shown as notices.

        A pair that doesn't fit in memory is refused, and nothing changes, unless ``anyway``.
        """
        self._asked += 1
        self._is_planning = self._has_failed = False
        self._refused = None
        if files != self._files:
            self._notice_list.remove("slower")  # a restart measures nothing, so whether it is slower stays unknown
        self._files = files
        self._notice_list.remove(*ENGINE_NOTICES)
        is_bundled = not files.server and is_guide(files.target)
        if self.is_remote() and not files.server:
            self._leave_server()
        if is_bundled and files.missing() is not None:
            self._refuse(notices.guide_missing())
            self._engine.start()
        elif anyway or is_bundled:
            self._load_now(FittedPair(files))
        else:
            number = self._asked
            self._is_planning = True
            self.planner.plan(files, lambda pair: self._on_planned(pair) if number == self._asked else None)

    def _on_planned(self, pair: FittedPair) -> None:
        self._is_planning = False
        if pair.missing is not None:
            self._refuse(notices.file_missing(pair.missing.name, is_loaded=self._pair is not None))
        elif pair.fits:
            self._load_now(pair)
        else:
            self._files = replace(self._files or pair.files, projector=pair.files.projector)  # it may be loaded anyway
            self._refuse(notices.does_not_fit(pair.remark, is_loaded=self._pair is not None))

    def _refuse(self, notice: Notice) -> None:
        """Refuse the pair and leave everything as it is."""
        self._has_failed = True
        self._refused, self._files = self._files, self._given or self._files
        self._notice_list.show("load", notice)
        self.pair_refused.emit()

    def _leave_server(self) -> None:
        """Disconnect from a server first: only our own engine can report this computer's memory for the plan."""
        self._give_up()
        self._given = None
        self.pair_changed.emit(None)
        self._engine.start()

    def _give_up(self) -> None:
        had_pair, self._pair = self._pair is not None, None
        if had_pair:
            self.pair_given_up.emit()
        self.planner.stop_waiting()

    def _load_now(self, pair: FittedPair) -> None:
        self._give_up()
        self._given = self._files
        self._remark = pair.remark
        self.pair_changed.emit(None)  # in any case, because another pair is wanted now
        self.planner.memory.note_loaded(pair.gpu_bytes)
        self.load_begun.emit()
        self.load_progressed.emit(0.0)
        if pair.connect is None:
            self._marker.set(self._files or pair.files)
        self._load_request = self._engine.load(pair.connect or pair.files.command())

    def cancel(self) -> None:
        """Stop loading."""
        if self._engine.state() in (EngineState.STARTING, EngineState.LOADING):
            self._engine.cancel()

    def load_again(self) -> None:
        if self._files is not None:
            self.load(self._files)

    @Slot(str)
    def use_head(self, choice: HeadChoice) -> None:
        """Reload the pair with its MTP head on, off or automatic, which prefers a draft model."""
        if self._files is not None:
            files = replace(self._files, head=choice, for_once=False)
            if files != self._files:
                self.load(files)

    def load_anyway(self) -> None:
        """Load the pair that was refused because it doesn't fit."""
        if self._refused is not None:
            self.load(self._refused, anyway=True)

    def restart(self, *, with_draft: bool = True, on_cpu: bool = False) -> None:
        """Restart the engine and load the pair again; optionally, this time only, without its draft and head, or
        without a GPU.
        """
        self._notice_list.remove(*ENGINE_NOTICES)
        self._set_pair(None)
        self._marker.clear()
        self._engine.restart()
        self.engine_lost.emit()
        if (files := self._files) is not None:
            files = files if with_draft else files.without_draft()
            self.load(files.on_cpu() if on_cpu else files)

    def shutdown(self) -> None:
        self.planner.close()
        self._engine.shutdown()
        self._marker.clear()

    # ------------------------------------------------------------ what the engine reports

    @Slot(object)
    def _on_load_progressed(self, progress: LoadProgressed) -> None:
        if progress.request == self._load_request:
            if progress.stage == "server":
                self._notice_list.show("load", notices.server_loading())
            start, share = _STAGES[progress.stage]
            self.load_progressed.emit(start + share * progress.fraction)

    @Slot(object)
    def _on_pair_loaded(self, pair: PairLoaded) -> None:
        if pair.request != self._load_request:
            return
        _log.info("pair loaded in %.2f s", pair.load_seconds)
        self._marker.clear()
        if self._refused is None:  # otherwise a newer request is still being planned
            self._notice_list.remove(*ENGINE_NOTICES)
        if pair.remote is not None:
            self._note_server(pair.remote)
        self._set_pair(pair)
        if pair.draft_refused:
            self._notice_list.show("draft", notices.draft_refused(pair.draft_refused))
        elif pair.head_refused and not pair.drafting_off and self._given and self._given.draft and not pair.draft:
            # Only for a head in a separate file, which was chosen; for one inside the model the Speed panel says it, to
            # avoid a notice at every load.
            self._notice_list.show("draft", notices.head_refused(pair.head_refused))
        elif self._remark:
            self._notice_list.show("draft", notices.loaded_otherwise(self._remark))
        if pair.projector_refused:
            self._notice_list.show("images", notices.projector_refused(pair.projector_refused))
        self._note_others(pair)
        if self._given is not None:
            self.pair_opened.emit(self._given)

    def _note_others(self, pair: PairLoaded) -> None:
        if pair.template_refused:
            self._notice_list.show("template", notices.template_refused(pair.template_refused))
        if pair.slower:
            self._notice_list.show("slower", notices.slower(pair.slower))

    def _note_server(self, remote: RemoteModel) -> None:
        """Use the server's actual name and address from now on."""
        before, address = self._given, remote.server.address
        if before is not None:
            self._given = replace(before, target=remote.model, server=address)
            if self._files == before:
                self._files = self._given

    @Slot(object)
    def _on_load_failed(self, failed: LoadFailed) -> None:
        if failed.request != self._load_request:
            return
        self._marker.clear()
        self._has_failed = True
        self._set_pair(None)
        self._notice_list.show("load", self._why_not_loaded(failed))

    def _why_not_loaded(self, failed: LoadFailed) -> Notice:
        if self.is_remote():
            return notices.not_connected() if failed.cancelled else notices.server_failed(failed.message, failed.cause)
        return notices.load_canceled() if failed.cancelled else notices.load_failed(failed.message)

    @Slot(float)
    def _on_engine_stalled(self, seconds: float) -> None:
        stalled = notices.server_stalled if self.remote() is not None else notices.engine_stalled
        self._notice_list.show("stall", stalled(seconds))

    @Slot(object)
    def _on_engine_exited(self, ended: EngineExit) -> None:
        had_head = self._pair is not None and self._pair.has_head
        self._marker.clear()
        self._last_exit = ended
        now = time.monotonic()
        self._tracker.record(now)
        what = {
            "had_draft": bool(self._files and self._files.draft) or had_head,
            "crashed_with_gpu": ended.cause in _CRASHES and self._uses_gpu(),
        }
        often = self._tracker.is_exhausted(now) and not self.is_remote()
        if often and ended.cause is not ExitCause.REFUSED:  # which another pair wouldn't solve
            notice = notices.engine_ends_too_often(ended.sentence(), **what)
        else:
            was_answering = ended.state is EngineState.ANSWERING
            notice = notices.engine_ended(ended.sentence(), was_answering=was_answering, **what)
        self._notice_list.remove(*ENGINE_NOTICES)
        self._notice_list.show("engine", notice)
        self._set_pair(None)
        self.engine_lost.emit()

    @Slot(object)
    def _on_memory_read(self, read: MemoryRead) -> None:
        self._has_gpu = bool(read.devices)

    def _uses_gpu(self) -> bool:
        """Whether the engine was told to use a GPU."""
        if self._given is None or self._given.server:
            return False
        return self._has_gpu and self._given.settings != self._given.on_cpu().settings

    @Slot(EngineState)
    def _on_state_changed(self, state: EngineState) -> None:
        if not state.is_busy:
            self._notice_list.remove("stall")

    def _set_pair(self, pair: PairLoaded | None) -> None:
        if pair is not self._pair:
            self._pair = pair
            self.pair_changed.emit(pair)


def _name(files: PairFiles) -> str:
    return GUIDE_NAME if is_guide(files.target) else model_name(files.target)
