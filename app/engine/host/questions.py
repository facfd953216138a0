"""Questions during a computation that need the loaded model: a separate thread answers them.

The thread that reads commands must not do this: a chat template may take two seconds, and nothing may delay `Pong`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.engine.host.engine import Engine
from app.errors import KnownError
from app.protocol.commands import CheckText, CountPrompt, CountTokens, Tokenize
from app.protocol.events import PromptCounted, TextChecked, Tokenized, TokensCounted

log = logging.getLogger("slipstream.worker")

Question = CountTokens | CountPrompt | CheckText | Tokenize
Answer = TokensCounted | PromptCounted | TextChecked | Tokenized


class Questions:
    """Answers one after the other. Only the newest of the waiting counts is kept."""

    def __init__(self, engine: Engine, send: Callable[[Answer], None]) -> None:
        """``send`` is called in the thread, which ends with the process or when this raises `OSError`."""
        self._engine = engine
        self._send = send
        self._waiting: list[Question] = []
        self._is_asked = threading.Condition()

    def start(self) -> None:
        """Start answering."""
        threading.Thread(target=self._run, name="questions", daemon=True).start()

    def ask(self, question: Question) -> None:
        """Queue a question, unless it can't be answered; a newer count replaces a waiting one."""
        with self._is_asked:
            if isinstance(question, CountTokens):
                self._waiting = [other for other in self._waiting if not isinstance(other, CountTokens)]
            self._waiting.append(question)
            self._is_asked.notify()

    def _run(self) -> None:
        while True:
            with self._is_asked:
                self._is_asked.wait_for(lambda: self._waiting)
                question = self._waiting.pop(0)
            try:
                answer = self._answer(question)
            except KnownError as error:
                log.info("not answered: %s", error)
                continue
            except Exception:
                log.exception("a question was not answered")
                continue
            try:
                self._send(answer)
            except OSError:
                return  # the window is gone, which the other threads notice

    def _answer(self, question: Question) -> Answer:
        match question:
            case CountTokens():
                return self._engine.count_tokens(question)
            case CountPrompt():
                return self._engine.count_prompt(question)
            case CheckText():
                return self._engine.check_text(question)
            case Tokenize():
                return self._engine.tokenize(question)
