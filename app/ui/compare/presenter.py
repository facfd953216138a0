"""Connects the Compare window with the engine and the chat, and decides what may run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QBuffer, QByteArray, QDate, QIODevice, QObject, QStandardPaths, Qt, Signal, Slot
from PySide6.QtGui import QAction, QImage, QImageWriter

from app.compare import report as reports
from app.compare.results import Report
from app.compare.setup import hashed, setup_of
from app.compare.steps import Compared, Task, task_of
from app.compare.wording import up_to_rounding
from app.errors import KnownError
from app.protocol.commands import Generate
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings
from app.protocol.remote import RemoteModel
from app.storage.files import write_export
from app.ui.chat.open_chats import OpenChats
from app.ui.compare import wording
from app.ui.compare.prompt_set import SetChoice
from app.ui.compare.runner import End, Runner
from app.ui.compare.subject import RepeatedAnswer, Snapshot, Subject
from app.ui.compare.tab import FORMATS, CompareTab
from app.ui.compare.window import CompareWindow
from app.ui.compare.wording import Verdict
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import host_of, server_name
from app.ui.engine.queue import EngineQueue, Priority
from app.ui.widgets.questions import ask_where_to_save
from app.ui.widgets.tasks import Lane

_PATIENCE_SECONDS = 5.0
"""How long a file that is being written may take when the window closes."""
_IDLE = {
    EngineState.EMPTY: "No model is loaded.",
    EngineState.STOPPED: "The engine isn't running.",
    EngineState.DIED: "The engine isn't running. The main window says why and can restart it.",
}
_WAITS = {
    Priority.CHAT: "Starts when the answer in the chat has finished.",
    Priority.MEASUREMENT: "Starts after the measurement.",
}
_WAITS_FOR_PAIR, _WAITS_A_MOMENT = "Starts when the pair is loaded.", "Starts when the engine has stopped."


class ComparePresenter(QObject):
    """One for a main window.

    Attributes:
        window: The Compare window.
        runner: Does the work.

    Signals:
        exported: A file was written, or couldn't be.
    """

    exported = Signal()

    def __init__(
        self,
        engine: EngineClient,
        queue: EngineQueue,
        pair_loader: PairLoader,
        chats: OpenChats,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._queue = queue
        self._pair_loader = pair_loader
        self._chats = chats
        self._subject: Subject | None = None
        self._result: tuple[Compared, Snapshot] | None = None
        """What the tab "One answer" shows."""
        self._begun: tuple[Task, SetChoice | None] | None = None
        """The comparison that is running: its first task and its prompt set; until there is `_snapshot`."""
        self._snapshot: Snapshot | None = None
        """The setup of that comparison; ``None`` before its first run."""
        self._set_snapshot: Snapshot | None = None
        self.runner = Runner(engine, queue, self)
        self.runner.may_ask = self._may_ask
        self._exports = Lane(self, "export")
        self._counting = Lane(self, "compared texts")
        self._status = self._sentence = ""
        self.window = CompareWindow()
        self._tabs: tuple[CompareTab, CompareTab] = self.window.one, self.window.many
        self._connect()
        self._connect_window()
        self._refresh()

    # ------------------------------------------------------------ what the main window asks for

    @Slot()
    def compare_last(self) -> None:
        """Compare the last answer of the chat that is shown."""
        answers = [message for message in self._chats.current.messages if message.role == "assistant"]
        if answers:
            self.compare_answer(answers[-1].id)
        else:
            self.window.show_tab(self.window.one)
            if self._subject is None:
                self.window.one.show_nothing(wording.NO_ANSWER)

    @Slot(str)
    def compare_answer(self, message_id: str) -> None:
        """Write an answer of the shown chat again, without and with a draft."""
        branch = list(self._chats.current.messages)
        place = next((place for place, one in enumerate(branch) if one.id == message_id), None)
        if place is not None:
            self._take(Subject(branch[: place + 1], self._chats.current.is_temporary))

    @Slot()
    def compare_prompts(self) -> None:
        """Show the tab for a set of prompts; the user starts it."""
        self.window.show_tab(self.window.many)

    def forget_chat(self, chat_id: str) -> None:
        """The chat was deleted: remove everything of it from the window."""
        if self._subject is None or self._subject.chat_id != chat_id:
            return
        if self.window.one.is_running():
            self.runner.stop()
        if not self.window.many.is_running():
            self._begun = None
        self._subject = self._result = None
        self.window.one.show_nothing(wording.CHAT_DELETED)

    @Slot(object)
    def _on_chat_left(self, _shown: object) -> None:
        subject = self._subject
        if subject is not None and subject.is_private and subject.chat_id is not None:
            self.forget_chat(subject.chat_id)

    @Slot()
    def close(self) -> None:
        """The main window is closed."""
        self.runner.stop()
        self._exports.close(_PATIENCE_SECONDS)
        self.window.close()
        self.window.deleteLater()
        self.deleteLater()

    # ------------------------------------------------------------ wiring

    def _connect(self) -> None:
        runner = self.runner
        self._queue.changed.connect(self._show_waiting)
        self._chats.current_changed.connect(self._on_chat_left)
        self._engine.state_changed.connect(self._refresh)
        self._engine.state_changed.connect(self._show_waiting)
        self._pair_loader.pair_changed.connect(self._refresh)
        runner.run_begun.connect(self._on_run_begun)
        runner.compared.connect(self._on_compared)

    def _connect_window(self) -> None:
        one, many, runner = self.window.one, self.window.many, self.runner
        self.window.closed.connect(runner.stop)
        one.last_button.clicked.connect(self.compare_last)
        one.footer.run_button.clicked.connect(self._start_one)
        one.footer.export_menu.triggered.connect(self._export_one)
        many.footer.run_button.clicked.connect(self._start_set)
        many.footer.export_menu.triggered.connect(self._export_set)
        many.table.opened.connect(self._open)
        runner.run_begun.connect(one.begin_run)
        runner.prompt_progressed.connect(one.set_prompt_progress)
        runner.rounds_received.connect(one.add_rounds)
        runner.run_ended.connect(one.end_run)
        runner.left_out.connect(many.add_skipped)
        for tab in self._tabs:
            tab.footer.stop_button.clicked.connect(runner.stop)
            runner.draft_failed.connect(tab.note_draft_failure)
            runner.ended.connect(tab.end)
        runner.ended.connect(self._refresh)

    # ------------------------------------------------------------ one answer

    def _asked(self) -> RepeatedAnswer | None:
        """How the answer is requested from the pair that is loaded now."""
        now = self._chats.answers.settings(self._chats.current.settings)
        return self._subject.asked(now, self._pair_loader.pair()) if self._subject is not None else None

    def _take(self, subject: Subject) -> None:
        """Make something else the subject of the tab, and compare it unless a set is running."""
        window = self.window
        window.show_tab(window.one)
        if window.one.is_running():
            self.runner.stop()
        self._subject, self._result = subject, None
        if (found := self._asked()) is None:
            self._subject = None
            window.one.show_nothing(wording.NO_ANSWER)
            return
        window.one.prepare(found)
        if why := self._why_not(of_set=False):
            window.one.say(Verdict(why))
        else:
            self._start_one()

    @Slot()
    def _start_one(self) -> None:
        found = self._asked()
        if found is None or self._why_not(of_set=False):
            return
        self._result = None
        self._begin(found.task)
        self.window.one.begin(found)
        self.runner.start_one(found.task)
        self._refresh()

    # ------------------------------------------------------------ a set

    @Slot()
    def _start_set(self) -> None:
        choice = self.window.many.choice()
        if self._why_not(of_set=True) or not choice.prompts:
            return
        command = self._set_command(choice.longest)
        first = command.seed or 0
        tasks = [task_of(prompt, command, first + turn) for turn in range(choice.repeats) for prompt in choice.prompts]
        self._begin(tasks[0], choice)
        self.window.many.begin(len(tasks))
        self.runner.start_set(tasks)
        self._refresh()

    def _set_command(self, longest: int) -> Generate:
        """Like answers in the chat now, but always with a draft, and each prompt unchanged."""
        now = self._chats.answers.settings(self._chats.current.settings)
        if now.draft_length == 0 or now.drafter == "none":
            now = replace(now, draft_length="auto", drafter="auto")
        return replace(now, max_tokens=longest, stop=()).command([])

    @Slot(int)
    def _open(self, number: int) -> None:
        """Show one comparison of the set in full."""
        snapshot, window = self._set_snapshot, self.window
        if window.one.is_running():
            window.many.footer.set_status("Another answer is being compared. Open this one when that has finished.")
            return
        assert snapshot is not None
        compared = window.many.results[number]
        self._subject = Subject(task=compared.task)
        self._result = compared, snapshot
        window.one.show_compared(compared, on_server=bool(snapshot.setup.servers))
        window.show_tab(window.one)

    # ------------------------------------------------------------ what the runner says

    def _begin(self, first: Task, choice: SetChoice | None = None) -> None:
        self._show_status("")
        self._begun, self._snapshot = (first, choice), None

    @Slot()
    def _on_run_begun(self) -> None:
        if self._snapshot is not None:
            return
        assert self._begun is not None
        try:
            self._snapshot = self._snapshot_of(*self._begun)
            self._begun = None
        except KnownError as error:
            self.runner.give_up(str(error))

    def _snapshot_of(self, first: Task, choice: SetChoice | None) -> Snapshot:
        """Raises `KnownError` if the file of prompts is gone."""
        pair, files = self._pair_loader.pair(), self._pair_loader.files()
        assert pair is not None
        setup = setup_of(
            engine=self._engine.description(),
            devices=self._engine.devices(),
            pair=pair,
            settings=files.settings if files else LoadSettings(),
            command=first.command,
            repeat=choice.repeats if choice else 1,
            prompt_file=choice.path if choice else None,
        )
        return Snapshot(setup, pair)

    @Slot(object)
    def _on_compared(self, compared: Compared) -> None:
        assert self._snapshot is not None
        window, pair, setup = self.window, self._snapshot.pair, self._snapshot.setup
        self._counting.submit(partial(up_to_rounding, pair, setup, [compared.comparison]), self._on_counted)
        if window.many.is_running():
            self._set_snapshot = self._snapshot
            window.many.add_compared(compared)
        else:
            self._result = compared, self._snapshot
            window.one.show_result(compared)

    def _on_counted(self, sentence: str) -> None:
        if sentence and self._status in ("", self._sentence):  # nothing newer is said
            self._sentence = sentence
            self._show_status(sentence)

    # ------------------------------------------------------------ what may run

    @Slot()
    def _refresh(self) -> None:
        self.window.one.set_blocked(self._why_not(of_set=False))
        self.window.many.set_blocked(self._why_not(of_set=True))

    def _why_not(self, *, of_set: bool) -> str:
        """Why no comparison can be started now; empty if one can."""
        if self.runner.is_running():
            if self.window.many.is_running() is of_set:
                return ""
            return (
                "An answer is being compared." if of_set else "A prompt set is running. Try again when it has finished."
            )
        if not self._exports.is_idle():
            return "The export is being written. Reading the model files would distort the timings."
        pair = self._pair_loader.pair()
        if pair is not None and pair.remote is not None and (why := self._why_not_remote(pair.remote, of_set=of_set)):
            return why
        if pair is not None and pair.drafting_off is not None:
            return f"There is nothing to compare. {pair.drafting_off}"
        return _IDLE.get(self._engine.state(), "")

    def _why_not_remote(self, remote: RemoteModel, *, of_set: bool) -> str:
        """The same for a model on a server."""
        if not remote.can_switch_drafting:
            return wording.NO_SWITCH.format(server=server_name(remote.server))
        subject, consent = self._subject, self._chats.answers.consent
        if not of_set and subject is not None and consent.is_needed(subject.chat_id or "", subject.branch):
            return wording.NOT_SENT.format(host=host_of(remote.server.address))
        return ""

    def _may_ask(self) -> End | None:
        """Checked before anything is sent: another model may have been loaded while this waited."""
        remote, of_set = self._pair_loader.remote(), self.window.many.is_running()
        if remote is not None and (why := self._why_not_remote(remote, of_set=of_set)):
            return End("failed", why)
        return None

    @Slot()
    def _show_waiting(self) -> None:
        before, waits = self.runner.waits_for(), ""
        if before is not None:
            has_pair = self._engine.state().has_pair
            waits = (
                _WAITS.get(before[0], _WAITS_A_MOMENT) if before else _WAITS_A_MOMENT if has_pair else _WAITS_FOR_PAIR
            )
        for tab in self._tabs:
            tab.set_waiting(waits)

    # ------------------------------------------------------------ exports

    @Slot(QAction)
    def _export_one(self, action: QAction) -> None:
        if self._result is not None:
            compared, snapshot = self._result
            report = Report(setup=snapshot.setup, comparisons=[compared.comparison], planned=1)
            self._export(self.window.one, action.data(), snapshot.pair, report)

    @Slot(QAction)
    def _export_set(self, action: QAction) -> None:
        many, snapshot = self.window.many, self._set_snapshot
        if snapshot is not None:
            report = Report(
                setup=snapshot.setup, comparisons=many.comparisons(), planned=many.planned, skipped=many.skipped
            )
            self._export(many, action.data(), snapshot.pair, report)

    def _export(self, tab: CompareTab, name: str, pair: PairLoaded, report: Report) -> None:
        """Ask where to save it in this format, then do so."""
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        proposal = f"comparison-{QDate.currentDate().toString(Qt.DateFormat.ISODate)}{FORMATS[name]}"
        picture = tab.picture() if name == "PNG" else None

        def export(path: Path) -> None:
            if self._exports.is_idle():
                self._show_status("" if picture else "Reading the model files to hash them…")
                self._exports.submit(
                    partial(_write, report, pair, picture, path, self._exports.is_closed),
                    lambda _: self._on_exported(path.name, ""),
                    lambda error: self._on_exported(path.name, str(error)),
                )
                self._refresh()

        ask_where_to_save(self.window, f"Export as {name}", Path(folder) / proposal, name, export)

    def _on_exported(self, name: str, failure: str) -> None:
        self._refresh()
        self._show_status(failure or f"Exported to {name}.", "bad" if failure else "quiet")
        self.exported.emit()

    def _show_status(self, text: str, role: str = "quiet") -> None:
        self._status = text
        for tab in self._tabs:
            tab.footer.set_status(text, role)


def _write(
    report: Report, pair: PairLoaded, picture: QImage | None, path: Path, should_stop: Callable[[], bool]
) -> None:
    """Runs in a lane, because hashing the model files takes time."""
    if picture is not None:
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        QImageWriter(buffer, QByteArray(b"PNG")).write(picture)
        data = bytes(buffer.data().data())
    else:
        report = msgspec.structs.replace(report, setup=hashed(report.setup, pair, should_stop))
        data = reports.encoded(report, path.suffix.lower())
    try:
        write_export(path, data)
    except OSError as error:
        raise KnownError(f"The comparison couldn't be exported to {path}: {error.strerror or error}.") from error
