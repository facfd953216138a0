"""Chats with the real engine, and the server's real process beside them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pytestqt.qtbot import QtBot

from app.client.connection import Timings
from app.protocol.answering import AnswerSettings
from app.protocol.options import LoadSettings
from app.protocol.serving import Serve
from app.ui.engine.client import EngineClient
from app.ui.engine.pair_names import PairFiles
from app.ui.server.serving import Serving
from tests.support.served import Client, Json
from tests.ui.parts import WAIT_MS, Rig

T = TypeVar("T")
CLIENTS = 12


class ServingRig(Rig):
    """Clients ask in other threads."""

    def __init__(self, qtbot: QtBot, folder: Path, pair: tuple[Path, Path]) -> None:
        self._pair = pair
        super().__init__(qtbot, folder, "")
        self.settings = AnswerSettings(max_tokens=20)
        self.serving = Serving(self.engine, self.queue, self.pair_loader, self.notice_list)
        self.client = Client(0)
        self._pool = ThreadPoolExecutor(CLIENTS)

    @staticmethod
    def _engine(behavior: str, timings: Timings) -> EngineClient:  # noqa: ARG004
        return EngineClient()

    def files(self) -> PairFiles:
        settings = LoadSettings(threads=1, context_length=32_768)
        return PairFiles(str(self._pair[0]), str(self._pair[1]), settings)

    def listen(self) -> None:
        self.serving.start(Serve(host=None, port=0, key=None))
        self.until(lambda: self.serving.state.kind == "listening")
        self.client.port = self.serving.state.addresses[0][1]
        # It is told of the pair right behind that.
        self.until_done(self.submit(self.client.wait_until_healthy))

    def submit(self, function: Callable[..., T], *arguments: Any, **fields: Any) -> Future[T]:
        """Have this done in another thread."""
        return self._pool.submit(function, *arguments, **fields)

    def until(self, condition: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(condition, timeout=3 * WAIT_MS)

    def until_done(self, future: Future[T]) -> T:
        self.until(future.done)
        return future.result()

    def ask_served(self, **fields: Any) -> Json:
        """A whole answer for another program."""
        return self.until_done(self.submit(self.client.chat, **fields))

    def close(self) -> None:
        self.serving.close()
        self._pool.shutdown()
        super().close()
        self.serving.deleteLater()
