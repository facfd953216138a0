from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import Served
from tests.support.thinking_models import ENDLESS, make_thinking_model


@pytest.fixture(scope="session")
def endless_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """It thinks until it is stopped or the context is full, and answers “ yes no.”"""
    folder = tmp_path_factory.mktemp("endless")
    target = make_thinking_model(folder / "endless.gguf", ENDLESS, context_length=32_768)
    return target, make_thinking_model(folder / "draft.gguf", ENDLESS, noise=0.5, context_length=32_768)


@pytest.fixture(scope="module")
def server(endless_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for the tests of a file."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("server-home")))
        with Served(*endless_pair) as served:
            yield served
