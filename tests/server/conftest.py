"""Servers with real engines that the tests of all files share, from the first one that asks on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.server.guard import Guard
from tests.support.served import Served
from tests.support.thinking_models import ENDLESS, make_thinking_model
from tests.support.tool_models import make_tool_model

KEY = "a-key-of-twenty-letters"


@pytest.fixture(scope="session")
def endless_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """It thinks until it is stopped or the context is full, and answers “ yes no.”"""
    folder = tmp_path_factory.mktemp("endless")
    target = make_thinking_model(folder / "endless.gguf", ENDLESS, context_length=32_768)
    return target, make_thinking_model(folder / "draft.gguf", ENDLESS, noise=0.5, context_length=32_768)


@pytest.fixture(scope="session")
def server(endless_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(*endless_pair, home=tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture(scope="session")
def locked(endless_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same with a key."""
    with Served(*endless_pair, guard=Guard(key=KEY), home=tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture(scope="session")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It calls tools as Qwen's do, in a third of its answers; at a temperature of 0, it says “ yes no.”"""
    folder = tmp_path_factory.mktemp("calling")
    with Served(make_tool_model(folder / "target.gguf", "hermes", calls=0.5), home=folder / "home") as served:
        yield served
