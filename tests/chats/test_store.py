"""The tree of messages, on real files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from app.chats.model import StoredMessage, pack, title_of, to_json, unpack
from app.chats.store import ChatStore
from app.protocol.events import Piece
from tests.support.chats import add_question, begin_answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats" / "chats.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    ticks = count(1_790_000_000)
    with ChatStore(path, clock=lambda: float(next(ticks))) as store:
        yield store


def answer(store: ChatStore, parent: StoredMessage, text: str) -> StoredMessage:
    begun = begin_answer(store, parent.chat_id, parent.id, "Guide + draft", {"temperature": 0.8})
    ended = replace(begun, text=text, status="complete", finish_reason="end", seed=7, figures_json='{"total_s":1.5}')
    store.finish_answer(ended)
    return store.message(begun.id)


def texts(messages: list[StoredMessage]) -> list[str]:
    return [message.text for message in messages]


def test_what_was_stored_is_there_after_opening_again(path: Path) -> None:
    pieces = [
        Piece(text="Wör", drafter="model", round=1),
        Piece(text="te", round=2, rejected="te"),
        Piece(text="r", drafter="mtp", round=3),
        Piece(text="", round=3),
    ]
    with ChatStore(path) as store:
        chat = store.create_chat("Words")
        asked = add_question(store, chat.id, None, "Which words?")
        begun = begin_answer(store, chat.id, asked.id, "Guide", {"seed": None, "stop": ["\n"]})
        assert (begun.status, begun.text, begun.role) == ("streaming", "", "assistant")
        store.update_answer(begun.id, "Wör", pack(pieces[:1]))
        assert store.message(begun.id).text == "Wör"
        ended = replace(
            begun, text="Wörter", provenance_json=to_json(pack(pieces)), status="stopped", finish_reason="cancelled"
        )
        store.finish_answer(replace(ended, seed=2**63 - 1, figures_json=to_json({"a": [1.5]})))
        kept = store.message(begun.id)
    with ChatStore(path) as store:
        assert store.notice is None
        first, second = store.branch(chat.id)
        assert first == asked
        assert second == kept
        assert (second.status, second.finish_reason, second.seed) == ("stopped", "cancelled", 2**63 - 1)
        assert (second.pair, second.settings, second.figures) == ("Guide", {"seed": None, "stop": ["\n"]}, {"a": [1.5]})
        assert unpack(second.text, second.provenance) == pieces


def test_a_late_update_does_not_undo_the_finished_answer(store: ChatStore) -> None:
    chat = store.create_chat("c")
    done = answer(store, add_question(store, chat.id, None, "q"), "whole")
    store.update_answer(done.id, "wh", [])
    assert store.message(done.id) == done


def test_chats_come_newest_first(store: ChatStore) -> None:
    old, new = store.create_chat("old"), store.create_chat("new")
    assert [chat.title for chat in store.chats()] == ["new", "old"]
    add_question(store, old.id, None, "again")
    assert [chat.title for chat in store.chats()] == ["old", "new"]
    store.rename_chat(new.id, "  renamed\n chat ")
    assert [chat.title for chat in store.chats()] == ["old", "renamed chat"]
    store.rename_chat(new.id, "  ")
    assert store.chat(new.id).title == "renamed chat"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("short", "short"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 40 + "…"),
        ("a " + "x" * 60, "a " + "x" * 38 + "…"),
        ("Explain how speculative decoding works, and why", "Explain how speculative decoding works…"),
    ],
)
def test_title(text: str, title: str) -> None:
    assert title_of(text) == title


def test_regenerated_answers_are_versions_to_switch_between(store: ChatStore) -> None:
    chat = store.create_chat("c")
    asked = add_question(store, chat.id, None, "q")
    first = answer(store, asked, "one")
    follow = add_question(store, chat.id, first.id, "more")
    answer(store, follow, "one more")
    second = answer(store, asked, "two")
    assert texts(store.branch(chat.id)) == ["q", "two"]
    assert [(m.version, m.versions) for m in store.branch(chat.id)] == [(1, 1), (2, 2)]

    assert texts(store.select_version(second.id, -1)) == ["q", "one", "more", "one more"]
    assert (store.branch(chat.id)[1].version, store.branch(chat.id)[1].versions) == (1, 2)
    assert texts(store.select_version(first.id, 1)) == ["q", "two"]
    assert texts(store.select_version(second.id, 1)) == ["q", "two"]
    assert texts(store.select_version(second.id, -9)) == ["q", "one", "more", "one more"]


def test_a_very_long_chat_can_be_shown_and_purged(store: ChatStore) -> None:
    chat = store.create_chat("c")
    store.set_unsent(chat.id, "half a")
    parent: str | None = None
    for number in range(1_100):
        parent = add_question(store, chat.id, parent, str(number)).id
    assert len(store.branch(chat.id)) == 1_100
    store.delete_chats([chat.id])
    store.erase_deleted()
    assert (store.branch(chat.id), store.unsent(chat.id)) == ([], "")
    with pytest.raises(LookupError):
        store.chat(chat.id)


def test_unsent_words_are_kept_for_each_chat(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.create_chat("c")
        store.set_unsent(chat.id, "one")
        store.set_unsent(chat.id, "two")
        store.set_unsent(None, "new")
    with ChatStore(path) as store:
        assert (store.unsent(chat.id), store.unsent(None), store.unsent("none")) == ("two", "new", "")
        store.set_unsent(None, "")
        assert store.unsent(None) == ""


def test_half_a_surrogate_pair_does_not_lose_the_message(store: ChatStore) -> None:
    chat = store.create_chat()
    assert add_question(store, chat.id, None, "bad \ud83d paste\0").text == "bad ? paste\0"


def test_a_parent_from_another_chat_is_refused_and_nothing_is_stored(store: ChatStore) -> None:
    one, two = store.create_chat("1"), store.create_chat("2")
    parent = add_question(store, one.id, None, "a")
    with pytest.raises(Exception, match="FOREIGN KEY"):
        add_question(store, two.id, parent.id, "b")
    assert store.chat(two.id) == two
    assert store.branch(two.id) == []


def test_only_the_thread_that_made_the_store_may_use_it(store: ChatStore) -> None:
    errors: list[BaseException] = []

    def use() -> None:
        try:
            store.chats()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "thread" in str(errors[0])


def test_several_changes_together_are_made_or_none_of_them(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.create_chat("c")
        with pytest.raises(ZeroDivisionError), store.together():
            add_question(store, chat.id, None, "not stored")
            store.set_unsent(chat.id, "neither")
            raise ZeroDivisionError
        assert (store.branch(chat.id), store.unsent(chat.id)) == ([], "")
        with store.together():
            add_question(store, chat.id, None, "stored")
            store.set_unsent(chat.id, "this too")
    with ChatStore(path) as store:
        assert ([one.text for one in store.branch(chat.id)], store.unsent(chat.id)) == (["stored"], "this too")
