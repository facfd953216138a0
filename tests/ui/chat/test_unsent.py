"""What is stored of a new message, and what stays in the composer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject

from app.chats.attachments import Content
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.ui.chat.unsent import UnsentMessage, new_question
from app.ui.chat.writer import ChatWriter, StoredChats
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
    other = tmp_path / "other"  # its store, too, removes attachments of nobody
    other.mkdir()
    chats = StoredChats(ChatWorker(other / "chats.sqlite"), notice_list)
    made = UnsentMessage(ChatWriter(chats, owner), None, owner, is_known=True)
    made.text = "typed since"
    yield made
    chats.close()


@pytest.mark.parametrize(("is_sent", "left"), [(True, "typed since"), (False, "")])
def test_what_is_left_in_the_composer_goes_with_what_is_sent(
    store: ChatStore, unsent: UnsentMessage, is_sent: bool, left: str
) -> None:
    first, later = (store.keep(Content("text", "a.md", data, "text/markdown")) for data in (b"first", b"later"))
    store.set_unsent(None, "First")
    store.set_unsent_attachments(None, [first])
    unsent.attachments = (later,)
    question = new_question("chat", "First", (first,), [])
    unsent.question_writer(question, first_settings=ChatSettings().to_json(), is_sent=is_sent)(store)
    assert store.unsent("chat") == left
    assert store.unsent(None) == ("" if is_sent else "First")
    assert store.unsent_attachments("chat") == ((later,) if is_sent else ())
    assert store.unsent_attachments(None) == (() if is_sent else (first,))
