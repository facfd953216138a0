"""How much is tried, with which random numbers, and what was found.

``SLIPSTREAM_PROOF`` is ``short`` (the default), ``long``, or ``tiny`` while a test is being written;
``SLIPSTREAM_PROOF_SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.proof.window_process import WindowProcess

FORMS = ("tiny", "short", "long")
PACE_SECONDS = 10
"""How often progress is shown."""
_results: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    form = os.environ.setdefault("SLIPSTREAM_PROOF", "short")
    if form not in FORMS:
        raise pytest.UsageError(f"SLIPSTREAM_PROOF is one of {', '.join(FORMS)}, not {form}")
    os.environ.setdefault("SLIPSTREAM_PROOF_SEED", str(random.SystemRandom().randrange(1_000_000)))
    os.environ.pop("OMP_THREAD_LIMIT", None)  # one engine at a time


def pytest_report_header() -> str:
    return f"proof: {os.environ['SLIPSTREAM_PROOF']}, SLIPSTREAM_PROOF_SEED={os.environ['SLIPSTREAM_PROOF_SEED']}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _results:
        terminalreporter.section("what was found")
        for line in _results:
            terminalreporter.write_line(line)


@dataclass
class Proof:
    """What one test tries.

    Attributes:
        chance: Its random numbers, the same whenever the seed is.
    """

    name: str
    form: str
    seed: int
    chance: random.Random
    _told: float = field(default_factory=time.monotonic)

    def count(self, tiny: int, short: int, long: int) -> int:
        """As many as the chosen form wants."""
        return (tiny, short, long)[FORMS.index(self.form)]

    def progress(self, text: str) -> None:
        """Show how far it is, every ten seconds."""
        if time.monotonic() - self._told >= PACE_SECONDS:
            self._told = time.monotonic()
            self._write(text)

    def found(self, text: str) -> None:
        """A line for the end of the run, which goes into docs/reliability.md."""
        _results.append(f"{self.name}: {text}")
        self._write(text)

    @contextmanager
    def naming(self, what: str) -> Iterator[None]:
        """Say what it was about when something fails."""
        try:
            yield
        except BaseException as error:
            error.add_note(f"{what}, SLIPSTREAM_PROOF_SEED={self.seed}")
            raise

    def _write(self, text: str) -> None:
        sys.stdout.write(f"\n{self.name}: {text}")
        sys.stdout.flush()


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    name, seed = request.node.name.removeprefix("test_"), int(os.environ["SLIPSTREAM_PROOF_SEED"])
    return Proof(name, os.environ["SLIPSTREAM_PROOF"], seed, random.Random(f"{seed} {name}"))


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user who has no other apps."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    return folder


StartWindow = Callable[..., WindowProcess]


@pytest.fixture
def start_window(user: Path, guide_pair: tuple[Path, Path]) -> Iterator[StartWindow]:
    """Starts windows; those that the test leaves are killed."""
    started: list[WindowProcess] = []

    def start(home: Path, behavior: str, **environment: str) -> WindowProcess:
        started.append(WindowProcess(home, behavior, **environment))
        return started[-1]

    yield start
    for window in started:
        with suppress(OSError):
            window.kill()
