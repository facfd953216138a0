"""For Windows: Microsoft's runtime put into the frozen app, and the setup program, made with Inno Setup.

``SLIPSTREAM_SIGN_COMMAND`` signs the programs and the setup program: a command line in which ``$f`` stands for the file
and ``$q`` for a quotation mark (Inno Setup's own way of writing it), for example
``signtool sign /fd sha256 /tr http://timestamp.acs.microsoft.com /td sha256 /sha1 THUMBPRINT $f``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from installer import places, starter

SCRIPT = places.PACKAGING / "windows" / "slipstream.iss"
ICON = places.WORK / "icons" / "slipstream.ico"
"""Drawn before the app is frozen, for its programs."""

RUNTIME = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll", "vcomp140.dll")
"""The C++ and OpenMP runtime that llama.cpp is built against. Windows has none, or an older one."""

SIGN_COMMAND = "SLIPSTREAM_SIGN_COMMAND"


def make(bundle: Path, dist: Path, model: Path | None = None) -> list[Path]:
    """The setup program made of ``bundle``, to which the starter ``model`` is added.

    Ends with a sentence if Inno Setup is missing.
    """
    compiler = inno_setup()
    if model is not None:
        starter.lay_out(model, bundle / starter.BESIDE_THE_PROGRAM)
    sign_command = os.environ.get(SIGN_COMMAND, "")
    if sign_command:
        for path in sorted(bundle.glob("*.exe")):
            _sign(path, sign_command)
    setup = dist / f"slipstream-{places.version()}-windows-{places.machine()}{places.suffix()}-setup.exe"
    places.say(f"packing {setup.name}")
    places.run(compile_command(compiler, bundle, setup, sign_command))
    return [setup]


# ---------------------------------------------------------------- Microsoft's runtime


def copy_runtime(internal: Path, folders: list[Path]) -> None:
    """Put the runtime into ``_internal``, over older copies that came with Python.

    PyInstaller's start-up names that folder to Windows with SetDllDirectory, so that the libraries of
    ``_internal/llama_cpp/lib`` find it in every process of ours, whatever else is installed.
    Ends with a sentence if one is in none of the ``folders``.
    """
    for name in RUNTIME:
        found = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if found is None:
            raise SystemExit(
                f"{name} is missing from Visual Studio's redistributable files. "
                "Install “MSVC C++ x64/x86 build tools” with the Visual Studio installer."
            )
        shutil.copy2(found, internal / name)


def runtime_folders() -> list[Path]:
    """Visual Studio's redistributable C++ and OpenMP folders for x64, those of the compiler in use or the newest."""
    return [folder for redist in _redist_folders() for folder in sorted((redist / "x64").glob("Microsoft.VC*"))]


def _redist_folders() -> Iterator[Path]:
    in_use = os.environ.get("VCTOOLSREDISTDIR")  # set in a developer prompt; on Windows case does not matter
    if in_use:
        yield Path(in_use)
    installer = _program_files("ProgramFiles(x86)") / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if installer.is_file():
        command = [str(installer), "-latest", "-products", "*", "-property", "installationPath", "-utf8"]
        answer = subprocess.run(command, capture_output=True, encoding="utf-8", check=False).stdout.strip()
        folders = (Path(answer) / "VC" / "Redist" / "MSVC").glob("[0-9]*") if answer else ()
        yield from sorted(folders, key=_version, reverse=True)


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.name.split(".") if part.isdigit()]


# ---------------------------------------------------------------- Inno Setup


def inno_setup() -> Path:
    """Inno Setup's compiler, on PATH or where it installs itself. Ends with a sentence if there is none."""
    for variable in ("ProgramFiles(x86)", "ProgramFiles", "LOCALAPPDATA"):
        folder = _program_files(variable)
        candidates = [folder / "Inno Setup 6" / "ISCC.exe", folder / "Programs" / "Inno Setup 6" / "ISCC.exe"]
        for candidate in candidates:
            if candidate.is_file():
                return candidate
    found = shutil.which("ISCC")
    if found is None:
        raise SystemExit("Inno Setup is missing. Install version 6.3 or newer from jrsoftware.org, then try again.")
    return Path(found)


def compile_command(compiler: Path, bundle: Path, setup: Path, sign_command: str) -> list[str]:
    """The call of Inno Setup that turns ``bundle`` into ``setup``."""
    defines = {
        "Version": places.version(),
        "Bundle": bundle.resolve(),
        "License": places.ROOT / "LICENSE",
        "Icon": ICON,
        "Output": setup.parent.resolve(),
        "BaseName": setup.stem,
    }
    signing = ["/DSign", f"/Sslipstream={sign_command}"] if sign_command else []
    return [str(compiler), "/Qp", *(f"/D{name}={value}" for name, value in defines.items()), *signing, str(SCRIPT)]


def _sign(path: Path, command: str) -> None:
    # As one line, which is how Windows starts programs: the command is the user's own, quotation marks and all.
    line = command.replace("$f", f'"{path}"').replace("$q", '"')
    if subprocess.run(line, check=False).returncode:
        raise SystemExit(f"{path.name} couldn't be signed with {SIGN_COMMAND}; its output is above.")


def _program_files(variable: str) -> Path:
    return Path(os.environ.get(variable, "C:/no such folder"))
