from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.engine.engine import Engine
from app.engine.protocol import Load, LoadSettings, PairLoaded
from tests.support.gguf_files import CHATML_TEMPLATE, make_model


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target with random weights and a draft that agrees with it about half of the time."""
    folder = tmp_path_factory.mktemp("pair")
    target = make_model(folder / "target.gguf", chat_template=CHATML_TEMPLATE)
    return target, make_model(folder / "draft.gguf", chat_template=CHATML_TEMPLATE, noise=0.07)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.unload()


@pytest.fixture
def load(engine: Engine) -> Callable[..., PairLoaded]:
    """Load a pair into ``engine``; keyword arguments are `LoadSettings`."""

    def load(target: Path, draft: Path | None = None, **settings: object) -> PairLoaded:
        command = Load(
            request=1,
            target=str(target),
            draft=str(draft) if draft else None,
            settings=LoadSettings(**settings),  # type: ignore[arg-type]
        )
        return engine.load(command, lambda _: None)

    return load
