"""Downloads that are interrupted: the process is killed, the line breaks, the server stalls or is overloaded."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.models.downloads.part import part_path
from app.models.downloads.transfer import Backoff, Transfer
from app.models.hub.network import Network, NetworkSettings
from app.models.origins import origins_file
from tests.models.downloads.fetching import MIB
from tests.models.downloads.killing import FILE, REPOSITORY, killed_at
from tests.proof.conftest import Proof
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

pytestmark = [pytest.mark.timeout(4 * 3600), pytest.mark.allow_logs]

LARGEST = 24 * MIB
KILLS = 3
"""Of each download."""


@pytest.mark.skipif(sys.platform == "win32", reason="needs processes that start in no time")
def test_killed_downloads(proof: Proof, tmp_path: Path) -> None:
    wanted, again, chance = proof.count(2, 10, 50), 0, proof.chance
    with HubServer() as hub:
        for number in range(wanted):
            size = chance.randrange(MIB, LARGEST)
            points = [chance.randrange(size // 2) for _ in range(KILLS - 1)] + [chance.randrange(size + 1)]
            with proof.naming(f"{size} bytes, killed at {points}"):
                again = max(again, killed_at(hub, tmp_path / f"{number}", chance.randbytes(size), points).again)
            proof.progress(f"{number + 1} of {wanted} downloads")
    assert again <= MIB
    proof.found(
        f"{wanted} downloads, each killed {KILLS} times: the right checksum each time; at most {again / 1024:.0f} KiB "
        "on their way to a process that was killed were sent twice, no other byte was"
    )


def test_broken_lines(proof: Proof, tmp_path: Path) -> None:
    wanted, chance, breaks, again = proof.count(3, 20, 50), proof.chance, 0, 0
    with HubServer() as hub, closing(Network(NetworkSettings(endpoint=hub.endpoint, stall_seconds=0.5))) as network:
        origins = origins_file(tmp_path)
        for number in range(wanted):
            size = chance.randrange(MIB, LARGEST)
            hub.requests.clear()
            hub.add(REPOSITORY, {FILE: chance.randbytes(size)})
            points = sorted(chance.randrange(size) for _ in range(chance.randint(1, 6)))
            faults = [chance.choice((Fault(cut_at=at), Fault(stall_at=at), Fault(status=503))) for at in points]
            hub.faults.add(FILE, *faults)
            file = hub.remote_file(REPOSITORY, FILE)
            path = tmp_path / f"{number}" / FILE
            with proof.naming(f"{size} bytes, {faults}"):
                Transfer(network, file, path, origins=origins, reserve=0, backoff=Backoff(0.01, 0.01)).run()
                assert not part_path(path).exists()
                assert path.stat().st_size == size  # the transfer has checked the checksum
            sent = sum(request.sent for request in hub.bodies(FILE))
            again = max(again, sent - size)
            breaks += len(faults)
            proof.progress(f"{number + 1} of {wanted} downloads")
    assert again <= MIB
    proof.found(f"{wanted} downloads over a line that broke {breaks} times: at most {again / 1024:.0f} KiB sent twice")
