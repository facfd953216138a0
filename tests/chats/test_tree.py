"""What is done to the tree of messages: each operation, and random sequences of them beside a model in memory.

``SLIPSTREAM_SEED`` and ``SLIPSTREAM_SEQUENCES`` repeat and lengthen the random test.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from app.chats.database import MEMORY
from app.chats.model import StoredMessage
from app.chats.store import TRASH_DAYS, ChatStore, new_id
from app.chats.tree import Deletion
from tests.support.chats import add_question, begin_answer

SEQUENCES = int(os.environ.get("SLIPSTREAM_SEQUENCES", "120"))
STEPS = 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    ticks = count(1_790_000_000)
    with ChatStore(tmp_path / "chats.sqlite", clock=lambda: float(next(ticks))) as store:
        yield store


def texts(store: ChatStore, chat_id: str) -> list[str]:
    return [message.text for message in store.branch(chat_id)]


def answered(store: ChatStore, chat_id: str, parent_id: str | None, text: str) -> StoredMessage:
    begun = begin_answer(store, chat_id, parent_id)
    store.finish_answer(replace(begun, text=text, status="complete", finish_reason="end", tokens=[1, 2, 70_000]))
    return store.message(begun.id)


def conversation(store: ChatStore) -> tuple[str, list[StoredMessage]]:
    chat_id = store.create_chat("Talk").id
    first = add_question(store, chat_id, None, "q1")
    second = answered(store, chat_id, first.id, "a1")
    third = add_question(store, chat_id, second.id, "q2")
    return chat_id, [first, second, third, answered(store, chat_id, third.id, "a2")]


def test_the_tokens_of_an_answer_are_kept_while_it_streams_and_at_its_end(store: ChatStore) -> None:
    chat = store.create_chat("c")
    begun = begin_answer(store, chat.id, None)
    assert list(begun.tokens) == []
    store.update_answer(begun.id, "ab", [], [3, 128_000])
    assert list(store.message(begun.id).tokens) == [3, 128_000]
    store.finish_answer(replace(begun, text="abc", status="stopped", tokens=(3, 128_000, 5)))
    assert list(store.branch(chat.id)[0].tokens) == [3, 128_000, 5]


def test_thinking_is_kept_while_it_streams_and_goes_where_its_answer_goes(store: ChatStore) -> None:
    chat = store.create_chat("c")
    begun = begin_answer(store, chat.id, None)
    store.update_answer(begun.id, "", [[3, None, 0, None, True]], [3], "Hm.")
    assert (store.message(begun.id).text, store.message(begun.id).thinking) == ("", "Hm.")
    store.finish_answer(replace(begun, text="Yes.", thinking="Hm. So", status="complete"))
    (kept,) = store.branch(chat.id)
    assert (kept.text, kept.thinking) == ("Yes.", "Hm. So")
    assert store.branch_end(chat.id, 1) == [kept]
    (copied,) = store.branch(store.copy_branch(chat.id, kept.id).id)
    assert (copied.text, copied.thinking) == ("Yes.", "Hm. So")
    store.undo_deletion(store.delete_message(kept.id, following=False))
    assert store.branch(chat.id) == [kept]


def test_an_answer_goes_on(store: ChatStore) -> None:
    chat_id, messages = conversation(store)
    resumed = store.resume_answer(messages[3].id)
    assert (resumed.status, resumed.text, resumed.finish_reason) == ("streaming", "a2", None)
    assert list(resumed.tokens) == [1, 2, 70_000]
    store.update_answer(resumed.id, "a2 and", [], [1, 2, 3])
    store.finish_answer(replace(resumed, text="a2 and more", status="complete"))
    assert texts(store, chat_id)[-1] == "a2 and more"
    store.resume_answer(resumed.id)
    store.mark_interrupted()
    assert store.message(resumed.id).status == "interrupted"
    assert store.resume_answer(messages[0].id).status == "complete"  # it is a question


def test_a_message_is_deleted_with_what_follows(store: ChatStore) -> None:
    chat_id, messages = conversation(store)
    deletion = store.delete_message(messages[1].id, following=True)
    assert (texts(store, chat_id), deletion.count) == (["q1"], 3)
    for _ in range(2):
        store.undo_deletion(deletion)
        assert store.branch(chat_id) == messages
    everything = store.delete_message(messages[0].id, following=True)
    assert (texts(store, chat_id), store.chat(chat_id).leaf_id, everything.count) == ([], None, 4)
    store.undo_deletion(everything)
    assert store.branch(chat_id) == messages


def test_an_answer_that_streamed_when_it_was_deleted_comes_back_interrupted(store: ChatStore) -> None:
    chat_id, messages = conversation(store)
    begun = begin_answer(store, chat_id, messages[3].id)
    deletion = store.delete_message(begun.id, following=False)
    store.finish_answer(replace(begun, text="late", status="complete"))
    store.undo_deletion(deletion)
    assert store.message(begun.id).status == "interrupted"


def test_the_file_is_rewritten_a_month_after_a_message_was_deleted(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    with ChatStore(tmp_path / "chats.sqlite", clock=lambda: now[0]) as store:
        chat_id, messages = conversation(store)
        store.delete_message(messages[1].id, following=False)
        assert not store.tidy()
        now[0] += TRASH_DAYS * 86400 - 1
        store.delete_message(messages[2].id, following=False)
        assert (store.tidy(), store.may_have_copies()) == (False, False)
        now[0] += 1
        assert (store.tidy(), store.may_have_copies()) == (True, True)
        store.finish_erasing()
        assert (store.tidy(), store.may_have_copies()) == (False, False)
        assert texts(store, chat_id) == ["q1", "a2"]
        store.delete_message(messages[3].id, following=False)
        store.delete_chats([store.create_chat("c").id])
        store.erase_deleted()
        now[0] += TRASH_DAYS * 86400
        assert not store.has_to_erase()  # the message went with the chat


def test_a_message_of_an_erased_chat_does_not_come_back(store: ChatStore) -> None:
    chat_id, messages = conversation(store)
    deletion = store.delete_message(messages[-1].id, following=False)
    store.delete_chats([chat_id])
    store.erase_deleted()
    with pytest.raises(LookupError):
        store.undo_deletion(deletion)


def test_branching_into_a_new_chat(store: ChatStore) -> None:
    chat_id, messages = conversation(store)
    folder = store.create_folder("F")
    store.move_chats([chat_id], folder.id)
    store.set_settings(chat_id, '{"preset":"P"}')
    answered(store, chat_id, messages[0].id, "another version")
    copied = store.copy_branch(chat_id, messages[2].id)
    assert (copied.title, copied.folder_id, copied.settings) == ("Talk (branch)", folder.id, '{"preset":"P"}')
    assert texts(store, copied.id) == ["q1", "a1", "q2"]
    assert list(store.branch(copied.id)[1].tokens) == [1, 2, 70_000]
    assert {one.id for one in store.branch(copied.id)}.isdisjoint(one.id for one in messages)
    assert {(one.version, one.versions) for one in store.branch(copied.id)} == {(1, 1)}
    assert texts(store, chat_id) == ["q1", "another version"]
    assert store.copy_branch(copied.id, store.branch(copied.id)[0].id).title == "Talk (branch)"
    begin_answer(store, chat_id, messages[3].id)
    streaming = store.branch(chat_id)[-1]
    assert store.branch(store.copy_branch(chat_id, streaming.id).id)[-1].status == "interrupted"
    with pytest.raises(LookupError):
        store.copy_branch(chat_id, copied.leaf_id or "")


# ---------------------------------------------------------------- random sequences beside a model


@dataclass
class Node:
    chat: str
    parent: str | None
    place: int
    """Among all messages ever made."""
    text: str


@dataclass
class Model:
    """The same in the simplest words: a dictionary of messages, one of leaves."""

    nodes: dict[str, Node] = field(default_factory=dict)
    leaves: dict[str, str | None] = field(default_factory=dict)

    def children(self, chat: str, parent: str | None) -> list[str]:
        found = [one for one, node in self.nodes.items() if (node.chat, node.parent) == (chat, parent)]
        return sorted(found, key=lambda one: self.nodes[one].place)

    def below(self, message: str) -> list[str]:
        node = self.nodes[message]
        return [message, *(one for child in self.children(node.chat, message) for one in self.below(child))]

    def path(self, message: str | None) -> list[str]:
        return [*self.path(self.nodes[message].parent), message] if message is not None else []

    def newest(self, message: str) -> str:
        return max(self.below(message), key=lambda one: self.nodes[one].place)


class Sequence:
    """One store and one model of it, to which the same is done."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.store = ChatStore(MEMORY, clock=iter(range(10**9)).__next__)
        self.model = Model()
        self.made = 0
        self.deletions: list[tuple[Deletion, dict[str, Node], str]] = []

    def chat(self) -> str:
        return self.chance.choice(list(self.model.leaves))

    def message(self) -> str | None:
        return self.chance.choice(list(self.model.nodes)) if self.model.nodes else None

    def step(self) -> None:
        steps = [self.create, *[self.add] * 6, self.version, self.leaf, *[self.delete] * 2, self.undo, self.branch]
        self.chance.choice(steps if self.model.leaves else [self.create])()

    def create(self) -> None:
        self.model.leaves[self.store.create_chat(f"chat {len(self.model.leaves)}").id] = None

    def add(self) -> None:
        chat = self.chat()
        own = [one for one, node in self.model.nodes.items() if node.chat == chat]
        parent = self.model.leaves[chat] if self.chance.random() < 0.6 else self.chance.choice([*own, None])
        role, text = self.chance.choice(["user", "assistant"]), f"text {self.made}"
        status = "complete"
        message = StoredMessage(new_id(), chat, parent, role, text, status, float(self.made))  # type: ignore[arg-type]
        self.store.add_message(message)
        self.note(message.id, chat, parent, text)
        self.model.leaves[chat] = message.id

    def note(self, message: str, chat: str, parent: str | None, text: str) -> None:
        self.model.nodes[message] = Node(chat, parent, self.made, text)
        self.made += 1

    def version(self) -> None:
        if (message := self.message()) is not None:
            node, step = self.model.nodes[message], self.chance.choice([-2, -1, 0, 1, 2])
            versions = self.model.children(node.chat, node.parent)
            place = min(max(versions.index(message) + step, 0), len(versions) - 1)
            self.store.select_version(message, step)
            self.model.leaves[node.chat] = self.model.newest(versions[place])

    def leaf(self) -> None:
        if (message := self.message()) is not None:
            chat = self.model.nodes[message].chat
            self.store.set_leaf(chat, message)
            self.model.leaves[chat] = message

    def delete(self) -> None:
        if (message := self.message()) is None:
            return
        following = self.chance.random() < 0.5
        node = self.model.nodes[message]
        gone = self.model.below(message) if following else [message]
        deletion = self.store.delete_message(message, following)
        assert deletion.count == len(gone)
        self.deletions.append((deletion, {one: self.model.nodes.pop(one) for one in gone}, message))
        for other in self.model.nodes.values():
            if other.parent == message:
                other.parent = node.parent
        leaf = self.store.chat(node.chat).leaf_id
        if self.model.leaves[node.chat] in gone:
            # Where it went on is for the tests above; here it must be somewhere, if there is anything.
            assert leaf is not None or not self.model.children(node.chat, None)
            self.model.leaves[node.chat] = leaf

    def undo(self) -> None:
        if not self.deletions:
            return
        deletion, gone, first = self.deletions.pop(self.chance.randrange(len(self.deletions)))
        before = self.store.chat(deletion.chat_id).leaf_id
        self.store.undo_deletion(deletion)
        self.model.nodes |= gone
        # Other deletions may have changed what is around it: the store tells where it is now, if that can be.
        for message, parent in self.parents(deletion.chat_id).items():
            node = self.model.nodes[message]
            may_move = message == first or node.parent not in self.model.nodes or parent == first
            assert node.parent == parent or may_move, "another message has moved"
            assert parent is None or self.model.nodes[parent].place < node.place
            node.parent = parent
        leaf = self.store.chat(deletion.chat_id).leaf_id
        assert leaf in (before, deletion.leaf_before)
        self.model.leaves[deletion.chat_id] = leaf

    def branch(self) -> None:
        if (message := self.message()) is not None and len(self.model.nodes) < 150:
            chat = self.model.nodes[message].chat
            copied, parent = self.store.copy_branch(chat, message), None
            for original, copy in zip(self.model.path(message), self.store.branch(copied.id), strict=True):
                self.note(copy.id, copied.id, parent, self.model.nodes[original].text)
                parent = copy.id
            self.model.leaves[copied.id] = parent

    def parents(self, chat: str) -> dict[str, str | None]:
        query = "SELECT id, parent_id FROM messages WHERE chat_id = ?"
        return dict(self.store._connection.execute(query, (chat,)).fetchall())

    def check(self) -> None:
        rows = self.store._connection.execute(
            "SELECT id, chat_id, parent_id, text FROM messages ORDER BY seq"
        ).fetchall()
        ordered = sorted(self.model.nodes.items(), key=lambda one: one[1].place)
        assert rows == [(one, node.chat, node.parent, node.text) for one, node in ordered]
        for chat in self.store.chats():
            assert chat.leaf_id == self.model.leaves[chat.id]
            shown = self.store.branch(chat.id)
            assert [one.id for one in shown] == self.model.path(chat.leaf_id)
            for one in shown:
                versions = self.model.children(chat.id, one.parent_id)
                assert (one.version, one.versions) == (versions.index(one.id) + 1, len(versions))
        assert self.store._connection.execute("PRAGMA foreign_key_check").fetchone() is None


def test_no_sequence_loses_doubles_or_misplaces_a_message() -> None:
    seed = int(os.environ.get("SLIPSTREAM_SEED", random.randrange(10**9)))
    for number in range(SEQUENCES):
        sequence = Sequence(random.Random(seed + number))
        try:
            for _ in range(STEPS):
                sequence.step()
                sequence.check()
        except Exception as error:
            raise AssertionError(f"SLIPSTREAM_SEED={seed + number} SLIPSTREAM_SEQUENCES=1") from error
        finally:
            sequence.store.close()


def test_damaged_tokens_cost_no_chat(store: ChatStore) -> None:
    chat_id, _messages = conversation(store)
    before = texts(store, chat_id)
    store._connection.execute("UPDATE messages SET tokens = x'010203'")
    assert texts(store, chat_id) == before
    assert all(not message.tokens for message in store.branch(chat_id))
