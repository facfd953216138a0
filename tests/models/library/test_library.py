"""The library over real folders: what is listed, what is kept, what is deleted."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from app.errors import Cancelled, KnownError
from app.models.gguf import GgufHeader, ModelFileError, read_header
from app.models.library import scan as library_scan
from app.models.library.folders import FolderKind
from app.models.library.index import LibraryIndex, Record
from app.models.library.library import open_library
from app.models.library.summary import summary_of
from app.models.library.usage import Usage
from app.models.origins import Origins
from tests.support.gguf_files import CHATML_TEMPLATE, make_model, make_vocabulary_file
from tests.support.library_parts import library, small_model, titles
from tests.support.permissions import reachable, without_rights


@contextmanager
def headers_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the files whose headers are read."""
    names: list[str] = []

    def read(path: Path) -> GgufHeader:
        names.append(path.name)
        return read_header(path)

    with monkeypatch.context() as patch:
        patch.setattr(library_scan, "read_header", read)
        yield names


# ---------------------------------------------------------------- what is listed


def test_an_entry_says_what_the_header_says(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/owner/repository/Small-F16.gguf", chat_template=CHATML_TEMPLATE)
    (entry,) = library(tmp_path).scan()
    assert (entry.path, entry.parts, entry.title) == (path, (path,), "Small-F16")
    assert entry.where == "owner/repository/Small-F16"
    assert (entry.size, entry.modified) == (path.stat().st_size, path.stat().st_mtime_ns / 1e9)
    assert (entry.usable, entry.available, entry.read_only, entry.problem) == (True, True, False, "")
    assert entry.summary == summary_of(read_header(path))
    assert entry.summary is not None and entry.summary.tokenizer is not None
    assert (entry.summary.quantization, entry.summary.layers, entry.summary.tokenizer.size) == ("F16", 1, 512)
    assert entry.summary.template_sha256 is not None and entry.summary.shape.weights == entry.summary.tensor_bytes


def test_a_split_model_is_one_entry(tmp_path: Path) -> None:
    first = small_model(tmp_path / "models/split.gguf", max_tensors_per_file=4)
    (entry,) = library(tmp_path).scan()
    files = sorted(first.parent.iterdir())
    assert (entry.path, list(entry.parts), entry.title) == (first, files, "split")
    assert entry.size == sum(file.stat().st_size for file in files)
    assert entry.summary is not None and entry.summary.split_count == len(files)


def test_what_cannot_be_loaded_is_listed_with_its_reason(tmp_path: Path) -> None:
    models = tmp_path / "models"
    whole = small_model(models / "cut.gguf")
    os.truncate(whole, whole.stat().st_size // 2)
    (models / "page.gguf").write_bytes(b"<!doctype html>")
    make_vocabulary_file(models / "vocabulary.gguf")
    make_model(models / "embeds.gguf", architecture="bert")
    first = small_model(models / "lacks.gguf", max_tensors_per_file=4)
    first.with_name(first.name.replace("00001", "00002")).unlink()
    problems = {entry.title: entry.problem for entry in library(tmp_path).scan()}
    assert list(problems) == ["cut", "embeds", "lacks", "page", "vocabulary"]
    assert "is cut off" in problems["cut"] and "makes embeddings" in problems["embeds"]
    assert "web page" in problems["page"] and "only a vocabulary" in problems["vocabulary"]
    assert "these files are missing: lacks-00002-of" in problems["lacks"]


def test_a_split_model_without_its_first_part_is_one_entry(tmp_path: Path) -> None:
    small_model(tmp_path / "models/split.gguf", max_tensors_per_file=4).unlink()
    (entry,) = library(tmp_path).scan()
    assert "these files are missing: split-00001-of" in entry.problem


def test_parts_of_downloads_and_of_other_models_are_not_listed(tmp_path: Path) -> None:
    models = tmp_path / "models"
    small_model(models / "half.gguf").rename(models / "half.gguf.part")
    (models / "half.gguf.part.json").write_text("{}")
    small_model(models / "mmproj.gguf", architecture="clip")
    small_model(models / "lora.gguf", edit=lambda writer: writer.add_type("adapter"))
    small_model(models / "matrix.gguf", edit=lambda writer: writer.add_type("imatrix"))
    small_model(models / "._copied-on-a-mac.gguf")
    small_model(models / ".cache/hidden.gguf")
    (models / "folder.gguf").mkdir()
    assert library(tmp_path).scan() == []


def test_a_file_in_several_folders_is_listed_once(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/one.gguf")
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "same.gguf").hardlink_to(path)
    (extra / "linked.gguf").symlink_to(path)
    other = small_model(extra / "other.gguf")
    entries = library(tmp_path, extra, tmp_path).scan()
    assert [entry.path for entry in entries] == [path, other]
    assert [entry.read_only for entry in entries] == [False, True]


def test_loops_of_links_end(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/a/b/one.gguf")
    (path.parent / "up").symlink_to(tmp_path / "models", target_is_directory=True)
    (path.parent / "self.gguf").symlink_to(path.parent / "self.gguf")
    (path.parent / "gone.gguf").symlink_to(tmp_path / "gone.gguf")
    assert titles(library(tmp_path).scan()) == ["one"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such names")
def test_a_name_that_is_no_text_is_listed_with_advice(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/one.gguf")
    path.rename(os.fsdecode(os.fsencode(path.parent) + b"/caf\xe9.gguf"))
    for _ in range(2):
        (entry,) = library(tmp_path).scan()
        assert entry.problem == "caf\\udce9.gguf has a name or a folder that is no text. Rename it."


def test_folders_too_deep_or_too_full_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model(tmp_path / "models/1/2/3/4/5/6/7/8/deep.gguf")
    small_model(tmp_path / "models/1/2/3/4/5/6/7/8/9/too-deep.gguf")
    shown = library(tmp_path)
    assert titles(shown.scan()) == ["deep"] and shown.notices == []
    monkeypatch.setattr("app.models.library.walk.MAX_FILES", 2)
    for name in ("a", "b", "c"):
        small_model(tmp_path / f"models/{name}.gguf")
    assert len(shown.scan()) == 2
    assert shown.notices == [f"{tmp_path / 'models'} holds more files than are looked through; not all are listed."]


# ---------------------------------------------------------------- the index


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
def test_a_file_that_could_not_be_read_is_tried_again(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/one.gguf")
    reachable(tmp_path)
    shown = library(tmp_path)
    with without_rights(path):
        assert "you lack the permission" in shown.scan()[0].problem
    assert shown.scan()[0].usable


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


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_model(tmp_path / "models/one.gguf")

    def read_and_touch(file: Path) -> GgufHeader:
        header = read_header(file)
        os.utime(path, ns=(1, 1))
        return header

    with monkeypatch.context() as patch:
        patch.setattr(library_scan, "read_header", read_and_touch)
        assert titles(library(tmp_path).scan()) == ["one"]
    with headers_read(monkeypatch) as names:
        library(tmp_path).scan()
    assert names == ["one.gguf"]


def test_a_file_that_goes_during_the_scan_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model(tmp_path / "models/one.gguf")
    small_model(tmp_path / "models/two.gguf")

    def read_and_delete(file: Path) -> GgufHeader:
        file.with_name("two.gguf").unlink(missing_ok=True)
        return read_header(file)

    monkeypatch.setattr(library_scan, "read_header", read_and_delete)
    assert titles(library(tmp_path).scan()) == ["one"]


def test_a_stopped_scan_keeps_what_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        small_model(tmp_path / f"models/{name}.gguf")
    answers = iter([False, False, False, True])
    with pytest.raises(Cancelled):
        library(tmp_path).scan(lambda: next(answers))
    with headers_read(monkeypatch) as names:
        assert len(library(tmp_path).scan()) == 3
    assert names == ["c.gguf"]


@pytest.mark.allow_logs
@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1}'])
def test_a_broken_index_is_put_aside(tmp_path: Path, content: bytes) -> None:
    small_model(tmp_path / "models/one.gguf")
    (tmp_path / "library.json").write_bytes(content)
    assert titles(library(tmp_path).scan()) == ["one"]
    (aside,) = tmp_path.glob("library.broken-*.json")
    assert aside.read_bytes() == content
    assert titles(library(tmp_path).scan()) == ["one"]


@pytest.mark.allow_logs
def test_an_index_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    small_model(tmp_path / "models/one.gguf")
    (tmp_path / "library.json").mkdir()
    assert titles(library(tmp_path).scan()) == ["one"]


# ---------------------------------------------------------------- folders that are not there


def test_a_missing_folder_greys_its_entries_and_forgets_nothing(tmp_path: Path) -> None:
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


def test_the_empty_place_of_a_drive_counts_as_missing(tmp_path: Path) -> None:
    extra = tmp_path / "drive"
    small_model(extra / "theirs.gguf")
    library(tmp_path, extra).scan()
    shutil.rmtree(extra)
    extra.mkdir()
    shown = library(tmp_path, extra)
    (entry,) = shown.scan()
    assert not entry.available
    shown.forget(entry)
    assert library(tmp_path, extra).scan() == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_a_folder_without_permission_is_a_missing_one(tmp_path: Path) -> None:
    reachable(tmp_path)
    locked = small_model(tmp_path / "models/locked/one.gguf")
    small_model(tmp_path / "models/two.gguf")
    shown = library(tmp_path)
    shown.scan()
    shown = library(tmp_path)
    with without_rights(locked.parent):
        assert [entry.available for entry in shown.scan()] == [False, True]
    assert [entry.available for entry in shown.scan()] == [True, True]


def test_a_deleted_file_is_forgotten(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/one.gguf")
    small_model(tmp_path / "models/two.gguf")
    library(tmp_path).scan()
    path.unlink()
    assert titles(library(tmp_path).scan()) == ["two"]


def test_a_link_that_leads_nowhere_now_forgets_nothing(tmp_path: Path) -> None:
    small_model(tmp_path / "drive/one.gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/drive").symlink_to(tmp_path / "drive", target_is_directory=True)
    assert library(tmp_path).scan()[0].available
    (tmp_path / "drive").rename(tmp_path / "away")
    assert [entry.available for entry in library(tmp_path).scan()] == [False]


# ---------------------------------------------------------------- one model, use


def test_a_model_anywhere_is_an_entry(tmp_path: Path) -> None:
    path = small_model(tmp_path / "elsewhere/split.gguf", max_tensors_per_file=4)
    entry = library(tmp_path).entry_at(path)
    assert (entry.usable, entry.read_only, len(entry.parts)) == (
        True,
        True,
        entry.summary and entry.summary.split_count,
    )
    with pytest.raises(ModelFileError, match="not there any more"):
        library(tmp_path).entry_at(tmp_path / "gone.gguf")


def test_when_a_model_was_used_is_known_over_restarts(home: Path) -> None:
    path = small_model(home / "models/one.gguf")
    small_model(home / "models/two.gguf")
    assert [entry.last_used for entry in open_library("", []).scan()] == [None, None]
    Usage(home / "usage.json").note([path])
    one, two = open_library("", []).scan()
    assert one.last_used is not None and two.last_used is None


# ---------------------------------------------------------------- deleting


def test_deleting_says_what_it_frees_and_removes_what_is_empty_then(tmp_path: Path) -> None:
    first = small_model(tmp_path / "models/owner/repository/split.gguf", max_tensors_per_file=4)
    small_model(tmp_path / "models/owner/other.gguf")
    shown = library(tmp_path)
    entry = shown.scan()[1]
    assert shown.would_free(entry) == entry.size == shown.delete(entry)
    assert not first.parent.exists() and (tmp_path / "models/owner").is_dir()
    assert titles(library(tmp_path).scan()) == ["other"]
    shown.delete(shown.scan()[0])
    assert (tmp_path / "models").is_dir() and not list((tmp_path / "models").iterdir())
    assert library(tmp_path).scan() == []


def test_deleting_leaves_other_files_alone(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/owner/one.gguf")
    (path.parent / "README.md").write_text("notes")
    shown = library(tmp_path)
    shown.delete(shown.scan()[0])
    assert [file.name for file in path.parent.iterdir()] == ["README.md"]


def test_nothing_is_deleted_in_folders_of_others(tmp_path: Path) -> None:
    path = small_model(tmp_path / "extra/one.gguf")
    shown = library(tmp_path, tmp_path / "extra")
    (entry,) = shown.scan()
    with pytest.raises(KnownError, match=r"in a folder that is not Slipstream's \(extra folder\)"):
        shown.delete(entry)
    assert path.exists()


def test_nothing_is_deleted_behind_a_linked_folder(tmp_path: Path) -> None:
    path = small_model(tmp_path / "theirs/one.gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/linked").symlink_to(path.parent, target_is_directory=True)
    shown = library(tmp_path)
    (entry,) = shown.scan()
    with pytest.raises(KnownError, match="outside the models folder"):
        shown.delete(entry)
    assert path.exists()


def test_nothing_is_deleted_that_is_not_there(tmp_path: Path) -> None:
    small_model(tmp_path / "models/one.gguf")
    shown = library(tmp_path)
    shown.scan()
    (tmp_path / "models").rename(tmp_path / "away")
    (entry,) = shown.scan()
    with pytest.raises(KnownError, match="is in a folder that is not there now"):
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
    denied = r"one\.gguf could not be deleted: Permission denied"
    with without_rights(path.parent, 0o555), pytest.raises(KnownError, match=denied):
        shown.delete(entry)
    assert titles(shown.scan()) == ["one"]


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
    one.origins = Origins(tmp_path / "origins.json")
    assert titles(one.scan()) == ["one"]
    assert one.notices == [
        "Where models were downloaded from is not known at the moment: "
        "origins.json was written by a newer Slipstream and is left as it is."
    ]
    assert (tmp_path / "origins.json").read_bytes() == newer
