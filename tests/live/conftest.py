"""The servers, each started once for all tests: one that drafts with n-grams, one that doesn't, and one with a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_servers import KEY, LiveServer, Product, live_server, products
from tests.support.real_servers import FOLDER
from tests.support.remote_engine import RemoteEngine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--server", default="", help="vllm or llama.cpp; see scripts/real-servers")
    parser.addoption("--record", action="store_true", help="write tests/data/servers anew")


@pytest.fixture(scope="session")
def product(pytestconfig: pytest.Config) -> Product:
    folder, kind = Path(os.environ.get(FOLDER, "none")), pytestconfig.getoption("--server")
    found = next((one for one in products(folder, []).values() if one.kind == kind), None)
    if found is None or not found.python.exists():
        pytest.skip("scripts/real-servers installs the servers and runs these tests")
    return found


@pytest.fixture(scope="session")
def drafting(product: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(product, tmp_path_factory.mktemp("drafting")) as server:
        yield server


@pytest.fixture(scope="session")
def plain(product: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(product, tmp_path_factory.mktemp("plain"), drafts=False) as server:
        yield server


@pytest.fixture(scope="session")
def keyed(product: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """It drafts, wants a key, and says all that it can."""
    with live_server(product, tmp_path_factory.mktemp("keyed"), key=KEY, per_answer=True) as server:
        yield server


@pytest.fixture(params=["drafting", "plain"])
def either(request: pytest.FixtureRequest, drafting: LiveServer, plain: LiveServer) -> LiveServer:
    return drafting if request.param == "drafting" else plain


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    """The real process for servers."""
    with RemoteEngine() as started:
        yield started
