"""The starter model in packages of its own, with a small file in its place."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from installer import appimage, linux, places, starter
from installer.model_wheels import SMOLLM2, UnavailableError, UnexpectedError

from app.models.starter import STARTER_NAME, STARTER_SHA256
from tests.support.command_line import ROOT

WEIGHTS = b"GGUF" + bytes(range(256))
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux' packages are made on Linux")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "cached"
    file.write_bytes(WEIGHTS)
    return file


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    (folder / "_internal").mkdir(parents=True)
    (folder / "slipstream").write_text("#!/bin/sh\n")
    return folder


def test_the_app_expects_the_file_that_is_packaged() -> None:
    assert (STARTER_SHA256, f"{STARTER_NAME}.Q4_1.gguf") == (SMOLLM2.sha256, SMOLLM2.file)
    assert starter.NAME == STARTER_NAME


def test_beside_the_file_are_its_license_and_a_valid_sbom(model: Path, tmp_path: Path) -> None:
    folder = starter.lay_out(model, tmp_path / "laid" / "out")
    assert (folder / SMOLLM2.file).read_bytes() == WEIGHTS
    assert "HuggingFaceTB" in (folder / "copyright.txt").read_text("utf-8")
    assert "TERMS AND CONDITIONS" in (folder / "LICENSE.txt").read_text("utf-8")
    text = (folder / starter.SBOM).read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    whole = json.loads(text)["metadata"]["component"]
    assert (whole["name"], whole["type"]) == (STARTER_NAME, "machine-learning-model")
    assert whole["licenses"] == [{"expression": "Apache-2.0"}]
    hashes = [{"alg": "SHA-256", "content": hashlib.sha256(WEIGHTS).hexdigest()}]
    assert [(file["name"], file["hashes"]) for file in whole["components"]] == [(SMOLLM2.file, hashes)]


@ON_LINUX
def test_in_the_archive_it_is_in_a_folder_beside_the_program(bundle: Path, model: Path, tmp_path: Path) -> None:
    without = linux._archive(bundle, tmp_path / "without", tmp_path)
    with tarfile.open(without) as tar:
        assert not any("starter" in name for name in tar.getnames())
    with tarfile.open(linux._archive(bundle, tmp_path / "with", tmp_path, model)) as tar:
        top = f"slipstream-{places.version()}"
        assert f"{top}/slipstream" in tar.getnames()
        found = {Path(name).name for name in tar.getnames() if name.startswith(f"{top}/starter/")}
    assert found == {SMOLLM2.file, "copyright.txt", "LICENSE.txt", "sbom.cdx.json"}


@ON_LINUX
def test_in_an_appimage_too(bundle: Path, model: Path, tmp_path: Path) -> None:
    appimage.lay_out(tmp_path / "AppDir", bundle, model)
    assert (tmp_path / "AppDir" / "usr" / "lib" / "slipstream" / "starter" / SMOLLM2.file).is_file()


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="Debian's tools are missing")
def test_the_deb_is_for_every_processor_and_the_same_each_time(model: Path, tmp_path: Path) -> None:
    package = linux._starter_package(model, tmp_path / "stage", tmp_path)
    assert package.name == f"slipstream-starter_{places.version()}_all.deb"
    shown = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
    fields = dict(line.split(": ", 1) for line in shown.splitlines() if not line.startswith(" "))
    assert (fields["Package"], fields["Architecture"]) == ("slipstream-starter", "all")
    assert fields["Version"] == places.version() and "@" not in fields["Installed-Size"]
    root = tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    assert (root / "usr" / "share" / "slipstream-starter" / SMOLLM2.file).read_bytes() == WEIGHTS
    assert (root / "usr" / "share" / "doc" / "slipstream-starter" / "copyright").is_file()
    (again := tmp_path / "again").mkdir()
    assert linux._starter_package(model, again / "stage", again).read_bytes() == package.read_bytes()
    assert "slipstream-starter" in (ROOT / "packaging" / "linux" / "control.in").read_text("utf-8")


def test_another_file_is_never_packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(_: object) -> Path:
        raise UnexpectedError("It is another file.")

    monkeypatch.setattr(starter, "fetched", unexpected)
    with pytest.raises(SystemExit, match="It is another file"):
        starter.model()


@pytest.fixture
def in_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the app looks for it in the source, in place of the real one."""
    file = tmp_path / "resources" / "starter" / SMOLLM2.file
    file.parent.parent.mkdir()
    monkeypatch.setattr(starter, "IN_SOURCE", file)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return file


def test_without_a_registry_the_source_has_none_and_one_sentence_says_why(
    in_source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(_: object) -> Path:
        raise UnavailableError("There is no registry.")

    monkeypatch.setattr(starter, "fetched", unavailable)
    assert starter.main() == 1
    assert capsys.readouterr() == ("", "There is no registry.\n")
    assert not in_source.parent.exists()
