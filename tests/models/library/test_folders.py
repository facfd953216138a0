"""Folders of other apps: found where they are, read as they are laid out, never written to."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from app.models.library.folders import FolderKind, ModelFolder, extra_folder, found_folders, walk
from tests.support.library_parts import library, ollama_manifest, small_model, titles
from tests.support.permissions import reachable, without_rights


def kinds_found(home: Path, **environment: str) -> list[tuple[Path, FolderKind]]:
    system = "/usr/share/ollama/"  # of the machine the tests run on
    found = found_folders(environment, home)
    return [(one.path, one.kind) for one in found if not one.path.as_posix().startswith(system)]


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


# ---------------------------------------------------------------- where they are


def test_the_usual_places(tmp_path: Path) -> None:
    assert kinds_found(tmp_path) == []
    studio, old = made(tmp_path / ".lmstudio/models"), made(tmp_path / ".cache/lm-studio/models")
    hub, ollama = made(tmp_path / ".cache/huggingface/hub"), made(tmp_path / ".ollama/models")
    both = [(studio, FolderKind.LM_STUDIO), (old, FolderKind.LM_STUDIO), (hub, FolderKind.HUGGING_FACE)]
    assert kinds_found(tmp_path) == [*both, (ollama, FolderKind.OLLAMA)]
    other = made(tmp_path / "models")
    assert (other, FolderKind.OLLAMA) in kinds_found(tmp_path, OLLAMA_MODELS=str(other))


def test_lm_studio_says_where_its_home_and_its_models_are(tmp_path: Path) -> None:
    studio, models = made(tmp_path / "elsewhere"), made(tmp_path / "drive")
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{studio}\n")
    (studio / "settings.json").write_text(json.dumps({"downloadsFolder": str(models)}))
    assert kinds_found(tmp_path) == [(models, FolderKind.LM_STUDIO)]


@pytest.mark.parametrize("settings", ["", "{", "[]", '{"downloadsFolder": 3}', '{"downloadsFolder": "relative"}'])
def test_settings_of_others_may_be_anything(tmp_path: Path, settings: str) -> None:
    studio = made(tmp_path / ".lmstudio/models")
    studio.with_name("settings.json").write_text(settings)
    (tmp_path / ".lmstudio-home-pointer").write_bytes(b"\xff\x00")
    assert kinds_found(tmp_path) == [(studio, FolderKind.LM_STUDIO)]


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"HF_HUB_CACHE": "{}/a", "HF_HOME": "{}/b"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/a"}, "a"),
        ({"HF_HOME": "{}/b", "XDG_CACHE_HOME": "{}/c"}, "b/hub"),
        ({"HF_HOME": "~/b"}, "b/hub"),
        ({"XDG_CACHE_HOME": "{}/c"}, "c/huggingface/hub"),
    ],
)
def test_variables_of_the_hugging_face_cache(tmp_path: Path, environment: dict[str, str], place: str) -> None:
    folder = made(tmp_path / place)
    filled = {name: value.format(tmp_path) for name, value in environment.items()}
    assert kinds_found(tmp_path, **filled) == [(folder, FolderKind.HUGGING_FACE)]


def test_an_added_folder_is_recognized(tmp_path: Path) -> None:
    ollama, hub = tmp_path / "ollama", tmp_path / "hub"
    made(ollama / "manifests"), made(ollama / "blobs"), made(hub / "models--a--b" / "snapshots")
    assert extra_folder(ollama).kind is FolderKind.OLLAMA
    assert extra_folder(hub).kind is FolderKind.HUGGING_FACE
    assert extra_folder(made(tmp_path / ".lmstudio/models")).kind is FolderKind.LM_STUDIO
    assert extra_folder(tmp_path / "gone").kind is FolderKind.EXTRA
    assert extra_folder(tmp_path / ("x" * 300)).kind is FolderKind.EXTRA
    assert all(extra_folder(folder).read_only for folder in (ollama, hub, tmp_path))


# ---------------------------------------------------------------- how they are laid out


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hugging_face_cache(hub: Path) -> str:
    """Two snapshots with the same file, as ``huggingface_hub`` makes them; returns the file's hash."""
    repository = hub / "models--owner--Small-GGUF"
    blob = small_model(repository / "blobs/new")
    digest = sha256(blob)
    blob = blob.rename(blob.with_name(digest))
    (blob.parent / f"{'1' * 64}.incomplete").write_bytes(b"half")
    for snapshot in ("a" * 40, "b" * 40):
        folder = made(repository / "snapshots" / snapshot / "Q8_0")
        (folder / "small.gguf").symlink_to(Path("../../../blobs") / digest)
    (hub / "models--owner--empty/refs").mkdir(parents=True)
    return digest


def test_the_hugging_face_cache_is_links_to_blobs(tmp_path: Path) -> None:
    digest = hugging_face_cache(tmp_path / "hub")
    (entry,) = library(tmp_path, tmp_path / "hub").scan()
    assert (entry.title, entry.folder.kind, entry.read_only) == ("Small", FolderKind.HUGGING_FACE, True)
    assert (entry.sha256, library(tmp_path).verify(entry)) == ((digest,), True)
    assert entry.usable and entry.path.name == "small.gguf"


def ollama(top: Path) -> tuple[Path, str]:
    """Ollama's folder with one blob, and its hash."""
    blob = small_model(top / "blobs/new", name="Llama 3.1")
    digest = sha256(blob)
    return blob.rename(blob.with_name(f"sha256-{digest}")), digest


def test_ollama_names_its_blobs_in_manifests(tmp_path: Path) -> None:
    top = tmp_path / "ollama"
    blob, digest = ollama(top)
    ollama_manifest(top, "registry.ollama.ai/library/llama3.1/latest", digest)
    ollama_manifest(top, "registry.ollama.ai/library/llama3.1/8b", digest)
    (entry,) = library(tmp_path, top).scan()
    assert (entry.title, entry.where, entry.path, entry.parts) == ("llama3.1:8b", "llama3.1:8b", blob, (blob,))
    assert (entry.folder.kind, entry.usable, library(tmp_path).verify(entry)) == (FolderKind.OLLAMA, True, True)
    top.rename(tmp_path / "away")
    (missing,) = library(tmp_path, top).scan()
    assert (missing.title, missing.folder.kind, missing.available) == ("llama3.1:8b", FolderKind.OLLAMA, False)
    (tmp_path / "away").rename(top)
    blob.write_bytes(b"nothing")
    assert library(tmp_path).verify(entry) is False
    (entry,) = library(tmp_path, top).scan()
    assert entry.problem == "llama3.1:8b is not a GGUF model file."


@pytest.mark.parametrize(
    ("manifest", "title", "where"),
    [
        ("registry.ollama.ai/someone/llama/8b", "someone/llama:8b", "someone/llama:8b"),
        ("hf.co/owner/Llama-GGUF/Q4_K_M", "Llama", "hf.co/owner/Llama-GGUF:Q4_K_M"),
        ("registry.ollama.ai/library/llama/latest", "llama:latest", "llama:latest"),
        ("odd", ":odd", ":odd"),
    ],
)
def test_ollama_names(tmp_path: Path, manifest: str, title: str, where: str) -> None:
    blob, digest = ollama(tmp_path / "ollama")
    ollama_manifest(tmp_path / "ollama", manifest, digest)
    (entry,) = library(tmp_path, tmp_path / "ollama").scan()
    assert (entry.title, entry.where) == (title, where)
    assert library(tmp_path).entry_at(blob).title == title


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"layers": 3}',
        '{"layers": [3]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../secret"}]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": 3}]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model"}]}',
        "[" * 100_000,
    ],
)
def test_manifests_may_be_anything(tmp_path: Path, content: str) -> None:
    top = tmp_path / "ollama"
    _, digest = ollama(top)
    ollama_manifest(top, "registry.ollama.ai/library/good/8b", digest)
    ollama_manifest(top, "registry.ollama.ai/library/gone/8b", "f" * 64)
    ollama_manifest(top, "registry.ollama.ai/library/other/8b", digest, "application/vnd.ollama.image.projector")
    (top / "manifests/registry.ollama.ai/library/bad").write_text(content)
    assert titles(library(tmp_path, top).scan()) == ["good:8b"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_blobs_that_may_not_be_looked_at(tmp_path: Path) -> None:
    """As those of Ollama's service."""
    _, digest = ollama(tmp_path)
    ollama_manifest(tmp_path, "registry.ollama.ai/library/good/8b", digest)
    reachable(tmp_path)
    with without_rights(tmp_path / "blobs"):
        assert walk(ModelFolder(tmp_path, FolderKind.OLLAMA)).files == []
