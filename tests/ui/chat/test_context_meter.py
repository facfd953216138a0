"""How full the context is: counted by the engine for the chat that is shown, and told before it overflows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.events import RoundsReceived, TokensCounted
from app.ui.chat import context_meter
from app.ui.chat.composer import Composer
from app.ui.chat.context_gauge import ContextDetails, ContextGauge
from app.ui.chat.context_meter import SUBJECT, ContextMeter, ContextUse
from app.ui.engine import EngineState
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.scripted_engine import CONTEXT_LENGTH, round_of, words_of


class MeterRig(Rig):
    """Chats with a meter of their context, in a composer, a gauge and the notices."""

    def __init__(self, qtbot: QtBot, folder: Path, behavior: str) -> None:
        super().__init__(qtbot, folder, behavior)
        self.gauge = ContextGauge()
        self.composer = Composer()
        self.composer.resize(900, 100)
        for widget in (self.gauge, self.composer):
            qtbot.addWidget(widget)
        self.meter = ContextMeter(self.ctx, self.composer, self._show)
        self.counts: list[TokensCounted] = []
        self.engine.tokens_counted.connect(self.counts.append)

    def _show(self, use: ContextUse | None) -> None:
        self.gauge.show_use(use)
        self.gauge.fit(500)

    def counted(self, system: int = 0, messages: int = 0, text: int = 0, answer: int = 0) -> ContextUse:
        """Wait until so many tokens are counted."""

        wanted = (system, messages, text, answer)

        def is_so() -> bool:
            use = self.meter.use
            return use is not None and (use.system, use.messages, use.text, use.answer) == wanted

        self.qtbot.waitUntil(is_so, timeout=WAIT_MS)
        assert self.meter.use is not None
        return self.meter.use

    def gone(self) -> None:
        self.qtbot.waitUntil(lambda: self.meter.use is None, timeout=WAIT_MS)
        assert self.gauge.isHidden()

    def close(self) -> None:
        super().close()
        self.meter.deleteLater()


@pytest.fixture
def behavior(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "plain"))


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, behavior: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MeterRig]:
    monkeypatch.setattr(context_meter, "DELAY_MS", 20)
    made = MeterRig(qtbot, tmp_path, behavior)
    made.load()
    yield made
    made.close()


def test_prompt_messages_and_typed_text_are_counted(rig: MeterRig) -> None:
    rig.model.set_settings(ChatSettings(system_prompt="Be very brief."))
    assert rig.counted(system=3).length == CONTEXT_LENGTH
    rig.model.unsent.type("How are you")
    rig.counted(system=3, text=3)
    assert rig.composer.tokens.text() == "3\u00a0tokens"
    rig.ask("How are you")  # the answer has two words
    use = rig.counted(system=3, messages=5)
    assert use.free == CONTEXT_LENGTH - 8
    assert rig.composer.tokens.text() == ""
    rig.model.set_settings(ChatSettings())
    rig.counted(messages=5)


@pytest.mark.parametrize("behavior", ["endless"], indirect=True)
def test_the_answer_being_written_is_counted_without_asking(rig: MeterRig) -> None:
    rig.meter._live.setInterval(5)
    rig.begin_answer("one two three")
    rig.counted(messages=3, answer=1)
    asked = len(rig.counts)
    live = rig.model.live
    assert live is not None
    live.on_rounds_received(RoundsReceived(request=1, rounds=[round_of(" more")] * 9))
    rig.counted(messages=3, answer=10)
    assert len(rig.counts) == asked
    assert ("Answer so far", "10\u00a0tokens") in rig.meter.use.rows()  # type: ignore[union-attr]
    rig.model.unsent.type("a b")
    rig.counted(messages=3, answer=10, text=2)
    rig.model.stop()
    rig.settle()
    rig.counted(messages=words_of("one two three", rig.model.messages[-1].text), text=2)


@pytest.mark.allow_logs
def test_an_engine_that_ends_has_no_numbers_and_a_new_one_counts_again(rig: MeterRig) -> None:
    rig.ask("one two three")
    rig.counted(messages=5)
    rig.pair_loader.load(rig.files())  # another pair
    rig.gone()
    rig.counted(messages=5)
    os.kill(rig.engine.process_id(), signal.SIGKILL)
    rig.qtbot.waitUntil(lambda: rig.engine.state() is EngineState.DIED, timeout=WAIT_MS)
    rig.gone()
    rig.pair_loader.restart()
    rig.counted(messages=5)


@pytest.mark.parametrize("behavior", ["full"], indirect=True)
def test_what_will_be_left_out_is_told_before_and_once(rig: MeterRig) -> None:
    for question in ("one", "two"):
        rig.ask(question)
    rig.qtbot.waitUntil(lambda: SUBJECT in rig.notice_list.notices(), timeout=WAIT_MS)
    notice = rig.notice_list.notices()[SUBJECT]
    assert "no longer see 2 of the oldest messages" in notice.text
    assert rig.gauge.accessibleDescription().endswith(notice.text)
    rig.notice_list.remove(SUBJECT)  # Dismiss
    rig.model.unsent.type("more")
    rig.qtbot.waitUntil(lambda: bool(rig.meter.use and rig.meter.use.text), timeout=WAIT_MS)
    assert SUBJECT not in rig.notice_list.notices()
    rig.chats.new()
    rig.counted()
    assert SUBJECT not in rig.notice_list.notices()


def test_a_text_that_does_not_fit_is_told_while_it_is_typed(rig: MeterRig) -> None:
    def type_too_much() -> None:
        rig.model.unsent.type("word " * CONTEXT_LENGTH)
        rig.counted(text=CONTEXT_LENGTH)
        assert "Shorten it" in rig.notice_list.notices()[SUBJECT].text

    type_too_much()
    rig.model.unsent.type("word")
    rig.counted(text=1)
    assert SUBJECT not in rig.notice_list.notices()
    type_too_much()
    rig.chats.new_temporary()  # it goes with its chat
    assert SUBJECT not in rig.notice_list.notices()


def use(**changes: object) -> ContextUse:
    values = dict[str, object](system=100, messages=10_000, text=0, length=32_768, overflow="drop_oldest")
    return ContextUse(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"messages": 31_000}, ""),  # nothing would be left out yet
        ({"dropped": 1}, "The model will no longer see the oldest message; you still will."),
        ({"dropped": 3, "overflow": "keep_ends"}, "3 of the middle messages"),
        ({"messages": 31_000, "overflow": "stop"}, "almost full. This chat is set to end when it's full"),
        ({"messages": 32_700, "overflow": "stop"}, "The context is full. Start a new chat"),
        ({"text": 40_000}, "This message no longer fits"),
        (
            {"messages": 0, "tools": 40_000},
            "This chat's tools take up too much of the context. Switch some of them off.",
        ),
    ],
)
def test_warnings(changes: dict[str, object], words: str) -> None:
    assert words in use(**changes).warning()
    assert bool(words) == bool(use(**changes).warning())


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ({}, "31% of 32K context"),
        ({"messages": 20}, "<1% of 32K context"),
        ({"messages": 0, "system": 0}, "0% of 32K context"),
        ({"messages": 90_000}, "100% of 32K context"),
        ({"length": 512}, "100% of 512 context"),
        ({"length": 0}, "0% of 0 context"),
    ],
)
def test_summaries(changes: dict[str, object], summary: str) -> None:
    assert use(**changes).summary() == summary


@pytest.fixture
def gauge(qtbot: QtBot) -> ContextGauge:
    made = ContextGauge()
    qtbot.addWidget(made)
    made.show_use(use(text=12))
    made.fit(1000)
    return made


def test_the_gauge_says_less_where_there_is_less_room(gauge: ContextGauge) -> None:
    whole = gauge.taken()
    assert gauge._words.text() == "31% of 32K context"
    gauge.fit(whole - 1)
    assert gauge._words.text() == "31%"
    assert not gauge.isHidden() and gauge.taken() < whole
    assert gauge.accessibleName() == "Context: 31% of 32K context"
    gauge.fit(10)
    assert gauge.isHidden()
    gauge.fit(whole)
    assert gauge._words.text() == "31% of 32K context"
    gauge.show_use(None)
    gauge.fit(1000)
    assert gauge.isHidden()


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Space])
def test_the_details_open_and_close_by_keyboard(qtbot: QtBot, gauge: ContextGauge, key: Qt.Key) -> None:
    QTest.keyClick(gauge, key)
    (details,) = gauge.findChildren(ContextDetails)
    texts = details.texts()
    assert {"System prompt", "100\u00a0tokens", "What you're typing", "12\u00a0tokens", "Free"} <= set(texts)
    assert details.accessibleDescription() == use(text=12).details()
    gauge.show_use(use(text=13))
    assert "13\u00a0tokens" in details.texts()
    with qtbot.waitSignal(details.destroyed):
        QTest.keyClick(details, Qt.Key.Key_Escape)
    gauge.show_use(None)


# ---------------------------------------------------------------- cost
