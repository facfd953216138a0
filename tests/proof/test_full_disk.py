"""The disk becomes full at every write of a session, one after the other."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.conftest import Proof, StartWindow
from tests.proof.damage import check_sentence
from tests.proof.data_folder import bugs, strays
from tests.proof.window_process import WindowProcess
from tests.support.small_disk import small_disk

pytestmark = [pytest.mark.timeout(4 * 3600)]

PAGE = 4096
MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "size=16m") as folder:
        yield folder


def _leave(disk: Path, pages: int) -> None:
    """Fill the disk but for so many pages."""
    (disk / "ballast").unlink(missing_ok=True)
    free = shutil.disk_usage(disk).free
    (disk / "ballast").write_bytes(bytes(max(0, free - pages * PAGE)))


def _session(window: WindowProcess) -> None:
    """Two chats, an attachment and other settings; each step is over when it was saved or refused."""
    steps = (("ask", "Hello"), ("attach",), ("ask", "What is a draft model?"), ("new",), ("change",), ("ask", "Why?"))
    for number, step in enumerate(steps):
        window.say(*step)
        window.say("settle")
        window.wait_for("settled", number)


def _one_session(home: Path, pages: int, start: StartWindow) -> tuple[str, int, set[str]]:
    """With so many free pages. Returns what became of it, how many words were refused at first, and all words."""
    disk = home.parent
    _leave(disk, pages)
    window = start(home, "idle")
    if not window.wait_until(lambda: window.counts["ready"] > 0, "ready"):
        window.end()
        (disk / "ballast").unlink()
        check_sentence(window.errors.strip())
        return "didn't start", 0, set()
    _session(window)
    refused, was_full = window.typed - window.acknowledged, shutil.disk_usage(disk).free < PAGE
    notices = window.told["notices"][-1] if "notices" in window.told else {}
    for text in notices.values():
        check_sentence(text)
    (disk / "ballast").unlink()  # there is room again
    if "store" in notices:  # it said at the start that nothing would be kept
        assert window.end()[1] == []
        return "couldn't open the chats", 0, set()
    assert not refused or "save" in notices
    window.say("save_again")
    assert window.wait_until(lambda: window.typed == window.acknowledged, "everything is saved when there is room")
    assert window.end() == (0, []), window.errors
    return ("met a full disk" if was_full or refused else "had room"), len(refused), window.acknowledged


def test_full_disk(proof: Proof, disk: Path, tmp_path: Path, start_window: StartWindow) -> None:
    template = tmp_path / "template"
    first = start_window(template, "idle")
    first.wait_for("ready")
    first.say("ask", "Hello")
    first.wait_for("answered")
    assert first.end() == (0, [])
    step = proof.count(40, 12, 1)
    outcomes, words, pages = Counter[str](), 0, 0
    while outcomes["had room"] < 2 and pages < 16 * MIB // PAGE:
        home = disk / f"home {pages}"
        shutil.copytree(template, home, ignore=shutil.ignore_patterns("run"))
        with proof.naming(f"{pages} pages were free"):
            outcome, refused, saved = _one_session(home, pages, start_window)
            outcomes[outcome] += 1
            words += refused
            _check_next_start(start_window(home, "idle"), saved)
        shutil.rmtree(home)
        proof.progress(f"{pages} pages free: {dict(outcomes)}")
        pages += step
    assert outcomes["met a full disk"] > 0
    proof.found(
        f"{outcomes.total()} sessions, each with {step} pages more: "
        + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        + f"; {words} words were refused with a notice, and saved when there was room"
    )


def _check_next_start(window: WindowProcess, saved: set[str]) -> None:
    found = window.wait_for("stored")
    window.wait_for("ready")
    counts = Counter(found["words"])
    assert saved <= counts.keys(), f"lost: {saved - counts.keys()}"
    assert max(counts.values(), default=1) == 1
    assert window.end() == (0, [])
    assert not bugs(window.home)
    assert not strays(window.home)
