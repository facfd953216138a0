"""Whatever is done in whatever order, with a store that is slow or refuses: nothing is lost, doubled or misplaced.

``SLIPSTREAM_SEQUENCES`` says how many sequences of operations are tried, ``SLIPSTREAM_SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PySide6.QtCore import QDeadlineTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage
from app.chats.store import ChatStore
from app.chats.tree import Deletion
from app.tools.messages import ServerEntry
from app.tools.offered import OfferedTool
from app.ui.chat.conversation import conversation
from app.ui.chat.model import ChatState
from app.ui.tools.service import ToolJob, ToolService
from tests.support.keyrings import MemoryKeyring
from tests.support.scripted_tools import COMMAND
from tests.ui.parts import WAIT_MS, Rig

SEQUENCES = int(os.environ.get("SLIPSTREAM_SEQUENCES") or 60)
ENDLESS = "endless"
T = TypeVar("T")


class Expected:
    """What the user wrote, by what the operations said that they did."""

    def __init__(self) -> None:
        self.said: dict[str, list[str]] = {}
        """The user's messages and the answers that the user wrote, of each chat."""
        self.unsent: dict[str, set[str]] = {}
        """The words in the composer of each chat; the empty id is the chat to come."""
        self.in_trash: dict[str, list[str]] = {}
        self.words = 0

    def next_text(self, what: str = "") -> str:
        self.words += 1
        return f"w{self.words}w {what}".strip()


class User:
    """Does one thing after another, at random."""

    def __init__(self, rig: Rig, dice: random.Random) -> None:
        self.rig = rig
        self.dice = dice
        self.expected = Expected()
        self.allowed = Counter[str]()
        """By the arguments of a call, which are unique: how often it may run."""
        self._held: threading.Event | None = None
        self._deletion: tuple[str, list[Deletion], list[str]] | None = None

    # ------------------------------------------------------------ the store

    def hold(self) -> None:
        """The store does nothing more until `release`."""
        if self._held is None:
            self._held = threading.Event()
            self.rig.worker.submit(lambda _store, held=self._held: held.wait(WAIT_MS / 1000))  # type: ignore[misc]

    def release(self) -> None:
        if self._held is not None:
            self._held.set()
            self._held = None
        QApplication.processEvents()

    def refuse(self, state: str = "ON") -> None:
        self.rig.worker.submit(lambda store: store._connection.execute(f"PRAGMA query_only = {state}").fetchall())

    def allow(self) -> None:
        self.refuse("OFF")

    def look(self) -> None:
        """The window gets some time."""
        QTest.qWait(self.dice.choice((0, 1, 3)))

    # ------------------------------------------------------------ chats

    def key(self) -> str:
        model = self.rig.model
        return "" if model.is_new else model.id

    def new(self) -> None:
        self.rig.chats.new()

    def open(self) -> None:
        if self.expected.said:
            self.rig.chats.open(self.dice.choice(list(self.expected.said)))

    def delete_chat(self) -> None:
        chat_id = self.key()
        if chat_id:
            self.rig.chats.forget([chat_id])
            self.allow()
            self.rig.worker.submit(lambda store: store.delete_chats([chat_id]))
            self.expected.in_trash[chat_id] = self.expected.said.pop(chat_id)

    # ------------------------------------------------------------ messages

    def type(self) -> None:
        word = self.expected.next_text()
        self.rig.model.unsent.type(f"{self.rig.model.unsent.text} {word}".strip())
        self.expected.unsent.setdefault(self.key(), set()).add(word)

    def send(self) -> None:
        model, before = self.rig.model, self.key()
        text = model.unsent.text or self.expected.next_text(ENDLESS if self.dice.random() < 0.2 else "")
        if model.send(text):
            self.expected.unsent.setdefault(before, set()).difference_update(text.split())
            self.expected.said.setdefault(model.id, []).append(text)
        else:
            assert model.state.is_busy

    def ask_for_a_call(self) -> None:
        model, tool = self.rig.model, self.dice.choice(("echo", "echo", "wait", "die"))
        text = self.expected.next_text(f"call {tool}")
        if not model.unsent.text and model.send(text):
            self.expected.said.setdefault(model.id, []).append(text)

    def decide(self) -> None:
        """About a call that waits, in any chat."""
        asking = [one for one in self.rig.chats._models() if one.state is ChatState.ASKING and one.live]
        if not asking:
            return
        model = self.dice.choice(asking)
        assert model.live is not None
        call = self.dice.choice([one for one in model.live.calls if one.state == "asked"])
        decision = self.dice.choice(("once", "once", "deny"))
        self.allowed[call.arguments] += decision == "once"
        model.decide(call.id, "once" if decision == "once" else "deny", "No.")

    def edit(self) -> None:
        message, text = self._any_message(), self.expected.next_text()
        if message is not None and self.rig.model.edit(message.id, text):
            self.expected.said[self.key()].append(text)

    def regenerate(self) -> None:
        self.rig.model.regenerate()

    def regenerate_any(self) -> None:
        if (message := self._any_message()) is not None:
            self.rig.model.regenerate(message.id)

    def go_on(self) -> None:
        if self.rig.model.messages:
            self.rig.model.continue_answer(self.rig.model.messages[-1].id)

    def stop(self) -> None:
        self.rig.model.stop()

    def choose(self) -> None:
        if (message := self._any_message()) is not None:
            self.rig.model.choose_version(message.id, self.dice.choice((-1, 1)))

    def delete_following(self) -> None:
        self.delete(following=True)

    def delete(self, *, following: bool = False) -> None:
        model, message = self.rig.model, self._any_message()
        # What goes with it is read from the store, which can only be asked while it is at rest.
        if message is None or self._held is not None or not model.writer.is_saved() or model.state.is_busy:
            return
        rows = self._ask(lambda store: _rows(store, model.id))
        gone = _below(rows, message.id) if following else {message.id}
        deletions: list[Deletion] = []
        if model.delete(message.id, deletions.append, following=following):
            self._settle()
            if deletions:  # else the store refused
                texts = [text for one, _parent, text in rows if one in gone and text in self.expected.said[model.id]]
                for text in texts:
                    self.expected.said[model.id].remove(text)
                self._deletion = model.id, deletions, texts

    def undo(self) -> None:
        if self._deletion is None or self._deletion[0] != self.key():
            return
        chat_id, deletions, texts = self._deletion
        self._deletion = None
        model, refusals = self.rig.model, Counter[str]()
        if self._held is not None or not model.writer.is_saved():
            return
        if model.undo_deletion(deletions[0], lambda: refusals.update([chat_id])):
            self._settle()
            if not refusals:
                self.expected.said[chat_id] += texts

    def _any_message(self) -> StoredMessage | None:
        messages = self.rig.model.messages
        return self.dice.choice(messages) if messages else None

    # ------------------------------------------------------------ what has become of it

    def _ask(self, function: Callable[[ChatStore], T]) -> T:
        return self.rig.worker.submit(function).result(WAIT_MS / 1000)

    def _settle(self) -> None:
        """Wait until nothing is under way; answers without an end are stopped."""
        self.release()
        deadline = QDeadlineTimer(WAIT_MS)
        while not self._is_at_rest():
            assert not deadline.hasExpired()
            for live in [one for one in self.rig.answers.open if one.pieces]:
                self.rig.answers.stop(live)
            QTest.qWait(1)

    def _is_at_rest(self) -> bool:
        done: Future[None] = self.rig.worker.submit(lambda _store: None)
        models = self.rig.chats._models()
        idle = all(one.writer.is_idle() and one.state is ChatState.IDLE for one in models)
        return idle and not self.rig.is_wanted() and (done.result(WAIT_MS / 1000) is None)

    def check(self) -> None:
        """The store has everything, and the page shows what it has."""
        self._settle()
        self.allow()
        self.rig.chats.save_again()
        for model in self.rig.chats._models():
            model.unsent.save()
        self._settle()
        expected, rig = self.expected, self.rig
        self._note_given_back()
        stored = self._ask(_stored)
        for chats in (expected.said, expected.in_trash):
            for chat_id, texts in chats.items():
                assert Counter(text for text in stored[chat_id] if text.startswith("w")) == Counter(texts)
        assert set(stored) == {*expected.said, *expected.in_trash}
        for chat_id, words in expected.unsent.items():
            key = chat_id or None
            if chat_id not in expected.in_trash:
                text = self._ask(lambda store, key=key: store.unsent(key))  # type: ignore[misc]
                assert sorted(text.split()) == sorted(words)
        branch = self._ask(lambda store: store.branch(rig.model.id))
        assert branch == rig.model.messages
        assert rig.page.lines == [(one.id, one.text) for one in branch]
        assert all(one.status != "streaming" for one in branch)
        self._check_calls(branch)
        assert "save" not in rig.notice_list.notices()

    def _check_calls(self, branch: list[StoredMessage]) -> None:
        """Each has an end and a result in the prompt, and none ran that wasn't allowed."""
        assert not ran(self.rig) - self.allowed
        for message in branch:
            known = max(len(message.tokens), len(message.provenance))  # 0: the user has edited it
            for call in message.calls:
                assert call.has_ended and (call.tokens <= known or not known)
                assert call.state != "done" or call.result == call.arguments
        turns = conversation(branch).messages
        calls = [call.id for one in turns for call in one.tool_calls]
        assert calls == [one.tool_call_id for one in turns if one.role == "tool"]

    def _note_given_back(self) -> None:
        """What was sent while the store was asked for something that it refused is in the composer again."""
        for chat_id, texts in (*self.expected.said.items(), *self.expected.in_trash.items()):
            unsent = self._ask(lambda store, chat_id=chat_id: store.unsent(chat_id))  # type: ignore[misc]
            typed = f" {' '.join(unsent.split())} "  # more may have been typed behind it since then
            for text in [text for text in texts if f" {' '.join(text.split())} " in typed]:
                texts.remove(text)
                self.expected.unsent.setdefault(chat_id, set()).update(text.split())


def _rows(store: ChatStore, chat_id: str) -> list[tuple[str, str | None, str]]:
    return [(one.id, one.parent, one.text) for one in store.record(chat_id).messages]


def _below(rows: list[tuple[str, str | None, str]], message_id: str) -> set[str]:
    """The message and all that follow it; a child comes after its parent, unless a deletion has moved it."""
    found, grows = {message_id}, True
    while grows:
        more = {one for one, parent, _text in rows if parent in found} - found
        found, grows = found | more, bool(more)
    return found


def _stored(store: ChatStore) -> dict[str, list[str]]:
    """The texts of each chat, all versions, the trash included."""
    chats = [*store.chats(), *store.trash()]
    return {chat.id: [text for _id, _parent, text in _rows(store, chat.id)] for chat in chats}


def ran(rig: Rig) -> Counter[str]:
    """The arguments of the calls that ran."""
    assert isinstance(rig.answers.tools, Recording)
    return rig.answers.tools.ran


class Recording(ToolService):
    """Remembers what ran."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.folder, rig.values, rig.notice_list, command=COMMAND)
        self.ran = Counter[str]()

    def call(self, tool: OfferedTool, arguments: str, *others: Sequence[Any]) -> ToolJob:
        self.ran[arguments] += 1
        return super().call(tool, arguments, *others)


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[Rig]:
    made = Rig(qtbot, tmp_path, "endless if asked")
    made.load()
    made.answers.tools = tools = Recording(made)
    tools.put(ServerEntry(name="test", command="test"))
    qtbot.waitUntil(lambda: tools.servers["test"].state == "ready", timeout=WAIT_MS)
    yield made
    tools.close()
    made.close()


@pytest.mark.allow_logs  # a tool ends its process
def test_in_whatever_order_nothing_is_lost_doubled_or_misplaced(rig: Rig) -> None:
    seed = int(os.environ.get("SLIPSTREAM_SEED") or random.randrange(1_000_000))
    rig.chats.begin(None)
    rig.settle()
    print(f"SLIPSTREAM_SEED={seed}")  # noqa: T201 - shown when the test fails
    user = User(rig, random.Random(seed))
    often = (user.send, user.type, user.open, user.new, user.look, user.hold, user.release)
    seldom = (user.delete, user.delete_following, user.undo, user.delete_chat, user.refuse, user.allow)
    others = (user.edit, user.regenerate, user.regenerate_any, user.go_on, user.stop, user.choose)
    calls = (user.ask_for_a_call, user.decide, user.decide)
    operations = (*often, *often, *calls, *others, *others, *seldom)
    for _ in range(SEQUENCES):
        done = []
        for _ in range(user.dice.randint(4, 14)):
            operation = user.dice.choice(operations)
            done.append(operation.__name__)
            operation()
        print(done)  # noqa: T201 - shown when the test fails
        user.check()
