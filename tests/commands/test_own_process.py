"""Other processes of this program, and how bad ends are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.commands.own_process import end, failure, start


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
