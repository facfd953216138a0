"""Commands on a GPU, as a user types them."""

from __future__ import annotations

import pytest

from app.protocol.devices import Device
from tests.support.command_line import slipstream

SECONDS = 900.0
pytestmark = pytest.mark.timeout(SECONDS)


@pytest.mark.usefixtures("guide_pair")
def test_this_copy_works_with_its_gpu(gpu: Device) -> None:
    result = slipstream("selftest", limit_seconds=SECONDS)
    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert {state for state, *_ in lines} == {"ok"}, result.stdout
    details = {name: detail for _, name, detail in lines}
    assert gpu.description in details["engine"] and "the same without a draft" in details["guide"]
