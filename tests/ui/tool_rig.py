"""Chats with a real engine, whose model calls tools, and the real tools process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytestqt.qtbot import QtBot

from app.chats.model import StoredCall, StoredMessage
from app.chats.settings import ChatSettings
from app.client.connection import Timings
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Generate
from app.protocol.events import GenerationStarted
from app.protocol.options import Sampling
from app.protocol.tools import ToolFormatName
from app.tools.messages import ServerEntry
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.model import ChatState
from app.ui.engine.client import EngineClient
from app.ui.engine.pair_names import PairFiles
from app.ui.tools.service import ToolService
from tests.support.tool_models import make_tool_model
from tests.support.tool_process import entry
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.shell.warm_engine import WarmEngine

WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


class ToolRig(Rig):
    """The model calls a tool in every turn until it may not any more, and then says “ yes no.”."""

    def __init__(
        self,
        qtbot: QtBot,
        folder: Path,
        name: ToolFormatName = "hermes",
        *,
        tools: ToolService | None = None,
        has_draft: bool = False,
        **options: Any,
    ) -> None:
        """``tools``: those of other tests, whose server is there already; ``options`` of the model."""
        super().__init__(qtbot, folder, "")
        model = {"calls": 1e9, "context_length": 16384, "in_line": True, **options}
        self.target = make_tool_model(folder / "target.gguf", name, **model)
        self.has_draft = has_draft
        if has_draft:
            self.draft = make_tool_model(folder / "draft.gguf", name, **model, noise=0.5)
        self.settings = AnswerSettings(sampling=WARM, seed=1, draft_length=0)
        self.values.most_tool_calls = 1
        self.tools = tools or ToolService(folder, self.values, self.notice_list)
        self.has_own_tools = tools is None
        for key in self.tools.permissions.all():
            self.tools.permissions.withdraw(key)
        self.answers.tools, self.answers.most_calls = self.tools, lambda: self.values.most_tool_calls
        self.asked: list[Generate] = []
        """What the engine was asked, and what it said when it began."""
        self.started: list[GenerationStarted] = []
        self.engine.generation_started.connect(self.started.append)
        ask = self.engine.ask

        def asking(question: Any, **others: Any) -> int:
            if isinstance(question, Generate):
                self.asked.append(question)
            return ask(question, **others)

        self.engine.ask = asking  # type: ignore[method-assign]

    @staticmethod
    def _engine(_behavior: str, _timings: Timings) -> EngineClient:
        return WarmEngine() if WarmEngine.warm else EngineClient()

    def files(self) -> PairFiles:
        return PairFiles(str(self.target), str(self.draft) if self.has_draft else None)

    def begin(self, *tools: str, server: ServerEntry | None = None) -> None:
        """Load the model, start a server, and let new chats call these of its tools."""
        if self.has_own_tools:
            self.tools.put(server or entry(module="strict_tool_server"))
        self.load()
        self.qtbot.waitUntil(lambda: self.tools.servers["test"].state == "ready", timeout=WAIT_MS)
        self.offer(*tools)

    def offer(self, *tools: str) -> None:
        self.model.set_settings(ChatSettings(tools=[f"test.{tool}" for tool in tools]))

    @property
    def live(self) -> LiveAnswer:
        assert self.model.live is not None
        return self.model.live

    def state(self) -> ChatState:
        return self.model.state

    def until(self, state: ChatState) -> None:
        self.qtbot.waitUntil(lambda: self.model.state is state, timeout=WAIT_MS)

    def send(self, text: str = "Well?") -> list[StoredCall]:
        """Send a message and wait until the model wants to call tools; returns the calls."""
        assert self.model.send(text)
        self.until(ChatState.ASKING)
        return self.live.calls

    def decide(self, decision: Any, reason: str = "") -> None:
        """The same of all calls that wait."""
        for call in list(self.live.calls):
            if call.state == "asked":
                self.model.decide(call.id, decision, reason)

    def finish_temporary(self) -> StoredMessage:
        """Allow what the model wants once; returns the answer of a chat that isn't stored."""
        self.decide("once")
        self.until(ChatState.IDLE)
        return self.model.messages[-1]

    def finish(self, decision: Any = "once") -> StoredMessage:
        """Decide whenever the user is asked; returns the answer when it has ended."""

        def ended() -> bool:
            if self.model.state is ChatState.ASKING:
                self.decide(decision)
            return self.model.state is ChatState.IDLE

        self.qtbot.waitUntil(ended, timeout=WAIT_MS)
        self.settle()
        answer = self.model.messages[-1]
        assert self.stored(lambda store: store.message(answer.id)) == answer
        return answer

    def close(self) -> None:
        if self.has_own_tools:
            self.tools.close()
        super().close()


class OwnRig(ToolRig):
    """With an engine of its own, which may be killed."""

    @staticmethod
    def _engine(_behavior: str, _timings: Timings) -> EngineClient:
        return EngineClient()
