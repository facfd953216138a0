"""The memory plan and the engine decide alike whether a head is loaded, or the plan would count what isn't there."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import msgspec
import pytest

from app.engine.host.model_files import header_of_head
from app.models.gguf import GgufHeader, read_header
from app.models.heads import head_problem
from app.models.machine_memory import MachineMemory
from app.models.memory_shape import shape_of
from app.models.planner import make_plan
from app.protocol.commands import Load
from app.protocol.events import Device
from app.protocol.options import HeadChoice, LoadSettings
from app.ui.engine.load_planner import wishes_of
from tests.support.eagle3_models import make_table_head
from tests.support.gguf_files import make_model
from tests.support.matrix import in_proof
from tests.support.mtp_models import HeadArchitecture, make_head_file, make_random_model

GIB = 2**30
GPU = Device(name="G0", description="GPU", kind="gpu", total_bytes=8 * GIB, free_bytes=8 * GIB)
CHOICES: tuple[HeadChoice, ...] = ("auto", "on", "off")


def planned(target: GgufHeader, draft: GgufHeader | None, head: HeadChoice, layers: int, devices: list[Device]) -> bool:
    machine = MachineMemory(memory_total=16 * GIB, memory_free=16 * GIB, devices=devices)
    wishes = wishes_of(LoadSettings(), head)
    wishes = msgspec.structs.replace(wishes, target_gpu_layers=layers)
    return make_plan(shape_of(target), shape_of(draft) if draft else None, machine, wishes).with_head


def loaded(target: GgufHeader, draft: GgufHeader | None, head: HeadChoice, layers: int) -> bool:
    settings = LoadSettings(target_gpu_layers=layers)
    command = Load(
        request=1, target=str(target.path), draft=str(draft.path) if draft else None, head=head, settings=settings
    )
    header = header_of_head(command, target)
    return header is not None and head_problem(header) is None


@pytest.mark.parametrize("system", ["Linux", "Darwin"])
@pytest.mark.parametrize("architecture", ["qwen35", *in_proof(["glm4moe"])])
def test_the_plan_counts_a_head_if_and_only_if_the_engine_loads_it(
    tmp_path: Path, architecture: HeadArchitecture, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    small = read_header(make_random_model(tmp_path / "model.gguf", architecture))
    eagle3 = read_header(make_table_head(tmp_path / "eagle3.gguf"))
    drafts = [None, read_header(make_head_file(tmp_path / "mtp.gguf", architecture)), eagle3, small]
    large = msgspec.structs.replace(small, parameters=4_000_000_000)
    plain = read_header(make_model(tmp_path / "plain.gguf"))
    newest = msgspec.structs.replace(large, architecture="newest")
    seen = set()
    for target, draft, head, layers in product((small, large, plain, newest), drafts, CHOICES, (-1, 0, 2)):
        expected = loaded(target, draft, head, layers)
        for devices in ([], [GPU]):
            assert planned(target, draft, head, layers, devices) == expected
        seen.add(expected)
    assert seen == {True, False}
