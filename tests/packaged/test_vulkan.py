"""The package with Vulkan, on systems with and without a driver: Mesa's llvmpipe, a device made of software.

Started by ``SLIPSTREAM_BACKEND=vulkan scripts/package-test``; all other tests use that package without Vulkan.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import BACKEND, NewApp
from tests.packaged.packaged_app import assert_it_runs_on_the_cpu

SECONDS = 1800.0
"""llvmpipe is slow, and compiles each shader once."""
pytestmark = [
    pytest.mark.skipif(BACKEND != "vulkan", reason="this isn't the package with Vulkan"),
    pytest.mark.timeout(2 * SECONDS),
]
LLVMPIPE = {"GGML_VK_VISIBLE_DEVICES": "0"}
"""llama.cpp takes no device of this kind by itself."""
SHORT = ("--context", "512", "--micro-batch-size", "32", "--max-tokens", "8", "--temperature", "0")


@pytest.fixture(scope="module")
def with_loader(deb: Path) -> Iterator[CleanSystem]:
    """A system with Vulkan, but without a driver."""
    with CleanSystem("loader") as system:
        system.install(deb)
        system.apt("install", "libvulkan1")
        yield system


@pytest.fixture(scope="module")
def with_driver(deb: Path) -> Iterator[CleanSystem]:
    with CleanSystem("driver") as system:
        system.install(deb)
        system.apt("install", "libvulkan1", "mesa-vulkan-drivers")
        yield system


@pytest.fixture(scope="module", params=["installed", "with_loader", "with_driver"])
def without_gpu(request: pytest.FixtureRequest) -> CleanSystem:
    """Without Vulkan, without a driver, and with one for a device that llama.cpp doesn't take."""
    system: CleanSystem = request.getfixturevalue(request.param)
    return system


def test_vulkan_is_recommended_and_not_needed(deb: Path) -> None:
    def field(name: str) -> str:
        return subprocess.run(["dpkg-deb", "--field", deb, name], capture_output=True, text=True, check=True).stdout

    assert "libvulkan1" in field("Recommends")
    assert "vulkan" not in field("Depends")


def test_without_a_gpu_the_processor_does_it(without_gpu: CleanSystem, new_app: NewApp) -> None:
    assert_it_runs_on_the_cpu(new_app(without_gpu))


def test_the_driver_is_found_and_everything_runs_on_it(
    with_driver: CleanSystem, new_app: NewApp, artefacts: Path
) -> None:
    app = new_app(with_driver, env=LLVMPIPE)
    device = app.hello().devices[0]
    assert "llvmpipe" in device.description and 0 < device.free_bytes <= device.total_bytes and device.largest_tensor
    tested = app.run("selftest", seconds=SECONDS)
    (artefacts / "selftest-vulkan.txt").write_text(tested.stdout + tested.stderr)
    assert device.description in tested.stdout


def test_comparing_on_it(with_driver: CleanSystem, new_app: NewApp) -> None:
    app = new_app(with_driver, env=LLVMPIPE)
    with_driver.path(f"{app.user.home}/prompts.txt").write_text("What is a draft?\n", encoding="utf-8")
    done = app.run("compare", "--prompts", "prompts.txt", *SHORT, "--output", "report.md", seconds=SECONDS)
    report = with_driver.path(f"{app.user.home}/report.md").read_text(encoding="utf-8")
    assert done.stderr == "" and "llvmpipe" in report
