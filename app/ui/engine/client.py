"""The engine as the window sees it: a `Connection` to a child process, in Qt's event loop.

One process runs at a time: the one that computes here, or the one that talks to a server. Each request says which it
needs.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Collection, Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal, SignalInstance, Slot

from app import system
from app.client.connection import (
    Connection,
    EngineExit,
    EngineState,
    ExitCause,
    LogLines,
    Question,
    Stalled,
    Timings,
    exit_cause,
    out_of_memory_kills,
)
from app.protocol import events
from app.protocol.commands import CountTokens, Load, Quit
from app.protocol.events import Event, Forgotten, Hello, MemoryRead
from app.protocol.frames import ProtocolError, encode_frame
from app.protocol.remote import Connect, FindServers, Probe, ServerProbed, ServersFound
from app.protocol.serving import AsideQuestion
from app.storage.files import erase_chat_caches
from app.system import KnownError

_log = logging.getLogger("slipstream.processes")
_LEFT_BEHIND: list[QProcess] = []
_GONE_MS = 2000
"""How long `close` waits for a killed process."""
_MOST_DEATHS, _DEATHS_WITHIN_SECONDS = 3, 300.0


class ChildProcess(QObject):
    """A child process of the window: signals for output and exit, frames in, and a log. Runs one process at a time: the
    next one starts when the previous one, whose memory or port it may need, is gone. A process that was told to end
    emits nothing more.

    Signals:
        output_received: Bytes of its standard output.
        ended: It ended unexpectedly: an `ExitCause` and a detail, as `exit_cause` returns them.
        gone: A process that was told to end is gone.
    """

    output_received = Signal(object)
    ended = Signal(object, str)
    gone = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._process: QProcess | None = None
        self._ending: QProcess | None = None
        """Whether it has been told to end."""
        self._next: tuple[list[str], LogLines] | None = None
        """What to start when the ending process is gone."""
        self._unwritten = b""
        """Data for the next process."""
        self._log = LogLines()
        self._memory_kills = 0
        self._patience = QTimer(self, singleShot=True)
        self._patience.timeout.connect(self._on_patience_ended)

    def process_id(self) -> int:
        """0 when there is none."""
        return int(self._process.processId()) if self._process else 0

    def is_ending(self) -> bool:
        """Whether a process that was told to end still exists."""
        return self._ending is not None

    def start(self, command: Sequence[str], log: LogLines, first: bytes = b"") -> None:
        """Start a process with its standard error going to ``log``, and write ``first`` to it. A previous one must have
        been told to end.
        """
        self._next = list(command), log
        self._unwritten = first
        self._launch()

    def write(self, data: bytes) -> None:
        """Does nothing if no process runs or is about to start."""
        if self._process is not None:
            self._process.write(data)
        elif self._next is not None:
            self._unwritten += data

    def kill(self) -> None:
        """End the process by force; `ended` follows."""
        if self._process is not None:
            self._process.kill()

    def end(self, patience_ms: int = 0) -> None:
        """End the process without waiting: close its input, and kill it after ``patience_ms`` (0: at once)."""
        self._next = None
        if (process := self._process) is None:
            return
        self._let_go(process)
        self._ending = process
        process.stateChanged.connect(self._on_ending_changed)
        if patience_ms:
            process.closeWriteChannel()
            self._patience.start(patience_ms)
        else:
            process.kill()  # this may take long, because the system has a lot to free
        self._on_ending_changed(process.state())

    def close(self, patience_ms: int = 0) -> None:
        """End the process for good; returns when it is gone, or stuck in the system."""
        self.end(patience_ms)
        if (process := self._ending) is None or (patience_ms and process.waitForFinished(patience_ms)):
            return
        self._ending = None
        self._patience.stop()
        if patience_ms:
            process.kill()
        if process.state() is QProcess.ProcessState.NotRunning or process.waitForFinished(patience_ms or _GONE_MS):
            process.deleteLater()
            return
        # It is stuck in the system, for example on a drive, and ends when it can. A QProcess waits in its destructor.
        _log.warning("a process did not end although it was killed")
        process.setParent(None)
        _LEFT_BEHIND.append(process)

    # ------------------------------------------------------------ beginning and end

    def _launch(self) -> None:
        if self._ending is not None or self._next is None:
            return
        (command, self._log), self._next = self._next, None
        self._memory_kills = out_of_memory_kills()
        process = QProcess(self)
        process.setProgram(command[0])
        process.setArguments(command[1:])
        process.setWorkingDirectory(str(system.FOLDER))
        process.setProcessEnvironment(child_environment(QProcessEnvironment.systemEnvironment()))
        if sys.platform != "win32":
            # A separate session, so that Ctrl+C in a terminal only reaches the window, which then ends the process.
            process.setUnixProcessParameters(QProcess.UnixProcessFlag.CreateNewSession)
        self._listen_to(process)
        process.start()
        if self._process is process and self._unwritten:  # it hasn't failed at once
            process.write(self._unwritten)

    def _listen_to(self, process: QProcess) -> None:
        self._process = process
        process.readyReadStandardOutput.connect(self._on_output)
        process.readyReadStandardError.connect(self._on_log_output)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)

    def _let_go(self, process: QProcess) -> None:
        process.readyReadStandardOutput.disconnect(self._on_output)
        process.readyReadStandardError.disconnect(self._on_log_output)
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        self._process = None

    @Slot(QProcess.ProcessState)
    def _on_ending_changed(self, state: QProcess.ProcessState) -> None:
        process = self._ending
        if process is None or state is not QProcess.ProcessState.NotRunning:
            return
        self._ending = None
        self._patience.stop()
        process.deleteLater()
        self.gone.emit()
        self._launch()

    @Slot()
    def _on_patience_ended(self) -> None:
        if self._ending is not None:
            self._ending.kill()

    @Slot()
    def _on_output(self) -> None:
        if self._process is not None:
            self.output_received.emit(bytes(self._process.readAllStandardOutput().data()))

    @Slot()
    def _on_log_output(self) -> None:
        if self._process is not None:
            self._log.add(bytes(self._process.readAllStandardError().data()))

    @Slot(int, QProcess.ExitStatus)
    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        process = self._process
        self._on_output()  # what it sent before it ended is still useful
        self._on_log_output()
        if process is not None and process is self._process:  # unless its output led to a restart
            self._log.end()
            crashed = status is QProcess.ExitStatus.CrashExit
            self._drop(process, *exit_cause(code, crashed=crashed, memory_kills_before=self._memory_kills))

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        if self._process is not None and error is QProcess.ProcessError.FailedToStart:
            self._drop(self._process, ExitCause.FAILED_TO_START, self._process.errorString())

    def _drop(self, process: QProcess, cause: ExitCause, detail: str) -> None:
        self._let_go(process)
        process.deleteLater()
        self.ended.emit(cause, detail)


class CrashTracker:
    """Tells when a process crashes too often to be restarted automatically."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=_MOST_DEATHS)

    def record(self, now: float) -> None:
        """Record a crash at ``now``, seconds on a monotonic clock."""
        self._deaths.append(now)

    def is_exhausted(self, now: float) -> bool:
        """Whether it crashed too often in the period that ends at ``now``."""
        return len(self._deaths) == _MOST_DEATHS and now - self._deaths[0] <= _DEATHS_WITHIN_SECONDS


def child_environment(own: QProcessEnvironment) -> QProcessEnvironment:
    """``own`` as `program.child_environment` changes it; unchanged variables keep their bytes, even if they aren't
    UTF-8."""
    values = {name: own.value(name) for name in own.keys()}  # noqa: SIM118 - not a mapping
    wanted = system.child_environment(values)
    environment = QProcessEnvironment(own)
    for name in values.keys() - wanted.keys():
        environment.remove(name)
    for name, value in wanted.items():
        if values.get(name) != value:
            environment.insert(name, value)
    return environment


__all__ = ["EngineClient", "EngineExit", "EngineState", "ExitCause"]


class EngineClient(QObject):
    """An engine that loads pairs and answers chats.

    Commands return the number of their request at once; results arrive by signal. Events of outdated requests are never
    emitted; a receiver that didn't make the current request compares its number.

    Signals:
        load_progressed … servers_found: The event of this name, as `app.protocol` has it; ``request`` is the number of
            the request or question.
        state_changed: The new `EngineState`. Every receiver gets all states in order.
        memory_read: A `MemoryRead`, when the engine has started and after each `read_memory`.
        engine_exited: An `EngineExit`, if the process ended unexpectedly.
        forgotten: Everything `forget` was asked for so far has been erased.
        engine_stalled: Seconds without a sign of life; at most once a request.
    """

    load_progressed = Signal(object)
    pair_loaded = Signal(object)
    load_failed = Signal(object)
    generation_started = Signal(object)
    prompt_progressed = Signal(object)
    rounds_received = Signal(object)
    generation_finished = Signal(object)
    generation_failed = Signal(object)
    plain_measured = Signal(object)
    tokens_scored = Signal(object)
    tokens_counted = Signal(object)
    text_checked = Signal(object)
    prompt_counted = Signal(object)
    tokenized = Signal(object)
    server_probed = Signal(object)
    servers_found = Signal(object)
    memory_read = Signal(object)
    state_changed = Signal(EngineState)
    engine_exited = Signal(object)
    forgotten = Signal()
    engine_stalled = Signal(float)

    def __init__(
        self,
        command: Sequence[str] | None = None,
        timings: Timings | None = None,
        parent: QObject | None = None,
        *,
        for_servers: Sequence[str] | None = None,
    ) -> None:
        """``command`` starts the process that computes here, ``for_servers`` the one that talks to servers."""
        super().__init__(parent)
        self._connection = Connection(timings)
        self._own_command = list(command or system.engine_command())
        self._server_command = list(for_servers or system.remote_command())
        self._is_remote = False
        """Whether the process is the one for servers."""
        self._quit_ms = round(self._connection.timings.quit * 1000)
        self._process = ChildProcess(self)
        self._process.output_received.connect(self._on_output)
        self._process.ended.connect(self._on_ended)
        self._process.gone.connect(self._on_gone)
        self._told_state: EngineState | None = self._connection.state
        self._untold_states: deque[EngineState] = deque()
        self._is_telling_state = False
        self._timer = QTimer(self, interval=round(self._connection.timings.tick * 1000))
        self._timer.timeout.connect(self._on_tick)
        self._more = QTimer(self, singleShot=True, interval=0)
        self._more.timeout.connect(self._after)
        self._signals = self._signals_of_events()

    def _signals_of_events(self) -> dict[type, SignalInstance]:
        return {
            events.LoadProgressed: self.load_progressed,
            events.PairLoaded: self.pair_loaded,
            events.LoadFailed: self.load_failed,
            events.GenerationStarted: self.generation_started,
            events.PromptProgressed: self.prompt_progressed,
            events.RoundsReceived: self.rounds_received,
            events.GenerationFinished: self.generation_finished,
            events.GenerationFailed: self.generation_failed,
            events.PlainMeasured: self.plain_measured,
            events.TokensScored: self.tokens_scored,
            events.TokensCounted: self.tokens_counted,
            events.TextChecked: self.text_checked,
            events.PromptCounted: self.prompt_counted,
            events.Tokenized: self.tokenized,
            ServerProbed: self.server_probed,
            ServersFound: self.servers_found,
            MemoryRead: self.memory_read,
        }

    # ------------------------------------------------------------ state

    def state(self) -> EngineState:
        return self._connection.state

    def hello(self) -> Hello | None:
        """The greeting of the running engine; ``None`` before it arrives."""
        return self._connection.hello

    def description(self) -> str:
        """Name and version for About; empty before the greeting."""
        hello = self.hello()
        return hello.engine if hello else ""

    def devices(self) -> list[str]:
        """GPUs it can offload to."""
        hello = self.hello()
        return [device.description for device in hello.devices] if hello else []

    def process_id(self) -> int:
        """The child's process id; 0 when there is none."""
        return self._process.process_id()

    # ------------------------------------------------------------ requests

    def load(self, command: Load | Connect) -> int:
        """Load a pair, or use a server's model, replacing what was loaded; starts the process if necessary.
        `pair_loaded` or `load_failed` follows.
        """
        self._need(is_remote=isinstance(command, Connect))
        if self._connection.state.has_ended:
            return 0  # it couldn't be started, as `engine_exited` has reported
        request = self._connection.load(command)
        self._after()
        return request

    def ask(self, question: Question, *, compared: bool = False, served: bool = False) -> int:
        """Have the loaded pair compute something; only in the state ``READY``. With ``compared`` (the Compare window)
        the state becomes ``COMPARING``, with ``served`` (another program) ``SERVING``.
        """
        request = self._connection.ask(question, compared=compared, served=served)
        self._after()
        return request

    def count_tokens(self, question: CountTokens) -> int:
        """Count how much of the context a chat would take, even during an answer. Returns the question's number, 0 if
        nothing is loaded. `tokens_counted` follows unless a newer count is requested, the template refuses the chat, or
        the engine ends or loads something else.
        """
        number = self._connection.count_tokens(question)
        self._after()
        return number

    def ask_aside(self, question: AsideQuestion) -> int:
        """Ask something about the loaded pair, even during an answer. Returns the question's number, 0 if nothing that
        could answer is loaded (a server can't). `text_checked`, `prompt_counted` or `tokenized` follows unless the
        engine ends or loads something else. Raises `ProtocolError` if a chat is too large to be sent.
        """
        number = 0 if self._is_remote else self._connection.ask_aside(question)
        self._after()
        return number

    def search(self, question: Probe | FindServers) -> int:
        """Find out which server is at an address, or which servers run on this machine, without touching a local pair.
        `server_probed` or `servers_found` follows unless the process ends.
        """
        self._need(is_remote=True)
        number = self._connection.search(question)
        self._after()
        return number

    def stop_thinking(self) -> None:
        """Make the model answer now if it is still thinking."""
        self._connection.stop_thinking()
        self._after()

    def cancel(self) -> None:
        """Cancel the current request, if any."""
        if (failed := self._connection.cancel()) is not None:
            self.load_failed.emit(failed)
        self._after()

    def read_memory(self) -> None:
        """Request the current memory, in any state; no answer follows without a local process."""
        self._connection.read_memory()
        self._after()

    def forget(self, chats: Collection[str] = ()) -> None:
        """Erase copies of these chats (or all) from the engine's caches, in any state. `forgotten` follows."""
        self._connection.forget(chats)
        self._after()
        if self._connection.state.has_ended:
            self._end_forgetting()
        elif self._is_remote and not self._process.is_ending():
            self._erase_files()  # that process has no caches, and will report `forgotten`

    # ------------------------------------------------------------ the process

    def start(self) -> None:
        """Start the local process without loading anything, leaving a server. Does nothing if it is running."""
        self._need(is_remote=False)

    def _need(self, *, is_remote: bool) -> None:
        """Make this process the running one, replacing the other."""
        if is_remote != self._is_remote and not self._connection.state.has_ended:
            self._replace_process(is_remote=is_remote)
        else:
            self._is_remote = is_remote
            self._start()

    def _start(self) -> None:
        if self._connection.state.has_ended:
            self._connection.start()
            self._process.start(self._server_command if self._is_remote else self._own_command, self._connection.log)
            self._after()

    def restart(self) -> None:
        """End the process, by force if necessary, and start a new one with nothing loaded."""
        self._replace_process(is_remote=self._is_remote)

    def _replace_process(self, *, is_remote: bool) -> None:
        """End the process, and start this one."""
        if is_remote and not self._is_remote and self._connection.hello is not None:
            self.memory_read.emit(MemoryRead(devices=self._connection.hello.devices))  # its memory becomes free
        self.end()
        self._is_remote = is_remote
        self._start()

    def end(self) -> None:
        """End the process without waiting for it; `shutdown` still has to be called."""
        self._connection.stop()
        self._process.end()
        self._after()

    def shutdown(self) -> None:
        """End the process, by force if necessary; returns when it is gone."""
        is_greeted = self._connection.hello is not None
        if is_greeted:
            self._process.write(encode_frame(Quit()))
        self._process.close(self._quit_ms if is_greeted else 0)
        if self._connection.open_forgets:
            self._end_forgetting()
        self._connection.stop()
        self._after()

    @Slot(object, str)
    def _on_ended(self, cause: ExitCause, detail: str) -> None:
        ended = self._connection.died(cause, detail)
        if self._connection.open_forgets:
            self._end_forgetting()
        self._after()
        self.engine_exited.emit(ended)

    @Slot()
    def _on_gone(self) -> None:
        if self._connection.open_forgets and self._is_remote:
            self._erase_files()  # the process that was to do it is gone

    def _end_forgetting(self) -> None:
        """Finish erasing when there is no process to do it."""
        self._erase_files()
        self._connection.open_forgets.clear()
        self.forgotten.emit()

    def _erase_files(self) -> None:
        """Erase the files that `Forget` erases."""
        with contextlib.suppress(KnownError):  # no such folder, so nothing is there
            for forget in self._connection.open_forgets:
                erase_chat_caches(system.chat_caches_dir(), forget.chats)

    # ------------------------------------------------------------ the connection

    @Slot()
    def _after(self) -> None:
        """Follow up on a call of the connection: send, watch for stalls, report the state."""
        state = self._connection.state
        if self._connection.is_sending():
            self._process.write(self._connection.bytes_to_send())
            if self._connection.is_sending():
                self._more.start()  # a long chat: let the window continue in between
        if not self._connection.needs_ticks():
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()
        if state is not self._told_state:
            self._told_state = state
            self._untold_states.append(state)
            self._tell_states()

    def _tell_states(self) -> None:
        """Deliver states in order, even if a receiver makes the engine change its state at once."""
        if self._is_telling_state:
            return
        self._is_telling_state = True
        while self._untold_states:
            self.state_changed.emit(self._untold_states.popleft())
        self._is_telling_state = False

    def _tell(self, event: Event | Stalled) -> None:
        """Emit the event, then the resulting state, so that receivers of the state know what happened."""
        if self._connection.state is not self._told_state:
            self._told_state = None  # so that a state caused by the event is always reported
        match event:
            case Stalled():
                self.engine_stalled.emit(event.seconds)
            case Hello() | MemoryRead() if self._is_remote:
                pass  # a server's memory is of no interest
            case Hello():
                self.memory_read.emit(MemoryRead(devices=event.devices))
            case Forgotten():
                self.forgotten.emit()
            case _:
                self._signals[type(event)].emit(event)
        self._after()

    @Slot(object)
    def _on_output(self, data: bytes) -> None:
        try:
            for event in self._connection.receive(data):
                self._tell(event)
        except ProtocolError:
            self._process.kill()

    @Slot()
    def _on_tick(self) -> None:
        stalled = self._connection.tick()
        self._after()
        if stalled is not None:
            self._tell(stalled)
