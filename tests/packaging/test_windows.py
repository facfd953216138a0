"""The setup program of Windows as far as it can be looked at elsewhere: its script, its call, Microsoft's runtime."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from installer import windows

from app import __version__
from app.models.hub.network import SERVICE
from app.system import NAME, engine_command
from app.ui.shell.single_instance import RUNNING_MUTEX, announce_running

SCRIPT = windows.SCRIPT.read_text(encoding="ascii")
"""ASCII, because Inno Setup takes anything else without a byte order mark for the builder's own code page."""


def _setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", SCRIPT, re.MULTILINE)
    return str(value)


def _registry() -> list[str]:
    return re.findall(r"^Root: .*$", SCRIPT, re.MULTILINE)


# ---------------------------------------------------------------- the script


def test_setup_looks_for_the_mutex_that_the_window_makes() -> None:
    assert re.findall(r'#define RunningMutex "(.*)"', SCRIPT) == [RUNNING_MUTEX]
    assert _setting("AppMutex") == "{#RunningMutex}"


def test_no_administrator_is_needed() -> None:
    assert _setting("PrivilegesRequired") == "lowest"
    assert "PrivilegesRequiredOverridesAllowed" not in SCRIPT
    assert _setting("DefaultDirName").startswith("{localappdata}")
    assert all(line.startswith("Root: HKCU;") for line in _registry())
    announce_running()  # elsewhere than on Windows there is nothing to announce


def test_every_registry_entry_goes_with_the_uninstaller_and_the_default_for_models_is_not_taken_over() -> None:
    entries = [
        (re.findall(r'Subkey: "([^"]*)"', line)[0], "".join(re.findall(r"Flags: (\w+)", line))) for line in _registry()
    ]
    removed = [key for key, flags in entries if flags == "uninsdeletekey"]
    for key, flags in entries:
        assert flags or any(key.startswith(parent) for parent in removed), key
    of_extension = [line for line in _registry() if r'Software\Classes\.gguf"' in line]
    assert of_extension
    assert not [line for line in of_extension if "ValueData" in line]


def test_user_files_are_where_the_app_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", r"C:\Local")
    places = importlib.import_module("platformdirs.windows").Windows(NAME, appauthor=False)
    (folder,) = re.findall(r"ExpandConstant\('\{localappdata\}\\(.*)'\);", SCRIPT)
    anchor = Path("C:/Local").parts
    for place in (places.user_data_dir, places.user_config_dir, places.user_cache_dir, places.user_log_dir):
        assert Path(place.replace("\\", "/")).parts[: len(anchor) + 1] == (*anchor, folder)
    assert _setting("DefaultDirName") != rf"{{localappdata}}\{folder}"


def test_the_token_goes_only_with_the_user_files() -> None:
    assert f"'/delete:{SERVICE}'" in SCRIPT
    assert SCRIPT.count("DeleteUserFiles;") == 2  # its definition, and the call after the question


def test_the_programs_are_called_as_the_app_calls_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slipstream-cli.exe").touch()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "slipstream.exe"))
    assert Path(engine_command()[0]).name == "slipstream-cli.exe"
    ours, of_windows = {"slipstream.exe", "slipstream-cli.exe"}, {"taskkill.exe", "cmdkey.exe"}
    assert set(re.findall(r"[\w-]+\.exe", SCRIPT)) == ours | of_windows


def test_what_the_script_wants_is_what_it_is_given() -> None:
    command = windows.compile_command(Path("ISCC"), Path("bundle"), Path("dist/some-setup.exe"), "sign $f")
    given = dict(str(word)[2:].partition("=")[::2] for word in command[1:-1] if str(word).startswith("/D"))
    defined_here = set(re.findall(r"#define (\w+)", SCRIPT))
    assert set(re.findall(r"\{#(\w+)\}", SCRIPT)) | {"Sign"} == set(given) | defined_here
    assert (given["Version"], given["BaseName"]) == (__version__, "some-setup")
    assert Path(given["License"]).is_file()
    assert f"/Sslipstream={'sign $f'}" in command
    assert _setting("SignTool") == "slipstream"
    assert command[-1] == str(windows.SCRIPT)
    unsigned = windows.compile_command(Path("ISCC"), Path("bundle"), Path("dist/some-setup.exe"), "")
    assert not [word for word in unsigned if "ign" in str(word).removesuffix("slipstream.iss")]


# ---------------------------------------------------------------- Microsoft's runtime


@pytest.fixture
def redist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Visual Studio's redistributable folder as a developer prompt names it."""
    folder = tmp_path / "redist"
    for room, libraries in (("CRT", windows.RUNTIME[:3]), ("OpenMP", windows.RUNTIME[3:])):
        for machine in ("x64", "x86"):
            place = folder / machine / f"Microsoft.VC143.{room}"
            place.mkdir(parents=True)
            for name in libraries:
                (place / name).write_text(f"{machine} {name}", encoding="ascii")
    monkeypatch.setenv("VCTOOLSREDISTDIR", str(folder))
    monkeypatch.delenv("ProgramFiles(x86)", raising=False)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "bundle" / "_internal").mkdir(parents=True)
    (tmp_path / "bundle" / "_internal" / "vcruntime140.dll").write_text("Python's own", encoding="ascii")
    return tmp_path / "bundle"


def test_the_runtime_is_put_beside_pythons_libraries(bundle: Path, redist: Path) -> None:
    windows.copy_runtime(bundle / "_internal", windows.runtime_folders())
    for name in windows.RUNTIME:
        assert (bundle / "_internal" / name).read_text(encoding="ascii") == f"x64 {name}"
    (redist / "x64" / "Microsoft.VC143.OpenMP" / "vcomp140.dll").unlink()
    with pytest.raises(SystemExit, match=r"^vcomp140\.dll is missing"):
        windows.copy_runtime(bundle / "_internal", windows.runtime_folders())
