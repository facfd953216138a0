"""Connects the Compare window with the engine and the chat, and decides what may run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QDesktopServices

from app.chats.model import StoredMessage
from app.compare.results import Report, Run, Setup, Skipped
from app.errors import KnownError
from app.protocol.messages import Round
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.session import ChatSession
from app.ui.compare import wording
from app.ui.compare.asked import Asked, asked
from app.ui.compare.choice import SetChoice
from app.ui.compare.exports import Exporter, ask_for_path
from app.ui.compare.one_answer import Shown, settings_line
from app.ui.compare.runner import Compared, End, Runner, Task
from app.ui.compare.setups import Snapshot
from app.ui.compare.window import CompareWindow
from app.ui.compare.wording import Verdict
from app.ui.engine.interface import Engine, EngineState
from app.ui.engine.pair import PairLoader

DEFAULT_SEED = 0
"""Of a set, where the settings name none."""
_IDLE = {
    EngineState.EMPTY: "No model is loaded.",
    EngineState.STOPPED: "The engine is not running.",
    EngineState.DIED: "The engine is not running. The main window says why, and restarts it.",
}
_WAITS = {
    EngineState.STARTING: "Begins when the pair is loaded.",
    EngineState.LOADING: "Begins when the pair is loaded.",
    EngineState.MEASURING: "Begins after the measurement.",
    EngineState.COMPARING: "Begins when the engine has stopped.",
}


@dataclass(frozen=True)
class _Subject:
    """What the tab "One answer" is about: an answer of a chat, or a prompt of a set (``chat_id`` is ``None``)."""

    chat_id: str | None
    read: Callable[[], Asked | None]
    """How it is asked with the pair loaded now."""


class ComparePresenter(QObject):
    """Makes the window when it is first wanted; one for a main window.

    Attributes:
        runner, exporter: Do the work; tests look at them.
    """

    def __init__(
        self, engine: Engine, pair_loader: PairLoader, session: ChatSession, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._pair_loader = pair_loader
        self._session = session
        self._made: CompareWindow | None = None
        self._subject: _Subject | None = None
        self._result: tuple[Compared, Snapshot] | None = None
        """What the tab "One answer" shows."""
        self._snapshot: Snapshot | None = None
        """Of what runs, or ran last."""
        self._set_snapshot: Snapshot | None = None
        self._is_set = False
        """Whether what runs, or ran last, is a set of prompts."""
        self._draft_failure = ""
        self._shows_drafted = False
        self.runner = Runner(engine, session.wants_engine, self)
        self.exporter = Exporter(self)
        self._connect()

    # ------------------------------------------------------------ what the main window asks for

    def window(self) -> CompareWindow:
        """The window, made now if there is none yet."""
        if self._made is None:
            self._made = CompareWindow()
            self._connect_window(self._made)
            self._made.one.set_show_drafted(self._shows_drafted)
            self._refresh()
        return self._made

    @Slot()
    def compare_last(self) -> None:
        """Compare the last answer of the chat that is shown."""
        answers = [message for message in self._session.branch() if message.role == "assistant"]
        if answers:
            self.compare_answer(answers[-1].id)
        else:
            self.window().show_tab(self.window().one)
            if self._subject is None:
                self.window().one.show_nothing(wording.NO_ANSWER)

    @Slot(str)
    def compare_answer(self, message_id: str) -> None:
        """Write an answer of the shown chat again, plain and with draft."""
        branch = self._session.branch()
        place = next((place for place, one in enumerate(branch) if one.id == message_id), None)
        if place is not None:
            self._take(_Subject(branch[place].chat_id, lambda: self._asked(branch, place)))

    @Slot()
    def compare_prompts(self) -> None:
        """Show the tab for a set of prompts; the user starts it."""
        self.window().show_tab(self.window().many)

    def forget_chat(self, chat_id: str) -> None:
        """The chat was deleted: nothing of it stays in the window."""
        if self._subject is None or self._subject.chat_id != chat_id:
            return
        if self.runner.is_running() and not self._is_set:
            self.runner.stop()
        self._subject = self._result = None
        self.window().one.show_nothing(wording.CHAT_DELETED)

    def set_show_drafted(self, shown: bool) -> None:
        self._shows_drafted = shown
        if self._made is not None:
            self._made.one.set_show_drafted(shown)

    @Slot()
    def close(self) -> None:
        """The main window is closed."""
        self.runner.stop()
        self.exporter.shut_down()
        if self._made is not None:
            self._made.close()
            self._made.deleteLater()
            self._made = None

    # ------------------------------------------------------------ wiring

    def _connect(self) -> None:
        runner = self.runner
        self._session.engine_released.connect(runner.go_on)
        self._engine.state_changed.connect(self._on_engine_state_changed)
        self._pair_loader.pair_changed.connect(self._refresh)
        runner.waiting_changed.connect(self._show_waiting)
        runner.run_begun.connect(self._on_run_begun)
        runner.prompt_progressed.connect(self._on_prompt_progressed)
        runner.rounds_received.connect(self._on_rounds_received)
        runner.run_ended.connect(self._on_run_ended)
        runner.draft_failed.connect(self._on_draft_failed)
        runner.compared.connect(self._on_compared)
        runner.left_out.connect(self._on_left_out)
        runner.ended.connect(self._on_ended)
        self.exporter.busy_changed.connect(self._refresh)
        self.exporter.ended.connect(self._on_export_ended)

    def _connect_window(self, window: CompareWindow) -> None:
        window.escaped.connect(self._on_escaped)
        window.closed.connect(self.runner.stop)
        window.one.again_requested.connect(self._start_one)
        window.one.last_requested.connect(self.compare_last)
        window.one.link_activated.connect(QDesktopServices.openUrl)
        window.many.start_requested.connect(self._start_set)
        window.many.opened.connect(self._open)
        for tab in (window.one, window.many):
            tab.stop_requested.connect(self.runner.stop)
        window.one.export_requested.connect(self._export_one)
        window.many.export_requested.connect(self._export_set)

    # ------------------------------------------------------------ one answer

    def _asked(self, branch: list[StoredMessage], place: int) -> Asked | None:
        return asked(branch, place, self._session.settings, self._pair_loader.pair())

    def _take(self, subject: _Subject) -> None:
        """Make something else the subject of the tab, and compare it unless a set is running."""
        window = self.window()
        window.show_tab(window.one)
        found = subject.read()
        if self.runner.is_running() and not self._is_set:
            self.runner.stop()
        self._subject, self._result = subject, None
        if found is None:
            self._subject = None
            window.one.show_nothing(wording.NO_ANSWER)
            return
        window.one.prepare(_shown(found))
        if why := self._why_not(of_set=False):
            window.one.say(Verdict(why))
        else:
            self._start_one()

    @Slot()
    def _start_one(self) -> None:
        found = self._subject.read() if self._subject is not None else None
        if found is None or self._why_not(of_set=False):
            return
        self._result = None
        self._begin(Snapshot(found.task), is_set=False)
        self.window().one.prepare(_shown(found))
        self.window().one.begin()
        self.runner.start_one(found.task)
        self._refresh()

    # ------------------------------------------------------------ a set

    @Slot(object)
    def _start_set(self, choice: SetChoice) -> None:
        if self._why_not(of_set=True):
            return
        settings = self._set_settings(choice.longest)
        first = settings.seed if settings.seed is not None else DEFAULT_SEED
        tasks = [Task(prompt, first + turn, settings) for turn in range(choice.repeats) for prompt in choice.prompts]
        self._begin(Snapshot(tasks[0], choice), is_set=True)
        self.window().many.begin(len(tasks))
        self.runner.start_set(tasks)
        self._refresh()

    def _set_settings(self, longest: int) -> AnswerSettings:
        """As answers in the chat are written now, but with a draft in any case, and each prompt as it stands."""
        now = self._session.settings
        if now.draft_length == 0 or now.drafter == "none":
            now = replace(now, draft_length="auto", drafter="auto")
        return replace(now, max_tokens=longest, stop=(), system_prompt="")

    @Slot(object)
    def _open(self, compared: Compared) -> None:
        """Show one comparison of the set in full."""
        if self.runner.is_running() and not self._is_set:
            self.window().many.footer.set_status("An answer is being compared; open this one after it.")
            return
        snapshot, window = self._set_snapshot, self.window()
        assert snapshot is not None
        found = Asked(compared.task)
        self._subject = _Subject(None, lambda: found)
        self._result = compared, snapshot
        window.one.show_compared(compared, _shown(found))
        window.show_tab(window.one)

    # ------------------------------------------------------------ what the runner says

    def _begin(self, snapshot: Snapshot, *, is_set: bool) -> None:
        self._is_set = is_set
        self._draft_failure = ""
        self._tell_all("")
        self._snapshot = snapshot

    @Slot(int, bool)
    def _on_run_begun(self, _number: int, drafted: bool) -> None:
        assert self._snapshot is not None
        if not self._is_set:
            self.window().one.begin_run(drafted)
        try:
            self._snapshot.take(self._engine, self._pair_loader)
        except KnownError as error:
            self.runner.give_up(str(error))

    @Slot(int, int)
    def _on_prompt_progressed(self, done: int, total: int) -> None:
        if not self._is_set:
            self.window().one.set_prompt_progress(done, total)

    @Slot(list)
    def _on_rounds_received(self, rounds: list[Round]) -> None:
        if not self._is_set:
            self.window().one.add_rounds(rounds)

    @Slot(bool, object)
    def _on_run_ended(self, drafted: bool, run: Run) -> None:
        if not self._is_set:
            self.window().one.end_run(drafted, run)

    @Slot(str)
    def _on_draft_failed(self, reason: str) -> None:
        self._draft_failure = reason

    @Slot(object)
    def _on_compared(self, compared: Compared) -> None:
        assert self._snapshot is not None
        if self._is_set:
            self._set_snapshot = self._snapshot
            self.window().many.add_compared(compared)
        else:
            self._result = compared, self._snapshot
            self.window().one.show_result(compared)

    @Slot(object)
    def _on_left_out(self, skipped: Skipped) -> None:
        if self._is_set:
            self.window().many.add_skipped(skipped)

    @Slot(object)
    def _on_ended(self, end: End) -> None:
        tab = self.window().many if self._is_set else self.window().one
        tab.end(end)
        if self._draft_failure:
            tab.add_detail(f"The draft failed in between. {self._draft_failure}")
        self._refresh()

    # ------------------------------------------------------------ what may run

    @Slot(EngineState)
    def _on_engine_state_changed(self, _state: EngineState) -> None:
        self._refresh()
        self._show_waiting()

    @Slot()
    def _refresh(self) -> None:
        if self._made is not None:
            self._made.one.set_blocked(self._why_not(of_set=False))
            self._made.many.set_blocked(self._why_not(of_set=True))

    def _why_not(self, *, of_set: bool) -> str:
        """Why a comparison cannot be started now; empty: it can."""
        if self.runner.is_running():
            if self._is_set is of_set:
                return ""
            return "An answer is being compared." if of_set else "A prompt set is running: Run again works after it."
        if self.exporter.is_busy():
            return "The export is being written; reading the model files would disturb the clocks."
        pair = self._pair_loader.pair()
        if pair is not None and pair.drafting_off is not None:
            return f"Nothing can draft for this target, so there is nothing to compare. {pair.drafting_off}"
        return _IDLE.get(self._engine.state(), "")

    @Slot()
    def _show_waiting(self) -> None:
        if self._made is None or not self.runner.is_running():
            return
        waits = ""
        if self.runner.is_waiting():
            waits = _WAITS.get(self._engine.state(), "Begins when the answer in the chat has ended.")
        (self._made.many if self._is_set else self._made.one).set_waiting(waits)

    @Slot()
    def _on_escaped(self) -> None:
        if self.runner.is_running():
            self.runner.stop()
        else:
            self.window().close()

    # ------------------------------------------------------------ exports

    @Slot(str)
    def _export_one(self, name: str) -> None:
        if self._result is not None:
            compared, snapshot = self._result
            report = Report(setup=_setup(snapshot), comparisons=[compared.comparison], planned=1)
            self._export(name, snapshot, report)

    @Slot(str)
    def _export_set(self, name: str) -> None:
        many, snapshot = self.window().many, self._set_snapshot
        if snapshot is not None:
            report = Report(
                setup=_setup(snapshot), comparisons=many.comparisons(), planned=many.planned, skipped=many.skipped
            )
            self._export(name, snapshot, report)

    def _export(self, name: str, snapshot: Snapshot, report: Report) -> None:
        def export(path: Path) -> None:
            if not self.exporter.is_busy() and snapshot.pair is not None:
                self._tell_all("Reading the model files for their hashes …")
                self.exporter.export(report, snapshot.pair, path)

        ask_for_path(self.window(), name, export)

    @Slot(object, str)
    def _on_export_ended(self, path: Path, failure: str) -> None:
        self._tell_all(failure or f"Exported to {path.name}.", "bad" if failure else "quiet")

    def _tell_all(self, text: str, role: str = "quiet") -> None:
        if self._made is not None:
            for tab in (self._made.one, self._made.many):
                tab.footer.set_status(text, role)


def _shown(found: Asked) -> Shown:
    return Shown(found.task.prompt.title, settings_line(found.task), found.notes)


def _setup(snapshot: Snapshot) -> Setup:
    """That of a comparison that ran."""
    assert snapshot.setup is not None
    return snapshot.setup
