"""Every file of a bundle belongs to a part with a license."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from installer.bundle import Unclear
from installer.inventory import Inventory, take

from tests.packaging.small_bundle import SmallBundle, write


@pytest.fixture
def small(tmp_path: Path) -> SmallBundle:
    return SmallBundle(tmp_path)


def test_every_part_has_its_version_license_and_files(small: SmallBundle) -> None:
    assert _lines(take(small.write())) == {
        "anyio 4.16.0 MIT": [],
        "CPython 3.11.7 PSF-2.0": ["_internal/base_library.zip"],
        "llama.cpp 0.5.2+0c1e57098 MIT AND MIT-0": ["_internal/llama_cpp/lib/libllama.so.0"],
        "pyinstaller 6.22.3 GPL-2.0-or-later WITH Bootloader-exception AND Apache-2.0": ["slipstream"],
        "Qt 6.11.3 LGPL-3.0-only": ["_internal/PySide6/Qt/lib/libQt6Core.so.6"],
        "Slipstream 0.1.0 MIT": [],
    }


def test_a_file_or_a_module_without_an_owner_is_named(small: SmallBundle, tmp_path: Path) -> None:
    small.collect("libsecret.so", tmp_path / "elsewhere" / "libsecret.so")
    write(small.contents / "left-over.txt", "not in PyInstaller's tables")
    small.module("stray", tmp_path / "stray.py")
    with pytest.raises(Unclear) as failure:
        take(small.write())
    places = ["_internal/left-over.txt", "_internal/libsecret.so", "stray.py"]
    for place in places:
        assert re.search(rf"{re.escape(place)}: nobody knows", str(failure.value))
    assert str(failure.value).count("\n") == len(places) - 1


def test_a_package_without_an_expression_or_a_text_is_named(small: SmallBundle) -> None:
    small.module("vague", small.distribution("vague", "1", "License: see the file"))
    small.module("bare", small.distribution("bare", "1", "License-Expression: MIT", text=False))
    with pytest.raises(Unclear) as failure:
        take(small.write())
    assert str(failure.value).splitlines() == [
        "bare has no license text: name one in packaging/licences/components.toml",
        "vague has no SPDX license: name one in packaging/licences/components.toml",
    ]


def _lines(inventory: Inventory) -> dict[str, list[str]]:
    return {f"{part.name} {part.version} {part.license}": files for part, files in inventory.parts.items()}
