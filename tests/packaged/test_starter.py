"""The starter model's package beside the app's, on a system without a network: installed, used, removed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.models.starter import STARTER_NAME
from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp
from tests.packaged.test_contents import FOR_GPU, MB, has_a_limit

ASK = ("generate", "--starter", "--prompt", "Write one sentence about the sea.", "--max-tokens", "32", "--seed", "1")


@pytest.fixture
def system(deb: Path, starter_deb: Path) -> Iterator[CleanSystem]:
    with CleanSystem("starter") as system:
        system.install(deb, starter_deb)
        yield system


@has_a_limit
def test_both_packages_are_no_larger_than_promised(deb: Path, starter_deb: Path) -> None:
    assert deb.stat().st_size + starter_deb.stat().st_size <= 200 * MB + FOR_GPU


def test_the_apps_package_recommends_it(deb: Path) -> None:
    shown = subprocess.run(["dpkg-deb", "--field", deb, "Recommends"], stdout=subprocess.PIPE, text=True, check=True)
    assert "slipstream-starter" in shown.stdout.strip().split(", ")


def test_it_answers_without_a_network_and_can_be_removed_alone(system: CleanSystem, new_app: NewApp) -> None:
    app = new_app(system)
    for file in ("copyright.txt", "LICENSE.txt", "sbom.cdx.json"):
        assert system.path(f"/usr/share/slipstream-starter/{file}").is_file()
    assert system.path("/usr/share/doc/slipstream-starter/copyright").is_file()
    answered = app.run(*ASK)
    assert answered.stdout.strip() and answered.stderr == ""
    assert f"{STARTER_NAME} in /usr/share/slipstream-starter" in app.run("selftest").stdout

    system.apt("purge", "slipstream-starter")
    assert not system.path("/usr/share/slipstream-starter").exists()
    refused = app.run(*ASK, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Install the package slipstream-starter" in refused.stderr
    assert app.run("selftest").returncode == 0
    assert app.run("generate", "--prompt", "What is a draft model?", "--max-tokens", "8").stdout.strip()
