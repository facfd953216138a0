"""A download that is killed again and again, and comes out right. ``make proof`` kills many more."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.models.downloads.fetching import MIB
from tests.models.downloads.killing import killed_at
from tests.support.hub_server import HubServer

KILLS = 12
SIZE = 24 * MIB


@pytest.mark.skipif(sys.platform == "win32", reason="needs processes that start in no time")
def test_killed_at_many_points(tmp_path: Path) -> None:
    chance = random.Random(5)
    # The last one hits what comes after the last byte.
    points = [*(chance.randrange(3 * SIZE // KILLS // 2) for _ in range(KILLS - 1)), SIZE]
    with HubServer() as hub:
        found = killed_at(hub, tmp_path / "data", chance.randbytes(SIZE), points)
    assert found.kept > 0, "nothing was kept of all that came"
