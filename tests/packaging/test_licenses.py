"""The folder of licenses inside a bundle, and the table behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from installer import licenses
from installer.bundle import Bundle
from installer.owners import table
from installer.places import ROOT
from packaging.licenses import canonicalize_license_expression

from tests.packaging.small_bundle import SmallBundle, write


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return SmallBundle(tmp_path).write()


def test_every_part_has_a_folder_with_its_texts(bundle: Bundle) -> None:
    write(bundle.licenses / "gone" / "LICENSE", "of a part that is no longer there")
    licenses.write(bundle)
    found = {file.relative_to(bundle.licenses).as_posix() for file in bundle.licenses.rglob("*") if file.is_file()}
    assert found == {
        "README.txt",
        "anyio/LICENSE",
        "cpython/LICENSE.txt",
        "cpython/incorporated-software.txt",
        "llama.cpp/LICENSE",
        "llama.cpp/notices.txt",
        "pyinstaller/LICENSE",
        "qt/GPL-3.0.txt",
        "qt/LGPL-3.0.txt",
        "qt/replacing.txt",
        "qt/third-party.txt",
        "slipstream/LICENSE",
    }
    assert (bundle.licenses / "anyio" / "LICENSE").read_text("utf-8") == "The license of anyio\n"
    rows = [line.split() for line in (bundle.licenses / "README.txt").read_text("utf-8").splitlines()]
    assert ["Qt", "6.11.3", "LGPL-3.0-only", "qt/"] in rows
    assert ["llama.cpp", "0.5.2+0c1e57098", "MIT", "AND", "MIT-0", "llama.cpp/"] in rows
    assert all((bundle.licenses / row[-1]).is_dir() for row in rows if row and row[-1].endswith("/"))


def test_the_app_of_macos_finds_them_beside_its_libraries(bundle: Bundle) -> None:
    contents = bundle.folder / "Contents"
    contents.mkdir()
    (contents / "Resources").mkdir()
    (bundle.folder / "_internal").rename(contents / "Frameworks")
    for _ in range(2):
        licenses.write(bundle)
    assert (contents / "Frameworks" / "licences" / "README.txt").is_file()


def test_the_table_has_valid_expressions_and_texts_that_exist() -> None:
    known = table()
    entries = [*known["component"], *known["python"].values()]
    for expression in [*(entry["licence"] for entry in entries), *known["debian"].values()]:
        assert canonicalize_license_expression(expression) == expression
    for text in [text for entry in entries for text in entry.get("texts", ())]:
        assert (ROOT / text).is_file(), text


def test_every_text_in_the_repository_says_where_it_is_from() -> None:
    folder = ROOT / "packaging" / "licences"
    said = (folder / "README.md").read_text("utf-8")
    for file in folder.glob("*/*"):
        assert f"`{file.relative_to(folder).as_posix()}`" in said
