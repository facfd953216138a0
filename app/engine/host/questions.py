"""What is asked beside the computation and needs the loaded model: a thread of its own answers it.

The thread that reads commands must not: a chat template may take its two seconds, and nothing may delay `Pong`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from app.engine.host.engine import Engine
from app.errors import KnownError
from app.protocol.messages import CheckText, CountTokens, Message, TextChecked, TokensCounted

log = logging.getLogger("slipstream.worker")

Question = CountTokens | CheckText


class Questions:
    """Answers one after the other. Of the counts that wait there is only the newest."""

    def __init__(self, engine: Engine, send: Callable[[TokensCounted | TextChecked], None]) -> None:
        """``send`` is called in the thread, which ends with the process or when this raises `OSError`."""
        self._engine = engine
        self._send = send
        self._counted: list[Message] = []
        """Those of the last `CountTokens`, of which the next may keep some."""
        self._waiting: list[Question] = []
        self._is_asked = threading.Condition()

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self._run, name="questions", daemon=True).start()

    def ask(self, question: Question) -> None:
        """Have it answered, unless it cannot be or a newer count takes its place."""
        with self._is_asked:
            if isinstance(question, CountTokens):
                self._counted = [*self._counted[: question.kept], *question.messages]
                question = msgspec.structs.replace(question, messages=self._counted, kept=0)
                self._waiting = [other for other in self._waiting if not isinstance(other, CountTokens)]
            self._waiting.append(question)
            self._is_asked.notify()

    def forget(self) -> None:
        """Keep nothing of earlier chats; the next `CountTokens` keeps none of their messages."""
        with self._is_asked:
            self._counted = []

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

    def _answer(self, question: Question) -> TokensCounted | TextChecked:
        if isinstance(question, CountTokens):
            return self._engine.count_tokens(question)
        return self._engine.check_text(question)
