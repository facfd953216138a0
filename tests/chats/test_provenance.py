"""Packing where each token came from."""

from __future__ import annotations

import json

import pytest

from app.chats.provenance import TokenPiece, pack, unpack
from app.protocol.messages import Piece


def test_the_engines_pieces_survive_json() -> None:
    pieces = [
        Piece(text="Gr", drafter="model", round=1),
        Piece(text="", drafter="model", round=1),
        Piece(text="ü😀", round=1, rejected="u"),
    ]
    packed = json.loads(json.dumps(pack(pieces)))
    assert unpack("Grü😀", packed) == [TokenPiece(p.text, p.drafter, p.round, p.rejected) for p in pieces]


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
    assert unpack("abc", packed) == [TokenPiece("abc")]


def test_text_beyond_the_provenance_is_the_targets_own() -> None:
    assert unpack("abc", [[1, "model", 4, None]]) == [TokenPiece("a", "model", 4), TokenPiece("bc", None, 4)]
    assert unpack("abc", []) == [TokenPiece("abc")]
    assert unpack("", []) == []
