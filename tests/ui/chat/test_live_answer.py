"""What arrives of an answer."""

from __future__ import annotations

from app.chats.model import StoredMessage, pack
from app.chats.settings import ChatSettings
from app.protocol.messages import Piece, Round, RoundsReceived
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.live_answer import LiveAnswer


def test_the_origin_of_a_long_answer_is_packed_once() -> None:
    question = StoredMessage("id", "chat", None, "user", "Why?", "complete", 0.0)
    live = LiveAnswer([question], ChatSettings())
    live.begin(AnswerSettings(), None)
    pieces = [Piece(text="one ", id=1, drafter="model", round=1), Piece(text="two", id=2, round=2)]
    live.on_rounds_received(
        RoundsReceived(request=1, rounds=[Round(index=1, verify_passes=1, pieces=pieces, tokens=2)])
    )
    first = live.packed()
    more = [Piece(text=" three", id=3, drafter="ngram", round=3)]
    live.on_rounds_received(RoundsReceived(request=1, rounds=[Round(index=3, verify_passes=1, pieces=more, tokens=1)]))
    second = live.packed()
    assert second == pack(live.pieces)
    assert live.tokens() == [1, 2, 3]
    assert len(first) == 2
    assert all(before is after for before, after in zip(first, second, strict=False))


def test_the_answer_is_a_paragraph_of_its_own_behind_the_thinking() -> None:
    live = LiveAnswer([StoredMessage("id", "chat", None, "user", "Why?", "complete", 0.0)], ChatSettings())
    live.begin(AnswerSettings(), None)
    told: list[Round] = []
    live.rounds_received.connect(told.extend)
    for place, (text, thinking) in enumerate([("Hm", True), (".", True), ("", True), ("Yes", False), (".", False)]):
        round_ = Round(index=place, verify_passes=1, pieces=[Piece(text=text, id=place, thinking=thinking)], tokens=1)
        live.on_rounds_received(RoundsReceived(request=1, rounds=[round_]))
    assert live.text() == "Hm.\n\nYes."
    assert [piece for one in told for piece in one.pieces] == live.pieces
    assert [piece.id for piece in live.pieces] == live.tokens() == [0, 1, 2, 3, 4]
