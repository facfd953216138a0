"""The library over real folders: what is listed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.models.gguf import read_header
from app.models.library.index import summary_of
from app.models.library.library import open_library
from tests.support.gguf_files import CHATML_TEMPLATE, make_model, make_vocabulary_file
from tests.support.library_parts import library, small_model, titles


def test_an_entry_says_what_the_header_says(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models/owner/repository/Small-F16.gguf", chat_template=CHATML_TEMPLATE)
    (entry,) = library(tmp_path).scan()
    assert (entry.path, entry.parts, entry.title, entry.file_title) == (path, (path,), "Small", "Small-F16")
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
    first.unlink()
    (entry,) = library(tmp_path).scan()
    assert "these files are missing: split-00001-of" in entry.problem


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
    assert "is incomplete" in problems["cut"] and "is an embedding model" in problems["embeds"]
    assert "web page" in problems["page"] and "only a vocabulary" in problems["vocabulary"]
    assert "these files are missing: lacks-00002-of" in problems["lacks"]


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
        assert entry.problem == "The name or folder of caf\\udce9.gguf is not valid text. Rename it."


def test_folders_too_deep_or_too_full_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model(tmp_path / "models/1/2/3/4/5/6/7/8/deep.gguf")
    small_model(tmp_path / "models/1/2/3/4/5/6/7/8/9/too-deep.gguf")
    shown = library(tmp_path)
    assert titles(shown.scan()) == ["deep"] and shown.notices == []
    monkeypatch.setattr("app.models.library.folders.MAX_FILES", 2)
    for name in ("a", "b", "c"):
        small_model(tmp_path / f"models/{name}.gguf")
    assert len(shown.scan()) == 2
    assert shown.notices == [f"{tmp_path / 'models'} contains too many files to look through, so not all are listed."]


def test_when_a_model_was_used_is_known_over_restarts(home: Path) -> None:
    path = small_model(home / "models/one.gguf")
    small_model(home / "models/two.gguf")
    assert [entry.last_used for entry in open_library("", []).scan()] == [None, None]
    open_library("", []).note_use([path, "caf\udce9.gguf"])  # which is no text
    one, two = open_library("", []).scan()
    assert one.last_used is not None and two.last_used is None
