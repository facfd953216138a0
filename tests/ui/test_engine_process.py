"""How the engine's process is started, from source and from each system's package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.ui.engine_process import engine_command


def test_from_source_the_interpreter_runs_the_app() -> None:
    assert engine_command() == [sys.executable, "-m", "app", "--role=engine"]


@pytest.mark.parametrize(
    ("platform", "window", "engine"),
    [
        ("linux", "slipstream", "slipstream"),
        ("darwin", "slipstream", "slipstream"),
        ("win32", "slipstream.exe", "slipstream-cli.exe"),
        ("win32", "slipstream-cli.exe", "slipstream-cli.exe"),
    ],
)
def test_packaged_the_program_starts_itself_or_its_console_twin(
    platform: str, window: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "two words" / window))
    assert engine_command() == [str(tmp_path / "two words" / engine), "--role=engine"]
