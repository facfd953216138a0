"""The pages for readers: what they link to is there, and so are the files that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").glob("*.md")]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
_FROM_ROOT = re.compile(r"`((?:app|tests|benchmarks|scripts|resources|packaging|examples)/[\w./-]+)`")
_IN_APP = re.compile(r"`([a-z_]+/[\w/]+(?:\.py)?)[`:]")
_LISTED = re.compile(r"`([a-z_/]+)`: ((?:\w+, )+\w+)(?= ·| \||;)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    def is_there(path: str, heading: str) -> bool:
        target = page.parent / path if path else page
        if not heading or not target.is_file():
            return target.exists()
        headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
        return heading in [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]

    assert [link for link in _LINK.findall(page.read_text("utf-8")) if not is_there(*link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    assert [name for name in _FROM_ROOT.findall(page.read_text("utf-8")) if not (ROOT / name).exists()] == []


def test_the_files_of_the_walks_exist() -> None:
    text = (ROOT / "docs" / "house.md").read_text("utf-8")

    def modules() -> Iterator[str]:
        yield from (name for name in _IN_APP.findall(text) if (ROOT / "app" / name.partition("/")[0]).is_dir())
        yield from (f"{room}/{name}" for room, names in _LISTED.findall(text) for name in names.split(", "))

    found = list(modules())
    assert len(found) > 50
    places = {name: ROOT / "app" / name for name in found}
    assert [name for name, place in places.items() if not (place.exists() or place.with_suffix(".py").exists())] == []
