"""A hub with a small real model, and what downloads from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.models.downloads.transfer import Backoff
from app.models.hub.network import Network, NetworkSettings
from app.models.origins import origins_file
from tests.models.downloads.fetching import Fetching
from tests.models.downloads.watched import Watched
from tests.support.hub_server import HubServer, without_settings_of_the_system


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings_of_the_system(monkeypatch)


@pytest.fixture
def hub(guide_pair: tuple[Path, Path]) -> Iterator[HubServer]:
    with HubServer() as server:
        target, draft = guide_pair
        server.add("maker/model-GGUF", {"model-Q4_K_M.gguf": draft.read_bytes(), "large.gguf": target})
        yield server


@pytest.fixture
def network(hub: HubServer) -> Iterator[Network]:
    one = Network(NetworkSettings(endpoint=hub.endpoint, token_to_mirror=True, stall_seconds=0.5), lambda: "hf_good")
    yield one
    one.close()


@pytest.fixture
def fetching(hub: HubServer, network: Network, tmp_path: Path) -> Fetching:
    origins = origins_file(tmp_path)
    return Fetching(hub, network, tmp_path / "models", origins, Backoff(first_seconds=0.001, cap_seconds=0.002))


@pytest.fixture
def opens(network: Network, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Opens the queue of the test's folder; all are closed in the end."""
    opened: list[Watched] = []

    def open_queue(**options: Any) -> Watched:
        opened.append(Watched(network, tmp_path / "data", **options))
        return opened[-1]

    yield open_queue
    for one in opened:
        one.queue.close()
