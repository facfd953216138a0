from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.tool_process import Process, entry


@pytest.fixture(scope="session")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The real process, with a real server called test."""
    folder = tmp_path_factory.mktemp("folder of the user")
    with Process() as process:
        process.start([entry(folders=[str(folder)], env={"ONLY_HERE": "yes"})])
        yield process


@pytest.fixture
def tools(shared_process: Process) -> Process:
    """The same, with nothing asked yet."""
    shared_process.forget()
    return shared_process
