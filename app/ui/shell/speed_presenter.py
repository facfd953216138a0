"""Shows the engine's state and figures in the top bar and the speed panel, and measures the plain speed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec
from PySide6.QtCore import QObject, Qt, Slot

from app import system
from app.models.measurements import FileKey, PlainKey, PlainSpeed, PlainSpeeds, plain_speeds
from app.protocol.commands import MeasurePlain
from app.protocol.events import Figures, GenerationFailed, GenerationFinished, PairLoaded, PlainMeasured
from app.protocol.options import DrafterChoice, DraftLength, LoadSettings, Sampling, chosen_options
from app.protocol.remote import RemoteModel
from app.ui import notices
from app.ui.chat.conversation import question_to_measure
from app.ui.chat.live_answer import LiveAnswer
from app.ui.context import AppContext
from app.ui.engine import Priority
from app.ui.engine.client import EngineExit, EngineState
from app.ui.engine.pair_names import pair_details, pair_title, recent_title
from app.ui.engine.queue import Job, LastEvent
from app.ui.shell.main_window import MainWindow
from app.ui.shell.top_bar import state_text
from app.ui.widgets.tasks import Lane

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0


class SpeedPresenter(QObject):
    """One for a main window."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self._ctx = ctx
        engine, queue, pair_loader, chats = ctx.engine, ctx.queue, ctx.loader, ctx.chats
        self._window = window
        self._panel = window.speed_panel
        self._engine = engine
        self._queue = queue
        self._pair_loader = pair_loader
        self._chats = chats
        self._notice_list = ctx.notices
        self._baseline = Baseline(plain_speeds(system.data_dir()), self)
        self._progress = 0.0
        self._live: LiveAnswer | None = None
        """The answer that began last."""
        self._measuring: Job | None = None
        engine.state_changed.connect(self._on_engine_state_changed)
        engine.engine_exited.connect(self._on_engine_exited)
        pair_loader.load_progressed.connect(self._on_load_progressed)
        pair_loader.pair_refused.connect(self._show_head)
        pair_loader.pair_changed.connect(self._on_pair_changed)
        queue.answered.connect(self._on_answered)
        queue.changed.connect(self._show_measuring)
        chats.answers.begun.connect(self._on_answer_begun)
        ctx.settings.changed.connect(self.refresh_plain_speed)
        ctx.closing.callback(self._baseline.close)
        self._connect_panel()
        self._on_engine_state_changed(engine.state())

    def _connect_panel(self) -> None:
        ctx, panel, run = self._ctx, self._panel, self._ctx.actions.run
        panel.head.choice_changed.connect(ctx.loader.use_head)
        panel.draft_length.value_changed.connect(self._on_draft_length_changed)
        panel.drafter.choice_changed.connect(self._on_drafter_changed)
        panel.show_drafted.box.clicked.connect(lambda: run("show_drafted"))
        for button in panel.plain_speed.buttons:
            button.clicked.connect(lambda: run("measure_plain"))
        ctx.settings.changed.connect(self._show_settings)
        ctx.loader.pair_changed.connect(self._show_settings)
        ctx.chats.follow(lambda _model: self._show_settings(), settings_changed=self._show_settings)

    # ------------------------------------------------------------ answer settings of the current chat

    @Slot()
    def _show_settings(self) -> None:
        settings, shows = self._chats.answers.settings(self._chats.current.settings), self._ctx.settings.values
        self._panel.set_draft_length(settings.draft_length)
        self._panel.set_drafter(settings.drafter)
        self._panel.show_drafted.box.setChecked(shows.drafted_visible)
        self._window.transcript.set_show_drafted(shows.drafted_visible)

    @Slot(object)
    def _on_draft_length_changed(self, length: DraftLength) -> None:
        self._ctx.settings.values.draft_length = None if length == "auto" else length
        self._ctx.settings.apply()

    @Slot(str)
    def _on_drafter_changed(self, drafter: DrafterChoice) -> None:
        current = self._chats.current
        current.set_settings(msgspec.structs.replace(current.settings, drafter=drafter))

    # ------------------------------------------------------------ events of the engine

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        files = self._pair_loader.files()
        self._window.top_bar.set_pair(pair_title(pair) or recent_title(files), pair_details(pair))
        self._panel.set_pair(pair, is_remote=self._pair_loader.is_remote())
        self._show_head()
        self.refresh_plain_speed()

    @Slot()
    def _show_head(self) -> None:
        files = self._pair_loader.files()
        if files is not None and self._pair_loader.remote() is None:
            self._panel.show_head(files.head, for_once=files.for_once)

    @Slot(object)
    def _on_engine_exited(self, ended: EngineExit) -> None:
        self._panel.set_failure(ended.sentence())

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        self._show_state(state)
        if state is not EngineState.DIED:
            self._panel.set_failure(None)

    @Slot(float)
    def _on_load_progressed(self, share: float) -> None:
        self._progress = share
        self._show_state(self._engine.state())

    def _show_state(self, state: EngineState) -> None:
        is_remote = self._pair_loader.is_remote()
        self._window.top_bar.set_state(state, self._progress, is_remote=is_remote)
        self._panel.set_engine_state(state_text(state, self._progress, is_remote=is_remote))

    @Slot(object)
    def _on_answer_begun(self, live: LiveAnswer) -> None:
        self._live = live
        if live.has_open_calls:  # the user is asked about them first
            live.started.connect(self._panel.begin_generation, Qt.ConnectionType.SingleShotConnection)
        else:
            self._panel.begin_generation()
        live.rounds_received.connect(self._panel.add_rounds)
        live.calls_changed.connect(self._panel.wait_for_tools)
        live.ended.connect(self._on_answer_ended)

    @Slot(object)
    def _on_answer_ended(self, figures: Figures | None) -> None:
        self._live = None  # it holds the whole chat, which may be a temporary one
        self._panel.end_generation(figures)

    @Slot(object, object)
    def _on_answered(self, job: Job, event: LastEvent) -> None:
        """Other programs' answers aren't shown."""
        if isinstance(event, GenerationFinished) and job.priority is not Priority.SERVED:
            self._panel.set_curve(event.curve)
            if self._live is not None and job is self._live.job:  # rather than a comparison's
                self._panel.set_draft_failure(event.draft_failure)

    # ------------------------------------------------------------ speed without a draft

    @Slot()
    def measure(self) -> None:
        """Measure the plain speed on the current chat, when the engine is free for it."""
        if self._measuring is None:
            self._measuring = job = Job(self._measurement, Priority.MEASUREMENT)
            job.answered.connect(self._on_measured)
            job.failed.connect(self._on_failed)
            job.lost.connect(self._end_measuring)
            self._queue.submit(job)

    def stop(self) -> bool:
        """End a measurement; returns whether there was one."""
        if self._measuring is None:
            return False
        if self._queue.cancel(self._measuring):
            self._end_measuring()
        return True

    def is_measuring(self) -> bool:
        """Whether a measurement is running or waiting."""
        return self._measuring is not None

    def _measurement(self) -> MeasurePlain:
        current = self._chats.current
        settings = self._chats.answers.settings(current.settings)
        is_unsent = self._chats.answers.consent.is_needed(current.id, current.messages)
        return MeasurePlain(
            request=0,
            messages=question_to_measure([] if is_unsent else current.messages, settings.system_prompt),
            sampling=settings.sampling,
            private=current.is_temporary,
            thinking=settings.thinking,
        )

    @Slot(object)
    def _on_measured(self, event: PlainMeasured | GenerationFinished) -> None:
        self._end_measuring()
        if isinstance(event, PlainMeasured):
            self.note_plain_speed(event.decode_tokens_per_second)

    @Slot(object)
    def _on_failed(self, failed: GenerationFailed) -> None:
        self._end_measuring()
        self._notice_list.show("measure", notices.plain_text(failed.message))

    @Slot()
    def _end_measuring(self) -> None:
        self._measuring = None
        self._show_measuring()

    @Slot()
    def _show_measuring(self) -> None:
        job = self._measuring
        self._panel.plain_speed.set_measuring(job is not None, waits=job is not None and not job.is_running())

    @Slot(float)
    def note_plain_speed(self, tokens_per_second: float) -> None:
        """A plain speed was measured, here or in a trial."""
        self._baseline.record(
            self._pair_loader.pair(), self._pair_loader.load_settings(), self._sampling(), tokens_per_second
        )
        self._panel.set_plain_speed(tokens_per_second)
        self._notice_list.remove("measure")

    @Slot()
    def refresh_plain_speed(self) -> None:
        """Show the plain speed of what is in use now, if it was measured."""
        pair, load = self._pair_loader.pair(), self._pair_loader.load_settings()
        self._baseline.find(pair, load, self._sampling(), self._panel.set_plain_speed)

    def _sampling(self) -> Sampling:
        """The sampling settings of the current chat."""
        return self._chats.answers.settings(self._chats.current.settings).sampling


class Baseline:
    """Looks up the plain speed of a pair with a sampler. Reads files in a lane."""

    def __init__(self, speeds: PlainSpeeds, owner: QObject) -> None:
        self._speeds = speeds
        self._lane = Lane(owner, "plain speeds")
        self._asked = 0
        self._of_servers: dict[tuple[str, str], float] = {}
        """By address and model, until Slipstream ends: the server's hardware may be different tomorrow."""

    def find(
        self, pair: PairLoaded | None, load: LoadSettings, sampling: Sampling, done: Callable[[float | None], None]
    ) -> None:
        """``done`` gets tokens per second, or ``None`` if not measured; not called once outdated."""
        self._asked += 1
        number = self._asked
        if pair is None or pair.remote is not None:
            done(self._of_servers.get(_served(pair.remote)) if pair and pair.remote else None)
        else:
            self._lane.submit(
                lambda: self._speeds.get(_key(pair, load, sampling)),
                lambda found: done(found.tokens_per_second if found else None) if number == self._asked else None,
                lambda _error: done(None) if number == self._asked else None,
            )

    def record(self, pair: PairLoaded | None, load: LoadSettings, sampling: Sampling, tokens_per_second: float) -> None:
        """Store a measurement; if that fails, it still applies until the process ends."""
        self._asked += 1
        if pair is not None and pair.remote is not None:
            self._of_servers[_served(pair.remote)] = tokens_per_second
        elif pair is not None and tokens_per_second > 0:
            self._lane.submit(
                lambda: self._record(_key(pair, load, sampling), tokens_per_second),
                None,
                lambda error: _log.warning("%s", error),
            )

    def _record(self, key: PlainKey, tokens_per_second: float) -> None:
        self._speeds.add(PlainSpeed(key, tokens_per_second, int(time.time())))

    def close(self) -> None:
        """Write what was recorded, if the disk allows it."""
        self._lane.close(_PATIENCE_SECONDS, finish=True)


def _served(remote: RemoteModel) -> tuple[str, str]:
    return remote.server.address, remote.model


def _key(pair: PairLoaded, load: LoadSettings, sampling: Sampling) -> PlainKey:
    """Raises `KnownError` if the file is gone."""
    options = {name: value for name, value in chosen_options(load).items() if not name.startswith("draft_")}
    return PlainKey(
        **msgspec.structs.asdict(FileKey.of(pair.target.path)),
        context_length=pair.context_length,
        threads=pair.threads,
        gpu_layers=pair.target.gpu_layers,
        kv_type=load.kv_type,
        sampler=msgspec.json.encode(sampling).decode(),
        options=msgspec.json.encode(options).decode() if options else "",
    )
