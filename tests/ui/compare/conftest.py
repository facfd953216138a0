"""A session with a scripted engine in a real process, and what compares with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.ui.parts import Desk

MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeDesk]:
    desks = []

    def make(way: str = "compare") -> Desk:
        desks.append(Desk(qtbot, tmp_path, way))
        desks[-1].load()
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()
