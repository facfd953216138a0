"""The whole window: models that are loaded as they were the last time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.protocol.options import LoadSettings
from app.ui.engine.client import EngineClient
from app.ui.models.open_dialog import OpenModelsDialog
from tests.support.gguf_files import make_model
from tests.ui.shell.running import WAIT_MS, Running

pytestmark = pytest.mark.usefixtures("guide_pair", "dressed")


class Chosen(Running):
    """A window whose chats begin with the default preset, and an engine that says what it was asked for."""

    FIRST_SETTINGS = None

    def __init__(self, qtbot: QtBot) -> None:
        super().__init__(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "echo"]))
        self.begin()
        self.ready()

    def opened(self) -> LoadSettings:
        """How the pair was loaded that is being loaded now."""
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS) as opened:
            pass
        (files,) = opened.args or []
        assert isinstance(files.settings, LoadSettings)
        return files.settings


@pytest.fixture
def windows(qtbot: QtBot) -> Iterator[list[Chosen]]:
    opened: list[Chosen] = []
    yield opened
    for running in opened:
        running.close()


def test_each_model_is_loaded_as_it_was_the_last_time(qtbot: QtBot, windows: list[Chosen], tmp_path: Path) -> None:
    one = str(make_model(tmp_path / "one.gguf", layers=1))
    two = shutil.copy(one, str(tmp_path / "two.gguf"))
    running = Chosen(qtbot)
    windows.append(running)
    opening, values = running.app.opening, running.settings.values
    values.load = LoadSettings(context_length=700)

    def load_by_dialog(target: str, context: int) -> LoadSettings:
        opening.open_pair(target)
        dialog = running.window.findChild(OpenModelsDialog)
        assert isinstance(dialog, OpenModelsDialog)
        assert dialog.files().settings == values.load_for(target)
        qtbot.waitUntil(lambda: dialog._check.can_load, timeout=WAIT_MS)
        dialog._memory_fields.set_value("context_length", context)
        dialog.accept()
        return running.opened()

    opening.load_pair(one)
    assert running.opened().context_length == 700
    assert load_by_dialog(two, 512).context_length == 512
    assert load_by_dialog(one, 256).context_length == 256
    opening.load_recent(values.recent_pairs[1])
    assert running.opened().context_length == 512
    opening.load_pair(one)
    assert running.opened().context_length == 256
    opening.load_guide()
    assert running.opened() == LoadSettings()  # as at the start
    opening.load_pair(two)
    assert running.opened().context_length == 512
    running.close()
    windows.clear()
    again = Chosen(qtbot)
    windows.append(again)
    files = again.ctx.loader.files()
    assert files is not None and (files.target, files.settings.context_length) == (two, 512)
