"""Deleting models of the library: only ours, and saying what it frees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.system import KnownError
from tests.support.library_parts import library, small_model, titles
from tests.support.permissions import reachable, without_rights


def test_deleting_says_what_it_frees_and_removes_what_is_empty_then(tmp_path: Path) -> None:
    first = small_model(tmp_path / "models/owner/repository/split.gguf", max_tensors_per_file=4)
    other = small_model(tmp_path / "models/owner/other.gguf")
    other.with_name("README.md").write_text("notes")
    shown = library(tmp_path)
    entry = shown.scan()[1]
    assert shown.would_free(entry) == entry.size == shown.delete(entry)
    assert not first.parent.exists()
    assert titles(library(tmp_path).scan()) == ["other"]
    shown.delete(shown.scan()[0])
    assert [file.name for file in other.parent.iterdir()] == ["README.md"]
    last = small_model(tmp_path / "models/last/last.gguf")
    shown.delete(shown.scan()[0])
    assert not last.parent.exists() and (tmp_path / "models").is_dir() and library(tmp_path).scan() == []


def test_nothing_is_deleted_in_folders_of_others_or_behind_a_linked_folder(tmp_path: Path) -> None:
    extra, linked = small_model(tmp_path / "extra/one.gguf"), small_model(tmp_path / "theirs/two.gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/linked").symlink_to(linked.parent, target_is_directory=True)
    shown = library(tmp_path, tmp_path / "extra")
    one, two = shown.scan()
    with pytest.raises(KnownError, match=r"in a folder that doesn't belong to Slipstream \(extra folder\)"):
        shown.delete(one)
    with pytest.raises(KnownError, match="outside the models folder"):
        shown.delete(two)
    assert extra.exists() and linked.exists()


def test_nothing_is_deleted_that_is_not_there(tmp_path: Path) -> None:
    small_model(tmp_path / "models/one.gguf")
    shown = library(tmp_path)
    shown.scan()
    (tmp_path / "models").rename(tmp_path / "away")
    (entry,) = shown.scan()
    with pytest.raises(KnownError, match="is in a folder that isn't available right now"):
        shown.delete(entry)
    assert not shown.scan()[0].available


@pytest.mark.parametrize("link", [Path.hardlink_to, Path.symlink_to])
def test_a_file_with_another_name_frees_nothing(tmp_path: Path, link: object) -> None:
    path = small_model(tmp_path / "theirs/one.gguf")
    (tmp_path / "models").mkdir()
    assert callable(link)
    link(tmp_path / "models/one.gguf", path)
    shown = library(tmp_path)
    (entry,) = shown.scan()
    assert shown.would_free(entry) == 0 == shown.delete(entry)
    assert path.exists() and not (tmp_path / "models/one.gguf").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_a_file_that_cannot_be_deleted_stays_in_the_library(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/one.gguf")
    reachable(tmp_path)
    shown = library(tmp_path)
    (entry,) = shown.scan()
    denied = r"one\.gguf couldn't be deleted: Permission denied"
    with without_rights(path.parent, 0o555), pytest.raises(KnownError, match=denied):
        shown.delete(entry)
    assert titles(shown.scan()) == ["one"]
