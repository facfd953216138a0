"""Files that somebody else names: paths, addresses, and what is neither."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.models.names import names_file, path_of
from app.system import KnownError


@pytest.mark.parametrize("argument", ["model.gguf", "Model.GGUF", f".{os.sep}bench", "file:///x.gguf", "FILE:///x"])
def test_what_means_a_file(argument: str) -> None:
    assert names_file(argument)
    assert not any(map(names_file, ["bench", "nonsense", "--version", "-x.gguf", ""]))


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_of("Модель 1.gguf") == tmp_path / "Модель 1.gguf"
    assert path_of(str(tmp_path / "100%25.gguf")) == tmp_path / "100%25.gguf"


@pytest.mark.parametrize("host", ["", "//", "//localhost"])
def test_an_address_is_decoded(tmp_path: Path, host: str) -> None:
    address = (tmp_path / "Модель 1 #2?.gguf").as_uri().replace("file://", f"file:{host}")
    assert path_of(address) == tmp_path / "Модель 1 #2?.gguf"


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("file://server/share/model.gguf", "on another computer"),
        ("file://[/model.gguf", "is not the address of a file"),
        ("notes.txt", "notes.txt.*gguf"),
        (".gguf", "is not a GGUF model"),
        ("", "is not a GGUF model"),
        pytest.param(
            os.fsdecode(b"/models/caf\xe9.gguf"),
            "not valid text",
            marks=pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="paths are text there"),
        ),
    ],
)
def test_what_cannot_be_a_model_is_said(argument: str, sentence: str) -> None:
    with pytest.raises(KnownError, match=sentence):
        path_of(argument)


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
def test_a_name_in_a_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(KnownError, match=r"model\.gguf.*no longer exists"):
        path_of("model.gguf")
