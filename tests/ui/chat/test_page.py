"""What of a stored answer reaches the page."""

from __future__ import annotations

from app.chats.model import StoredMessage, pack
from app.protocol.messages import Piece
from app.ui.chat.answer import Answer
from app.ui.chat.conversation import Conversation
from app.ui.chat.page import ChatPage
from tests.ui.parts import Page


def test_the_origin_of_a_long_answer_is_packed_once() -> None:
    message = StoredMessage("id", "chat", None, "assistant", "", "streaming", 0.0)
    answer = Answer(message, Conversation([], []), 0.0)
    answer.pieces += [Piece(text="one ", drafter="model", round=1), Piece(text="two", round=2)]
    first = answer.packed()
    answer.pieces += [Piece(text=" three", drafter="ngram", round=3, rejected=None)]
    second = answer.packed()
    assert second == pack(answer.pieces)
    assert len(first) == 2
    assert all(before is after for before, after in zip(first, second, strict=False))


def test_a_message_whose_parent_is_not_on_the_page_is_not_put_there() -> None:
    view = Page()
    page = ChatPage(view)
    first = StoredMessage("1", "chat", None, "user", "one", "complete", 0.0)
    page.show("chat", [first], None)
    stranger = StoredMessage("9", "chat", "8", "user", "nine", "complete", 0.0)
    assert not page.add_question(stranger)
    assert not page.begin_answer(stranger)
    assert view.texts() == ["one"]
    assert page.add_question(StoredMessage("2", "chat", "1", "user", "two", "complete", 0.0))
    assert page.add_question(StoredMessage("3", "chat", None, "user", "other", "complete", 0.0))
    assert view.texts() == ["other"]
