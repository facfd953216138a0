"""Shows in the top bar and the speed panel what the engine does, whichever chat it is for."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot

from app import paths
from app.models.measurements import FILE_NAME, Measurements
from app.protocol.events import GenerationFinished, PairLoaded
from app.protocol.options import Sampling
from app.ui.chat.answer_queue import AnswerQueue
from app.ui.chat.live_answer import LiveAnswer
from app.ui.engine.baseline import Baseline
from app.ui.engine.client import EngineClient, EngineExit, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import pair_details, pair_title, recent_title
from app.ui.models.coordinator import ModelsCoordinator
from app.ui.notices import NoticeList
from app.ui.shell.main_window import MainWindow
from app.ui.shell.top_bar import state_text


class SpeedWiring(QObject):
    """One for a main window."""

    def __init__(
        self,
        window: MainWindow,
        engine: EngineClient,
        pair_loader: PairLoader,
        queue: AnswerQueue,
        models: ModelsCoordinator,
        notice_list: NoticeList,
        sampling: Callable[[], Sampling],
        is_served: Callable[[int], bool],
        parent: QObject | None = None,
    ) -> None:
        """``sampling``: how tokens are drawn in the chat that is shown. ``is_served``: whether a request of the engine
        is another program's, of which the panel says nothing.
        """
        super().__init__(parent)
        self._window = window
        self._engine = engine
        self._pair_loader = pair_loader
        self._notice_list = notice_list
        self._sampling = sampling
        self._is_served = is_served
        self._baseline = Baseline(Measurements(paths.data_dir() / FILE_NAME), self)
        self._progress = 0.0
        self._live: LiveAnswer | None = None
        """The latest answer."""
        panel = window.speed_panel
        engine.state_changed.connect(self._on_engine_state_changed)
        engine.engine_exited.connect(self._on_engine_exited)
        engine.generation_finished.connect(self._on_generation_finished)
        pair_loader.load_progressed.connect(self._on_load_progressed)
        pair_loader.pair_refused.connect(self._show_head)
        pair_loader.measuring_ended.connect(lambda: panel.plain_speed.set_measuring(False))
        pair_loader.plain_speed_measured.connect(self._on_plain_speed_measured)
        models.plain_speed_measured.connect(self._on_plain_speed_measured)
        queue.begun.connect(self._on_answer_begun)
        self._on_engine_state_changed(engine.state())

    def close(self) -> None:
        self._baseline.close()

    def show_pair(self, pair: PairLoaded | None) -> None:
        """Another pair is loaded, or none any more."""
        files = self._pair_loader.files()
        self._window.top_bar.set_pair(pair_title(pair) or recent_title(files), pair_details(pair))
        self._window.speed_panel.set_pair(pair, is_remote=self._pair_loader.is_remote())
        self._show_head()

    @Slot()
    def _show_head(self) -> None:
        files = self._pair_loader.files()
        if files is not None and self._pair_loader.remote() is None:
            self._window.speed_panel.show_head(files.head, for_once=files.for_once)

    @Slot(object)
    def _on_engine_exited(self, ended: EngineExit) -> None:
        self._window.speed_panel.set_failure(ended.sentence())

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        self._show_state(state)
        if state is not EngineState.DIED:
            self._window.speed_panel.set_failure(None)

    @Slot(float)
    def _on_load_progressed(self, share: float) -> None:
        self._progress = share
        self._show_state(self._engine.state())

    def _show_state(self, state: EngineState) -> None:
        is_remote = self._pair_loader.is_remote()
        self._window.top_bar.set_state(state, self._progress, is_remote=is_remote)
        self._window.speed_panel.set_engine_state(state_text(state, self._progress, is_remote=is_remote))

    @Slot(object)
    def _on_answer_begun(self, live: LiveAnswer) -> None:
        panel = self._window.speed_panel
        self._live = live
        panel.begin_generation()
        live.rounds_received.connect(panel.add_rounds)
        live.ended.connect(panel.end_generation)

    @Slot(object)
    def _on_generation_finished(self, finished: GenerationFinished) -> None:
        panel = self._window.speed_panel
        if self._is_served(finished.request):
            return
        panel.set_curve(finished.curve)
        if self._live is not None and finished.request == self._live.request:  # and not a comparison's
            panel.set_draft_failure(finished.draft_failure)

    @Slot(float)
    def _on_plain_speed_measured(self, tokens_per_second: float) -> None:
        load, sampling = self._pair_loader.load_settings(), self._sampling()
        self._baseline.record(self._pair_loader.pair(), load, sampling, tokens_per_second)
        self._window.speed_panel.set_plain_speed(tokens_per_second)
        self._notice_list.remove("measure")

    @Slot()
    def refresh_plain_speed(self) -> None:
        """Show the plain speed of what is in use now, where it was measured."""
        load, sampling = self._pair_loader.load_settings(), self._sampling()
        self._baseline.find(self._pair_loader.pair(), load, sampling, self._window.speed_panel.set_plain_speed)
