"""A helper process that reads files, and texts as it reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.helper import Helper
from app.helper.messages import FileNotRead, FileRead, ReadFile
from tests.helper.files_to_read import Read


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    helper = Helper(20.0)
    yield helper
    helper.stop()


@pytest.fixture
def read(helper: Helper, tmp_path: Path) -> Read:
    """Writes a file of this name and reads it."""

    def write_and_read(name: str, data: bytes | str) -> FileRead | FileNotRead:
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return helper.ask(ReadFile(str(path)))

    return write_and_read
