"""A hub on loopback with nothing on it yet, and a clean environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.models.hub.network import Network, NetworkSettings
from tests.support.hub_server import HubServer


@pytest.fixture(autouse=True)
def _no_settings_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def network(server: HubServer) -> Network:
    """To `server`, without a token."""
    return Network(NetworkSettings(endpoint=server.endpoint))
