"""What the window knows of an engine: one small interface, its states and how it can end.

`LocalEngine` (in ``local_engine.py``) is its first implementation, a child process. Nothing here assumes one.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.logs import redact
from app.protocol.messages import AcceptRule, DrafterChoice, DraftLength, LoadSettings, Message, Propose, Sampling

LOG_LINES_KEPT = 40


class EngineState(enum.Enum):
    """Where an engine is; exactly one at a time."""

    STOPPED = "stopped"
    STARTING = "starting"
    EMPTY = "no model"
    LOADING = "loading"
    READY = "ready"
    ANSWERING = "answering"
    MEASURING = "measuring"
    COMPARING = "comparing"
    DIED = "died"

    @property
    def is_busy(self) -> bool:
        """Whether something runs that `Engine.cancel` can stop."""
        return self in (
            EngineState.LOADING,
            EngineState.ANSWERING,
            EngineState.MEASURING,
            EngineState.COMPARING,
        )


class ExitCause(enum.Enum):
    """Why an engine ended without being asked to."""

    KILLED = "killed"
    OUT_OF_MEMORY = "out of memory"
    ABORTED = "aborted"
    CRASHED = "crashed"
    EXITED = "exited"
    PROTOCOL = "protocol"
    FAILED_TO_START = "failed to start"
    REFUSED = "refused to start"


@dataclass(frozen=True)
class EngineExit:
    """An unasked-for end of an engine.

    Attributes:
        cause: What kind of end it was.
        detail: Signal name, exit code or protocol error, for the report; if it refused to start its own sentences why.
        state: What the engine was doing.
        log_lines: The last lines it logged, oldest first.
    """

    cause: ExitCause
    detail: str
    state: EngineState
    log_lines: tuple[str, ...] = ()

    def sentence(self) -> str:
        """One plain sentence that names the cause."""
        match self.cause:
            case ExitCause.KILLED:
                return f"The engine was ended from outside ({self.detail})."
            case ExitCause.OUT_OF_MEMORY:
                return "The engine was ended by the system, probably because memory ran out."
            case ExitCause.ABORTED:
                return f"The engine stopped itself because of an internal error ({self.detail})."
            case ExitCause.CRASHED:
                return f"The engine crashed ({self.detail})."
            case ExitCause.EXITED:
                return f"The engine ended unexpectedly ({self.detail})."
            case ExitCause.PROTOCOL:
                return "The engine sent something the window does not understand, so it was stopped."
            case ExitCause.FAILED_TO_START:
                return f"The engine did not start ({self.detail})."
            case ExitCause.REFUSED:
                return f"The engine did not start. {self.detail}"

    def report(self) -> str:
        """Plain text for a bug report: cause, state and the last log lines, home folder redacted."""
        lines = [
            "Slipstream engine report",
            f"cause: {self.cause.value}",
            f"detail: {self.detail}",
            f"while: {self.state.value}",
            "",
            "last log lines:",
            *(self.log_lines or ("(none)",)),
        ]
        return redact("\n".join(lines))


class CrashTracker:
    """Says when an engine dies too often to be started again without asking."""

    def __init__(self, limit: int = 3, window_s: float = 300.0) -> None:
        self._limit = limit
        self._window_s = window_s
        self._deaths: deque[float] = deque(maxlen=limit)

    def record(self, now_s: float) -> None:
        """Note a death at ``now_s``, seconds on a monotonic clock."""
        self._deaths.append(now_s)

    def is_exhausted(self, now_s: float) -> bool:
        """Whether the limit was reached within the window that ends at ``now_s``."""
        return len(self._deaths) == self._limit and now_s - self._deaths[0] <= self._window_s


class Engine(QObject):
    """An engine that loads pairs and answers chats, one thing at a time.

    Commands return the number of their request at once; what comes of it arrives by signal. Events of requests that are
    no longer current are never emitted.

    Signals:
        state_changed: The new `EngineState`.
        memory_read: A `MemoryRead`, when the engine has started and after each `read_memory`.
        engine_exited: An `EngineExit`; only for ends nobody asked for.
        forgotten: Everything `forget` was asked for so far has been erased.
        engine_stalled: Seconds without a sign of life; at most once a request.
    """

    state_changed = Signal(EngineState)
    load_progressed = Signal(object)
    pair_loaded = Signal(object)
    load_failed = Signal(object)
    generation_started = Signal(object)
    prompt_progressed = Signal(object)
    rounds_received = Signal(list)
    generation_finished = Signal(object)
    generation_failed = Signal(object)
    plain_measured = Signal(object)
    tokens_scored = Signal(object)
    memory_read = Signal(object)
    engine_exited = Signal(object)
    forgotten = Signal()
    engine_stalled = Signal(float)

    def state(self) -> EngineState:
        raise NotImplementedError

    def description(self) -> str:
        """Name and version for About; empty before the engine has said hello."""
        raise NotImplementedError

    def devices(self) -> list[str]:
        """GPUs it can offload to, by description."""
        raise NotImplementedError

    def processor_features(self) -> list[str]:
        """Instruction sets it computes with on the processor; empty before it has said hello."""
        raise NotImplementedError

    def read_memory(self) -> None:
        """Ask how much memory there is now, in every state; nothing comes of it where the engine does not run."""
        raise NotImplementedError

    def start(self) -> None:
        """Start without loading anything. Does nothing when it runs."""
        raise NotImplementedError

    def load(self, target: str, draft: str | None, settings: LoadSettings) -> int:
        """Load a pair; starts the engine if need be and gives up what was loaded or being loaded."""
        raise NotImplementedError

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
        """Answer a chat. Only allowed when the state is ``READY``.

        ``compared``: the answer is for the Compare window and belongs to no chat; the state is ``COMPARING`` meanwhile.
        """
        raise NotImplementedError

    def measure_plain(self, messages: Sequence[Message], *, sampling: Sampling, seed: int, max_tokens: int) -> int:
        """Measure decoding without a draft. Only allowed when the state is ``READY``."""
        raise NotImplementedError

    def score_tokens(
        self,
        messages: Sequence[Message],
        answer: Sequence[int],
        candidates: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
    ) -> int:
        """Ask what the target thinks of ``candidates`` behind the tokens of ``answer``, for the Compare window.

        Only allowed when the state is ``READY``. Returns 0 where this engine cannot tell; nothing comes of it then.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop what runs; does nothing when nothing does."""
        raise NotImplementedError

    def forget(self) -> None:
        """Erase what is left of chats beside the chats themselves; allowed in every state. `forgotten` follows."""
        raise NotImplementedError

    def restart(self) -> None:
        """End the engine, however it feels about it, and start a fresh one with nothing loaded."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End the engine politely, then by force; returns when it is gone."""
        raise NotImplementedError
