"""A hub on loopback with nothing on it yet, and a clean environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.models.hub.network import Network, NetworkSettings
from tests.support.hub_models import write_hub_models
from tests.support.hub_server import HubServer, without_settings_of_the_system


@pytest.fixture(autouse=True)
def _no_settings_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings_of_the_system(monkeypatch)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_hub_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def network(server: HubServer) -> Network:
    """To `server`, without a token."""
    return Network(NetworkSettings(endpoint=server.endpoint))
