"""What the library remembers of models, and when it reads them again."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from app.models.gguf import GgufHeader, read_header
from app.models.library import library as library_module
from app.models.library.folders import FolderKind
from app.models.library.index import LibraryIndex, Record
from app.models.origins import origins_file
from tests.support.gguf_files import make_vocabulary_file
from tests.support.library_parts import headers_read, library, small_model, titles
from tests.support.permissions import reachable, without_rights


def test_a_header_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model(tmp_path / "models/one.gguf")
    small_model(tmp_path / "models/mmproj.gguf", architecture="clip")
    make_vocabulary_file(tmp_path / "models/vocabulary.gguf")
    first = library(tmp_path).scan()
    kept = (tmp_path / "library.json").stat().st_mtime_ns
    with headers_read(monkeypatch) as names:
        assert library(tmp_path).scan() == first
    assert names == []
    assert (tmp_path / "library.json").stat().st_mtime_ns == kept


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_what_could_not_be_read_is_tried_again(tmp_path: Path) -> None:
    path, locked = small_model(tmp_path / "models/one.gguf"), small_model(tmp_path / "models/locked/two.gguf")
    reachable(tmp_path)
    shown = library(tmp_path)
    with without_rights(path):
        assert "you don't have permission" in shown.scan()[0].problem
    assert shown.scan()[0].usable
    shown = library(tmp_path)
    with without_rights(locked.parent):  # is a missing one
        assert [entry.available for entry in shown.scan()] == [True, False]
    assert [entry.available for entry in shown.scan()] == [True, True]


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_model(tmp_path / "models/one.gguf")
    split = small_model(tmp_path / "models/split.gguf", max_tensors_per_file=4)
    last = sorted(split.parent.glob("split-*"))[-1]
    kept = last.rename(tmp_path / "last")
    shown = library(tmp_path)
    assert "missing" in shown.scan()[1].problem
    small_model(path, vocab_size=400)
    kept.rename(last)
    with headers_read(monkeypatch) as names:
        one, two = shown.scan()
    assert names == ["one.gguf", split.name]
    assert one.summary is not None and one.summary.tokenizer is not None and one.summary.tokenizer.size == 400
    assert two.usable


def test_a_file_that_goes_during_the_scan_or_after_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, _ = (small_model(tmp_path / f"models/{name}.gguf") for name in ("one", "two", "zero"))

    def read_and_delete(file: Path) -> GgufHeader:
        file.with_name("two.gguf").unlink(missing_ok=True)
        return read_header(file)

    monkeypatch.setattr(library_module, "read_header", read_and_delete)
    assert titles(library(tmp_path).scan()) == ["one", "zero"]
    one.unlink()
    assert titles(library(tmp_path).scan()) == ["zero"]


@pytest.mark.allow_logs
def test_a_broken_index_is_put_aside_and_one_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    small_model(tmp_path / "models/one.gguf")
    index = tmp_path / "library.json"
    index.write_bytes(b'{"version": 1')
    for _ in range(2):
        assert titles(library(tmp_path).scan()) == ["one"]
    (aside,) = tmp_path.glob("library.broken-*.json")
    assert aside.read_bytes() == b'{"version": 1'
    index.unlink()
    index.mkdir()
    assert titles(library(tmp_path).scan()) == ["one"]


def test_a_missing_folder_grays_its_entries_and_forgets_nothing(tmp_path: Path) -> None:
    extra = tmp_path / "drive" / "extra"
    small_model(tmp_path / "models/own.gguf")
    small_model(extra / "theirs.gguf")
    small_model(extra / "mmproj.gguf", architecture="clip")
    before = library(tmp_path, extra).scan()
    (tmp_path / "drive").rename(tmp_path / "away")
    for _ in range(2):
        own, theirs = library(tmp_path, extra).scan()
        assert (own.available, theirs.available, theirs.usable) == (True, False, False)
        assert (theirs.summary, theirs.size) == (before[1].summary, before[1].size)
    (tmp_path / "away").rename(tmp_path / "drive")
    assert library(tmp_path, extra).scan() == before


def test_a_link_that_leads_nowhere_now_forgets_nothing(tmp_path: Path) -> None:
    small_model(tmp_path / "drive/one.gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/drive").symlink_to(tmp_path / "drive", target_is_directory=True)
    assert library(tmp_path).scan()[0].available
    (tmp_path / "drive").rename(tmp_path / "away")
    assert [entry.available for entry in library(tmp_path).scan()] == [False]


def test_two_processes_keep_what_each_found(tmp_path: Path) -> None:
    """Window and command line read the index before either writes it."""
    window, command = (LibraryIndex(tmp_path / "library.json") for _ in range(2))
    one = Record(path="/m/one.gguf", folder="/m", kind=FolderKind.OWN, title="one", stamps=())
    two = msgspec.structs.replace(one, path="/m/two.gguf", title="two")
    window.records[one.path] = one
    window.differences["a", "b"] = None
    window.save()
    command.records[two.path] = two
    command.save()
    read = LibraryIndex(tmp_path / "library.json")
    assert (list(read.records), read.differences) == (["/m/one.gguf", "/m/two.gguf"], {("a", "b"): None})
    del window.records[one.path]
    window.save()
    assert list(LibraryIndex(tmp_path / "library.json").records) == ["/m/two.gguf"]


@pytest.mark.allow_logs
def test_origins_of_a_newer_version_are_left_alone_and_the_library_says_so(tmp_path: Path) -> None:
    small_model(tmp_path / "models/one.gguf")
    newer = b'{"version": 2, "origins": []}'
    (tmp_path / "origins.json").write_bytes(newer)
    one = library(tmp_path)
    one.origins = origins_file(tmp_path)
    assert titles(one.scan()) == ["one"]
    assert one.notices == [
        "Slipstream currently doesn't know where models were downloaded from: "
        "origins.json was written by a newer version of Slipstream and is left as it is."
    ]
    assert (tmp_path / "origins.json").read_bytes() == newer
