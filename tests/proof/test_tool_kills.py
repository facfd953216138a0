"""The tools process and its servers are killed in the middle of calls.

No call is without an end, nothing goes on running, and everything can start again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import psutil
import pytest

from app.system import KnownError
from app.tools.messages import CallEnded, CallTool, FromTools
from tests.proof.conftest import Proof
from tests.support.leftovers import PATIENCE_S
from tests.support.tool_process import Process, entry

pytestmark = [pytest.mark.timeout(3600), pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")]

PARTS = 5
SERVERS = ("first", "second", "third")
_TOOLS = {"count": {"steps": 4}, "echo": {"text": "x" * 100_000}, "large": {"characters": 5_000_000}}


class Watched(Process):
    """Knows which calls have ended."""

    ended: dict[int, str]

    def __init__(self) -> None:
        self.ended = {}
        super().__init__()
        self.start([entry(name) for name in SERVERS])

    def receive(self) -> FromTools:
        message = super().receive()
        if isinstance(message, CallEnded):
            self.ended[message.request] = message.state
        return message


@pytest.mark.parametrize("part", range(PARTS))
def test_kills_in_the_middle_of_calls(proof: Proof, part: int) -> None:
    killed: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    process = Watched()
    calls = 1000
    while killed.total() < proof.count(2, 20, 80):
        calls += 6
        for number in range(calls, calls + 6):
            tool, arguments = proof.chance.choice(list(_TOOLS.items()))
            server = proof.chance.choice(SERVERS)
            process.send(CallTool(request=number, server=server, tool=tool, arguments=json.dumps(arguments)))
        for _ in range(proof.chance.randrange(6)):
            process.receive()
        below = psutil.Process(process.process_id).children(recursive=True)
        if proof.chance.random() < 0.3:
            killed["tools process"] += 1
            psutil.Process(process.process_id).kill()
            with pytest.raises(KnownError):
                while True:
                    process.receive()
            process.close()
            _, alive = psutil.wait_procs(below, timeout=PATIENCE_S * 3)
            assert not alive, f"they outlive the tools process: {alive}"
            process = Watched()
        else:
            killed["server"] += 1
            proof.chance.choice(below).kill()
            while not all(number in process.ended for number in range(calls, calls + 6)):
                process.receive()
            ends.update(process.ended.values())
            process.ended.clear()
            lost = [name for name in SERVERS if process.run("add", name, a=20, b=22).text != "42"]
            assert len(lost) <= 1
            process.start([entry(name) for name in lost])
        assert [process.run("add", name, a=20, b=22).text for name in SERVERS] == ["42"] * 3
        process.ended.clear()
        proof.progress(f"{killed.total()} kills")
    process.close()
    proof.found(f"{part + 1} of {PARTS}: {dict(killed)} killed; what became of the calls: {dict(ends)}")
