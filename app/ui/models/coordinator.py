"""What the main window has to do with models: the way to their windows, trials of new pairs, proposals, notices."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app import paths
from app.models.text import size_text
from app.models.trials import Trial
from app.protocol.messages import PairLoaded
from app.settings import Pair, Settings
from app.ui.chat.session import ChatSession
from app.ui.engine.interface import Engine, EngineState
from app.ui.engine.load_planner import LoadPlanner
from app.ui.engine.memory_watch import MemoryWatch
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import PairFiles, is_guide
from app.ui.models.launcher import ModelsLauncher
from app.ui.shell import notices
from app.ui.shell.main_window import MainWindow
from app.ui.shell.notices import NoticeList
from app.ui.widgets.tasks import Lane

if TYPE_CHECKING:
    from app.models.hub.catalog import CatalogPair
    from app.ui.compare.trial import PairTrial

QUIET_MS = 3000
"""After the start, before what can wait begins."""


class ModelsCoordinator(QObject):
    """One for a main window.

    Attributes:
        launcher: The way to the windows.
        memory: What is free.

    Signals:
        open_requested: Show a target, and a draft or an empty text, in the Open models dialog.
        settings_changed: Something in the settings is to be saved.
        plain_speed_measured: A trial measured the plain speed, tokens per second.
    """

    open_requested = Signal(str, str)
    settings_changed = Signal()
    plain_speed_measured = Signal(float)

    def __init__(
        self,
        window: MainWindow,
        engine: Engine,
        pair_loader: PairLoader,
        session: ChatSession,
        notice_list: NoticeList,
        values: Settings,
        save: Callable[[], Future[None]],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._engine = engine
        self._pair_loader = pair_loader
        self._session = session
        self._notice_list = notice_list
        self._values = values
        self._trial: PairTrial | None = None
        self._proposal: CatalogPair | None = None
        self._downloaded: Pair | None = None
        self._lane = Lane(self, "imports")
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.timeout.connect(self._on_quiet)
        self.memory = MemoryWatch(engine, self)
        self._planner = LoadPlanner(self.memory, self)
        self._planner.waits_for_drive.connect(self._on_waits_for_drive)
        pair_loader.plan_with(self._planner.plan)
        pair_loader.load_begun.connect(self.memory.note_loaded)
        pair_loader.pair_given_up.connect(self._planner.stop_waiting)
        self.launcher = ModelsLauncher(values, save, self.memory.machine, self._is_loaded, self)
        self.launcher.open_requested.connect(self.open_requested)
        self.launcher.pair_requested.connect(self.load)
        self.launcher.settings_changed.connect(self.settings_changed)
        self.launcher.downloaded.connect(self._on_downloaded)
        self.launcher.needs_user.connect(self._on_needs_user)
        pair_loader.pair_changed.connect(self._on_pair_changed)
        window.transcript.commands.get_proposed = self._on_proposal_accepted

    def begin(self) -> None:
        """The window is there: what can wait begins a little later."""
        self._quiet.start()

    def close(self) -> None:
        """The main window is closed."""
        self._quiet.stop()
        if self._trial is not None:
            self._trial.close()
        self._lane.close()
        self._planner.close()
        self.launcher.close()

    @Slot(str, str)
    def load(self, target: str, draft: str = "") -> None:
        """Load a pair as the settings want it."""
        self._pair_loader.load(PairFiles(target, draft or None, self._values.load))
        self._window.raise_window()

    def is_trying(self) -> bool:
        """Whether a new pair is being tried out."""
        return self._trial is not None and self._trial.is_running()

    @Slot()
    def put_off_trial(self) -> None:
        """Leave the engine to something else for a while."""
        if self._trial is not None and self._trial.is_running():
            self._trial.put_off()

    def load_downloaded(self) -> None:
        """Load what was downloaded last."""
        self._notice_list.remove("downloaded")
        if self._downloaded is not None:
            self.load(self._downloaded.target, self._downloaded.draft or "")

    def show_downloads(self) -> None:
        self._notice_list.remove("download")
        self.launcher.presenter().show_downloads()

    # ------------------------------------------------------------ pairs

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        if self._trial is not None:
            self._trial.set_pair(None)
        if pair is None or is_guide(pair.target.path):
            return
        self.launcher.note_use(pair)
        self._trials().set_pair(pair)
        self._window.transcript.set_proposal("")

    def _trials(self) -> PairTrial:
        if self._trial is None:
            from app.ui.compare.trial import PairTrial

            self._trial = PairTrial(self._engine, self._session, self.launcher.library().trials, self)
            self._trial.tried.connect(self._on_tried)
        return self._trial

    @Slot(object)
    def _on_tried(self, trial: Trial) -> None:
        self.plain_speed_measured.emit(trial.plain_speed)
        self.launcher.refresh()

    @Slot(bool)
    def _on_waits_for_drive(self, waits: bool) -> None:
        if waits:
            self._notice_list.show("drive", notices.slow_drive())
        else:
            self._notice_list.remove("drive")

    def _is_loaded(self, path: str) -> bool:
        """Or is being loaded."""
        pair, files = self._pair_loader.pair(), self._pair_loader.files()
        in_use: tuple[str | None, ...] = ()
        if pair is not None:
            in_use = pair.target.path, pair.draft.path if pair.draft else None
        elif files is not None and self._engine.state() is EngineState.LOADING:
            in_use = files.target, files.draft
        return any(name is not None and Path(name) == Path(path) for name in in_use)

    # ------------------------------------------------------------ the first start, and downloads

    @Slot()
    def _on_quiet(self) -> None:
        self._lane.submit(self.launcher.has_downloads, self._on_downloads_known)
        files = self._pair_loader.files()
        if not self._values.guide_kept and files is not None and is_guide(files.target):
            self._lane.submit(self._propose, self._show_proposal)

    def _on_downloads_known(self, there_are: bool) -> None:
        if there_are:
            self.launcher.go_on_downloading()

    def _propose(self) -> CatalogPair | None:
        """The best pair for this machine, unless it was downloaded before."""
        from app.models.hub.catalog import load_catalog
        from app.models.origins import FILE_NAME, Origins

        pair = load_catalog().propose(self.memory.machine())
        known = {origin.repository for origin in Origins(paths.data_dir() / FILE_NAME).all().values()}
        return pair if pair is not None and pair.target.repository not in known else None

    def _show_proposal(self, pair: CatalogPair | None) -> None:
        files = self._pair_loader.files()
        if pair is not None and files is not None and is_guide(files.target) and not self._values.guide_kept:
            self._proposal = pair
            self._window.transcript.set_proposal(f"{pair.title} ({size_text(pair.size)} to download)")

    @Slot()
    def _on_proposal_accepted(self) -> None:
        if self._proposal is not None:
            self.launcher.presenter().get_pair(self._proposal)

    @Slot(str, object)
    def _on_downloaded(self, title: str, pair: Pair) -> None:
        self._downloaded = pair
        self._window.transcript.set_proposal("")
        self._notice_list.remove("download")
        self._notice_list.show("downloaded", notices.downloaded(title))

    @Slot(str, str)
    def _on_needs_user(self, title: str, message: str) -> None:
        self._notice_list.show("download", notices.download_stopped(title, message))
