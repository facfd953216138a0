"""The Compare window: two tabs, and what may run in them; chats can be used at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QDate, QSize, QStandardPaths, Qt, Signal, Slot
from PySide6.QtGui import QAction

from app.compare.results import Comparison, Report
from app.compare.setup import fitting
from app.compare.steps import Task, task_of
from app.compare.wording import up_to_rounding
from app.protocol.commands import Generate, generate
from app.protocol.remote import RemoteModel
from app.system import KnownError
from app.ui.compare import wording
from app.ui.compare.one_answer import OneAnswer
from app.ui.compare.prompt_set import DEFAULT_LONGEST, PromptSet
from app.ui.compare.runner import CANNOT_START, End, Runner, SetChoice, Snapshot, Subject
from app.ui.compare.tab import FORMATS, CompareTab
from app.ui.compare.wording import Verdict
from app.ui.context import AppContext
from app.ui.engine.client import EngineState
from app.ui.engine.pair_names import host_of, server_name
from app.ui.engine.queue import wait_for
from app.ui.widgets.questions import ask_where_to_save
from app.ui.widgets.tabbed_window import TabbedWindow
from app.ui.widgets.tasks import Lane

FIRST_SIZE = QSize(960, 760)
MINIMUM_SIZE = QSize(480, 420)
_PATIENCE_SECONDS = 5.0
"""How long a file that is being written may take when the window closes."""


class CompareWindow(TabbedWindow):
    """One for a main window.

    Attributes:
        one, many: The tabs.
        runner: Does the work.

    Signals:
        exported: A file was written, or couldn't be.
    """

    exported = Signal()

    def __init__(self, ctx: AppContext) -> None:
        super().__init__("Compare", FIRST_SIZE, MINIMUM_SIZE)
        self._ctx = ctx
        self._subject: Subject | None = None
        self._result: tuple[Comparison, Snapshot] | None = None
        """What the tab "One answer" shows."""
        self._begun: tuple[Task, SetChoice | None] | None = None
        """The comparison that is running: its first task and its prompt set; until there is `_snapshot`."""
        self._snapshot: Snapshot | None = None
        """The setup of that comparison; ``None`` before its first run."""
        self._set_snapshot: Snapshot | None = None
        self.runner = Runner(ctx.engine, ctx.queue, self, may_ask=self._may_ask)
        self._exports = Lane(self, "export")
        self._counting = Lane(self, "compared texts")
        self._status = self._sentence = ""
        self.one, self.many = OneAnswer(), PromptSet()
        self.tabs.addTab(self.one, "One answer")
        self.tabs.addTab(self.many, "Prompt set")
        self._tabs: tuple[CompareTab, CompareTab] = self.one, self.many
        self._connect_app()
        self._connect_tabs()
        self._show_settings()
        self._refresh()

    # ------------------------------------------------------------ what the main window asks for

    @Slot()
    def compare_last(self) -> None:
        """Compare the last answer of the chat that is shown."""
        answers = [message for message in self._ctx.chats.current.messages if message.role == "assistant"]
        if answers:
            self.compare_answer(answers[-1].id)
        else:
            self.show_tab(self.one)
            if self._subject is None:
                self.one.show_nothing(wording.NO_ANSWER)

    @Slot(str)
    def compare_answer(self, message_id: str) -> None:
        """Write an answer of the shown chat again, without and with a draft."""
        branch = list(self._ctx.chats.current.messages)
        place = next((place for place, one in enumerate(branch) if one.id == message_id), None)
        if place is not None:
            self._take(Subject(branch[: place + 1], self._ctx.chats.current.is_temporary))

    @Slot()
    def compare_prompts(self) -> None:
        """Show the tab for a set of prompts; the user starts it."""
        self.show_tab(self.many)

    @Slot(object)
    def _on_chats_deleted(self, chat_ids: Sequence[str]) -> None:
        if self._subject is not None and self._subject.chat_id in chat_ids:
            self._forget()

    @Slot(object)
    def _on_chat_left(self, _shown: object) -> None:
        if self._subject is not None and self._subject.is_private:
            self._forget()

    def _forget(self) -> None:
        """The chat was deleted: remove everything of it from the window."""
        if self.one.is_running():
            self.runner.stop()
        if not self.many.is_running():
            self._begun = None
        self._subject = self._result = None
        self.one.show_nothing(wording.CHAT_DELETED)

    @Slot()
    def _show_settings(self) -> None:
        self.one.set_show_drafted(self._ctx.settings.values.drafted_visible)

    @Slot()
    def shut_down(self) -> None:
        """The main window is closed."""
        self.runner.stop()
        self._exports.close(_PATIENCE_SECONDS)
        self.close()
        self.deleteLater()

    @Slot()
    def on_escape(self) -> None:
        """Stop what is running, otherwise close the window."""
        if self.runner.is_running():
            self.runner.stop()
        else:
            self.close()

    # ------------------------------------------------------------ wiring

    def _connect_app(self) -> None:
        ctx, runner = self._ctx, self.runner
        ctx.queue.changed.connect(self._show_waiting)
        ctx.chats.current_changed.connect(self._on_chat_left)
        ctx.operations.chats_deleted.connect(self._on_chats_deleted)
        ctx.settings.changed.connect(self._show_settings)
        ctx.engine.state_changed.connect(self._refresh)
        ctx.engine.state_changed.connect(self._show_waiting)
        ctx.loader.pair_changed.connect(self._refresh)
        ctx.closing.callback(self.shut_down)
        runner.run_begun.connect(self._on_run_begun)
        runner.compared.connect(self._on_compared)

    def _connect_tabs(self) -> None:
        one, many, runner = self.one, self.many, self.runner
        self.closed.connect(runner.stop)
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
            tab.footer.close_button.clicked.connect(self.close)
            runner.draft_failed.connect(tab.note_draft_failure)
            runner.ended.connect(tab.end)
        runner.ended.connect(self._refresh)

    # ------------------------------------------------------------ one answer

    def _asked(self) -> tuple[Task, list[str]] | None:
        """How the answer is requested from the pair that is loaded now, and what will be different."""
        return self._subject.asked(self._ctx.loader.pair()) if self._subject is not None else None

    def _take(self, subject: Subject) -> None:
        """Make something else the subject of the tab, and compare it unless a set is running."""
        self.show_tab(self.one)
        if self.one.is_running():
            self.runner.stop()
        self._subject, self._result = subject, None
        if (found := self._asked()) is None:
            self._subject = None
            self.one.show_nothing(wording.NO_ANSWER)
            return
        self.one.prepare(*found, on_server=self._ctx.loader.remote() is not None)
        if why := self._why_not(of_set=False):
            self.one.say(Verdict(why))
        else:
            self._start_one()

    @Slot()
    def _start_one(self) -> None:
        found = self._asked()
        if found is None or self._why_not(of_set=False):
            return
        self._result = None
        self._begin(found[0])
        self.one.begin(*found, on_server=self._ctx.loader.remote() is not None)
        self.runner.start_one(found[0])
        self._refresh()

    # ------------------------------------------------------------ a set

    @Slot()
    def _start_set(self) -> None:
        self._show_drafters()
        choice = self.many.choice()
        if self._why_not(of_set=True) or not choice.prompts:
            return
        command = self._set_command(choice.longest)
        first = command.seed or 0
        tasks = [task_of(prompt, command, first + turn) for turn in range(choice.repeats) for prompt in choice.prompts]
        self._begin(tasks[0], choice)
        self.many.begin(len(tasks) * max(len(choice.drafters), 1), choice)
        self.runner.start_set(tasks, choice.drafters)
        self._refresh()

    def _set_command(self, longest: int) -> Generate:
        """Like answers in the chat now, but always with a draft, and each prompt unchanged."""
        now = self._ctx.chats.answers.settings(self._ctx.chats.current.settings)
        is_off = now.draft_length == 0 or now.drafter == "none"
        drafting = {"draft_length": "auto", "drafter": "auto"} if is_off else {}
        return generate(now, [], max_tokens=longest, stop=[], **drafting)

    @Slot(int)
    def _open(self, number: int) -> None:
        """Show one comparison of the set in full."""
        snapshot = self._set_snapshot
        if self.one.is_running():
            self.many.footer.set_status("Another answer is being compared. Open this one when that has finished.")
            return
        assert snapshot is not None
        compared = self.many.results[number]
        self._subject = Subject(task=Task(compared.prompt, compared.command))
        self._result = compared, snapshot
        self.one.show_compared(compared, on_server=bool(snapshot.setup.servers))
        self.show_tab(self.one)

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
            self._snapshot = Snapshot.now(self._ctx, *self._begun)
            self._begun = None
        except KnownError as error:
            self.runner.give_up(str(error))

    @Slot(object)
    def _on_compared(self, compared: Comparison) -> None:
        assert self._snapshot is not None
        pair, setup = self._snapshot.pair, self._snapshot.setup
        self._counting.submit(partial(up_to_rounding, pair, setup, [compared]), self._on_counted)
        if self.many.is_running():
            self._set_snapshot, self.many.drafter_bytes = self._snapshot, setup.drafter_bytes
            self.many.add_compared(compared)
        else:
            self._result = compared, self._snapshot
            self.one.show_result(compared)

    def _on_counted(self, sentence: str) -> None:
        if sentence and self._status in ("", self._sentence):  # nothing newer is said
            self._sentence = sentence
            self._show_status(sentence)

    # ------------------------------------------------------------ what may run

    @Slot()
    def _refresh(self) -> None:
        self.one.set_blocked(self._why_not(of_set=False))
        self.many.set_blocked(self._why_not(of_set=True))
        self._show_drafters()

    def _show_drafters(self) -> None:
        pair = self._ctx.loader.pair()
        if pair is None or pair.remote is not None:
            self.many.set_drafters((), wording.SERVER_DRAFTS if pair else CANNOT_START[EngineState.EMPTY])
            return
        found = fitting(pair, self._set_command(DEFAULT_LONGEST))
        self.many.set_drafters(found, "" if set(found) - {"ngram", "auto"} else wording.ONE_DRAFTER)

    def _why_not(self, *, of_set: bool) -> str:
        """Why no comparison can be started now; empty if one can."""
        if self.runner.is_running():
            if self.many.is_running() is of_set:
                return ""
            return (
                "An answer is being compared." if of_set else "A prompt set is running. Try again when it has finished."
            )
        if not self._exports.is_idle():
            return "The export is being written. Reading the model files would distort the timings."
        pair = self._ctx.loader.pair()
        if pair is not None and pair.remote is not None and (why := self._why_not_remote(pair.remote, of_set=of_set)):
            return why
        if pair is not None and pair.drafting_off is not None:
            return f"There is nothing to compare. {pair.drafting_off}"
        return CANNOT_START.get(self._ctx.engine.state(), "")

    def _why_not_remote(self, remote: RemoteModel, *, of_set: bool) -> str:
        """The same for a model on a server."""
        if not remote.can_switch_drafting:
            return wording.NO_SWITCH.format(server=server_name(remote.server))
        subject, consent = self._subject, self._ctx.chats.answers.consent
        if not of_set and subject is not None and consent.is_needed(subject.chat_id or "", subject.branch):
            return wording.NOT_SENT.format(host=host_of(remote.server.address))
        return ""

    def _may_ask(self) -> End | None:
        """Checked before anything is sent: another model may have been loaded while this waited."""
        remote, of_set = self._ctx.loader.remote(), self.many.is_running()
        if remote is not None and (why := self._why_not_remote(remote, of_set=of_set)):
            return End("failed", why)
        return None

    @Slot()
    def _show_waiting(self) -> None:
        before, state = self.runner.waits_for(), self._ctx.engine.state()
        waits = f"Starts {wait_for(before, state).comparison}." if before is not None else ""
        for tab in self._tabs:
            tab.set_waiting(waits)

    # ------------------------------------------------------------ exports

    @Slot(QAction)
    def _export_one(self, action: QAction) -> None:
        if self._result is not None:
            compared, snapshot = self._result
            report = Report(setup=snapshot.setup, comparisons=[compared], planned=1)
            self._export(self.one, action.data(), snapshot, report)

    @Slot(QAction)
    def _export_set(self, action: QAction) -> None:
        many, snapshot = self.many, self._set_snapshot
        if snapshot is not None:
            report = Report(setup=snapshot.setup, comparisons=many.results, planned=many.planned, skipped=many.skipped)
            self._export(many, action.data(), snapshot, report)

    def _export(self, tab: CompareTab, name: str, snapshot: Snapshot, report: Report) -> None:
        """Ask where to save it in this format, then do so."""
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        proposal = f"comparison-{QDate.currentDate().toString(Qt.DateFormat.ISODate)}{FORMATS[name]}"
        is_picture = name == "PNG"
        picture = tab.picture() if is_picture else b""

        def export(path: Path) -> None:
            if self._exports.is_idle():
                self._show_status("" if is_picture else "Reading the model files to hash them…")
                self._exports.submit(
                    partial(snapshot.export, report, path, picture, self._exports.is_closed),
                    lambda _: self._on_exported(path.name, ""),
                    lambda error: self._on_exported(path.name, str(error)),
                )
                self._refresh()

        ask_where_to_save(self, f"Export as {name}", Path(folder) / proposal, name, export)

    def _on_exported(self, name: str, failure: str) -> None:
        self._refresh()
        self._show_status(failure or f"Exported to {name}.", "bad" if failure else "quiet")
        self.exported.emit()

    def _show_status(self, text: str, role: str = "quiet") -> None:
        self._status = text
        for tab in self._tabs:
            tab.footer.set_status(text, role)
