"""The package with CUDA where there is no driver: ``SLIPSTREAM_BACKEND=cuda scripts/package-test`` starts these."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import BACKEND, NewApp
from tests.packaged.packaged_app import assert_it_runs_on_the_cpu

pytestmark = pytest.mark.skipif(BACKEND != "cuda", reason="this isn't the package with CUDA")


def test_without_a_driver_the_processor_does_it(installed: CleanSystem, new_app: NewApp) -> None:
    assert_it_runs_on_the_cpu(new_app(installed))


def test_everything_but_the_driver_is_inside(installed: CleanSystem) -> None:
    inside = installed.path("/usr/lib/slipstream/_internal")
    (library,) = inside.rglob("libggml-cuda.so")
    said = subprocess.run(["readelf", "--dynamic", library], capture_output=True, text=True, check=True).stdout
    needed = {line.partition("[")[2].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line}
    for name in needed:
        if name.startswith("libcu") and not name.startswith("libcuda."):
            assert list(inside.rglob(name)), f"{name} is missing"
    assert not list(inside.rglob("libcuda.so*"))


def test_the_package_needs_no_driver_to_be_installed(deb: Path) -> None:
    depends = subprocess.run(["dpkg-deb", "--field", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    assert "nvidia" not in depends and "cuda" not in depends
