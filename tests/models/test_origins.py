"""Where files came from, over restarts and moves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app.errors import KnownError
from app.models.origins import FILE_NAME, Origin, Origins


def origin(path: str = "a.gguf") -> Origin:
    return Origin(repository="maker/model", commit="0" * 40, path=path, sha256="1" * 64, size=5, licence="mit")


def test_kept_over_restarts(tmp_path: Path) -> None:
    origins = Origins(tmp_path / FILE_NAME)
    model = tmp_path / "a.gguf"
    assert origins.get(model) is None
    origins.put(model, origin())
    assert Origins(tmp_path / FILE_NAME).get(model) == origin()
    assert Origins(tmp_path / FILE_NAME).all() == {model: origin()}
    origins.remove(model)
    origins.remove(model)
    assert origins.get(model) is None


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = Origins(tmp_path / FILE_NAME)
    monkeypatch.chdir(tmp_path)
    origins.put(Path("a.gguf"), origin())
    assert origins.get(tmp_path / "folder" / ".." / "a.gguf") == origin()


def test_a_moved_folder(tmp_path: Path) -> None:
    origins = Origins(tmp_path / FILE_NAME)
    inside, beside = tmp_path / "models" / "m" / "a.gguf", tmp_path / "models-2" / "a.gguf"
    origins.put(inside, origin())
    origins.put(beside, origin())
    origins.moved(tmp_path / "models", tmp_path / "new")
    assert set(origins.all()) == {tmp_path / "new" / "m" / "a.gguf", beside}


@pytest.mark.allow_logs
@pytest.mark.parametrize("content", [b"", b"no json", b"[" * 100_000, b'{"version": 1}'])
def test_a_broken_file_is_put_aside(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(content)
    origins = Origins(file)
    assert origins.get(tmp_path / "a.gguf") is None
    origins.put(tmp_path / "a.gguf", origin())
    assert [path.read_bytes() for path in tmp_path.glob("origins.broken-*")] == [content]


def test_threads_lose_nothing(tmp_path: Path) -> None:
    origins = Origins(tmp_path / FILE_NAME)
    threads = [
        threading.Thread(target=origins.put, args=(tmp_path / f"{number}.gguf", origin())) for number in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(origins.all()) == 20


@pytest.mark.allow_logs
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_bytes(b"")
    with pytest.raises(KnownError, match="could not be kept"):
        Origins(in_the_way / FILE_NAME).put(tmp_path / "a.gguf", origin())
