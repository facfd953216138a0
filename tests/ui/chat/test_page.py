"""What of a stored answer reaches the page."""

from __future__ import annotations

import msgspec
import pytest

from app.chats.model import StoredMessage
from app.chats.provenance import pack
from app.protocol.messages import DrafterFigures, DraftFigures, Figures, Piece
from app.ui.chat.answer import Answer, pieces_of
from app.ui.chat.conversation import Conversation
from app.ui.chat.page import ChatPage
from tests.ui.parts import Page


def test_the_counts_of_two_drafters_come_with_the_footer() -> None:
    figures = Figures(
        draft=DraftFigures(
            drafters=[
                DrafterFigures(name="model", tested=8, accepted=6, acceptance_rate=0.75, verify_passes=2),
                DrafterFigures(name="ngram", tested=4, accepted=1, acceptance_rate=0.25, verify_passes=1),
            ]
        )
    )
    answer = StoredMessage(
        "id", "chat", None, "assistant", "text", "complete", 0.0, figures=msgspec.to_builtins(figures)
    )
    view = Page()
    page = ChatPage(view)
    page.show("chat", [answer], None)
    page.finish_answer(answer)
    assert len(view.details) == 2
    for details in view.details:
        assert [line.partition(":")[0] for line in details.splitlines()] == ["Draft model", "n-grams"]


def test_opening_works_out_nothing_of_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[str] = []

    def counted(message: StoredMessage) -> list[Piece]:
        unpacked.append(message.id)
        return pieces_of(message)

    monkeypatch.setattr("app.ui.chat.page.pieces_of", counted)
    answers = [
        StoredMessage(str(at), "chat", None, "assistant", "text", "complete", 0.0, provenance=[[4, "model", 1, None]])
        for at in range(50)
    ]
    view = Page()
    view.is_lazy = True
    ChatPage(view).show("chat", answers, None)
    assert unpacked == []
    shown = view.waiting[7]()
    assert unpacked == ["7"]
    assert [(piece.text, piece.drafter) for piece in shown.pieces] == [("text", "model")]


def test_the_origin_of_a_long_answer_is_packed_once() -> None:
    message = StoredMessage("id", "chat", None, "assistant", "", "streaming", 0.0)
    answer = Answer(message, Conversation([], []), 0.0)
    answer.pieces += [Piece(text="one ", drafter="model", round=1), Piece(text="two", round=2)]
    first = answer.packed()
    answer.pieces += [Piece(text=" three", drafter="ngram", round=3, guess=None)]
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
