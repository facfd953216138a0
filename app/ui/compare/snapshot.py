"""What a comparison was made with, put down when it ran: another pair may be loaded when it is exported."""

from __future__ import annotations

from app.compare.results import Setup
from app.compare.setup import setup_of
from app.compare.steps import Task
from app.protocol.messages import LoadSettings, PairLoaded
from app.ui.compare.prompt_choice import SetChoice
from app.ui.engine.interface import Engine
from app.ui.engine.pair import PairLoader


class Snapshot:
    """Pair, settings and machine of one comparison or one set.

    Attributes:
        setup: Without the hashes of the models, which take time; ``None`` before `take`.
        pair: What computed.
    """

    def __init__(self, first: Task, choice: SetChoice | None = None) -> None:
        """``first`` is the first task; ``choice`` the set, ``None`` for one prompt."""
        self._first = first
        self._choice = choice
        self.setup: Setup | None = None
        self.pair: PairLoaded | None = None

    def take(self, engine: Engine, pair_loader: PairLoader) -> None:
        """Put down how things stand; only the first call does.

        Raises `KnownError` where the file of prompts is gone.
        """
        pair, files, choice = pair_loader.pair(), pair_loader.files(), self._choice
        if self.setup is not None or pair is None:
            return
        self.pair = pair
        self.setup = setup_of(
            engine=engine.description(),
            devices=engine.devices(),
            pair=pair,
            settings=files.settings if files else LoadSettings(),
            command=self._first.command,
            repeat=choice.repeats if choice else 1,
            prompt_file=choice.path if choice else None,
            kinds=choice.kinds if choice else (),
        )
