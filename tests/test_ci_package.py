"""What CI's package test makes of the history it finds: a real clone, decided by the real script."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SCRIPTS = Path(__file__).parent.parent / "scripts"
_NOON = 1_800_000_000
_HOUR = 3600

pytestmark = pytest.mark.skipif(os.name == "nt", reason="CI's scripts are for a POSIX shell")


class History:
    """A repository whose commits have the times they are given, in seconds since 1970."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir(parents=True)
        for name in ("ci-package", "package-inputs"):
            shutil.copy(_SCRIPTS / name, folder / "scripts")
        self.git("init", "--quiet")

    def git(self, *arguments: str, time: int = _NOON) -> str:
        date = f"{time} +0000"
        person = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
        times = {"GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=os.environ | person | times, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit(self, file: str, time: int) -> str:
        """A commit that changes one file; returns its name."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(time), encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", file, time=time)
        return self.git("rev-parse", "HEAD")

    def decide(self, base: str = "") -> tuple[bool, str]:
        """Whether the package would be tested, and what the script says about it."""
        script = self.folder / "scripts" / "ci-package"
        done = subprocess.run(
            [script, "--decide"], env=os.environ | {"CI_BASE": base}, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        assert done.returncode in (0, 1)
        return done.returncode == 0, done.stdout


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(tmp_path / "clone")
    history.commit("app/start.py", _NOON - 9 * _HOUR)
    return history


def test_a_change_of_the_last_hours_is_tried(history: History) -> None:
    history.commit("README.md", _NOON - 6 * _HOUR)
    history.commit("app/window.py", _NOON - 2 * _HOUR)
    history.commit("README.md", _NOON)
    wanted, said = history.decide()
    assert wanted
    assert "app/window.py" in said


def test_an_older_change_was_tried_when_it_landed(history: History) -> None:
    history.commit("app/window.py", _NOON - 6 * _HOUR)
    history.commit("README.md", _NOON)
    wanted, said = history.decide()
    assert not wanted
    assert "no file that goes into the package changed" in said


@pytest.mark.parametrize("file", ["packaging/linux/control.in", "tests/packaged/test_x.py", "scripts/setup", ".ci/run"])
def test_what_makes_or_tries_packages_matters(history: History, file: str) -> None:
    base = history.commit("README.md", _NOON - _HOUR)
    history.commit(file, _NOON)
    assert history.decide(base)[0]


@pytest.mark.parametrize("file", ["docs/window.png", "tests/ui/test_x.py", "packaging/guide/train.py", "README.md"])
def test_other_files_do_not(history: History, file: str) -> None:
    base = history.commit("README.md", _NOON - _HOUR)
    history.commit(file, _NOON)
    assert not history.decide(base)[0]


def test_a_named_base_counts_whatever_its_time(history: History) -> None:
    base = history.commit("app/window.py", _NOON - 2 * _HOUR)
    history.commit("README.md", _NOON)
    assert history.decide()[0]
    assert not history.decide(base)[0]


def test_where_nothing_can_be_compared_the_package_is_tried(history: History, tmp_path: Path) -> None:
    assert history.decide("no-such-commit")[0]
    young = History(tmp_path / "young")
    young.commit("README.md", _NOON)
    assert young.decide()[0]
    history.commit("README.md", _NOON)
    subprocess.run(["git", "clone", "--quiet", "--depth=1", history.folder.as_uri(), tmp_path / "shallow"], check=True)
    history.folder = tmp_path / "shallow"
    assert history.decide()[0]
