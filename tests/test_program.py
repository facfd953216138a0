"""Other processes of this program: their command, their environment, their streams."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import system
from app.system import HOME_VARIABLE


def test_from_source_the_module_is_run() -> None:
    command = system.own_command("--version")
    result = subprocess.run(command, cwd=system.FOLDER, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("slipstream ")


@pytest.mark.parametrize("has_console", [True, False])
def test_frozen_it_is_the_program_itself_on_windows_the_one_with_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_console: bool
) -> None:
    program_file, console = tmp_path / "slipstream.exe", tmp_path / "slipstream-cli.exe"
    if has_console:
        console.touch()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(program_file))
    assert system.own_command("--role=engine") == [str(console if has_console else program_file), "--role=engine"]


def test_programs_of_others_find_no_library_of_the_bundle() -> None:
    users = {"LD_LIBRARY_PATH_ORIG": "/users", "A": "b"}
    environment = {"LD_LIBRARY_PATH": "/bundle", "QT_PLUGIN_PATH": "/users too", **users}
    system.restore_environment(environment, "linux")
    assert environment == {"LD_LIBRARY_PATH": "/users", "QT_PLUGIN_PATH": "/users too", "A": "b"}
    environment = {"QT_PLUGIN_PATH": "/bundle", "A": "b"}
    system.restore_environment(environment, "win32")
    assert environment == {"A": "b"}


def test_environment_of_a_child() -> None:
    own = {"PATH": "/bin", "HF_TOKEN": "x", "https_proxy": "x", "LANG": "C"}
    assert system.child_environment(own, LANG="de") == {
        "PATH": "/bin",
        "LANG": "de",
        "PYINSTALLER_RESET_ENVIRONMENT": "1",
    }


def test_a_child_has_the_same_home_wherever_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert system.child_environment({HOME_VARIABLE: "here"})[HOME_VARIABLE] == str(tmp_path / "here")


def test_what_the_engines_libraries_read_is_set_before_they_are_loaded() -> None:
    script = (
        "import os, sys\n"
        "def hook(event, arguments):\n"
        "    if event == 'import' and arguments[0] == 'llama_cpp':\n"
        "        print(os.environ.get('GOMP_SPINCOUNT'), 'GGML_NO_BACKTRACE' in os.environ, file=sys.stderr)\n"
        "sys.addaudithook(hook)\n"
        "from app.__main__ import main\n"
        "main(['--role=engine'])\n"
    )
    for users, expected in ({}, "3000 True"), ({"GOMP_SPINCOUNT": "7"}, "7 True"):
        own = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "GGML_NO_BACKTRACE")}
        result = subprocess.run(
            [sys.executable, "-c", script],
            cwd=system.FOLDER,
            env=own | users,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert expected in result.stderr.decode()


def test_display_is_looked_for_on_linux_only() -> None:
    assert not system.has_display({}, "linux")
    assert system.has_display({"DISPLAY": ":0"}, "linux")
    assert system.has_display({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert system.has_display({"QT_QPA_PLATFORM": "offscreen"}, "linux")
    assert system.has_display({}, "darwin")
    assert system.has_display({}, "win32")


def test_a_line_is_written_where_there_is_a_stream_for_it() -> None:
    stream = io.StringIO()
    system.write_line(stream, "Hello")
    assert stream.getvalue() == "Hello\n"
    system.write_line(None, "nobody reads it")
    reader, writer = os.pipe()
    os.close(reader)
    broken = os.fdopen(writer, "w", encoding="utf-8")
    system.write_line(broken, "nobody reads it")
    with contextlib.suppress(BrokenPipeError):
        broken.close()


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"SystemRoot": "D:\\WINNT"}, "D:\\WINNT\\System32\\nvidia-smi.exe"),
        ({"SystemRoot": "."}, "C:\\Windows\\System32\\nvidia-smi.exe"),
        ({}, "C:\\Windows\\System32\\nvidia-smi.exe"),
    ],
)
def test_programs_of_windows_are_named_with_their_folder(environment: dict[str, str], path: str) -> None:
    assert system.windows_program("System32", "nvidia-smi.exe", environment=environment) == path
