"""What arrives of an answer."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from app.chats.model import StoredMessage, pack, to_json, unpack
from app.chats.settings import ChatSettings
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Generate
from app.protocol.events import Figures, GenerationFinished, Piece, Round, RoundsReceived
from app.ui.chat.conversation import can_continue, was_cut
from app.ui.chat.footer import footer_of
from app.ui.chat.live_answer import LiveAnswer

QUESTION = StoredMessage("id", "chat", None, "user", "Why?", "complete", 0.0)
CUT = StoredMessage("a", "chat", "id", "assistant", "", "stopped", 0.0, finish_reason="cancelled")


def rounds(*pieces: Piece) -> RoundsReceived:
    made = [Round(index=at, verify_passes=1, pieces=[piece], tokens=1) for at, piece in enumerate(pieces)]
    return RoundsReceived(request=1, rounds=made)


def resumed(message: StoredMessage) -> tuple[LiveAnswer, Generate]:
    live = LiveAnswer([QUESTION], ChatSettings(), continued=message)
    return live, live.begin(AnswerSettings(), None)


def test_thinking_arrives_apart_from_the_answer() -> None:
    live = LiveAnswer([QUESTION], ChatSettings())
    live.begin(AnswerSettings(), None)
    told: list[Round] = []
    live.rounds_received.connect(told.extend)
    texts = [("Hm", True), (".", True), ("", True), ("Yes", False), ("\n\nSo", True), (".", False)]
    live.on_rounds_received(
        rounds(*(Piece(text=text, id=at, thinking=is_so) for at, (text, is_so) in enumerate(texts)))
    )
    assert (live.text(), live.thinking()) == ("Yes.", "Hm.\n\nSo")
    assert [piece for one in told for piece in one.pieces] == live.pieces
    live.end("complete", "end")
    ended = live.message
    assert ended is not None and (ended.text, ended.thinking) == ("Yes.", "Hm.\n\nSo")
    assert list(ended.tokens) == [0, 1, 2, 3, 4, 5]
    assert unpack(ended.text, ended.provenance, ended.thinking) == [
        msgspec.structs.replace(piece, id=-1) for piece in live.pieces
    ]


def test_an_answer_that_was_cut_in_its_thinking_goes_on() -> None:
    pieces = [Piece(text="", thinking=True), Piece(text="Hm", thinking=True, drafter="model")]
    cut = replace(CUT, thinking="Hm", provenance_json=to_json(pack(pieces)), tokens=[7, 8])
    assert was_cut(cut) and can_continue(cut)
    assert was_cut(replace(cut, thinking=""))  # its text may still be undecided
    assert not was_cut(replace(cut, thinking="", tokens=()))
    live, command = resumed(cut)
    assert command.continued == [7, 8]
    assert (live.text(), live.thinking()) == ("", "Hm")
    live.on_rounds_received(rounds(Piece(text=".", id=9, thinking=True), Piece(text="Yes", id=10)))
    assert (live.text(), live.thinking(), live.tokens()) == ("Yes", "Hm.", [7, 8, 9, 10])
    assert live.packed()[:2] == cut.provenance


def test_an_answer_whose_tokens_do_not_fit_its_provenance_keeps_its_thinking() -> None:
    cut = replace(CUT, text="Yes", thinking="Hm", tokens=[1, 2, 3, 4], status="interrupted")
    live, command = resumed(cut)
    assert (live.text(), live.thinking(), command.continued) == ("Yes", "Hm", [1, 2, 3, 4])
    assert not can_continue(replace(cut, tokens=[1]))


def test_a_stop_string_is_cut_from_the_answer_only() -> None:
    pieces = [Piece(text="Hm.", thinking=True), Piece(text="Yes. ST"), Piece(text="", thinking=True)]
    cut = replace(CUT, text="Yes. ST", thinking="Hm.", provenance_json=to_json(pack(pieces)), tokens=[1, 2, 3])
    live, _command = resumed(cut)
    live.on_finished(GenerationFinished(request=1, finish_reason="stop_string", figures=Figures(), stop_overlap=2))
    assert (live.text(), live.thinking(), live.tokens()) == ("Yes. ", "Hm.", [1, 2, 3])


def test_what_a_model_thought_that_said_nothing_else_is_its_answer() -> None:
    for reason, texts in (("end", ("Hm. Yes.", "")), ("cancelled", ("", "Hm. Yes.")), ("length", ("", "Hm. Yes."))):
        live = LiveAnswer([QUESTION], ChatSettings())
        live.begin(AnswerSettings(), None)
        live.on_rounds_received(
            rounds(Piece(text="Hm.", id=1, thinking=True), Piece(text=" Yes.", id=2, thinking=True))
        )
        live.packed()
        live.on_finished(GenerationFinished(request=1, finish_reason=reason, figures=Figures()))  # type: ignore[arg-type]
        ended = live.message
        assert ended is not None and (ended.text, ended.thinking) == texts
        assert unpack(ended.text, ended.provenance, ended.thinking) == [
            Piece(text=text, thinking=reason != "end") for text in ("Hm.", " Yes.")
        ]


def repeats(live: LiveAnswer) -> bool:
    return live.repeats


def test_code_and_data_may_be_all_alike() -> None:
    live = LiveAnswer([QUESTION], ChatSettings())
    live.begin(AnswerSettings(), None)
    live.on_rounds_received(rounds(Piece(text="```\n", id=1), *(Piece(text="0, ", id=2) for _ in range(3000))))
    assert not repeats(live)
    live.on_rounds_received(rounds(Piece(text="\n```\n", id=1), *(Piece(text="0, ", id=2) for _ in range(3000))))
    assert repeats(live)


def test_an_answer_repeats_itself_only_after_a_long_while_and_not_where_that_is_wanted() -> None:
    live = LiveAnswer([QUESTION], ChatSettings())
    live.begin(AnswerSettings(), None)
    live.on_rounds_received(rounds(*(Piece(text=f"{number}, ", id=1) for number in range(2000))))
    assert not repeats(live)
    moods = "".join(
        f"A rainbow is a symbol of {mood} in many cultures.\n\n" for mood in ("joy", "luck", "joy", "joy", "hope")
    )
    live.on_rounds_received(rounds(*(Piece(text=letter, id=2) for letter in moods * 21)))
    assert not repeats(live)
    live.on_rounds_received(rounds(*(Piece(text=letter, id=2) for letter in moods * 7)))
    assert repeats(live)
    live.on_finished(GenerationFinished(request=1, finish_reason="cancelled", figures=Figures()))
    assert live.message is not None and live.message.finish_reason == "repeats" and can_continue(live.message)
    assert footer_of(live.message).endswith("stopped because it kept repeating itself")
    more, _ = resumed(live.message)
    more.on_rounds_received(rounds(*(Piece(text=letter, id=2) for letter in moods * 40)))
    assert not repeats(more)  # who continues it wants it
    cut, _ = resumed(replace(live.message, finish_reason="length"))
    cut.on_rounds_received(rounds(Piece(text="again ", id=2)))
    assert not repeats(cut)
    cut.on_rounds_received(rounds(*(Piece(text=letter, id=2) for letter in moods * 40)))
    assert repeats(cut)
