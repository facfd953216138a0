"""From the version before to this one, and away again: chats and models are the user's and stay.

``PACKAGE_TEST_OLDER`` names a ``.deb`` that was built from an older version, to be installed first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import __version__
from app.system import HOME_VARIABLE
from tests.conftest import GUIDE
from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp
from tests.packaged.display import Display
from tests.packaged.packaged_app import PackagedApp

QUESTION = "What is a draft model?"
OLDER_DATA = Path(__file__).parents[1] / "data" / "version-aa1f71ac"
"""The whole folder of a user of an older version that was killed while an answer streamed."""
_NOT_THE_PACKAGES = re.compile(r"/(home|proc|dev|var/(cache|log|lib/(apt|dpkg)))/|/etc/ld\.so\.cache$|-$")
"""What the users, apt, dpkg and ldconfig write, and the backups of /etc/passwd."""


@pytest.fixture
def older_deb(deb: Path, tmp_path: Path) -> Path:
    """A package of an older version, or the same package with a lower one."""
    if built := os.environ.get("PACKAGE_TEST_OLDER"):
        return Path(built)
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tmp_path / "older"], check=True)
    control = tmp_path / "older" / "DEBIAN" / "control"
    text = control.read_text(encoding="utf-8")
    control.write_text(text.replace(f"Version: {__version__}\n", "Version: 0.0.9\n"), encoding="utf-8")
    older = tmp_path / "slipstream_0.0.9_amd64.deb"
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "--build", tmp_path / "older", older], check=True)
    return older


@pytest.fixture
def system(deb: Path, display: Display) -> Iterator[CleanSystem]:
    with CleanSystem("upgrade") as system:
        system.install_dependencies(deb)
        display.show_in(system)
        yield system


def test_chats_survive_upgrade_and_removal_and_nothing_else_stays(
    system: CleanSystem, older_deb: Path, deb: Path, new_app: NewApp, display: Display
) -> None:
    app = new_app(system)
    before = _files(system)
    system.install(older_deb)
    assert _version(system) == _version_in(older_deb) != __version__
    answer = _ask(app, display)
    system.install(deb)
    assert _version(system) == __version__
    _read_again(app, display)
    assert app.answers() == [answer]
    system.apt("purge", "slipstream")
    assert _files(system) - before == set()
    assert before - _files(system) == set()
    assert app.questions() == [QUESTION]


def test_what_an_older_version_wrote_is_there_after_the_upgrade(
    installed: CleanSystem, new_app: NewApp, display: Display, artefacts: Path
) -> None:
    app = new_app(installed)
    home = f"{app.user.home}/older"
    # New times: what nobody used for a month is deleted.
    shutil.copytree(OLDER_DATA, installed.path(home), copy_function=shutil.copy)
    installed.run("chown", "-R", app.user.name, home)
    app.env[HOME_VARIABLE] = home
    # The model that it had loaded last isn't on this computer.
    model = f"{app.user.home}/guide.gguf"
    shutil.copyfile(GUIDE / "guide-target.gguf", installed.path(model))
    opened = app.open(display, model)
    display.press(opened.window("^Open models"), "Return")
    opened.wait_until_ready()
    before = (app.titles(), app.questions())
    assert {"Wie wird das Wetter in Tromsø?", "Which tea?"} <= set(before[0])
    assert display.photograph(artefacts / "older-data.png")
    display.press(opened.window(), "ctrl+a")  # in the place of what was unsent
    assert opened.ask(QUESTION)
    assert opened.quit() == 0
    app.wait_until_gone()

    again = app.open(display)
    again.wait_until_ready()
    assert app.questions() == [*before[1], QUESTION]
    assert set(before[0]) <= set(app.titles())
    assert again.quit() == 0
    assert "ERROR" not in app.log()
    assert app.said.read_text() == ""


def _ask(app: PackagedApp, display: Display) -> str:
    opened = app.open(display)
    opened.wait_until_ready()
    answer = opened.ask(QUESTION)
    assert opened.quit() == 0
    return answer


def _read_again(app: PackagedApp, display: Display) -> None:
    opened = app.open(display)
    opened.wait_until_ready()
    assert app.questions() == [QUESTION]
    assert opened.quit() == 0


def _version(system: CleanSystem) -> str:
    return system.run("dpkg-query", "--show", "--showformat=${Version}", "slipstream").stdout


def _version_in(package: Path) -> str:
    shown = subprocess.run(["dpkg-deb", "--field", package, "Version"], stdout=subprocess.PIPE, text=True, check=True)
    return shown.stdout.strip()


def _files(system: CleanSystem) -> set[str]:
    """Every file and folder, as seen inside."""
    found: set[str] = set()
    for folder, folders, files in os.walk(system.root):
        found.update(f"{folder}/{name}".removeprefix(str(system.root)) for name in (*folders, *files))
    return {path for path in found if not _NOT_THE_PACKAGES.search(path)}
