"""What Linux desktops read, and what a package of the frozen folder is."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from installer import linux, places
from installer.contents import is_unwanted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux' packages are made on Linux")
HARD_PATH = 'Übung "1" $HOME `x` 100% \\n'


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A frozen app so small that it can be packed in a test: a program, a library and a link to it."""
    folder = tmp_path / "bundle"
    (folder / "_internal").mkdir(parents=True)
    (folder / "slipstream").write_text("#!/bin/sh\necho ran\n")
    (folder / "slipstream").chmod(0o700)
    (folder / "_internal" / "libx.so.0").write_bytes(b"x")
    (folder / "_internal" / "libx.so").symlink_to("libx.so.0")
    return folder


def test_the_archive_keeps_links_names_nobody_and_is_the_same_each_time(bundle: Path, tmp_path: Path) -> None:
    archive = linux._archive(bundle, tmp_path / "stage", tmp_path)
    with tarfile.open(archive) as tar:
        entries = {Path(entry.name).relative_to(f"slipstream-{places.version()}"): entry for entry in tar}
    assert entries[Path("_internal/libx.so")].linkname == "libx.so.0"
    assert {(entry.uid, entry.uname, entry.mtime) for entry in entries.values()} == {(0, "root", places.commit_time())}
    assert entries[Path("slipstream")].mode == 0o755
    assert entries[Path("_internal/libx.so.0")].mode == 0o644
    (again := tmp_path / "again").mkdir()
    assert linux._archive(bundle, again / "stage", again).read_bytes() == archive.read_bytes()


def test_no_machine_shows_in_modes_times_and_size(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    os.utime(bundle / "slipstream", (1, 1))  # built before the commit, as a library that is kept
    linux.make_plain(bundle)
    paths = [bundle, *bundle.rglob("*")]
    assert {int(path.lstat().st_mtime) for path in paths} == {1700000000}
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths if not path.is_symlink()}
    assert modes == {"bundle": 0o755, "_internal": 0o755, "slipstream": 0o755, "libx.so.0": 0o644}
    assert linux._installed_kib(bundle) == 4  # a folder, two small files and a link


def test_the_menu_entry_starts_the_program_from_any_folder(bundle: Path, tmp_path: Path) -> None:
    installed = tmp_path / HARD_PATH
    archive = linux._archive(bundle, tmp_path / "stage", tmp_path)
    installed.mkdir()
    subprocess.run(["tar", "-xzf", archive], cwd=installed, check=True)
    [top] = installed.iterdir()
    home = tmp_path / "home"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run([top / "desktop-integration", "install"], env=environment, check=True)
    entry = configparser.RawConfigParser(strict=False)
    entry.optionxform = str  # type: ignore[method-assign,assignment]
    shared = home / ".local" / "share"
    entry.read(shared / "applications" / f"{places.application_id()}.desktop", "utf-8")
    program = _first_argument(entry["Desktop Entry"]["Exec"])
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"ran\n"
    assert "TryExec" not in entry["Desktop Entry"]
    assert list(shared.glob("icons/hicolor/*/apps/*")) and list(shared.glob("mime/packages/*.xml"))
    subprocess.run([top / "desktop-integration", "remove"], env=environment, check=True)
    left = [file for file in shared.rglob("*") if places.application_id() in file.name]
    assert left == []


def _first_argument(execute: str) -> str:
    """The program of an ``Exec`` line, as the desktop entry specification reads it."""
    unescaped = execute.replace("\\\\", "\\")
    found = re.match(r'"((?:[^"\\]|\\.)*)" %f$', unescaped)
    assert found is not None
    return re.sub(r"\\(.)", r"\1", found[1]).replace("%%", "%")


def test_metainfo_names_the_version_and_the_type_that_the_mime_file_defines(tmp_path: Path) -> None:
    linux.write_shared(tmp_path)
    name = places.application_id()
    metainfo = ElementTree.parse(tmp_path / "metainfo" / f"{name}.metainfo.xml")
    release = metainfo.find("releases/release")
    assert release is not None and release.get("version") == places.version()
    kind = metainfo.findtext("provides/mediatype")
    assert kind is not None
    assert f"MimeType={kind};" in (tmp_path / "applications" / f"{name}.desktop").read_text("utf-8")
    assert f'type="{kind}"' in (tmp_path / "mime" / "packages" / f"{name}.xml").read_text("utf-8")


def test_system_libraries_and_plugins_nobody_needs_stay_out() -> None:
    unwanted = "libstdc++.so.6 libGL.so.1 libggml.so.0 x-1.dist-info/RECORD libcups.so.2 libavahi-client.so.3"
    unwanted += " libgnutls.so.30 PySide6/Qt/plugins/tls/libqopensslbackend.so"
    assert all(map(is_unwanted, unwanted.split()))
    for wanted in ("platforms/libqxcb.so", "platforms/libqoffscreen.so", "printsupport/libcupsprintersupport.so"):
        assert not is_unwanted(f"PySide6/Qt/plugins/{wanted}")
    assert not is_unwanted("llama_cpp/lib/libggml.so.0")
