from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import system
from app.system import KnownError

FOLDERS = [system.data_dir, system.config_dir, system.log_dir]


def test_everything_is_under_the_portable_home(home: Path) -> None:
    folders = [folder() for folder in FOLDERS]
    assert folders == [home, home, home / "logs"]
    assert system.chat_file() == home / "chats.sqlite"
    assert system.settings_file() == home / "settings.json"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_only_the_user_may_enter_the_folders() -> None:
    assert [folder().stat().st_mode & 0o777 for folder in FOLDERS] == [0o700] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="XDG folders")
def test_without_a_portable_home_the_systems_places_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(system.HOME_VARIABLE, " ")
    for name in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    folders = [folder() for folder in FOLDERS]
    assert [folder.relative_to(tmp_path).parts[:2] for folder in folders] == [
        (name, "Slipstream") for name in ("DATA", "CONFIG", "STATE")
    ]
    assert all(folder.is_dir() for folder in folders)


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv(system.HOME_VARIABLE, str(blocked / "home"))
    for folder in FOLDERS:
        with pytest.raises(KnownError, match=r"can't store its files in .*Not a directory.*SLIPSTREAM_HOME"):
            folder()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o500)
    mounted = False
    if sys.platform == "linux":  # modes do not bind root, a read-only file system does
        command = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(folder)]
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    yield folder
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_a_home_that_cannot_be_written_is_named(read_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(system.HOME_VARIABLE, str(read_only))
    with pytest.raises(KnownError, match="it can't be written to"):
        system.data_dir()
    with pytest.raises(KnownError, match="can't store its files"):
        system.log_dir()
