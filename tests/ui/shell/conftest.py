"""The whole window, opened for a test and closed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from tests.ui.shell.running import Running


@pytest.fixture(autouse=True)
def _warm(warm_engine: None) -> None:
    """Windows have an engine process that has started already."""


@pytest.fixture
def open_window(qtbot: QtBot) -> Iterator[Callable[[], Running]]:
    opened = []

    def open_it() -> Running:
        opened.append(Running(qtbot))
        opened[-1].begin()
        return opened[-1]

    yield open_it
    for running in opened:
        running.close()


@pytest.fixture
def running(open_window: Callable[[], Running]) -> Running:
    return open_window()
