"""The app from the archive in places and conditions that programs often forget. No test here has a network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp
from tests.packaged.packaged_app import PackagedApp
from tests.packaged.test_starter import ASK

FOLDER = "/opt/Meine Programme/Übung 模型"


@pytest.fixture(scope="module")
def program(with_dependencies: CleanSystem, tarball: Path) -> str:
    """The unpacked archive's program, in a folder with spaces and letters of several scripts that nobody can write."""
    folder = with_dependencies.path(FOLDER)
    folder.mkdir(parents=True)
    options = ["--strip-components=1", "--no-same-owner", f"--directory={folder}"]
    subprocess.run(["tar", "--extract", f"--file={tarball}", *options], check=True)
    with_dependencies.make_read_only(FOLDER)
    return f"{FOLDER}/slipstream"


def test_a_read_only_folder_with_spaces_and_foreign_letters(
    with_dependencies: CleanSystem, program: str, new_app: NewApp
) -> None:
    _works(new_app(with_dependencies, program=program))


def test_the_starter_model_is_beside_it(with_dependencies: CleanSystem, program: str, new_app: NewApp) -> None:
    app = new_app(with_dependencies, program=program)
    assert app.run(*ASK).stdout.strip()
    assert f"{FOLDER}/starter" in app.run("selftest").stdout


@pytest.mark.parametrize("language", ["C", "POSIX", "de_DE.UTF-8"])
def test_a_language_that_is_not_installed_or_no_utf_8(
    with_dependencies: CleanSystem, program: str, new_app: NewApp, language: str
) -> None:
    app = new_app(with_dependencies, program=program, env={"LANG": language, "LC_ALL": language})
    _works(app)
    said = app.run("generate", "--prompt", "Grüße 模型", "--max-tokens", "4", "--seed", "1")
    assert "Traceback" not in said.stderr


def test_no_folder_for_temporary_files(with_dependencies: CleanSystem, program: str, new_app: NewApp) -> None:
    app = new_app(with_dependencies, program=program, env={"TMPDIR": "/nowhere"})
    with _read_only(with_dependencies, ["/tmp", "/var/tmp", "/dev/shm"]):
        _works(app)


def test_no_home_in_the_environment(with_dependencies: CleanSystem, program: str, new_app: NewApp) -> None:
    app = new_app(with_dependencies, program=program)
    with_dependencies.run("env", "--unset=HOME", program, "selftest", user=app.user)


@pytest.mark.parametrize("command", [["--window"], ["selftest"]])
def test_a_home_that_cannot_be_written_is_said_in_a_sentence(
    with_dependencies: CleanSystem, program: str, new_app: NewApp, command: list[str]
) -> None:
    app = new_app(with_dependencies, program=program, env={"QT_QPA_PLATFORM": "offscreen"})
    home = with_dependencies.path(app.user.home)
    home.chmod(0o555)
    said = app.run(*command, check=False)
    assert said.returncode == 1
    assert "can't store its files in" in said.stderr + said.stdout
    assert "Traceback" not in said.stderr + said.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(with_dependencies: CleanSystem, program: str, new_app: NewApp, closed: str) -> None:
    app = new_app(with_dependencies, program=program)
    shell = ("sh", "-c", f'exec "$0" "$@" {closed}', program)
    assert with_dependencies.run(*shell, "selftest", user=app.user).returncode == 0
    app.program = _script(with_dependencies, app, closed)
    _opens(app)


def test_the_archive_integrates_itself_into_the_menu_and_leaves_it_again(
    with_dependencies: CleanSystem, program: str, new_app: NewApp
) -> None:
    app = new_app(with_dependencies, program=program)
    integration = f"{FOLDER}/desktop-integration"
    data = with_dependencies.path(f"{app.user.home}/.local/share")
    with_dependencies.run(integration, "install", user=app.user)
    entry = data / "applications" / "app.slipstream.Slipstream.desktop"
    assert f'Exec="{program}" %f' in entry.read_text(encoding="utf-8").splitlines()
    subprocess.run(["desktop-file-validate", entry], check=True)
    with_dependencies.run(integration, "remove", user=app.user)
    assert [path for path in data.rglob("*") if path.is_file()] == []


def _works(app: PackagedApp) -> None:
    """Its own test passes, and the window opens and closes."""
    app.run("selftest")
    _opens(app)


def _opens(app: PackagedApp) -> None:
    opened = app.open(None)
    opened.wait_until_ready()
    assert opened.terminate() == 0
    app.wait_until_gone()


def _script(system: CleanSystem, app: PackagedApp, closed: str) -> str:
    """A starter that closes streams before it becomes the app."""
    script = f"{app.user.home}/start"
    system.path(script).write_text(f'#!/bin/sh\nexec "{app.program}" "$@" {closed}\n', encoding="utf-8")
    system.path(script).chmod(0o755)
    return script


@contextmanager
def _read_only(system: CleanSystem, folders: Sequence[str]) -> Iterator[None]:
    for folder in folders:
        system.make_read_only(folder)
    try:
        yield
    finally:
        for folder in folders:
            system.make_writable(folder)
