"""The package that was built, systems to try it on, and where the tests leave what they saw.

``PACKAGE_TEST_DIST`` names another folder with packages than ``dist/``, ``SLIPSTREAM_BACKEND`` the package for a GPU.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app import __version__
from tests.packaged.clean_system import CleanSystem
from tests.packaged.display import Display
from tests.packaged.packaged_app import PackagedApp

_TOP = Path(__file__).resolve().parents[2]
_DIST = Path(os.environ.get("PACKAGE_TEST_DIST") or _TOP / "dist")
BACKEND = os.environ.get("SLIPSTREAM_BACKEND", "")
_SUFFIX = f"-{BACKEND}" if BACKEND in ("cuda", "vulkan") else ""
NewApp = Callable[..., PackagedApp]


@pytest.fixture(scope="session")
def deb() -> Path:
    return _built(f"slipstream{_SUFFIX}_{__version__}_amd64.deb")


@pytest.fixture(scope="session")
def starter_deb() -> Path:
    return _built(f"slipstream-starter_{__version__}_all.deb")


@pytest.fixture(scope="session")
def tarball() -> Path:
    return _built(f"slipstream-{__version__}-linux-x86_64{_SUFFIX}.tar.gz")


@pytest.fixture(scope="session")
def artefacts() -> Path:
    """Where pictures and logs are kept."""
    folder = _TOP / "build" / "package-test"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def display() -> Iterator[Display]:
    with Display() as display:
        yield display


@pytest.fixture(scope="session")
def installed(deb: Path, display: Display) -> Iterator[CleanSystem]:
    """A system with the package installed; tests that change it make their own."""
    with CleanSystem("installed") as system:
        system.install(deb)
        display.show_in(system)
        yield system


@pytest.fixture(scope="session")
def with_dependencies(deb: Path) -> Iterator[CleanSystem]:
    """A system with what the package depends on, but without the package."""
    with CleanSystem("dependencies") as system:
        system.install_dependencies(deb)
        yield system


@pytest.fixture
def new_app(request: pytest.FixtureRequest, artefacts: Path) -> Iterator[NewApp]:
    """Makes the app of a new user of a system. What the user runs ends with the test; the logs are kept."""
    apps: list[PackagedApp] = []
    numbers = itertools.count(1)
    name = re.sub(r"\W+", "-", request.node.name).strip("-")

    def make(system: CleanSystem, **options: object) -> PackagedApp:
        suffix = f"{name}-{next(numbers)}"
        user = system.add_user(f"user{len(list(system.path('/home').iterdir()))}")
        app = PackagedApp(system, user, artefacts / f"{suffix}.err", **options)  # type: ignore[arg-type]
        apps.append(app)
        return app

    yield make
    for app in apps:
        for process in app.processes():
            with contextlib.suppress(Exception):
                process.kill()
        if log := app.log():
            app.said.with_suffix(".log").write_text(log, encoding="utf-8")


def _built(name: str) -> Path:
    file = _DIST / name
    if not file.is_file():
        pytest.fail(f"{name} is not in {_DIST}; make package builds it")
    return file
