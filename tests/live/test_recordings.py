"""The recordings that ``make test`` plays are still what the servers say."""

from __future__ import annotations

import json

import pytest

from tests.support import recordings
from tests.support.live_servers import LiveServer


@pytest.mark.parametrize("state", ["drafting", "plain", "keyed"])
def test_the_server_answers_as_it_was_recorded(
    pytestconfig: pytest.Config, drafting: LiveServer, plain: LiveServer, keyed: LiveServer, state: str
) -> None:
    server = {"drafting": drafting, "plain": plain, "keyed": keyed}[state]
    found = recordings.record(server)
    path = recordings.place(server.product.kind, state)
    if pytestconfig.getoption("--record"):
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    kept = json.loads(path.read_bytes())
    assert recordings.shape(found) ^ recordings.shape(kept) == set()
