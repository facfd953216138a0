"""Where downloaded files came from: kept, found again, shared with other processes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import filelock
import pytest

from app.errors import KnownError
from app.models import origins as module
from app.models.origins import FILE_NAME, Origin, Origins


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def origin(name: str) -> Origin:
    return Origin(repository="owner/name", commit="0" * 40, path=name, sha256="0" * 64, size=1, licence="mit")


def test_what_was_put_is_there_for_others_until_it_is_removed(file: Path, tmp_path: Path) -> None:
    one, other = Origins(file), Origins(file)
    path = tmp_path / "a.gguf"
    assert other.get(path) is None
    one.put(path, origin("a"))
    assert other.get(path) == origin("a")
    other.put(tmp_path / "b.gguf", origin("b"))
    assert one.all() == {path: origin("a"), tmp_path / "b.gguf": origin("b")}
    one.remove(path)
    one.remove(path)
    assert (other.get(path), other.get(tmp_path / "b.gguf")) == (None, origin("b"))


def test_a_folder_that_moved(file: Path, tmp_path: Path) -> None:
    origins = Origins(file)
    for name in ("old/a.gguf", "old/in/b.gguf", "older/c.gguf"):
        origins.put(tmp_path / name, origin(name))
    origins.moved(tmp_path / "old", tmp_path / "new")
    moved = {path.relative_to(tmp_path).as_posix(): found.path for path, found in Origins(file).all().items()}
    assert moved == {"new/a.gguf": "old/a.gguf", "new/in/b.gguf": "old/in/b.gguf", "older/c.gguf": "older/c.gguf"}


def test_the_file_is_read_once_for_each_change(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Origins(file).put(tmp_path / "a.gguf", origin("a"))
    read: list[Path] = []
    whole = Path.read_bytes

    def counted(path: Path) -> bytes:
        read.append(path)
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    origins = Origins(file)
    for number in range(300):
        origins.get(tmp_path / f"{number}.gguf")
    assert read == [file]
    Origins(file).put(tmp_path / "a.gguf", origin("b"))
    read.clear()
    assert origins.get(tmp_path / "a.gguf") == origin("b")
    assert read == [file]
    file.unlink()
    assert origins.all() == {}


def test_nothing_is_lost_when_many_write(file: Path, tmp_path: Path) -> None:
    def put(number: int) -> None:
        Origins(file).put(tmp_path / str(number), origin(str(number)))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found.path for found in Origins(file).all().values()) == sorted(map(str, range(12)))


@pytest.mark.allow_logs
def test_a_broken_file_is_moved_aside(file: Path, tmp_path: Path) -> None:
    file.write_text("no")
    origins = Origins(file)
    assert origins.all() == {}
    assert [path.read_text() for path in tmp_path.glob("origins.broken-*")] == ["no"]
    origins.put(tmp_path / "a", origin("a"))
    assert len(json.loads(file.read_text())["origins"]) == 1


@pytest.mark.allow_logs
def test_a_file_that_cannot_be_read_is_not_written_over(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Origins(file).put(tmp_path / "a", origin("a"))
    before = file.read_text()

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    origins = Origins(file)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refused)
        assert origins.get(tmp_path / "a") is None
        with pytest.raises(KnownError, match=r"could not be kept: Permission denied\."):
            origins.put(tmp_path / "b", origin("b"))
    assert file.read_text() == before
    assert origins.get(tmp_path / "a") == origin("a")


def test_somebody_who_does_not_let_go(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_S", 0.0)
    with filelock.FileLock(f"{file}.lock"), pytest.raises(KnownError, match="could not be kept"):
        Origins(file).put(tmp_path / "a", origin("a"))
