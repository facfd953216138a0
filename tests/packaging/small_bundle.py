"""A made-up bundle of a few real files, with PyInstaller's tables for it."""

from __future__ import annotations

import sys
from pathlib import Path

from installer.bundle import Bundle
from installer.places import ROOT

COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
Entry = tuple[str, str, str]


class SmallBundle:
    """Writes a bundle with one Python package, llama.cpp, Qt, the interpreter and the app; tests add to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.site_packages = folder / "venv" / "lib" / "python3.11" / "site-packages"
        self._python = folder / "python"
        self.work = folder / "work"
        self.contents = folder / "slipstream" / "_internal"
        self._collected: list[Entry] = []
        self._modules: list[Entry] = []
        self._make()

    def write(self) -> Bundle:
        """PyInstaller's tables for what is there, and where all is."""
        write(self.work / "COLLECT-00.toc", repr((self._collected,)))
        write(self.work / "PYZ-00.toc", repr(("PYZ-00.pyz", self._modules)))
        write(self.work / "PKG-00.toc", repr(("slipstream.pkg", {"PYMODULE": True}, [])))
        write(self.work / "EXE-00.toc", repr(("slipstream", [])))
        return Bundle(
            folder=self._folder / "slipstream",
            site_packages=self.site_packages,
            work=self.work,
            llama_source=self._folder / "llama",
            version="0.1.0",
            commit_time=1_795_330_280,
        )

    def collect(self, place: str, source: Path, text: str = "") -> None:
        """A file that the bundle has a copy of."""
        for path in (source, self.contents / place):
            if not path.exists():
                write(path, text)
        self._collected.append((place, str(source), "DATA"))

    def module(self, name: str, source: Path) -> None:
        """A module that is inside the program."""
        self._modules.append((name, str(source), "PYMODULE"))

    def distribution(self, name: str, version: str, license: str, *, text: bool = True) -> Path:
        """Install a Python package of one module; returns that."""
        folder = f"{name}-{version}.dist-info"
        module = self.site_packages / name / "__init__.py"
        files = [f"{name}/__init__.py", f"{folder}/METADATA", f"{folder}/RECORD"]
        write(module, "")
        write(
            self.site_packages / folder / "METADATA",
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{license}\n",
        )
        if text:
            write(self.site_packages / folder / "licenses" / "LICENSE", f"The license of {name}\n")
            files.append(f"{folder}/licenses/LICENSE")
        write(self.site_packages / folder / "RECORD", "".join(f"{file},,\n" for file in files))
        return module

    def _make(self) -> None:
        home = self._python if sys.platform == "win32" else self._python / "bin"
        write(self._folder / "venv" / "pyvenv.cfg", f"home = {home}\nversion = 3.11.7\n")
        write(self._python / "lib" / "python3.11" / "LICENSE.txt", "The license of CPython\n")
        source = self._folder / "llama" / "vendor" / "llama.cpp"
        numbers = zip(("MAJOR", "MINOR", "PATCH"), (0, 5, 2), strict=True)
        write(source / "CMakeLists.txt", "".join(f"set(LLAMA_VERSION_{name} {number})\n" for name, number in numbers))
        write(source / "LICENSE", "The license of llama.cpp\n")
        write(self._folder / "llama" / ".git" / "modules" / "vendor" / "llama.cpp" / "HEAD", f"{COMMIT}\n")
        self.distribution("pyinstaller", "6.22.3", "License: GPLv2-or-later")
        self.distribution("PySide6_Essentials", "6.11.3", "License: LGPL-3.0-only", text=False)
        self.module("anyio", self.distribution("anyio", "4.16.0", "License-Expression: MIT"))
        self.module("app.cli", ROOT / "app" / "cli.py")
        self.module("json", self._python / "lib" / "python3.11" / "json" / "__init__.py")
        self.collect("PySide6/Qt/lib/libQt6Core.so.6", self.site_packages / "PySide6/Qt/lib/libQt6Core.so.6", "Qt")
        self.collect("base_library.zip", self.work / "base_library.zip", "modules")
        write(self.contents / "llama_cpp" / "lib" / "libllama.so.0", "llama")
        write(self.contents.parent / "slipstream", "program")
        self._collected.append(("slipstream", str(self.work / "slipstream"), "EXECUTABLE"))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
