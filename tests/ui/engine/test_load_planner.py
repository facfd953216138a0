"""Loading with a plan: what fits is loaded as planned; what does not is refused with numbers, or loaded anyway."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.models.gguf import read_header
from app.models.machine_memory import MachineMemory
from app.models.memory_shape import Layer
from app.models.model_memory import ModelShape, shape_of
from app.models.planner import Wishes, make_plan
from app.protocol.events import Device, MemoryRead, PairLoaded
from app.protocol.options import HeadChoice, LoadSettings
from app.settings import Settings
from app.ui.engine import load_planner
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.load_planner import FittedPair, fitted, wishes_of
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import LoadingMarker, PairFiles
from app.ui.notices import NoticeList
from tests.support.gguf_files import make_model
from tests.support.mtp_models import make_head_file, make_table_model
from tests.support.permissions import reachable, without_rights
from tests.support.vision_models import make_projector, make_seeing_model
from tests.ui.parts import WAIT_MS, Rig

GIB = 2**30
TOO_LONG = LoadSettings(context_length=2**24)
"""A KV cache for so many tokens is larger than any machine's memory here."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "target.gguf", layers=8, width=128)
    make_model(folder / "draft.gguf", layers=1)
    make_model(folder / "other.gguf", vocab_size=700)
    return folder


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, models: Path) -> Iterator[Rig]:
    """A scripted engine with planned loads of real files."""
    rig = Rig(qtbot, tmp_path, "ordinary")
    for name in ("target", "draft"):
        (tmp_path / f"{name}.gguf").write_bytes((models / f"{name}.gguf").read_bytes())
    yield rig
    rig.close()


def shapes(folder: Path) -> tuple[ModelShape, ModelShape]:
    return shape_of(read_header(folder / "target.gguf")), shape_of(read_header(folder / "draft.gguf"))


def gpu(total: int, free: int) -> Device:
    return Device(name="CUDA0", description="GPU", total_bytes=total, free_bytes=free)


# ---------------------------------------------------------------- what is wished for


def test_automatic_values_are_the_plans_to_choose_and_what_was_set_is_a_wish() -> None:
    wishes = wishes_of(LoadSettings())
    assert (wishes.context_length, wishes.target_gpu_layers, wishes.draft_gpu_layers) == (None, None, None)
    assert wishes.kv_type == "f16"
    wishes = wishes_of(
        LoadSettings(context_length=4096, target_gpu_layers=3, draft_gpu_layers=0, kv_type="q8_0", micro_batch_size=64)
    )
    assert (wishes.context_length, wishes.target_gpu_layers, wishes.draft_gpu_layers) == (4096, 3, 0)
    assert (wishes.kv_type, wishes.batch_size) == ("q8_0", 64)
    own = wishes_of(LoadSettings(draft_context_length=2048, draft_kv_type="q4_0", split_mode="none", main_gpu="G1"))
    assert (own.draft_context_length, own.draft_kv_type, own.split_mode, own.main_gpu) == (2048, "q4_0", "none", "G1")
    spread = wishes_of(LoadSettings(tensor_split=(3.0, 1.0), draft_device="G1"))
    assert (spread.split_mode, spread.tensor_split, spread.draft_device) == ("layer", (3.0, 1.0), "G1")
    experts = [wishes_of(LoadSettings(expert_layers_on_cpu=layers)).expert_layers_on_cpu for layers in (-1, 0, 5)]
    assert experts == [None, 0, 5]


# ---------------------------------------------------------------- from a plan to what is loaded


def fit(models: Path, machine: MachineMemory) -> FittedPair:
    both = shapes(models)
    files = PairFiles(str(models / "target.gguf"), str(models / "draft.gguf"), LoadSettings())
    return fitted(files, make_plan(*both, machine, wishes_of(files.settings)), both)


def test_the_draft_is_given_up_before_the_context_and_that_is_said(models: Path) -> None:
    target, draft = shapes(models)
    plenty = MachineMemory(memory_total=64 * GIB, memory_free=32 * GIB)
    both = make_plan(target, draft, plenty).needed
    alone = make_plan(target, None, plenty).needed
    total = (both + alone) // 2
    # A tenth of the machine's memory stays free, which is little beside this.
    pair = fit(models, MachineMemory(memory_total=total, memory_free=total + total // 10))
    assert pair.fits
    assert pair.files.draft is None
    assert pair.files.settings.context_length == 0
    assert pair.remark.startswith("Without the draft")


# ---------------------------------------------------------------- MTP heads and experts


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head inside, the same head beside it, and that of another model."""
    folder = tmp_path_factory.mktemp("heads")
    make_table_model(folder / "model.gguf", "glm4moe")
    make_head_file(folder / "mtp-model.gguf", "glm4moe")
    make_head_file(folder / "mtp-other.gguf", "qwen35")
    return folder


def head_fit(heads: Path, machine: MachineMemory, draft: str | None = None, head: HeadChoice = "on") -> FittedPair:
    files = PairFiles(str(heads / "model.gguf"), str(heads / draft) if draft else None, head=head)
    both = shape_of(read_header(files.target)), shape_of(read_header(files.draft)) if files.draft else None
    return fitted(files, make_plan(*both, machine, wishes_of(files.settings, files.head)), both)


PLENTY = MachineMemory(memory_total=64 * GIB, memory_free=32 * GIB)


def just_without(heads: Path, draft: str | None = None) -> MachineMemory:
    """With room for the model in ``heads`` alone, but not for its head."""
    target = shape_of(read_header(heads / "model.gguf"))
    second = shape_of(read_header(heads / draft)) if draft else None
    without = make_plan(target, None, PLENTY, Wishes(kv_type="f16", head="off"))
    with_head = make_plan(target, second, PLENTY, Wishes(kv_type="f16", head="on"))
    space = (without.needed + with_head.needed) // 2
    return MachineMemory(memory_total=space, memory_free=space + space // 10)


@pytest.mark.parametrize("draft", [None, "mtp-model.gguf"])
def test_a_head_that_fits_is_asked_for_and_one_that_does_not_is_not(heads: Path, draft: str | None) -> None:
    pair = head_fit(heads, PLENTY, draft)
    assert (pair.files.head, pair.remark) == ("on", "")
    assert (pair.files.draft is None) == (draft is None)
    tight = head_fit(heads, just_without(heads, draft), draft)
    assert tight.fits and (tight.files.head, tight.files.draft) == ("off", None)
    assert tight.files.settings.context_length == 0
    assert tight.remark.startswith("Without the head: the target with its head needs ")


def test_experts_that_do_not_fit_on_the_gpu_become_a_setting() -> None:
    layers = [Layer(GIB // 4, keys=64, values=64, experts=GIB // 5)] * 16
    target = ModelShape(architecture="qwen3moe", layers=layers, input_weights=GIB // 8, output_weights=GIB // 8)
    machine = MachineMemory(memory_total=64 * GIB, memory_free=32 * GIB, devices=[gpu(4 * GIB, 3 * GIB)])
    files = PairFiles("target.gguf")
    plan = make_plan(target, None, machine, wishes_of(files.settings))
    settings = fitted(files, plan, (target, None)).files.settings
    assert (settings.target_gpu_layers, settings.expert_layers_on_cpu) == (-1, plan.expert_layers_on_cpu)
    assert 0 < settings.expert_layers_on_cpu < 16
    assert wishes_of(settings).expert_layers_on_cpu == settings.expert_layers_on_cpu
    assert wishes_of(LoadSettings()).expert_layers_on_cpu is None


@pytest.fixture
def loader(qtbot: QtBot, tmp_path: Path) -> Iterator[PairLoader]:
    """With the real engine process."""
    engine = EngineClient()
    loader = PairLoader(engine, NoticeList(), LoadingMarker(tmp_path / "loading.json"), Settings())
    yield loader
    loader.shutdown()
    for part in (loader, engine):
        part.deleteLater()


def opened(qtbot: QtBot, loader: PairLoader, files: PairFiles) -> PairLoaded:
    with qtbot.waitSignal(loader.pair_opened, timeout=WAIT_MS):
        loader.load(files)
    pair = loader.pair()
    assert pair is not None
    return pair


def test_the_window_uses_heads_as_the_plan_says(
    qtbot: QtBot, loader: PairLoader, heads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(heads / "model.gguf")
    small = opened(qtbot, loader, PairFiles(model))
    assert not small.has_head and small.head_refused is None  # below 3 B
    assert opened(qtbot, loader, PairFiles(model, head="on")).has_head
    assert opened(qtbot, loader, PairFiles(model, str(heads / "mtp-model.gguf"))).has_head
    foreign = opened(qtbot, loader, PairFiles(model, str(heads / "mtp-other.gguf"), head="on"))
    assert not foreign.has_head
    assert foreign.head_refused == "The MTP head in mtp-other.gguf belongs to another model."
    tight = just_without(heads)
    monkeypatch.setattr(loader.planner.memory, "machine", lambda: tight)
    assert not opened(qtbot, loader, PairFiles(model, head="on")).has_head
    assert loader.files() == PairFiles(model, head="on")  # asked for, should there be more memory next time


def test_a_projector_in_the_models_folder_is_loaded_with_it(
    qtbot: QtBot, loader: PairLoader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_seeing_model(tmp_path / "model.gguf", "llava")
    assert opened(qtbot, loader, PairFiles(str(model))).projector is None
    projector = make_projector(tmp_path / "mmproj.gguf", "llava")
    assert opened(qtbot, loader, PairFiles(str(model))).projector == str(projector)
    assert loader.files() == PairFiles(str(model))
    monkeypatch.setattr(load_planner, "projector_bytes", lambda _: 2**50)
    assert opened(qtbot, loader, PairFiles(str(model))).projector is None
    (notice,) = loader._notice_list.notices().values()
    assert "sees images" in notice.text and loader.planner.memory.machine().memory_total < 2**50
    loader.load(PairFiles(str(model), settings=TOO_LONG))
    qtbot.waitUntil(lambda: loader.refused() is not None, timeout=WAIT_MS)
    refused = loader.refused()
    assert refused is not None and refused.projector == str(projector)  # what is loaded anyway has it


# ---------------------------------------------------------------- loading


def test_a_pair_that_does_not_fit_is_refused_and_what_was_loaded_stays(rig: Rig, qtbot: QtBot) -> None:
    rig.load()
    assert rig.pair_loader.files() == rig.files()  # as it was asked for, so that the next load is planned anew
    assert "load" not in rig.notice_list.notices()
    before, too_long = rig.pair_loader.pair(), replace(rig.files(), settings=TOO_LONG)
    assert before is not None
    rig.pair_loader.load(too_long)
    qtbot.waitUntil(lambda: "load" in rig.notice_list.notices(), timeout=WAIT_MS)
    notice = rig.notice_list.notices()["load"]
    assert "don't fit" in notice.text
    assert "GB" in notice.text or "TB" in notice.text
    assert "load_anyway" in notice.actions and "dismiss" in notice.actions
    assert rig.pair_loader.pair() is before
    assert (rig.pair_loader.refused(), rig.pair_loader.files()) == (too_long, rig.files())
    with qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS) as opened:
        rig.pair_loader.restart()  # it comes back with what it had
    assert opened.args == [rig.files()]
    assert rig.pair_loader.refused() is None
    rig.pair_loader.load(too_long)
    qtbot.waitUntil(lambda: "load" in rig.notice_list.notices(), timeout=WAIT_MS)
    with qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS):
        rig.pair_loader.load_anyway()
    assert "load" not in rig.notice_list.notices()


def test_a_pair_that_was_refused_while_another_is_loaded_is_not_the_one_remembered(rig: Rig, qtbot: QtBot) -> None:
    opened: list[PairFiles] = []
    rig.pair_loader.pair_opened.connect(opened.append)
    with qtbot.waitSignal(rig.pair_loader.load_begun, timeout=WAIT_MS):
        rig.pair_loader.load(rig.files())
    rig.pair_loader.load(replace(rig.files(), draft=None, settings=TOO_LONG))
    qtbot.waitUntil(lambda: bool(opened) and rig.pair_loader.refused() is not None, timeout=WAIT_MS)
    assert opened == [rig.files()]
    assert rig.pair_loader.files() == rig.files()
    assert "don't fit" in rig.notice_list.notices()["load"].text


def test_a_message_sent_while_a_pair_is_planned_waits_for_it_quietly(rig: Rig, qtbot: QtBot) -> None:
    rig.engine.start()
    qtbot.waitUntil(lambda: rig.engine.state() is EngineState.EMPTY, timeout=WAIT_MS)
    shown: list[set[str]] = []
    rig.notice_list.changed.connect(lambda notices: shown.append(set(notices)))
    rig.pair_loader.load(rig.files())
    assert rig.pair_loader.is_planning()
    rig.model.send("Hello")
    qtbot.waitUntil(lambda: rig.pair_loader.pair() is not None and not rig.model.state.is_busy, timeout=WAIT_MS)
    assert not any("load" in subjects for subjects in shown)


def test_only_the_pair_asked_for_last_is_loaded(rig: Rig, qtbot: QtBot) -> None:
    opened: list[PairFiles] = []
    rig.pair_loader.pair_opened.connect(opened.append)
    rig.pair_loader.load(rig.files())
    rig.pair_loader.load(replace(rig.files(), draft=None))
    qtbot.waitUntil(lambda: bool(opened), timeout=WAIT_MS)
    rig.settle()
    assert opened == [replace(rig.files(), draft=None)]


def test_a_file_that_is_no_model_is_left_to_the_engine(rig: Rig, qtbot: QtBot) -> None:
    rig.target.write_bytes(b"no model")
    with qtbot.waitSignal(rig.pair_loader.pair_opened, timeout=WAIT_MS):  # the scripted engine loads anything
        rig.pair_loader.load(rig.files())


# ---------------------------------------------------------------- what the engine says


def test_the_engine_is_started_to_say_what_memory_there_is(qtbot: QtBot, tmp_path: Path) -> None:
    rig = Rig(qtbot, tmp_path, "ordinary")
    watch = rig.pair_loader.planner.memory
    said: list[MachineMemory] = []
    watch.when_read(lambda: said.append(watch.machine()))
    qtbot.waitUntil(lambda: bool(said), timeout=WAIT_MS)
    assert rig.engine.state() is EngineState.EMPTY
    watch.when_read(lambda: said.append(watch.machine()))
    qtbot.waitUntil(lambda: len(said) == 2, timeout=WAIT_MS)
    assert [device.description for device in said[1].devices] == ["Scripted GPU"]
    rig.engine.memory_read.emit(MemoryRead(devices=[gpu(8 * GIB, 2 * GIB)], own_bytes=0))
    assert watch.machine().devices[0].free_bytes == 2 * GIB
    watch.note_loaded({"CUDA0": 5 * GIB})  # what the loaded pair holds counts as free
    assert watch.machine().devices[0].free_bytes == 7 * GIB
    rig.close()


@pytest.mark.allow_logs
def test_an_engine_that_cannot_start_keeps_nobody_waiting(qtbot: QtBot, tmp_path: Path) -> None:
    rig = Rig(qtbot, tmp_path, "exit")
    watch = rig.pair_loader.planner.memory
    called: list[int] = []
    watch.when_read(lambda: called.append(1))
    qtbot.waitUntil(lambda: bool(called), timeout=WAIT_MS)
    rig.close()


@pytest.mark.skipif(sys.platform == "win32", reason="rights of folders")
def test_a_file_where_one_may_not_look_is_missing(tmp_path: Path) -> None:
    reachable(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    draft = folder / "draft.gguf"
    for path in (target := tmp_path / "target.gguf", draft):
        path.write_bytes(b"GGUF")
    files = PairFiles(str(target), str(draft))
    assert files.missing() is None
    with without_rights(folder):
        assert files.missing() == draft
