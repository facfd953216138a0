"""Names that come from the network, and room."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.downloads.part import DiskFullError, check_space, destination, free_bytes
from app.models.hub.repository import RemoteFile
from app.system import KnownError


def remote(path: str, repository: str = "maker/model-GGUF") -> RemoteFile:
    return RemoteFile(repository=repository, commit="0" * 40, path=path, size=1, sha256="0" * 64)


def test_where_files_go(tmp_path: Path) -> None:
    assert destination(tmp_path, remote("a.gguf")) == tmp_path / "maker" / "model-GGUF" / "a.gguf"
    folder = tmp_path / "maker" / "model-GGUF" / "Q4 K_M"
    assert destination(tmp_path, remote("Q4 K_M/größe-00001-of-00002.gguf")) == folder / "größe-00001-of-00002.gguf"


@pytest.mark.parametrize("path", ["", "..", "../a", "C:a", "a\x00b", "con", "\u202eg", "a" * 201, "\ud800.gguf"])
def test_dangerous_names(tmp_path: Path, path: str) -> None:
    """`tests.models.hub.test_names` has more of them."""
    for file in (remote(path), remote(f"fine/{path}"), remote("a.gguf", f"maker/{path}")):
        with pytest.raises(KnownError, match="isn't a safe file name") as caught:
            destination(tmp_path, file)
        assert str(caught.value).isprintable()


@given(st.text(max_size=40), st.text(max_size=20))
def test_never_outside(path: str, repository: str) -> None:
    root = Path("/models")
    try:
        found = destination(root, remote(path, repository))
    except KnownError:
        return
    assert found.is_relative_to(root) and found != root and ".." not in found.parts
    assert len(found.relative_to(root).parts) == len(f"{repository}/{path}".split("/"))


def test_room_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    free = free_bytes(tmp_path / "models" / "maker")
    assert free > 0
    check_space(tmp_path / "models", 1, 0)
    with pytest.raises(DiskFullError, match="Not enough disk space"):
        check_space(tmp_path / "models", 1, 2 * free)
