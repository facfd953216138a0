from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.policy.costs import Costs
from app.storage.keyed_file import KeyedFile, cache_file, key_of

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


BROKEN = [b"", b"{", b"[]", b'{"a": 3}', b'{"a": {"verify": {"1": "x"}}}', b"\xff", b'{"a":' * 99999]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_costs_what_was_in_it_only(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "values.json"
    path.write_bytes(content)
    store = a_file(path)
    assert store.get("a") is None
    store.put("a", ONE)
    assert store.get("a") == ONE


def test_an_entry_of_another_time_is_ignored_and_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    entries = b'{"old": {"seconds": 3}, "good": {"verify": {"1": 0.5, "2": 0.625}, "since_plain": 0.125}}'
    path.write_bytes(b'{"version": 1, "entries": %b}' % entries)
    store = a_file(path)
    assert store.get("old") is None
    store.put("new", ONE)
    assert store.get("good") == store.get("new") == ONE


def test_an_entry_that_is_no_text_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_bytes(b'{"version": 1, "entries": {"bad": "\xff", "good": "yes"}}')
    store = KeyedFile(path, str)
    assert store.get("bad") is None
    assert store.get("good") == "yes"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    a_file(file / "values.json").put("a", ONE)
    assert cache_file("values.json") == home / "cache" / "values.json"
    home.joinpath("cache").rmdir()
    home.joinpath("cache").write_text("not a folder")
    assert cache_file("values.json") is None


def test_without_a_place_nothing_is_kept() -> None:
    store = a_file(None)
    store.put("a", ONE)
    assert store.get("a") is None


def test_a_key_names_what_it_depends_on() -> None:
    assert key_of({"threads": 1, "target": [3, 4]}) == key_of({"target": [3, 4], "threads": 1})
    assert key_of({"threads": 1}) != key_of({"threads": 2})
