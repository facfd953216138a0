from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.remote_engine import RemoteEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[RemoteEngine]:
    """The real process."""
    with RemoteEngine() as started:
        yield started


@pytest.fixture(scope="session")
def hasty() -> Iterator[RemoteEngine]:
    """The same, only less patient: `tests.support.hasty_remote`."""
    with RemoteEngine("tests.support.hasty_remote") as started:
        yield started
