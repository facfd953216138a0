from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.engine.policy.costs import Costs
from app.storage.json_file import JsonFile, KeyedFile, cache_file
from app.system import KnownError

ONE = Costs(verify={1: 0.5, 2: 0.625}, since_plain=0.125)


def a_file(path: Path | None) -> KeyedFile[Costs]:
    return KeyedFile(path, Costs)


def test_values_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "values.json"
    a_file(path).put("a", ONE)
    a_file(path).put("b", Costs(verify={1: 1.0}))
    assert a_file(path).get("a") == ONE
    assert a_file(path).get("c") is None


def test_only_so_many_are_kept_and_the_newest(tmp_path: Path) -> None:
    store = a_file(tmp_path / "values.json")
    for number in range(70):
        store.put(str(number), Costs(verify={1: float(number + 1)}))
    assert store.get("0") is None
    assert store.get("69") == Costs(verify={1: 70.0})


def test_an_entry_of_another_time_is_ignored_and_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    entries = b'{"old": {"seconds": 3}, "good": {"verify": {"1": 0.5, "2": 0.625}, "since_plain": 0.125}}'
    path.write_bytes(b'{"version": 1, "entries": %b}' % entries)
    store = a_file(path)
    assert store.get("old") is None
    store.put("new", ONE)
    assert store.get("good") == store.get("new") == ONE


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    a_file(file / "values.json").put("a", ONE)
    assert cache_file("values.json") == home / "cache" / "values.json"
    home.joinpath("cache").rmdir()
    home.joinpath("cache").write_text("not a folder")
    assert cache_file("values.json") is None


# ---------------------------------------------------------------- rows that can't be had again


class Place(msgspec.Struct):
    name: str
    number: int = 0


def places(path: Path) -> KeyedFile[Place]:
    return KeyedFile(path, Place, inside="places", most=100, what="The place", patience=10.0)


def in_an_array(path: Path, most: int = 100) -> KeyedFile[Place]:
    return KeyedFile(path, Place, inside="places", key=lambda row: row.name, most=most, what="The place")


def test_rows_that_contain_their_key(tmp_path: Path) -> None:
    path = tmp_path / "places.json"
    path.write_bytes(b'{"version": 1, "more": 5, "places": [{"name": "a"}, {"number": 3}, {"name": "a", "number": 1}]}')
    store = in_an_array(path)
    assert store.all() == {"a": Place("a", 1)}
    store.add(Place("b"))
    store.remove("a")
    assert json.loads(path.read_bytes()) == {
        "version": 1,
        "more": 5,
        "places": [{"number": 3}, {"name": "b", "number": 0}],  # of another version, perhaps
    }
    for number in range(3):
        in_an_array(path, most=2).add(Place(str(number)))
    assert list(in_an_array(path).all()) == ["1", "2"]


def test_paths_as_keys_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places(tmp_path / "places.json")
    monkeypatch.chdir(tmp_path)
    store.put(Path("a.gguf"), Place("a"))
    assert store.get(tmp_path / "folder" / ".." / "a.gguf") == Place("a")
    store.put_all({Path("caf\udce9"): Place("no text"), Path("b"): Place("b")})
    assert list(places(tmp_path / "places.json").all()) == [
        str(tmp_path / name) for name in ("a.gguf", "caf\udce9", "b")
    ]
    store.remove(Path("b"))
    store.remove(Path("b"))
    assert len(store.all()) == 2


def test_the_file_is_read_once_for_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "places.json"
    places(path).put("0", Place("first"))
    read: list[Path] = []
    whole = JsonFile._load

    def counted(one: JsonFile[Any], **options: Any) -> Any:
        read.append(one.path)
        return whole(one, **options)

    monkeypatch.setattr(JsonFile, "_load", counted)
    store = places(path)
    for number in range(300):
        store.get(str(number))
    assert read == [path]
    places(path).put("0", Place("other"))
    read.clear()
    assert store.get("0") == Place("other")
    assert read == [path]


@pytest.mark.allow_logs
def test_a_file_that_is_not_understood_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "places.json"
    path.write_bytes(b'{"places": {}')
    places(path).put("a", Place("a"))
    assert places(path).get("a") == Place("a")
    assert [one.read_bytes() for one in tmp_path.glob("places.broken-*")] == [b'{"places": {}']


@pytest.mark.parametrize("content", [b"5", b"[]", b'{"a": 5}', b"null"])
def test_what_is_no_table_of_rows_is_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "places.json"
    path.write_bytes(b'{"version": 1, "places": %b}' % content)
    assert places(path).all() == in_an_array(path).all() == {}
    places(path).put("b", Place("b"))
    assert places(path).get("b") == Place("b")


@pytest.mark.allow_logs
def test_a_file_that_cannot_be_read_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "places.json"
    places(path).put("a", Place("a"))
    store = places(path)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(JsonFile, "_load", refused)
        assert store.get("a") is None
        assert store.problem == "Permission denied"
        with pytest.raises(KnownError, match=r"The place couldn't be saved: Permission denied\."):
            store.put("b", Place("b"))
        assert store.get("b") == Place("b")  # until the process ends
    store.put("c", Place("c"))
    assert list(places(path).all()) == ["a", "c"]


@pytest.mark.parametrize("shared", [True, False])
def test_those_who_write_at_once_lose_nothing(tmp_path: Path, shared: bool) -> None:
    """Threads with stores of their own are to each other as processes are."""
    store = places(tmp_path / "places.json")

    def put(number: int) -> None:
        (store if shared else places(tmp_path / "places.json")).put(str(number), Place(""))

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(put, range(20)))
    assert len(store.all()) == 20
