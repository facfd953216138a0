"""How a comparison is made, recorded when it runs: another pair may be loaded when it is exported."""

from __future__ import annotations

from typing import NamedTuple

from app.compare.results import Setup
from app.compare.setup import setup_of
from app.compare.steps import Task
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings
from app.ui.compare.prompt_set import SetChoice
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader


class Snapshot(NamedTuple):
    """The setup of a comparison or a set."""

    setup: Setup
    """Without the models' hashes, which take time."""
    pair: PairLoaded


def snapshot(engine: EngineClient, pair_loader: PairLoader, first: Task, choice: SetChoice | None) -> Snapshot:
    """The current setup. ``first``: the first task; ``choice``: the prompt set, if it is one. Raises `KnownError` if
    the file of prompts is gone.
    """
    pair, files = pair_loader.pair(), pair_loader.files()
    assert pair is not None
    setup = setup_of(
        engine=engine.description(),
        devices=engine.devices(),
        pair=pair,
        settings=files.settings if files else LoadSettings(),
        command=first.command,
        repeat=choice.repeats if choice else 1,
        prompt_file=choice.path if choice else None,
        kinds=choice.kinds if choice else (),
    )
    return Snapshot(setup, pair)
