from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject

from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.ui.chat.new_messages import edited_answer, new_question, question_writer
from app.ui.chat.saver import ChatSaver
from app.ui.chat.stored_chats import StoredChats
from app.ui.chat.unsent import UnsentMessage
from app.ui.notices import NoticeList


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    made = ChatStore(tmp_path / "chats.sqlite")
    yield made
    made.close()


@pytest.fixture
def unsent(tmp_path: Path) -> Iterator[UnsentMessage]:
    """Nothing of it is in the composer any more but what was typed since."""
    owner, notice_list = QObject(), NoticeList()
    chats = StoredChats(ChatWorker(tmp_path / "other.sqlite"), notice_list)
    made = UnsentMessage(ChatSaver(chats, owner), None, owner, is_known=True)
    made.text = "typed since"
    yield made
    chats.close()


def test_versions_of_a_question(store: ChatStore, unsent: UnsentMessage) -> None:
    first = new_question("chat", "Frist", (), [])
    question_writer(first, unsent, first_settings=ChatSettings().to_json(), is_sent=True)(store)
    second = new_question("chat", "First", (), [], first)
    question_writer(second, unsent, first_settings=None, is_sent=False)(store)
    assert (first.parent_id, second.parent_id) == (None, None)
    assert (second.version, second.versions) == (2, 2)
    assert [(one.id, one.text, one.version, one.versions) for one in store.branch("chat")] == [
        (second.id, "First", 2, 2)
    ]
    assert new_question("chat", "And then?", (), [second]).parent_id == second.id


@pytest.mark.parametrize(("is_sent", "left"), [(True, "typed since"), (False, "")])
def test_what_is_left_in_the_composer_goes_with_what_is_sent(
    store: ChatStore, unsent: UnsentMessage, is_sent: bool, left: str
) -> None:
    store.set_unsent(None, "First")
    question = new_question("chat", "First", (), [])
    question_writer(question, unsent, first_settings=ChatSettings().to_json(), is_sent=is_sent)(store)
    assert store.unsent("chat") == left
    assert store.unsent(None) == ("" if is_sent else "First")


def test_an_edited_answer_has_no_figures_of_the_one_before() -> None:
    old = new_question("chat", "Hello", (), [])
    edited = edited_answer(old, "Hello!")
    assert (edited.text, edited.version, edited.versions, edited.id != old.id) == ("Hello!", 2, 2, True)
    assert edited.figures["edited"] is True and not edited.tokens and edited.seed is None
