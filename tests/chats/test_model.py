"""Packing where each token came from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.chats.model import StoredMessage, pack, thinking_and_answer, to_json, unpack
from app.protocol.messages import Piece


def test_the_engines_pieces_survive_json() -> None:
    pieces = [
        Piece(text="Gr", drafter="model", round=1),
        Piece(text="", drafter="model", round=1),
        Piece(text="ü😀", round=1, rejected="u"),
    ]
    packed = json.loads(json.dumps(pack(pieces)))
    assert unpack("Grü😀", packed) == pieces


@pytest.mark.parametrize(
    "packed",
    [
        [[1, None, 0]],
        [[9, None, 0, None]],
        [[-1, None, 0, None]],
        [["1", None, 0, None]],
        [[1, 5, 0, None]],
        [[2, None, 0, None], [2, None, 0, None]],
    ],
)
def test_damaged_provenance_costs_the_tint_and_not_the_text(packed: list[list[object]]) -> None:
    assert unpack("abc", packed) == [Piece(text="abc")]


def test_text_beyond_the_provenance_is_the_targets_own() -> None:
    assert unpack("abc", [[1, "model", 4, None]]) == [
        Piece(text="a", drafter="model", round=4),
        Piece(text="bc", round=4),
    ]
    assert unpack("abc", []) == [Piece(text="abc")]
    assert unpack("", []) == []


def test_thinking_is_told_from_the_answer() -> None:
    pieces = [
        Piece(text="Hm. ", thinking=True),
        Piece(text="", thinking=True, drafter="model"),
        Piece(text="So", thinking=True, rejected="No"),
        Piece(text="\n\nYes.", drafter="ngram"),
    ]
    packed = json.loads(json.dumps(pack(pieces)))
    assert unpack("Hm. So\n\nYes.", packed) == pieces
    stored = StoredMessage("id", "chat", None, "assistant", "Hm. So\n\nYes.", "complete", 0.0)
    thought = replace(stored, provenance_json=to_json(pack(pieces)))
    assert thinking_and_answer(thought) == ("Hm. So", "Yes.")
    assert thinking_and_answer(stored) == ("", stored.text)
    odd = replace(stored, text="Yes", provenance_json=to_json(pack([Piece(text="Yes", rejected=",true]")])))
    assert thinking_and_answer(odd) == ("", "Yes")
