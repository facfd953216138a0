"""Connects the server for other programs with the window: who waits for whom, and what the window says about it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Slot

from app.models.text import printable
from app.settings import ServerSettings
from app.ui.chat.answer_queue import AnswerQueue
from app.ui.compare.launcher import CompareLauncher
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader
from app.ui.models.coordinator import ModelsCoordinator
from app.ui.notices import NoticeList
from app.ui.server.answer import ServedAnswer
from app.ui.server.control import ServerControl
from app.ui.server.serving import Serving
from app.ui.shell.main_window import MainWindow
from app.ui.widgets import units

_REFRESH_MS = 100
_LONGEST_NAME = 40


class ServerWiring(QObject):
    """One for a main window.

    Attributes:
        serving, control: The server, and what keeps it as the settings have it.
    """

    def __init__(
        self,
        window: MainWindow,
        engine: EngineClient,
        pair_loader: PairLoader,
        queue: AnswerQueue,
        compare: CompareLauncher,
        models: ModelsCoordinator,
        notice_list: NoticeList,
        settings: Callable[[], ServerSettings],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._bar = window.serving_bar
        serving = self.serving = Serving(
            engine, pair_loader, notice_list, lambda: queue.is_wanted() or compare.is_running(), parent=self
        )
        self.control = ServerControl(serving, settings, self)
        self._refresh = QTimer(self, singleShot=True, interval=_REFRESH_MS)
        self._refresh.timeout.connect(self._show)
        queue.wanted_changed.connect(lambda wanted: serving.interrupt() if wanted else serving.go_on())
        compare.engine_wanted.connect(serving.interrupt)
        serving.engine_wanted.connect(models.put_off_trial)
        serving.answer_changed.connect(self._show)
        serving.answer_advanced.connect(self._on_answer_advanced)
        self._bar.stop.clicked.connect(serving.stop_answer)

    @Slot()
    def _on_answer_advanced(self) -> None:
        if not self._refresh.isActive():
            self._refresh.start()

    @Slot()
    def _show(self) -> None:
        answer = self.serving.answer
        if answer is None:
            self._refresh.stop()
            self._bar.hide()
        else:
            is_written = self.serving.is_writing()
            self._bar.show_answer(who_of(answer, is_written=is_written), figures_of(answer), is_written=is_written)


def name_of(client: str) -> str:
    """A program's own name, which can be any text."""
    name = client.partition("/")[0]
    return "another program" if name in ("", "?") else printable(name, _LONGEST_NAME)


def who_of(answer: ServedAnswer, *, is_written: bool) -> str:
    """``Answering for Zed``."""
    name = name_of(answer.client)
    return f"Answering for {name}" if is_written else f"{name[:1].upper()}{name[1:]} is waiting for the engine"


def figures_of(answer: ServedAnswer) -> str:
    """``214 tokens · 74 tok/s``; empty before the first token."""
    if not answer.tokens:
        return ""
    speed = answer.tokens_per_second()
    return units.tokens(answer.tokens) + (f" · {units.speed(speed)}" if speed else "")
