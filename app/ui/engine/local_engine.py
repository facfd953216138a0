"""The engine as a child process on pipes.

The window trusts nothing that comes out of the child: a frame that is too large, is no event or comes before the
greeting ends it. The child gets no secrets in its environment.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QProcess, QTimer, Slot

from app import paths
from app.errors import KnownError
from app.protocol.frames import FrameReader, ProtocolError
from app.protocol.framing import decode_event, encode_frame
from app.protocol.messages import (
    PROTOCOL_VERSION,
    AcceptRule,
    Cancel,
    Command,
    DrafterChoice,
    DraftLength,
    Event,
    Forget,
    Forgotten,
    Generate,
    Hello,
    Load,
    LoadFailed,
    LoadSettings,
    MeasurePlain,
    MemoryRead,
    Message,
    Ping,
    Pong,
    Propose,
    Quit,
    ReadMemory,
    RoundsReceived,
    Sampling,
    ScoreTokens,
    StartFailed,
)
from app.storage.files import erase_files
from app.ui.engine.events import ENDS, SIGNALS
from app.ui.engine.interface import Engine, EngineExit, EngineState, ExitCause
from app.ui.engine.process import (
    LogLines,
    cause_of_crash,
    engine_command,
    out_of_memory_kills,
    prepare,
    wait_until_gone,
)

_log = logging.getLogger("slipstream.engine")

_ENDED = (EngineState.STOPPED, EngineState.DIED)


@dataclass(frozen=True)
class Timings:
    """How patient the window is, in seconds."""

    ping_interval: float = 2.0
    silence: float = 10.0
    """Without an answer to a ping."""
    no_progress: float = 120.0
    start: float = 60.0
    cancel: float = 5.0
    quit: float = 2.0


class LocalEngine(Engine):
    """`Engine` in a child process.

    Attributes:
        timings: When it counts as stalled; shorter in tests.
    """

    def __init__(
        self, command: Sequence[str] | None = None, timings: Timings | None = None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.timings = timings or Timings()
        self._command = list(command or engine_command())
        self._process: QProcess | None = None
        self._dying: QProcess | None = None
        """One that is to be gone before the next is started: it holds memory that the next one needs."""
        self._state = EngineState.STOPPED
        self._reader = FrameReader()
        self._log_lines = LogLines()
        self._hello: Hello | None = None
        self._waiting: list[bytes] = []
        self._forgets = 0
        """How many `Forget` the child has not carried out yet."""
        self._next_request = 1
        self._current = 0
        self._kills_before = 0
        self._pings_open = 0
        self._stall_reported = False
        self._violation: str | None = None
        self._refusal: str | None = None
        self._ping_timer = self._timer(self.timings.ping_interval, self._on_ping_due, single=False)
        self._start_timer = self._timer(self.timings.start, self._on_start_overdue)
        self._cancel_timer = self._timer(self.timings.cancel, self._on_cancel_overdue)

    # ------------------------------------------------------------ Engine

    def state(self) -> EngineState:
        return self._state

    def description(self) -> str:
        return self._hello.engine if self._hello else ""

    def devices(self) -> list[str]:
        return [device.description for device in self._hello.devices] if self._hello else []

    def processor_features(self) -> list[str]:
        return self._hello.processor_features if self._hello else []

    def read_memory(self) -> None:
        if self._hello is not None:
            self._send(ReadMemory())

    def process_id(self) -> int:
        """The child's process id; 0 when there is none."""
        return int(self._process.processId()) if self._process else 0

    def start(self) -> None:
        if self._state not in _ENDED:
            return
        self._stall_reported = False
        self._set_state(EngineState.STARTING)
        self._start_timer.start()
        if self._dying is None:
            self._launch()

    def _launch(self) -> None:
        self._reader = FrameReader()
        self._violation = None
        self._refusal = None
        self._log_lines = LogLines()
        self._kills_before = out_of_memory_kills()
        process = QProcess(self)
        prepare(process, self._command)
        process.readyReadStandardOutput.connect(self._on_output)
        process.readyReadStandardError.connect(self._on_log_output)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)
        self._process = process
        process.start()

    def load(self, target: str, draft: str | None, settings: LoadSettings) -> int:
        self.start()
        if self._state in _ENDED:
            return 0  # it could not even be started, which `engine_exited` has told
        self._waiting.clear()
        if self._state.is_busy:
            self._send(Cancel())
        request = self._begin(EngineState.LOADING if self._hello else EngineState.STARTING)
        self._send(Load(request=request, target=target, draft=draft, settings=settings))
        return request

    def generate(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling,
        seed: int | None,
        max_tokens: int | None,
        stop: Sequence[str],
        draft_length: DraftLength,
        accept: AcceptRule,
        drafter: DrafterChoice = "auto",
        propose: Propose = "auto",
        compared: bool = False,
    ) -> int:
        self._require_ready()
        request = self._begin(EngineState.COMPARING if compared else EngineState.ANSWERING)
        self._send(
            Generate(
                request=request,
                messages=list(messages),
                sampling=sampling,
                seed=seed,
                max_tokens=max_tokens,
                stop=list(stop),
                draft_length=draft_length,
                accept=accept,
                drafter=drafter,
                propose=propose,
            )
        )
        return request

    def measure_plain(self, messages: Sequence[Message], *, sampling: Sampling, seed: int, max_tokens: int) -> int:
        self._require_ready()
        request = self._begin(EngineState.MEASURING)
        self._send(
            MeasurePlain(request=request, messages=list(messages), sampling=sampling, seed=seed, max_tokens=max_tokens)
        )
        return request

    def score_tokens(
        self,
        messages: Sequence[Message],
        answer: Sequence[int],
        candidates: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
    ) -> int:
        self._require_ready()
        request = self._begin(EngineState.COMPARING)
        self._send(
            ScoreTokens(
                request=request,
                messages=list(messages),
                answer=list(answer),
                candidates=list(candidates),
                sampling=sampling,
                seed=seed,
            )
        )
        return request

    def cancel(self) -> None:
        if self._state.is_busy:
            self._send(Cancel())
            self._cancel_timer.start()
        elif self._state is EngineState.STARTING and self._waiting:
            self._waiting.clear()
            request, self._current = self._current, 0
            self.load_failed.emit(LoadFailed(request=request, message="Loading was cancelled.", cancelled=True))

    def forget(self) -> None:
        self._forgets += 1
        if self._hello is not None:
            self._send(Forget())  # a child that starts gets it as soon as it has said hello
        elif self._state in _ENDED:
            self._erase_files()

    def restart(self) -> None:
        if self._process is not None:
            self._let_go(self._process)
            self._kill()
        self._current = 0
        self._waiting.clear()
        self._set_state(EngineState.STOPPED)
        self.start()

    def shutdown(self) -> None:
        process, is_polite = self._process, self._hello is not None
        if process is not None:
            self._let_go(process)
            if is_polite:
                process.write(encode_frame(Quit()))
                process.closeWriteChannel()
                process.waitForFinished(round(self.timings.quit * 1000))
        if (dying := self._dying) is not None:
            self._dying = None
            dying.kill()
            wait_until_gone(dying, self.timings.quit)
        if self._forgets:
            self._erase_files()
        self._set_state(EngineState.STOPPED)

    # ------------------------------------------------------------ requests and state

    def _require_ready(self) -> None:
        if self._state is not EngineState.READY:
            raise RuntimeError(f"the engine is {self._state.value}, not ready")

    def _begin(self, state: EngineState) -> int:
        self._current = self._next_request
        self._next_request += 1
        self._stall_reported = False
        self._cancel_timer.stop()
        self._set_state(state)
        return self._current

    def _set_state(self, state: EngineState) -> None:
        if self._enter(state):
            self.state_changed.emit(state)

    def _enter(self, state: EngineState) -> bool:
        """Be in this state without telling; returns whether it is another one."""
        if state is not EngineState.STARTING:
            self._start_timer.stop()
        if not state.is_busy:
            self._ping_timer.stop()
            self._cancel_timer.stop()
        elif not self._ping_timer.isActive():
            self._pings_open = 0
            self._ping_timer.start()
        before, self._state = self._state, state
        return state is not before

    def _send(self, command: Command) -> None:
        frame = encode_frame(command)
        if self._hello is None:
            self._waiting.append(frame)
        elif self._process is not None:
            self._process.write(frame)

    # ------------------------------------------------------------ what the child says

    @Slot()
    def _on_output(self) -> None:
        process = self._process
        if process is None or self._violation is not None:
            return
        try:
            for body in self._reader.feed(bytes(process.readAllStandardOutput().data())):
                if self._process is not process:
                    return
                self._receive(decode_event(body))
        except ProtocolError as error:
            self._violated(str(error))

    def _receive(self, event: Event) -> None:
        if isinstance(event, Hello):
            self._greet(event)
        elif isinstance(event, StartFailed):
            self._refusal = event.message
        elif self._hello is None:
            raise ProtocolError(f"{type(event).__name__} before Hello")
        elif isinstance(event, Pong):
            self._on_pong(event)
        elif isinstance(event, Forgotten):
            self._on_forgotten()
        elif isinstance(event, MemoryRead):
            self.memory_read.emit(event)
        elif event.request == self._current:
            self._deliver(event)

    def _greet(self, hello: Hello) -> None:
        if self._hello is not None:
            raise ProtocolError("a second Hello")
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolError(f"the engine speaks protocol {hello.protocol}, the window {PROTOCOL_VERSION}")
        self._hello = hello
        _log.info("engine: %s, devices: %s", hello.engine, ", ".join(self.devices()) or "CPU only")
        self.memory_read.emit(MemoryRead(devices=hello.devices))
        frames, self._waiting = self._waiting, []
        for _ in range(self._forgets):
            self._send(Forget())
        if self._state is EngineState.STARTING:
            self._set_state(EngineState.LOADING if frames else EngineState.EMPTY)
        if self._process is not None:
            for frame in frames:
                self._process.write(frame)

    def _deliver(self, event: Event) -> None:
        """Tell the event, then the state it leads to: whoever hears of the state knows by then what happened."""
        ends_in = ENDS.get(type(event))
        if ends_in is not None:
            self._current = 0
            self._enter(ends_in)
        if isinstance(event, RoundsReceived):
            self.rounds_received.emit(event.rounds)
        elif (name := SIGNALS.get(type(event))) is not None:
            getattr(self, name).emit(event)
        if self._state is ends_in and not self._current:  # else something else has begun because of the event
            self.state_changed.emit(ends_in)

    @Slot()
    def _on_log_output(self) -> None:
        if self._process is not None:
            self._log_lines.add(bytes(self._process.readAllStandardError().data()).decode("utf-8", "replace"))

    # ------------------------------------------------------------ stalls

    def _timer(self, seconds: float, slot: object, *, single: bool = True) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(single)
        timer.setInterval(round(seconds * 1000))
        timer.timeout.connect(slot)
        return timer

    @Slot()
    def _on_ping_due(self) -> None:
        # Counting open pings, not time: after the machine slept, or the window itself hung, no time may be held
        # against the engine.
        silent_s = self._pings_open * self.timings.ping_interval
        if silent_s >= self.timings.silence:
            self._report_stall(silent_s)
        self._pings_open += 1
        self._send(Ping())

    def _on_pong(self, pong: Pong) -> None:
        self._pings_open = 0
        if pong.busy and self._state.is_busy and pong.seconds_since_progress > self.timings.no_progress:
            self._report_stall(pong.seconds_since_progress)

    @Slot()
    def _on_start_overdue(self) -> None:
        self._report_stall(self.timings.start)

    @Slot()
    def _on_cancel_overdue(self) -> None:
        self._report_stall(self.timings.cancel)

    def _report_stall(self, seconds: float) -> None:
        if not self._stall_reported:
            self._stall_reported = True
            _log.warning("no sign of life for %.0f s while %s", seconds, self._state.value)
            self.engine_stalled.emit(seconds)

    # ------------------------------------------------------------ the end

    def _violated(self, detail: str) -> None:
        _log.error("protocol violation: %s", detail)
        self._violation = detail
        if self._process is not None:
            self._process.kill()

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        process = self._process
        if process is not None and error is QProcess.ProcessError.FailedToStart:
            self._died(process, ExitCause.FAILED_TO_START, process.errorString())

    @Slot(int, QProcess.ExitStatus)
    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        process = self._process
        if process is None:
            return
        self._on_output()  # what it said before it died is still worth having
        self._on_log_output()
        self._log_lines.end()
        if self._process is not process:
            return  # what it said last led to a restart
        if self._violation is not None:
            self._died(process, ExitCause.PROTOCOL, self._violation)
        elif self._refusal is not None:
            self._died(process, ExitCause.REFUSED, self._refusal)
        elif status is QProcess.ExitStatus.CrashExit:
            self._died(process, *cause_of_crash(code, self._kills_before))
        else:
            self._died(process, ExitCause.EXITED, f"exit code {code}")

    def _died(self, process: QProcess, cause: ExitCause, detail: str) -> None:
        ended = EngineExit(cause, detail, self._state, self._log_lines.kept())
        _log.warning("engine ended: %s (%s) while %s", cause.value, detail, self._state.value)
        self._let_go(process)
        self._dying = None
        process.deleteLater()
        if self._forgets:
            self._erase_files()
        self._set_state(EngineState.DIED)
        self.engine_exited.emit(ended)

    def _let_go(self, process: QProcess) -> None:
        """From here on nothing the process does reaches anybody; its end is awaited before another one begins."""
        process.readyReadStandardOutput.disconnect(self._on_output)
        process.readyReadStandardError.disconnect(self._on_log_output)
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        self._process = None
        self._dying = process
        self._hello = None
        self._current = 0
        self._waiting.clear()

    def _kill(self) -> None:
        """End what was let go; `_on_dying_changed` hears of it. It may take long: the system has a lot to free."""
        if (process := self._dying) is not None:
            process.stateChanged.connect(self._on_dying_changed)
            process.kill()
            self._on_dying_changed(process.state())

    @Slot(QProcess.ProcessState)
    def _on_dying_changed(self, state: QProcess.ProcessState) -> None:
        process = self._dying
        if process is None or state is not QProcess.ProcessState.NotRunning:
            return
        self._dying = None
        process.deleteLater()
        if self._state is EngineState.STARTING:
            self._launch()

    def _erase_files(self) -> None:
        """What `Forget` does to files, where there is no process to do it."""
        self._forgets = 0
        with contextlib.suppress(KnownError):  # no such folder: then nothing was kept
            erase_files(paths.kept_caches_dir())
        self.forgotten.emit()

    def _on_forgotten(self) -> None:
        if self._forgets == 0:
            raise ProtocolError("Forgotten without a Forget")
        self._forgets -= 1
        if self._forgets == 0:
            self.forgotten.emit()
