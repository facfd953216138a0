"""What the package puts where, and that the system's own tools understand it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from app import __version__
from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp

ID = "app.slipstream.Slipstream"


@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/slipstream/slipstream",
        f"/usr/share/applications/{ID}.desktop",
        f"/usr/share/metainfo/{ID}.metainfo.xml",
        f"/usr/share/mime/packages/{ID}.xml",
        f"/usr/share/icons/hicolor/128x128/apps/{ID}.png",
        f"/usr/share/icons/hicolor/scalable/apps/{ID}.svg",
        "/usr/share/doc/slipstream/copyright",
    ],
)
def test_a_file_is_where_the_desktop_looks_for_it(installed: CleanSystem, file: str) -> None:
    assert installed.path(file).is_file()


def test_the_command_is_a_link_to_the_program(installed: CleanSystem) -> None:
    assert installed.run("readlink", "-f", "/usr/bin/slipstream").stdout == "/usr/lib/slipstream/slipstream\n"


def test_every_file_belongs_to_root_and_can_be_read_by_all(installed: CleanSystem) -> None:
    odd = "( ! -user root -o ! -group root -o -perm /022 -o ! -perm -444 )"
    found = installed.run("find", "/usr/lib/slipstream", "!", "-type", "l", *odd.split())
    assert found.stdout == ""


def test_the_desktop_entry_is_valid(installed: CleanSystem) -> None:
    _valid("desktop-file-validate", "--warn-kde", installed.path(f"/usr/share/applications/{ID}.desktop"))


def test_the_metainfo_is_valid(installed: CleanSystem) -> None:
    _valid("appstreamcli", "validate", "--no-net", installed.path(f"/usr/share/metainfo/{ID}.metainfo.xml"))


def test_model_files_get_a_type_that_the_app_opens(installed: CleanSystem, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    shutil.copy(installed.path(f"/usr/share/mime/packages/{ID}.xml"), packages)
    _valid("update-mime-database", tmp_path)
    types = [line.split(":") for line in (tmp_path / "globs2").read_text().splitlines() if line.endswith(":*.gguf")]
    entry = installed.path(f"/usr/share/applications/{ID}.desktop").read_text()
    assert f"MimeType={types[0][1]};" in entry


def test_the_version_is_the_sources(installed: CleanSystem, new_app: NewApp) -> None:
    assert new_app(installed).run("--version").stdout == f"slipstream {__version__}\n"
    assert installed.run("dpkg-query", "--show", "--showformat=${Version}", "slipstream").stdout == __version__


def test_the_selftest_passes_without_a_network(installed: CleanSystem, new_app: NewApp, artefacts: Path) -> None:
    done = new_app(installed).run("selftest", check=False)
    (artefacts / "selftest.txt").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


def _valid(*command: str | Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
