"""Packing where each token came from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.chats.model import StoredMessage, pack, unpack
from app.protocol.events import Piece


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


def test_thinking_in_several_parts_is_told_from_the_answer() -> None:
    pieces = [
        Piece(text="", thinking=True),
        Piece(text="Hm. ", thinking=True, rejected=",true]"),
        Piece(text="", thinking=True, drafter="model", round=1),
        Piece(text="Yes", drafter="ngram", round=2),
        Piece(text="\n\nSo", thinking=True, rejected="No", round=3),
        Piece(text=".", round=3),
    ]
    packed = json.loads(json.dumps(pack(pieces)))
    assert unpack("Yes.", packed, "Hm. \n\nSo") == pieces


@pytest.mark.parametrize("damaged", ["", "{", "[1]", "null", "7", '"x"', "[" * 100_000])
def test_values_that_are_no_json_any_more_are_empty(damaged: str) -> None:
    """The message can be read all the same."""
    message = StoredMessage("a", "c", None, "assistant", "Text", "complete", 0.0, settings_json=damaged)
    message = replace(message, figures_json=damaged, provenance_json=damaged)
    assert (message.settings, message.figures, message.code_language) == ({}, {}, "")
    assert "".join(piece.text for piece in unpack(message.text, message.provenance)) == "Text"
