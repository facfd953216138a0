"""What is inside a bundle: every file and module of it belongs to a part with a license, or the build fails."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from installer import frozen_files
from installer.bundle import Bundle, Unclear
from installer.component import Component
from installer.native_owners import CPython, Debian, LlamaCpp
from installer.owners import Owner, PythonPackages, Slipstream, Tabled


@dataclass(frozen=True)
class Inventory:
    parts: dict[Component, list[str]]
    """Each part with its files by their paths in the bundle; a part that is only inside the program has none."""
    app: Component


def take(bundle: Bundle) -> Inventory:
    """The parts of ``bundle``, sorted; raises `Unclear` that names all files without an owner or a license."""
    python, app = PythonPackages(bundle.site_packages), Slipstream(bundle)
    loader = _Loader(bundle, python)
    # The order counts: PySide6's distribution would answer for Qt's files, and the work folder may be in the project.
    owners: list[Owner] = [
        Tabled(python, bundle.version),
        LlamaCpp(bundle),
        python,
        CPython(bundle),
        loader,
        app,
        Debian(),
    ]
    parts: dict[Component, set[str]] = defaultdict(set)
    problems: set[str] = set()
    for file, place, source in _everything(bundle):
        try:
            part = _owner(owners, place, source)
        except Unclear as error:
            problems.add(str(error))
            continue
        if part is None:
            problems.add(f"{file or source}: nobody knows whose it is (a copy of {source})")
        else:
            parts[part].update([file] if file else [])
    if problems:
        raise Unclear("\n".join(sorted(problems)))
    in_order = sorted(parts, key=lambda part: (part.name.lower(), part.version))
    return Inventory({part: sorted(parts[part]) for part in in_order}, app.whole)


class _Loader:
    """PyInstaller's start program and the modules that it makes for each build."""

    def __init__(self, bundle: Bundle, python: PythonPackages) -> None:
        self._work = bundle.work
        self._python = python

    def component(self, _place: str, source: Path) -> Component | None:
        return self._python.named("pyinstaller") if source.is_relative_to(self._work) else None


def _everything(bundle: Bundle) -> list[tuple[str, str, Path]]:
    """``(path in the bundle, place, source)`` of each file, then of each module in the program, which has no path."""
    sources = frozen_files.destinations(bundle)
    found = []
    for file in frozen_files.files(bundle):
        place = frozen_files.inner_path(file)
        found.append((file, place, sources.get(place, bundle.folder / file)))
    return found + [("", "", source) for source in sorted(frozen_files.modules(bundle))]


def _owner(owners: list[Owner], place: str, source: Path) -> Component | None:
    return next((part for owner in owners if (part := owner.component(place, source)) is not None), None)
