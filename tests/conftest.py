"""What every test gets: a home of its own, no network, and failure on a log record nobody expected."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app import system
from app.ui.widgets.garbage import collect_due
from tests.support.keyrings import MemoryKeyring, in_use
from tests.support.leftovers import Running, left_since

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
system.prepare_engine(os.environ)
if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
    # Processes that compute at the same time and wait for their own threads slow each other down many times over.
    os.environ.setdefault("OMP_THREAD_LIMIT", "1")

# A wait ends when what it waits for is there; how long that takes on a busy machine is nobody's business.
for waiting in (QtBot.waitUntil, QtBot.waitSignal, QtBot.waitSignals, QtBot.waitExposed, QtBot.waitActive):
    waiting.__kwdefaults__["timeout"] = 60_000  # type: ignore[index]

GUIDE = Path(__file__).parent.parent / "resources" / "guide"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "allow_logs: log records of WARNING and above are expected")
    # A shell starts what runs in the background with Ctrl+C ignored, and nohup has SIGHUP ignored; this process and its
    # children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """As the app when it has started: what is there for good isn't gone through at each collection of garbage. After
    all modules of tests were imported, these are two thirds of a million objects, and half a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder Slipstream keeps everything in during the test; not made yet."""
    folder = tmp_path / "slipstream-home"
    monkeypatch.setenv("SLIPSTREAM_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def guarded(connect: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
        def call(self: socket.socket, address: Any) -> Any:
            is_local = self.family not in (socket.AF_INET, socket.AF_INET6) or address[0].startswith(
                ("127.", "::1", "localhost")
            )
            if not is_local:
                raise AssertionError(f"a test tried to reach {address[0]}")
            return connect(self, address)

        return call

    monkeypatch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))


class _Loud(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def _no_unexpected_log_records(request: pytest.FixtureRequest) -> Iterator[None]:
    handler = _Loud()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)
    if handler.seen and request.node.get_closest_marker("allow_logs") is None:
        pytest.fail("unexpected log records (mark the test with allow_logs):\n" + "\n".join(handler.seen))


@pytest.fixture(autouse=True)
def _all_ends_with_the_test() -> Iterator[None]:
    """Tests of a session share what their module or session fixtures started, and nothing else."""
    before = Running.now()
    yield
    if left := left_since(before):
        pytest.fail("still running after the test: " + ", ".join(left))


@pytest.fixture(autouse=True)
def _garbage_is_collected() -> Iterator[None]:
    """Between tests, because Python's own collector is off once there was a test of the window."""
    yield
    collect_due()


@pytest.fixture
def kept() -> Iterator[MemoryKeyring]:
    """The system's keyring during the test."""
    with in_use(MemoryKeyring()) as backend:
        yield backend


@pytest.fixture(scope="session")
def guide_pair() -> tuple[Path, Path]:
    """Target and draft of the bundled pair."""
    pair = GUIDE / "guide-target.gguf", GUIDE / "guide-draft.gguf"
    missing = [path.name for path in pair if not path.is_file()]
    if missing:
        pytest.fail(f"the bundled pair is not complete: {', '.join(missing)} missing in resources/guide")
    return pair
