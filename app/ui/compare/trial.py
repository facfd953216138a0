"""A trial of a pair that was loaded for the first time: a few seconds plain and with draft, while nobody waits.

What it measures stands in the model's page and ranks drafts before all guesses. The chat comes first: a message ends
the trial at once, and it begins again when the engine is free.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.compare.prompts import Prompt
from app.compare.results import Comparison
from app.compare.steps import Compared, Task
from app.errors import KnownError
from app.models.gguf import ModelFileError
from app.models.trials import FileKey, Trial, Trials
from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.open_chats import OpenChats
from app.ui.compare.runner import End, Runner
from app.ui.engine.client import EngineClient, EngineState
from app.ui.widgets.tasks import Lane

_log = logging.getLogger(__name__)

PROMPT = "Explain in a few sentences what a checksum is good for. Then write a short Python function that computes one."
SECONDS = 3.0
"""In seconds, for the run without a draft; with a draft it is faster."""
LEAST_TOKENS, MOST_TOKENS = 16, 128
IDLE_MS = 1500
_SEED = 0


class PairTrial(QObject):
    """Tries pairs out, each once.

    Signals:
        tried: The `Trial` of the pair that is loaded, which is kept now.
    """

    tried = Signal(object)

    def __init__(self, engine: EngineClient, chats: OpenChats, trials: Trials, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._chats = chats
        self._trials = trials
        self._pair: PairLoaded | None = None
        self._keys: tuple[FileKey, FileKey] | None = None
        """The keys under which the pair's trial is stored."""
        self._asked = 0
        self._lane = Lane(self, "trials")
        self._runner = Runner(engine, chats.queue.is_wanted, self)
        self._idle = QTimer(self, singleShot=True, interval=IDLE_MS)
        self._idle.timeout.connect(self._begin)
        self._runner.compared.connect(self._on_compared)
        self._runner.ended.connect(self._on_ended)
        chats.queue.wanted_changed.connect(self._on_wanted_changed)

    def is_running(self) -> bool:
        return self._runner.is_running()

    def set_pair(self, pair: PairLoaded | None) -> None:
        """A pair was loaded or unloaded."""
        self.stop()
        self._pair = self._keys = None
        self._asked += 1
        if pair is not None and (draft := _draft_path(pair)):
            number = self._asked

            def looked_up(keys: tuple[FileKey, FileKey] | None) -> None:
                if number == self._asked and keys is not None:
                    self._pair, self._keys = pair, keys
                    self._wait()

            self._lane.submit(partial(self._keys_to_try, pair.target.path, draft), looked_up)

    @Slot()
    def stop(self) -> None:
        """The engine is needed for something else."""
        self._idle.stop()
        self._runner.stop()

    def close(self) -> None:
        """The main window is closed."""
        self.stop()
        self._lane.close()

    @Slot()
    def put_off(self) -> None:
        """Stop for a while: it starts again when the engine is free."""
        self.stop()
        self._wait()

    # ------------------------------------------------------------ inside

    def _keys_to_try(self, target: str, draft: str) -> tuple[FileKey, FileKey] | None:
        """Runs in the lane: the key of the trial of these files; ``None`` if there is a trial already, or a file is
        gone.
        """
        try:
            keys = FileKey.of(target), FileKey.of(draft)
        except ModelFileError:
            return None
        return keys if self._trials.get(*keys) is None else None

    @Slot()
    def _wait(self) -> None:
        if self._pair is not None:
            self._idle.start()

    @Slot()
    def _begin(self) -> None:
        pair = self._pair
        if pair is None or self._runner.is_running():
            return
        if self._chats.queue.is_wanted() or self._engine.state() is not EngineState.READY:
            self._wait()
            return
        self._runner.start_one(_task(pair, self._chats.queue.settings(self._chats.current.settings)))

    @Slot(bool)
    def _on_wanted_changed(self, wanted: bool) -> None:
        if wanted:
            self.stop()
        else:
            self._wait()

    @Slot(object)
    def _on_compared(self, compared: Compared) -> None:
        keys, trial = self._keys, _measured(compared.comparison, self._engine.description())
        if keys is None or trial is None:
            return

        def failed(error: KnownError) -> None:
            _log.warning("%s", error)  # it still applies until the end
            self.tried.emit(trial)

        self._lane.submit(lambda: self._trials.put(*keys, trial), lambda _: self.tried.emit(trial), failed)

    @Slot(object)
    def _on_ended(self, end: End) -> None:
        if end.kind != "stopped":
            self._pair = None  # tried, or it can't be tried


def _draft_path(pair: PairLoaded) -> str:
    """The file that drafts; the target's own if it does with an MTP head inside it. Empty if there is none, or a draft
    model beside a head: a trial says what one of them brings.
    """
    if pair.has_head and pair.draft:
        return ""
    if pair.has_head:
        return (pair.head_file or pair.target).path
    return pair.draft.path if pair.draft else ""


def _task(pair: PairLoaded, settings: AnswerSettings) -> Task:
    """Answer with the sampler in use, for a few seconds."""
    tokens = MOST_TOKENS if pair.plain_pass_seconds <= 0 else int(SECONDS / pair.plain_pass_seconds)
    limited = replace(settings, max_tokens=min(max(tokens, LEAST_TOKENS), MOST_TOKENS), draft_length="auto", stop=())
    prompt = Prompt(kind="code", messages=[Message(role="user", content=PROMPT)])
    return Task(prompt, limited.command(prompt.messages, _SEED))


def _measured(comparison: Comparison, engine: str) -> Trial | None:
    """What a comparison says about the pair; nothing if an answer was too short to have a speed."""
    plain, drafted = comparison.plain.figures, comparison.drafted.figures
    if plain.decode_tokens_per_second is None or drafted.decode_tokens_per_second is None:
        return None
    return Trial(
        acceptance_rate=drafted.draft.acceptance_rate,
        plain_speed=plain.decode_tokens_per_second,
        drafted_speed=drafted.decode_tokens_per_second,
        tokens=drafted.completion_tokens,
        engine=engine,
        measured_at=int(time.time()),
    )
