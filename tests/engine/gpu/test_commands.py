"""Commands on a GPU, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.protocol.events import Device
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


def test_comparing_on_a_gpu(random_pair: tuple[Path, Path], tmp_path: Path, gpu: Device) -> None:
    prompts, report = tmp_path / "prompts.txt", tmp_path / "report.md"
    prompts.write_text("What is a draft?\n", encoding="utf-8")
    files = "--target", random_pair[0], "--draft", random_pair[1]
    few = "--context", "256", "--micro-batch-size", "32", "--max-tokens", "8", "--temperature", "0"
    result = slipstream("compare", "--prompts", prompts, *files, *few, "--output", report, limit_seconds=SECONDS)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert gpu.description in report.read_text("utf-8")
