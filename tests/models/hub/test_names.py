"""Names a mirror may answer, good and bad."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.hub.repository import is_commit, is_repository_id, is_safe_path
from app.storage.files import is_sha256


@pytest.mark.parametrize(
    "path", ["model.gguf", "Q4_K_M/model-00001-of-00003.gguf", "Modèle 8B (v2).gguf", "a/b/c.d/e.gguf", "console.gguf"]
)
def test_ordinary_paths(path: str) -> None:
    assert is_safe_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../model.gguf",
        "a/../b.gguf",
        "a//b.gguf",
        "a/./b.gguf",
        "a\\b.gguf",
        "C:/model.gguf",
        "model.gguf:stream",
        "NUL.gguf",
        "Com¹.gguf",
        "conin$",
        "a*b",
        'a"b',
        "a|b",
        "a<b",
        "a?b",
        "nul .gguf",
        "com1",
        "aux/model.gguf",
        "model.gguf.",
        "model.gguf ",
        "model\n.gguf",
        "model\u202egguf.exe",
        "~/model.gguf",
        "a" * 300 + ".gguf",
        "a/" * 300 + "model.gguf",
    ],
)
def test_paths_nobody_may_write_to(path: str) -> None:
    assert not is_safe_path(path)


@given(st.text(st.sampled_from("abA.1-_ /\\:~\x00\n"), max_size=12))
def test_what_passes_stays_below_its_folder_on_every_system(path: str) -> None:
    if is_safe_path(path):
        for kind in (PurePosixPath, PureWindowsPath):
            below = kind("models") / path
            assert ".." not in below.parts
            assert not kind(path).is_absolute()
            assert below.as_posix() == f"models/{path}"


@pytest.mark.parametrize("id", ["Qwen/Qwen3-0.6B-GGUF", "unsloth/gemma-3-270m-it-GGUF", "a/b", "a_b/c.d"])
def test_repositories(id: str) -> None:
    assert is_repository_id(id)


@pytest.mark.parametrize(
    "id",
    [
        "",
        "gpt2",
        "a/b/c",
        "a/",
        "/b",
        "a/..",
        "../b",
        "a/b..c",
        "a b/c",
        "a/b?x=1",
        "a/b#c",
        "ä/b",
        "a/b\n",
        "a/b.git",
        "a/b--c",
        "a/b-",
    ],
)
def test_no_repositories(id: str) -> None:
    assert not is_repository_id(id)


def test_commits_and_checksums() -> None:
    assert is_commit("0123456789abcdef" * 2 + "01234567")
    assert not is_commit("main")
    assert not is_commit("0" * 40 + "\n")
    assert is_sha256("0123456789abcdef" * 4)
    assert not is_sha256("A" * 64)
