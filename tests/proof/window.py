"""The real window, with somebody in it: ``python -m tests.proof.window busy|idle``.

A busy user types, sends, attaches, edits and changes settings at random. An idle one does what standard input says, a
JSON list ``[command, value]`` on each line, and the window closes at its end. What happens is told on standard output
in the same form; `tests.proof.window_process` reads it. Everything typed consists of words that occur only once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from PySide6.QtCore import QAbstractEventDispatcher, QCoreApplication, QObject, QTimer, Signal, Slot
from shiboken6 import isValid

from app.chats.model import StoredMessage
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.models.library.library import LibraryEntry
from app.protocol.serving import Serve
from app.ui import app as app_module
from app.ui.app import App
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.model import ChatModel, ChatState
from app.ui.engine import EngineState
from app.ui.notices import Notice
from app.ui.shell import application

WORD = re.compile(r"w[0-9a-f]{8}x\d+w")
QUESTIONS = (
    "What is a draft model?",
    "How do I stop an answer?",
    "What does the acceptance rate tell me?",
    "Where are my chats stored?",
    "Hello",
)
CODE = "```python\ndef answer() -> int:\n    return 42  # {}\n```\n\n$$\\frac{{1}}{{2}}$$\n"
_PAUSE_MS = 60
"""The longest pause of the busy user."""
_SPOKEN_STEP_MS = 20
"""Shorter steps of the event loop aren't told."""
_LONG_STEP_SECONDS = 0.1
_REST_MS = 200
_FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')
_telling = threading.Lock()


def tell(kind: str, value: Any = None) -> None:
    """Something for `WindowProcess`. What was told before a kill is in the pipe and not lost. From any thread."""
    line = (json.dumps([kind, value]) + "\n").encode()
    with _telling:
        while line:  # a pipe takes 64 KiB at a time
            line = line[os.write(1, line) :]


def look_at_stored(store: ChatStore) -> dict[str, list[str]]:
    """Every word that the user typed, as often as it occurs in their messages and in what is unsent; and the names of
    attachments whose content isn't there.
    """
    texts = "SELECT text FROM messages WHERE role = 'user' UNION ALL SELECT text FROM unsent"
    words = [word for (text,) in store._connection.execute(texts) for word in WORD.findall(text)]
    attached = "SELECT sha256, name FROM attachments UNION SELECT sha256, name FROM unsent_attachments"
    missing = [name for sha256, name in store._connection.execute(attached) if store._files.read(sha256) is None]
    return {"words": words, "missing": missing}


class Steps(QObject):
    """How long the event loop was busy at a time: from its waking up to its next waiting.

    Of a step that takes too long, it is also told where the window's thread was then.
    """

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._dispatcher = QAbstractEventDispatcher.instance()
        self._since = self._since_cpu = 0.0
        self._thread_id = threading.get_ident()
        self.longest = float(_SPOKEN_STEP_MS)
        self._dispatcher.awake.connect(self._on_awake)
        self._dispatcher.aboutToBlock.connect(self._on_about_to_block)
        threading.Thread(target=self._watch, daemon=True).start()

    @Slot()
    def _on_awake(self) -> None:
        if not self._since:
            self._since_cpu, self._since = time.thread_time(), time.perf_counter()

    @Slot()
    def _on_about_to_block(self) -> None:
        if self._since:
            step = 1000 * (time.perf_counter() - self._since)
            if step > self.longest:
                self.longest = step
                tell("longest step", [round(step), round(1000 * (time.thread_time() - self._since_cpu))])
        self._since = 0.0

    def _watch(self) -> None:
        told = 0.0
        while True:
            time.sleep(_LONG_STEP_SECONDS / 4)
            since = self._since
            if since and since != told and time.perf_counter() - since > _LONG_STEP_SECONDS:
                told = since
                tell("long step", self._stack())

    def _stack(self) -> list[str]:
        """Where the window's thread is, the innermost function last.

        Not from `sys._current_frames`: whoever has a frame also has its variables. If it returns meanwhile, they are
        destroyed later, and in this thread. A `QPainter` that outlives its paint event ends the process.
        """
        with tempfile.TemporaryFile() as dump:
            faulthandler.dump_traceback(dump)
            dump.seek(0)
            threads = dump.read().decode(errors="replace").split("\n\n")
        own = next((one for one in threads if one.startswith(f"Thread 0x{self._thread_id:016x}")), "")
        return [f"{Path(file).name}:{line} {name}" for file, line, name in reversed(_FRAME.findall(own))][-24:]


class User(QObject):
    """Somebody at the window.

    Signals:
        asked: A line of standard input; ``None`` at its end.
    """

    asked = Signal(object)

    def __init__(self, app: App, behavior: str) -> None:
        super().__init__(app)
        self.app, self.ctx, self.window = app, app.ctx, app.window
        self._chance = random.Random(os.environ.get("SLIPSTREAM_PROOF_SEED"))
        self._name, self._count = uuid.uuid4().hex[:8], 0
        self._unsaved: list[tuple[ChatModel, str]] = []
        self._is_busy = behavior == "busy"
        self._is_asking = self._has_stored = self._is_ready = self._is_settling = False
        self._steps = Steps(self)
        self._timer = QTimer(self, interval=10)
        self._timer.timeout.connect(self._on_time)
        self._timer.start()
        app.ctx.chats.answers.begun.connect(self._on_answer_begun)
        app.ctx.notices.changed.connect(self._on_notices_changed)
        app.serving.state_changed.connect(self._on_serving)
        self.asked.connect(self._on_asked)
        threading.Thread(target=self._read, daemon=True).start()

    # ------------------------------------------------------------ what is told

    def _on_time(self) -> None:
        if not self._is_ready:
            self._look_whether_ready()
            return
        self._tell_saved()
        if self._is_settling and self._is_settled():
            self._is_settling = False
            tell("settled", [word for message in self.model.messages for word in _words(message)])
        if self._is_busy:
            self._timer.setInterval(self._chance.randrange(_PAUSE_MS))
            self._do_something()

    def _look_whether_ready(self) -> None:
        """The chats are open, and the pair is loaded or has been given up."""
        app, notices = self.app, self.ctx.notices.notices()
        is_decided = app.ctx.loader.pair() is not None or "load" in notices or "engine" in notices
        if not is_decided or not self.ctx.store._worker.opened.done() or not app.ctx.chats.current.unsent.is_known:
            return
        if self.ctx.store._temporary is None and not self._is_asking:
            self._is_asking = True
            app.ctx.store.ask(look_at_stored, self._on_stored)
        if not (self._has_stored or self.ctx.store._temporary):
            return
        self._is_ready = True
        tell("ready", {subject: notice.text for subject, notice in notices.items()})
        if self._is_busy:
            if app.ctx.loader.pair() is None:
                app.ctx.loader.load_again()
            app.serving.start(Serve(host=None, port=0, key=None))

    def _is_settled(self) -> bool:
        """Whether nothing goes on in the chat that is shown, and its last change was saved or refused."""
        model = self.model
        is_at_rest = model.state is ChatState.IDLE and model.writer.is_idle()
        return is_at_rest and not model.unsent.reading and not model.unsent._timer.isActive()

    def _on_stored(self, found: dict[str, list[str]]) -> None:
        tell("stored", found)
        self._has_stored = True

    def _tell_saved(self) -> None:
        if self.ctx.store._temporary is not None:
            return  # the window has said that nothing is kept
        saved = [entry for entry in self._unsaved if _has_saved(entry[0])]
        if saved:
            self._unsaved = [entry for entry in self._unsaved if entry not in saved]
            tell("acknowledged", [word for _model, word in saved])

    @Slot(object)
    def _on_answer_begun(self, live: LiveAnswer) -> None:
        def ended(_figures: object) -> None:
            status = live.message.status if live.message is not None else "none"
            tell("answered" if status == "complete" else "not answered", status)

        live.ended.connect(ended)
        tell("began")

    @Slot(object)
    def _on_notices_changed(self, shown: dict[str, Notice]) -> None:
        tell("notices", {subject: notice.text for subject, notice in shown.items()})

    @Slot()
    def _on_serving(self) -> None:
        serving = self.app.serving
        tell(f"server {serving.state.kind}", [serving.process_id(), *(port for _host, port in serving.state.addresses)])

    # ------------------------------------------------------------ what the busy user does

    def _do_something(self) -> None:
        often = (self.type, self.type, self.send, self.send, self.attach)
        self._chance.choice((*often, self.new, self.open, self.edit, self.show_code, self.change, self.mend))()

    def _word(self) -> str:
        self._count += 1
        word = f"w{self._name}x{self._count}w"
        tell("typed", word)
        return word

    @property
    def model(self) -> ChatModel:
        return self.ctx.chats.current

    def type(self, text: str = "") -> None:
        """Put a word into the composer, as the keyboard does."""
        editor, word = self.window.composer.editor, self._word()
        editor.moveCursor(editor.textCursor().MoveOperation.End)
        self._unsaved.append((self.model, word))
        editor.insertPlainText(f" {text} {word}")

    def send(self) -> None:
        if self.model.state is not ChatState.OPENING and len(self.window.composer.text()) < 2000:
            if not self.window.composer.text().strip():
                self.type(self._chance.choice(QUESTIONS))
            self.window.composer.editor.submitted.emit()

    def attach(self) -> None:
        if len(self.model.unsent.attachments) > 3 or self.model.unsent.reading:
            return
        path = Path(os.environ["HOME"]) / f"notes {self._chance.randrange(50)}.txt"
        path.write_text(f"Notes {path.name}\n" * 20, encoding="utf-8")
        self.app.attachments.attach_files([str(path)])
        model, before = self.model, len(self.model.unsent.attachments)

        def look() -> None:
            if isValid(model) and len(model.unsent.attachments) > before:
                tell("attached")

        model.unsent.attachments_changed.connect(look)

    def new(self) -> None:
        self.ctx.chats.new()

    def open(self) -> None:
        if ids := self.ctx.operations.chat_ids():
            self.ctx.chats.open(self._chance.choice(ids))

    def edit(self) -> None:
        """Ask the last question in other words."""
        questions = [one for one in self.model.messages if one.role == "user"]
        if questions and self.model.state is ChatState.IDLE:
            word = self._word()
            if self.model.edit(questions[-1].id, f"{self._chance.choice(QUESTIONS)} {word}"):
                self._unsaved.append((self.model, word))

    def show_code(self) -> None:
        """Write an answer with code and a formula, for the helper."""
        answers = [one for one in self.model.messages if one.role == "assistant"]
        if answers and self.model.state is ChatState.IDLE:
            self.model.edit(answers[-1].id, CODE.format(self._chance.randrange(10**6)))

    def change(self) -> None:
        """Change settings of the app and of the chat."""
        self.ctx.settings.values.draft_length = self._chance.randrange(1, 9)
        self.ctx.settings.apply()
        self.model.set_settings(ChatSettings(system_prompt=f"Be brief. {self._chance.randrange(10)}"))

    def mend(self) -> None:
        """Press what the notices offer after several crashes."""
        app = self.app
        if app.ctx.engine.state() is EngineState.DIED:
            app.ctx.loader.restart()
        if app.serving.state.kind == "failed":
            app.serving.restart()

    # ------------------------------------------------------------ what standard input asks for

    def _read(self) -> None:
        for line in sys.stdin:
            self.asked.emit(json.loads(line))
        with contextlib.suppress(RuntimeError):  # the window is gone
            self.asked.emit(None)

    @Slot(object)
    def _on_asked(self, asked: list[Any] | None) -> None:
        if asked is None:
            self.window.close()
            return
        command, value = asked
        done = getattr(self, command)(*([] if value is None else [value]))
        if command not in ("type", "send", "new"):
            tell(f"done {command}", done)

    def ask(self, question: str) -> None:
        """Type a question and send it."""
        self.type(question)
        self.window.composer.editor.submitted.emit()

    def settle(self) -> None:
        """Tell when nothing goes on any more, with the words of the chat that is shown."""
        self._is_settling = True

    def save_again(self) -> None:
        """What the notice about a full disk offers."""
        self.ctx.chats.save_again()

    def show_library(self) -> None:
        """Open the library, and tell the problem of each model that is found."""

        def shown(entries: list[LibraryEntry]) -> None:
            tell("library", [entry.problem for entry in entries])

        self.app.library.scanned.connect(shown)
        self.ctx.actions.run("show_library")

    def rest(self) -> None:
        """Tell when the event loop has waited."""
        QTimer.singleShot(_REST_MS, self, lambda: tell("rested"))

    def forget_steps(self) -> None:
        """Measure the steps of the event loop anew."""
        self._steps.longest = float(_SPOKEN_STEP_MS)
        tell("steps forgotten")

    def erase_old(self, kept: int) -> None:
        """Delete all chats but the newest for good."""
        old = self.ctx.operations.chat_ids()[kept:]
        if old:
            self.ctx.operations.delete(old)
            self.ctx.operations.erase(old)


def _words(message: StoredMessage) -> list[str]:
    return WORD.findall(message.text) if message.role == "user" else []


def _has_saved(model: ChatModel) -> bool:
    """Whether the chat says that everything is saved; one that was let go of had said so."""
    return not isValid(model) or (model.writer.is_saved() and model.unsent.is_saved())


class _Driven(App):
    """The app, with somebody who uses it."""

    behavior = "idle"

    def begin(self, notices_at_start: dict[str, Notice] | None = None) -> None:
        super().begin(notices_at_start)
        self.user = User(self, self.behavior)


def main(behavior: str) -> int:
    gc.disable()  # as `app.__main__` has it
    _Driven.behavior = behavior
    vars(app_module)["App"] = _Driven
    status = application.run([])
    if (app := QCoreApplication.instance()) is not None:
        app.processEvents()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
