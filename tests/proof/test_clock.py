"""The clock is set back and forth while the window is open, and between two starts."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tests.proof.conftest import Proof, StartWindow
from tests.proof.data_folder import bugs, strays
from tests.proof.window_process import WindowProcess

pytestmark = [
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a clock as Linux can"),
]

DAY = 86400
TEN_YEARS = 3652 * DAY


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of the processes that are started, by seconds from the right time."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("needs a C compiler, to build the wrong clock")
    library, file = tmp_path / "clock.so", tmp_path / "clock"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    monkeypatch.setenv("PROOF_CLOCK", str(file))
    file.write_bytes(struct.pack("q", 0))
    monkeypatch.setenv("LD_PRELOAD", str(library))

    def set_to(seconds: int) -> None:
        with file.open("r+b") as opened:
            opened.write(struct.pack("q", seconds))

    return set_to


def _ask(window: WindowProcess) -> list[str]:
    """Send a message; returns all words of the chat when it was answered and saved."""
    answered, settled = window.counts["answered"], window.counts["settled"]
    window.say("ask", "Hello")
    window.wait_for("answered", answered)
    window.say("settle")
    shown: list[str] = window.wait_for("settled", settled)
    assert window.wait_until(lambda: window.typed == window.acknowledged, "everything is saved")
    return shown


def test_clock(proof: Proof, tmp_path: Path, start_window: StartWindow, clock: Callable[[int], None]) -> None:
    home = tmp_path / "home"
    to_1970 = DAY - int(time.time())
    jumps = [0, -3600, -DAY, 2 * DAY, to_1970, TEN_YEARS, -TEN_YEARS]
    jumps += [proof.chance.randrange(to_1970, TEN_YEARS) for _ in range(proof.count(0, 4, 60))]
    window, shown = start_window(home, "idle"), list[str]()
    window.wait_for("ready")
    for number, jump in enumerate([*jumps, 0]):
        with proof.naming(f"jumps {jumps[: number + 1]}"):
            clock(jump)
            before, shown = shown, _ask(window)
            assert shown[:-1] == before, "the messages are in another order"
            assert window.end() == (0, []), window.errors
            window = start_window(home, "idle")
            found, notices = window.wait_for("stored"), window.wait_for("ready")
            assert Counter(found["words"]) == Counter(shown)
            assert not notices and not bugs(home) and not strays(home)
            before, shown = shown, _ask(window)
            assert shown[:-1] == before, "the messages are in another order"
        proof.progress(f"{number + 1} of {len(jumps) + 1} jumps")
    assert window.end() == (0, [])
    assert (home / "backups" / f"chats-{date.today()}.sqlite").exists()
    proof.found(
        f"the clock was set {len(jumps) + 1} times, to any time between 1970 and in ten years, with the window open, "
        f"and the app started then; {len(shown)} messages answered and in order"
    )
