"""A trial of a pair that was loaded for the first time: a few seconds plain and with draft, while nobody waits.

What it measures stands in the model's page and ranks drafts before all guesses. Everything else goes first: it ends the
trial at once, which begins again when the engine has been free for a while.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.models.gguf import ModelFileError
from app.models.measurements import FileKey, StoredTrial, Trial, Trials
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Message, generate
from app.protocol.events import PairLoaded
from app.system import KnownError
from app.ui.context import AppContext
from app.ui.engine import Priority
from app.ui.engine.pair_names import is_guide
from app.ui.widgets.tasks import Lane

if TYPE_CHECKING:
    from app.compare.results import Comparison
    from app.compare.steps import Task
    from app.ui.compare.runner import Runner

_log = logging.getLogger(__name__)

PROMPT = "Explain in a few sentences what a checksum is good for. Then write a short Python function that computes one."
SECONDS = 3.0
"""In seconds, for the run without a draft; with a draft it is faster."""
LEAST_TOKENS, MOST_TOKENS = 16, 128
_SEED = 0


class PairTrial(QObject):
    """Tries pairs out, each once. Signal ``tried``: the `Trial` of the pair that is loaded, which is kept now."""

    tried = Signal(object)

    def __init__(self, ctx: AppContext, trials: Trials, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._ctx = ctx
        self._trials = trials
        self._keys: tuple[FileKey, FileKey] | None = None
        """Under which the trial of the loaded pair is to be stored."""
        self._asked = 0
        self._lane = Lane(self, "trials")
        self._runner: Runner | None = None
        ctx.loader.pair_changed.connect(self._on_pair_changed)
        ctx.closing.callback(self._close)

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        self._stop()
        self._keys = None
        self._asked += 1
        if pair is not None and not is_guide(pair.target.path) and (draft := _draft_path(pair)):
            number = self._asked

            def looked_up(keys: tuple[FileKey, FileKey] | None) -> None:
                if number == self._asked and keys is not None:
                    self._keys = keys
                    self._try(pair)

            self._lane.submit(partial(self._keys_to_try, pair.target.path, draft), looked_up)

    def _close(self) -> None:
        self._stop()
        self._lane.close()

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()

    def _try(self, pair: PairLoaded) -> None:
        if self._runner is None:
            from app.ui.compare.runner import Runner  # not needed before there is something to try

            self._runner = Runner(self._ctx.engine, self._ctx.queue, self, priority=Priority.TRIAL)
            self._runner.compared.connect(self._on_compared)
        chats = self._ctx.chats
        self._runner.start_one(_task(pair, chats.answers.settings(chats.current.settings)))

    def _keys_to_try(self, target: str, draft: str) -> tuple[FileKey, FileKey] | None:
        """In the lane: the key of the trial of these files; ``None`` if there is a trial already, or a file is gone."""
        try:
            keys = FileKey.of(target), FileKey.of(draft)
        except ModelFileError:
            return None
        return keys if self._trials.get(keys) is None else None

    @Slot(object)
    def _on_compared(self, compared: Comparison) -> None:
        keys, trial = self._keys, _measured(compared, self._ctx.engine.description())
        if keys is None or trial is None:
            return

        def failed(error: KnownError) -> None:
            _log.warning("%s", error)  # it still applies until the end
            self.tried.emit(trial)

        self._lane.submit(lambda: self._trials.add(StoredTrial(*keys, trial)), lambda _: self.tried.emit(trial), failed)


def _draft_path(pair: PairLoaded) -> str:
    """The file that drafts, or the target's own with an MTP head inside. Empty if there is none, or both: a trial is
    about one."""
    if pair.has_head and pair.draft:
        return ""
    if pair.has_head:
        return (pair.head_file or pair.target).path
    return pair.draft.path if pair.draft else ""


def _task(pair: PairLoaded, settings: AnswerSettings) -> Task:
    """Answer with the sampler in use, for a few seconds."""
    from app.compare.prompts import Prompt
    from app.compare.steps import Task

    tokens = MOST_TOKENS if pair.plain_pass_seconds <= 0 else int(SECONDS / pair.plain_pass_seconds)
    limit = min(max(tokens, LEAST_TOKENS), MOST_TOKENS)
    prompt = Prompt(kind="code", messages=[Message(role="user", content=PROMPT)])
    return Task(prompt, generate(settings, prompt.messages, seed=_SEED, max_tokens=limit, draft_length="auto", stop=[]))


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
