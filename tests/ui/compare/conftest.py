"""A chat with a scripted engine in a real process, and what compares with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.ui.parts import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeRig]:
    rigs = []

    def make(behavior: str = "compare") -> Rig:
        rigs.append(Rig(qtbot, tmp_path, behavior))
        rigs[-1].load()
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
