from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.support.thinking_models import WORDY, make_thinking_model
from tests.ui.server.rig import ServingRig


@pytest.fixture(scope="session")
def wordy_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """It thinks, and writes words at random, until it is stopped."""
    folder = tmp_path_factory.mktemp("wordy")
    target = make_thinking_model(folder / "wordy.gguf", WORDY, context_length=32_768)
    return target, make_thinking_model(folder / "draft.gguf", WORDY, noise=0.5, context_length=32_768)


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, wordy_pair: tuple[Path, Path]) -> Iterator[ServingRig]:
    """A server that listens, and a pair that is loaded."""
    made = ServingRig(qtbot, tmp_path, wordy_pair)
    made.load()
    made.listen()
    yield made
    made.close()
