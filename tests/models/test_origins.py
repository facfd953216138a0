"""Where files came from, over restarts and moves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.errors import KnownError
from app.models.origins import FILE_NAME, Origin, Origins
from app.storage.json_file import JsonFile


def origin(path: str = "a.gguf") -> Origin:
    return Origin(repository="maker/model", commit="0" * 40, path=path, sha256="1" * 64, size=5, license="mit")


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


def test_the_file_is_read_once_for_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / FILE_NAME
    Origins(file).put(tmp_path / "0.gguf", origin("first"))
    read: list[Path] = []
    whole = JsonFile._load

    def counted(one: JsonFile[Any], **options: Any) -> Any:
        read.append(one.path)
        return whole(one, **options)

    monkeypatch.setattr(JsonFile, "_load", counted)
    origins = Origins(file)
    for number in range(300):
        origins.get(tmp_path / f"{number}.gguf")
    assert read == [file]
    Origins(file).put(tmp_path / "0.gguf", origin("other"))
    read.clear()
    assert origins.get(tmp_path / "0.gguf") == origin("other")
    assert read == [file]


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = Origins(tmp_path / FILE_NAME)
    monkeypatch.chdir(tmp_path)
    origins.put(Path("a.gguf"), origin())
    assert origins.get(tmp_path / "folder" / ".." / "a.gguf") == origin()


@pytest.mark.allow_logs
def test_a_broken_file_is_put_aside(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(b'{"version": 1}')
    origins = Origins(file)
    assert origins.get(tmp_path / "a.gguf") is None
    origins.put(tmp_path / "a.gguf", origin())
    assert [path.read_bytes() for path in tmp_path.glob("origins.broken-*")] == [b'{"version": 1}']
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KnownError, match="couldn't be saved"):
        Origins(tmp_path / "file" / FILE_NAME).put(tmp_path / "a.gguf", origin())


@pytest.mark.parametrize("shared", [True, False])
def test_those_who_write_at_once_lose_nothing(tmp_path: Path, shared: bool) -> None:
    """Threads with `Origins` of their own are to each other as processes are."""
    origins = Origins(tmp_path / FILE_NAME)

    def put(number: int) -> None:
        (origins if shared else Origins(tmp_path / FILE_NAME)).put(tmp_path / f"{number}.gguf", origin())

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(put, range(20)))
    assert len(origins.all()) == 20


@pytest.mark.allow_logs
def test_a_file_that_cannot_be_read_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Origins(tmp_path / FILE_NAME).put(tmp_path / "a.gguf", origin())
    origins = Origins(tmp_path / FILE_NAME)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(JsonFile, "_load", refused)
        assert origins.get(tmp_path / "a.gguf") is None
        assert origins.problem == "Permission denied"
        with pytest.raises(KnownError, match=r"couldn't be saved: Permission denied\."):
            origins.put(tmp_path / "b.gguf", origin())
    origins.put(tmp_path / "c.gguf", origin())
    assert Origins(tmp_path / FILE_NAME).all() == dict.fromkeys([tmp_path / "a.gguf", tmp_path / "c.gguf"], origin())
