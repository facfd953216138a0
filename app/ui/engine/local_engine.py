"""The engine as a child process: a `Connection` in Qt's event loop.

There is one process at a time: the one that computes here, or the one that talks to a server. What is to be used says
which of them it has to be.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal, Slot

from app import paths, program
from app.client.connection import Connection, Question
from app.client.process import engine_command, remote_command
from app.client.stalls import Stalled, Timings
from app.client.state import EngineState, ExitCause, exit_cause, out_of_memory_kills
from app.errors import KnownError
from app.protocol.commands import CountTokens, Load, Quit
from app.protocol.events import Event, Forgotten, Hello, MemoryRead
from app.protocol.frames import ProtocolError
from app.protocol.framing import encode_frame
from app.protocol.limits import HeadChoice
from app.protocol.options import LoadSettings
from app.protocol.remote import Connect, Probe
from app.protocol.serving import AsideQuestion
from app.storage.files import erase_files
from app.ui.engine.interface import Engine

_log = logging.getLogger("slipstream.engine")
_LEFT_BEHIND: list[QProcess] = []


class LocalEngine(Engine):
    """`Engine` in a child process.

    Signals:
        server_probed, servers_found: The answers to `probe` and `find_servers`.
    """

    server_probed = Signal(object)
    servers_found = Signal(object)

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
        self._own_command = list(command or engine_command())
        self._server_command = list(for_servers or remote_command())
        self._is_remote = False
        """Whether the process is the one for servers."""
        self._quit_ms = round(self._connection.timings.quit * 1000)
        self._process: QProcess | None = None
        self._dying: QProcess | None = None
        """A process that must be gone before the next one starts, which needs its memory."""
        self._told_state: EngineState | None = self._connection.state
        self._untold_states: deque[EngineState] = deque()
        self._is_telling_state = False
        self._memory_kills = 0
        self._timer = QTimer(self, interval=round(self._connection.timings.tick * 1000))
        self._timer.timeout.connect(self._on_tick)
        self._more = QTimer(self, singleShot=True, interval=0)
        self._more.timeout.connect(self._after)

    # ------------------------------------------------------------ Engine

    def state(self) -> EngineState:
        return self._connection.state

    def hello(self) -> Hello | None:
        return self._connection.hello

    def process_id(self) -> int:
        """The child's process id; 0 when there is none."""
        return int(self._process.processId()) if self._process else 0

    def start(self) -> None:
        self._need(is_remote=False)

    def _need(self, *, is_remote: bool) -> None:
        """Have this process running, in place of the other one."""
        if is_remote != self._is_remote and not self._connection.state.has_ended:
            self._start_anew(is_remote=is_remote)
        else:
            self._is_remote = is_remote
            self._start()

    def _start(self) -> None:
        if self._connection.state.has_ended:
            self._connection.start()
            self._after()
            if self._dying is None:
                self._launch()

    def load(
        self,
        target: str,
        draft: str | None,
        settings: LoadSettings,
        head: HeadChoice = "auto",
        projector: str | None = None,
        template: str = "",
    ) -> int:
        command = Load(
            request=0,
            target=target,
            draft=draft,
            projector=projector,
            head=head,
            chat_template=template,
            settings=settings,
        )
        return self._load(command)

    def connect_server(self, command: Connect) -> int:
        return self._load(command)

    def _load(self, command: Load | Connect) -> int:
        self._need(is_remote=isinstance(command, Connect))
        if self._connection.state.has_ended:
            return 0  # it couldn't even be started, as `engine_exited` has reported
        request = self._connection.load(command)
        self._after()
        return request

    def probe(self, command: Probe) -> int:
        """Ask which server is at an address; `server_probed` follows, unless the process ends. Leaves a local pair."""
        self._need(is_remote=True)
        number = self._connection.probe(command)
        self._after()
        return number

    def find_servers(self) -> int:
        """Look for servers on this machine, as `probe` does; `servers_found` follows."""
        self._need(is_remote=True)
        number = self._connection.find_servers()
        self._after()
        return number

    def ask(self, question: Question, *, compared: bool = False, served: bool = False) -> int:
        request = self._connection.ask(question, compared=compared, served=served)
        self._after()
        return request

    def count_tokens(self, question: CountTokens) -> int:
        number = self._connection.count_tokens(question)
        self._after()
        return number

    def check_text(self, text: str, thought: str = "", thinking: str = "") -> int:
        if self._is_remote:
            return 0  # it has no tokens
        number = self._connection.check_text(text, thought, thinking)
        self._after()
        return number

    def ask_aside(self, question: AsideQuestion) -> int:
        number = self._connection.ask_aside(question)
        self._after()
        return number

    def stop_thinking(self) -> None:
        self._connection.stop_thinking()
        self._after()

    def cancel(self) -> None:
        if (failed := self._connection.cancel()) is not None:
            self.load_failed.emit(failed)
        self._after()

    def read_memory(self) -> None:
        self._connection.read_memory()
        self._after()

    def forget(self) -> None:
        self._connection.forget()
        self._after()
        if self._connection.state.has_ended:
            self._end_forgetting()
        elif self._is_remote and self._dying is None:
            _erase_files()  # that process has none, and will say that it has forgotten

    def restart(self) -> None:
        self._start_anew(is_remote=self._is_remote)

    def _start_anew(self, *, is_remote: bool) -> None:
        """End the process, and start this one."""
        if is_remote and not self._is_remote and self._connection.hello is not None:
            self.memory_read.emit(MemoryRead(devices=self._connection.hello.devices))  # what it took becomes free
        self.end()
        self._is_remote = is_remote
        self._start()

    def end(self) -> None:
        """End the process without waiting until it is gone; `shutdown` still has to be called."""
        if (process := self._process) is not None:
            self._let_go(process)
            process.stateChanged.connect(self._on_dying_changed)
        self._connection.stop()
        if process is not None:
            process.kill()  # this may take long, because the system has a lot to free
            self._on_dying_changed(process.state())
        self._after()

    def shutdown(self) -> None:
        if (process := self._process) is not None:
            self._let_go(process)
            if self._connection.hello is not None:
                process.write(encode_frame(Quit()))
                process.closeWriteChannel()
                process.waitForFinished(self._quit_ms)
        if (dying := self._dying) is not None:
            self._dying = None
            dying.kill()
            self._wait_until_gone(dying)
        if self._connection.open_forgets:
            self._end_forgetting()
        self._connection.stop()
        self._after()

    # ------------------------------------------------------------ the connection

    @Slot()
    def _after(self) -> None:
        """Do what follows from a call of the connection: send, watch for stalls, report the state."""
        state = self._connection.state
        if self._process is not None and self._connection.is_sending():
            self._process.write(self._connection.bytes_to_send())
            if self._connection.is_sending():
                self._more.start()  # a long chat: the window goes on in between
        if not self._connection.needs_ticks():
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()
        if state is not self._told_state:
            self._told_state = state
            self._untold_states.append(state)
            self._tell_states()

    def _tell_states(self) -> None:
        """Every receiver gets the states in their order, even if one of them makes the engine do something at once."""
        if self._is_telling_state:
            return
        self._is_telling_state = True
        while self._untold_states:
            self.state_changed.emit(self._untold_states.popleft())
        self._is_telling_state = False

    def _tell(self, event: Event | Stalled) -> None:
        """Report the event, then the resulting state, so that receivers of the state know what happened."""
        if self._connection.state is not self._told_state:
            self._told_state = None  # what starts because of the event is reported in any case
        match event:
            case Stalled():
                self.engine_stalled.emit(event.seconds)
            case Hello() | MemoryRead() if self._is_remote:
                pass  # it uses none that anybody would ask about
            case Hello():
                self.memory_read.emit(MemoryRead(devices=event.devices))
            case Forgotten():
                self.forgotten.emit()
            case _:
                getattr(self, str(event.__struct_config__.tag)).emit(event)
        self._after()

    @Slot()
    def _on_output(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            for event in self._connection.receive(bytes(process.readAllStandardOutput().data())):
                self._tell(event)
        except ProtocolError:
            process.kill()

    @Slot()
    def _on_log_output(self) -> None:
        if self._process is not None:
            self._connection.log.add(bytes(self._process.readAllStandardError().data()))

    @Slot()
    def _on_tick(self) -> None:
        stalled = self._connection.tick()
        self._after()
        if stalled is not None:
            self._tell(stalled)

    # ------------------------------------------------------------ the process

    def _launch(self) -> None:
        self._memory_kills = out_of_memory_kills()
        self._process = process = QProcess(self)
        command = self._server_command if self._is_remote else self._own_command
        process.setProgram(command[0])
        process.setArguments(command[1:])
        process.setWorkingDirectory(str(program.FOLDER))
        process.setProcessEnvironment(child_environment(QProcessEnvironment.systemEnvironment()))
        if sys.platform != "win32":
            # A separate session, so that Ctrl+C in a terminal only reaches the window, which then ends the engine.
            process.setUnixProcessParameters(QProcess.UnixProcessFlag.CreateNewSession)
        process.readyReadStandardOutput.connect(self._on_output)
        process.readyReadStandardError.connect(self._on_log_output)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)
        process.start()

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        if self._process is not None and error is QProcess.ProcessError.FailedToStart:
            self._died(self._process, ExitCause.FAILED_TO_START, self._process.errorString())

    @Slot(int, QProcess.ExitStatus)
    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        process = self._process
        if process is None:
            return
        self._on_output()  # what it sent before it died is still useful
        self._on_log_output()
        if self._process is not process:
            return  # its last event led to a restart
        self._connection.log.end()
        crashed = status is QProcess.ExitStatus.CrashExit
        self._died(process, *exit_cause(code, crashed=crashed, memory_kills_before=self._memory_kills))

    def _died(self, process: QProcess, cause: ExitCause, detail: str) -> None:
        self._let_go(process)
        self._dying = None
        process.deleteLater()
        ended = self._connection.died(cause, detail)
        if self._connection.open_forgets:
            self._end_forgetting()
        self._after()
        self.engine_exited.emit(ended)

    def _let_go(self, process: QProcess) -> None:
        """From here on, nothing the process does reaches anyone; it must have ended before another one starts."""
        process.readyReadStandardOutput.disconnect(self._on_output)
        process.readyReadStandardError.disconnect(self._on_log_output)
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        self._process = None
        self._dying = process

    @Slot(QProcess.ProcessState)
    def _on_dying_changed(self, state: QProcess.ProcessState) -> None:
        process = self._dying
        if process is None or state is not QProcess.ProcessState.NotRunning:
            return
        self._dying = None
        process.deleteLater()
        if self._connection.open_forgets and self._is_remote:
            _erase_files()  # the process that was to do it has gone
        if self._connection.state is EngineState.STARTING:
            self._launch()

    def _wait_until_gone(self, process: QProcess) -> None:
        """Wait for the end of ``process``, at most this long, and then drop it."""
        if process.state() is QProcess.ProcessState.NotRunning or process.waitForFinished(self._quit_ms):
            process.deleteLater()
            return
        # It hangs in the system, for example on a drive, and ends when it can. A QProcess waits in its destructor.
        _log.warning("the engine did not end although it was killed")
        process.setParent(None)
        _LEFT_BEHIND.append(process)

    def _end_forgetting(self) -> None:
        """What follows from `Forget`, if there is no process to do it."""
        self._connection.open_forgets = 0
        _erase_files()
        self.forgotten.emit()


def _erase_files() -> None:
    """What `Forget` does to files."""
    with contextlib.suppress(KnownError):  # no such folder, so nothing is there
        erase_files(paths.chat_caches_dir())


def child_environment(own: QProcessEnvironment) -> QProcessEnvironment:
    """``own`` as changed by `program.child_environment`; unchanged variables keep their bytes, even if they aren't
    UTF-8.
    """
    values = {name: own.value(name) for name in own.keys()}  # noqa: SIM118 - not a mapping
    wanted = program.child_environment(values)
    environment = QProcessEnvironment(own)
    for name in values.keys() - wanted.keys():
        environment.remove(name)
    for name, value in wanted.items():
        if values.get(name) != value:
            environment.insert(name, value)
    return environment
