"""Other processes of this program: the engine as a command drives it, and how bad ends are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.commands.own_process import EngineProcess, end, failure, start
from app.errors import KnownError
from app.protocol.messages import Hello, Load, PairLoaded

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def test_the_engine_greets_and_a_failed_load_is_raised(tmp_path: Path) -> None:
    with EngineProcess(tmp_path, 60) as engine:
        assert engine.until(Hello).engine.startswith("llama.cpp")
        engine.send(Load(request=1, target=str(tmp_path / "gone.gguf")))
        with pytest.raises(KnownError, match=r"gone\.gguf"):
            engine.until(PairLoaded)


@posix
def test_an_engine_that_dies_is_told(tmp_path: Path) -> None:
    with EngineProcess(tmp_path, 60) as engine:
        engine.until(Hello)
        end(engine._process)
        with pytest.raises(KnownError, match="The engine's process ended with SIGKILL"):
            engine.next()
        with pytest.raises(KnownError, match="SIGKILL"):
            while True:
                engine.send(Load(request=1, target="x" * 100_000))


def test_an_engine_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with EngineProcess(tmp_path, 0.2) as engine, pytest.raises(KnownError, match="was not done after"):
        engine.until(PairLoaded)


@pytest.mark.parametrize(
    ("errors", "line"),
    [
        ("", ""),
        ("qt.qpa.xcb: no display\nThis application failed to start\n", " qt.qpa.xcb: no display"),
        ('Detected locale "C" with …\nhas switched\nfor more information.\nno display\n', " no display"),
        ("\nTraceback (most recent call last):\n  File x\nLookupError: it\n", " LookupError: it"),
    ],
)
def test_the_telling_line_of_a_failure(errors: str, line: str) -> None:
    assert (
        str(failure("It", 3, errors)) == f"It ended with exit status {3 if sys.platform != 'win32' else '0x3'}.{line}"
    )
    assert failure("It", 3, errors).__notes__ == [errors]


def test_a_child_has_a_home_of_its_own(tmp_path: Path) -> None:
    process = start(tmp_path, "--version")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    assert out.startswith(b"slipstream")
    end(process)  # nothing is left of it
