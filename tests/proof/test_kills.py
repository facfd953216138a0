"""The window and its processes are killed at random moments, while somebody works in it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.proof.conftest import Proof, StartWindow
from tests.proof.data_folder import bugs, lasting_strays, strays
from tests.proof.window_process import WindowProcess, still_alive

pytestmark = [
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux has them"),
]

LIVES = 25
"""How often a data folder sees its window killed before another one takes its place."""
_WORKS_AGAIN = {"engine": "answered", "helper": "attached", "server": "server listening"}
"""What the window says when it has replaced a process that was killed."""
_WEIGHTS = {"window": 4, "engine": 3, "helper": 2, "server": 2}
_LONGEST_PAUSE = 1.5
"""Seconds."""


class Life:
    """One data folder, and all that was typed in its windows.

    Attributes:
        lost, doubled: Words, over all starts.
        killed: How many processes of each role.
    """

    def __init__(self, proof: Proof, home: Path, start: StartWindow) -> None:
        self.proof, self.home, self._start = proof, home, start
        self.typed: set[str] = set()
        self.acknowledged: set[str] = set()
        self.killed: Counter[str] = Counter()
        self.window = self.begin()

    def begin(self) -> WindowProcess:
        """Start the window, and check what it finds."""
        self.window = window = self._start(self.home, "busy")
        found = window.wait_for("stored")
        notices = window.wait_for("ready")
        self.check(found["words"])
        assert not found["missing"], "the content of attachments is gone"
        assert not bugs(self.home)
        # A pair that was being loaded when the window was killed isn't loaded again without asking.
        assert set(notices) <= {"load", "unanswered"}, notices
        assert not lasting_strays(self.home)
        return window

    def check(self, words: list[str]) -> None:
        counts = Counter(words)
        lost = self.acknowledged - counts.keys()
        doubled = [word for word, count in counts.items() if count > 1]
        assert not lost, f"lost: {lost}"
        assert not doubled, f"doubled: {doubled}"
        assert counts.keys() <= self.typed

    def kill_something(self) -> None:
        """At a random moment, a random process of the app."""
        self._pause()
        tree = self.window.tree()
        role = self.proof.chance.choices(list(tree), [_WEIGHTS[one] for one in tree])[0]
        self.killed[role] += 1
        if role == "window":
            left = self.window.kill()
            assert not left, f"they outlive the window: {left}"
            self._note()
            self.window = self.begin()
        else:
            self._kill_part(self.proof.chance.choice(tree[role]), role)

    def _kill_part(self, victim: psutil.Process, role: str) -> None:
        """The window replaces it, and goes on."""
        before = self.window.counts[_WORKS_AGAIN[role]]
        with contextlib.suppress(psutil.NoSuchProcess):
            below = victim.children(recursive=True)
            victim.kill()
            left = still_alive([victim, *below])
            assert not left, f"they outlive the {role}: {left}"
        self.window.wait_for(_WORKS_AGAIN[role], before)

    def _pause(self) -> None:
        time.sleep(self.proof.chance.random() ** 2 * _LONGEST_PAUSE)

    def _note(self) -> None:
        self.typed |= self.window.typed
        self.acknowledged |= self.window.acknowledged

    def end(self) -> None:
        """Close the window in order, and look at what is left once more after another start."""
        status, left = self.window.end()
        assert (status, left) == (0, []), (status, left, self.window.errors)
        assert not bugs(self.home)
        self._note()
        assert not strays(self.home)
        self.begin()
        assert self.window.end()[0] == 0
        self._note()


def test_kills(proof: Proof, tmp_path: Path, start_window: StartWindow) -> None:
    wanted = proof.count(8, 60, 850)
    killed: Counter[str] = Counter()
    words = acknowledged = homes = 0
    while killed.total() < wanted:
        homes += 1
        life = Life(proof, tmp_path / f"home {homes}", start_window)
        while life.killed["window"] < LIVES and (killed + life.killed).total() < wanted:
            life.kill_something()
            proof.progress(f"{(killed + life.killed).total()} of {wanted} kills")
        life.end()
        killed += life.killed
        words, acknowledged = words + len(life.typed), acknowledged + len(life.acknowledged)
    roles = ", ".join(f"{role} {count}" for role, count in sorted(killed.items()))
    proof.found(
        f"{killed.total()} kills ({roles}); {words} words typed, {acknowledged} of them acknowledged before a kill or "
        "the end; 0 lost, 0 doubled, nothing left running, no stray file"
    )
