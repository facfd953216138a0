"""Damages files of any kind, and checks that a sentence is one."""

from __future__ import annotations

import json
import random
from typing import Any

_JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    2**70,
    "",
    "\u202e\x00",
    "x" * 5000,
    [],
    {},
    [[]],
    {"": None},
    "../..",
)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """``data`` with bytes changed, zeroed, cut off, removed, doubled or moved: as a disk, a bad copy or an editor might
    do it.
    """
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        place = chance.randrange(max(1, len(changed)))
        size = chance.choice((1, 2, 16, 512, 4096))
        match chance.randrange(7):
            case 0 | 1:
                changed[place : place + 1] = bytes([chance.randrange(256)])
            case 2:
                changed[place : place + size] = bytes(len(changed[place : place + size]))
            case 3:
                del changed[place : place + size]
            case 4:
                changed[place:place] = changed[place : place + size]
            case 5:
                changed[place : place + size] = chance.randbytes(len(changed[place : place + size]))
            case _:
                if chance.random() < 0.2:
                    del changed[place:]
    return bytes(changed)


def damaged_json(data: bytes, chance: random.Random) -> bytes:
    """The same, or JSON with anything in some of its places."""
    if chance.random() < 0.4:
        return damaged(data, chance)
    return json.dumps(_spoiled(json.loads(data), chance)).encode("utf-8", "surrogatepass")


def _spoiled(value: Any, chance: random.Random) -> Any:
    if chance.random() < 0.06:
        return chance.choice(_JUNK)
    if isinstance(value, dict):
        return {key: _spoiled(one, chance) for key, one in value.items() if chance.random() > 0.03}
    if isinstance(value, list):
        return [_spoiled(one, chance) for one in value for _ in range(chance.choice((1, 1, 1, 1, 1, 0, 2)))]
    return value


def check_sentence(text: str) -> None:
    """What the user is told can be read, on a screen and on a terminal."""
    assert text.isprintable(), text
    assert text.endswith("."), text
    assert "Error" not in text and "Traceback" not in text and "0x" not in text, text
