"""Models that were cut into pieces: they are listed, and joined."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.models.gguf import Piece, piece_of
from app.models.hub.repository import RemoteFile, group, in_pieces
from app.models.library.library import LibraryEntry
from app.system import Canceled, KnownError
from tests.support.library_parts import library, small_model


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Tea-70B.Q4_K_M.gguf.part1of2", ("Tea-70B.Q4_K_M.gguf", 1, 2)),
        ("Tea.gguf.part10of12", ("Tea.gguf", 10, 12)),
        ("Tea.gguf-split-a", ("Tea.gguf", 0, 0)),
        ("Tea.gguf-split-b", ("Tea.gguf", 1, 0)),
        ("Tea.gguf.part-ab", ("Tea.gguf", 1, 0)),
        ("Tea.gguf.partba", ("Tea.gguf", 26, 0)),
        ("Tea.GGUF.part_01", ("Tea.GGUF", 1, 0)),
        ("Tea.gguf.part-1-of-3", ("Tea.gguf", 1, 3)),
        ("Tea.gguf.001", ("Tea.gguf", 1, 0)),
        ("Tea.gguf", None),
        ("Tea.gguf.part", None),  # of a download
        ("Tea.gguf.part.json", None),
        ("Tea.gguf.1a2b3c4d.part", None),
        ("Tea.gguf.md", None),
        ("Tea-00001-of-00002.gguf", None),
        ("Tea.safetensors.part1of2", None),
    ],
)
def test_names(name: str, wanted: tuple[str, int, int] | None) -> None:
    assert piece_of(name) == (None if wanted is None else Piece(*wanted))


def cut(folder: Path, names: list[str]) -> bytes:
    """Cut a model into pieces with these names; returns the whole."""
    path = small_model(folder / "models" / "Tea.gguf")
    whole = path.read_bytes()
    path.unlink()
    size = -(-len(whole) // len(names))
    for at, name in enumerate(names):
        path.with_name(name).write_bytes(whole[at * size : (at + 1) * size])
    return whole


def the_entry(folder: Path) -> LibraryEntry:
    [entry] = library(folder).scan()
    return entry


@pytest.mark.parametrize("name", ["Tea.gguf.part{}of12", "Tea.gguf-split-{}"])
def test_pieces_are_one_entry_and_become_one_model(tmp_path: Path, name: str) -> None:
    places = [str(at) for at in range(1, 13)] if "of" in name else list("abcdefghijkl")
    whole = cut(tmp_path, [name.format(place) for place in places])
    entry = the_entry(tmp_path)
    assert (entry.title, len(entry.parts), entry.size, entry.usable) == ("Tea", 12, len(whole), False)
    assert entry.problem == "Tea.gguf is in 12 pieces. They must be joined before it can be used."
    told: list[tuple[int, int]] = []
    joined = library(tmp_path).join(entry, lambda *done: told.append(done), lambda: False)
    assert joined.read_bytes() == whole
    assert told[-1] == (len(whole), len(whole))
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["Tea.gguf"]
    assert the_entry(tmp_path).usable


@pytest.mark.parametrize("names", [["Tea.gguf.part2of2"], ["Tea.gguf.part1of3", "Tea.gguf.part3of3"], ["Tea.gguf.001"]])
def test_missing_pieces_are_said_and_nothing_is_lost(tmp_path: Path, names: list[str]) -> None:
    cut(tmp_path, [*names, "rest"])
    (tmp_path / "models/rest").unlink()
    entry = the_entry(tmp_path)
    assert "not all of them are here" in entry.problem
    with pytest.raises(KnownError):
        library(tmp_path).join(entry, lambda *_: None, lambda: False)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == names


def test_a_join_that_fails_keeps_the_pieces(tmp_path: Path) -> None:
    names = ["Tea.gguf.part1of2", "Tea.gguf.part2of2"]
    cut(tmp_path, names)
    entry, folder = the_entry(tmp_path), tmp_path / "models"
    with pytest.raises(Canceled):
        library(tmp_path).join(entry, lambda *_: None, lambda: True)
    (folder / "Tea.gguf").write_bytes(b"another")
    with pytest.raises(KnownError, match="already exists"):
        library(tmp_path).join(entry, lambda *_: None, lambda: False)
    (folder / "Tea.gguf").unlink()
    os.truncate(folder / names[1], 10)
    with pytest.raises(KnownError, match="incomplete"):
        library(tmp_path).join(the_entry(tmp_path), lambda *_: None, lambda: False)
    assert sorted(path.name for path in folder.iterdir()) == names


def test_pieces_of_a_repository_are_counted() -> None:
    names = ["A.gguf.part1of2", "A.gguf.part2of2", "x/B.gguf-split-a", "C.gguf"]
    files = [RemoteFile(repository="o/r", commit="0" * 40, path=name, size=1, sha256="0" * 64) for name in names]
    assert in_pieces(files) == 2
    assert [model.name for model in group(files)] == ["C.gguf"]
