"""What PyInstaller put where: its tables of contents say of every file and module what it was made of."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from installer.bundle import Bundle, Unclear

_IN_APP = re.compile(r"^Contents/(Frameworks|Resources|MacOS)/")


def destinations(bundle: Bundle) -> dict[str, Path]:
    """What each file of the bundle is a copy of, by its `inner_path`."""
    return {
        name.replace("\\", "/"): Path(source)
        for name, source, kind in _entries(bundle.work, "COLLECT")
        if kind != "SYMLINK"
    }


def modules(bundle: Bundle) -> set[Path]:
    """The sources of all that is inside the program itself: modules, scripts and the start program."""
    kinds = {"PYMODULE", "PYSOURCE", "EXECUTABLE"}
    entries = [entry for table in ("PYZ", "PKG", "EXE") for entry in _entries(bundle.work, table)]
    return {Path(source) for _, source, kind in entries if kind in kinds and source not in ("", "-")}


def files(bundle: Bundle) -> list[str]:
    """All files of the bundle by their paths in it, sorted; without licenses and SBOM, and without links within it.

    Raises `Unclear` for a link that leads out of the bundle.
    """
    found: list[str] = []
    for folder, folders, names in os.walk(bundle.folder):
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for path in (Path(folder, name) for name in (*names, *linked)):
            if bundle.licenses in path.parents or path in (bundle.sbom, bundle.licenses):
                continue
            if not path.is_symlink():
                found.append(path.relative_to(bundle.folder).as_posix())
            elif not (path.exists() and path.resolve().is_relative_to(bundle.folder.resolve())):
                raise Unclear(f"{path.relative_to(bundle.folder)} is a link that leads out of the bundle")
    return sorted(found)


def inner_path(path: str) -> str:
    """The path below ``_internal``, as the tables have it, of a file of the bundle."""
    path = _IN_APP.sub("", path.removeprefix("_internal/"))
    return path.replace("__dot__", ".")  # PyInstaller's way round codesign, which takes a folder a.b for a bundle


def _entries(work: Path, table: str) -> list[tuple[str, str, str]]:
    """Every ``(destination, source, kind)`` in the tables of this name, however deep they lie."""
    found: list[tuple[str, str, str]] = []
    paths = sorted(work.glob(f"{table}-*.toc"))
    if not paths:
        raise Unclear(f"{work} has no {table}-00.toc: that is not PyInstaller's work folder")
    for path in paths:
        _gather(ast.literal_eval(path.read_text("utf-8")), found)
    return found


def _gather(value: object, found: list[tuple[str, str, str]]) -> None:
    match value:
        case (str(name), str(source), str(kind)) if isinstance(value, tuple) and kind.isupper():
            found.append((name, source, kind))
        case list() | tuple():
            for inner in value:
                _gather(inner, found)
