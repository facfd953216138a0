"""Plans: what goes where, what is given up first, and what is said about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import ModelShape, estimate
from app.models.memory_shape import Layer
from app.models.planner import LoadPlan, MemoryLimits, Wishes, alternatives, make_plan
from app.models.text import size_text
from app.protocol.devices import Device
from app.protocol.limits import ALL_LAYERS
from app.protocol.messages import LoadSettings

MIB, GIB = 1024**2, 1024**3


def model(gib: float, layers: int = 32, **options: Any) -> ModelShape:
    """About as a real model of that size is: grouped heads, tied to no other matrix."""
    each = int(gib * GIB) // (layers + 2)
    heads = {"key_length": 128, "value_length": 128}
    facts = {"training_context": 32768, "width": 2048, "feed_forward": 6144, "vocabulary": 32000, "tensors": 9 * layers}
    return ModelShape(
        architecture="llama",
        layers=[Layer(each, keys=1024, values=1024)] * layers,
        input_weights=each,
        output_weights=each,
        **{**heads, **facts, **options},
    )


TARGET, DRAFT = model(4.0), model(0.4, layers=16, width=1024, feed_forward=2816)


def machine(free: float, *gpus: float, kind: Any = "gpu") -> MachineMemory:
    """GiB free of a machine where little else runs."""
    devices = [
        Device(name=f"G{i}", description="GPU", kind=kind, total_bytes=int(gpu * GIB), free_bytes=int(gpu * GIB))
        for i, gpu in enumerate(gpus)
    ]
    return MachineMemory(memory_total=int(free * GIB), memory_free=int(free * GIB), devices=devices)


def rank(plan: LoadPlan) -> tuple[Any, ...]:
    """The larger, the better."""
    layers = {ALL_LAYERS: 10**6}
    return (
        plan.fits,
        plan.with_draft,
        plan.context_length,
        plan.kv_type == "f16",
        layers.get(plan.draft_gpu_layers, plan.draft_gpu_layers),
        layers.get(plan.target_gpu_layers, plan.target_gpu_layers),
    )


# ---------------------------------------------------------------- what goes where


def test_with_room_for_everything_everything_is_on_the_gpu() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16, 12))
    assert plan.fits and plan.with_draft
    assert (plan.target_gpu_layers, plan.draft_gpu_layers) == (ALL_LAYERS, ALL_LAYERS)
    assert (plan.context_length, plan.kv_type) == (8192, "f16")
    assert plan.sentence.startswith("Everything fits on the GPU and needs ")


def test_without_a_gpu_the_processor_does_it() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16))
    assert plan.fits and plan.estimate.gpu.total == 0
    assert plan.sentence.startswith("Runs on the CPU and needs 6")
    assert plan.sentence.endswith(" of 15.5 GB.")


def test_the_draft_goes_on_the_gpu_first_and_whole() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16, 3))
    assert plan.fits and plan.draft_gpu_layers == ALL_LAYERS
    assert 0 < plan.target_gpu_layers < TARGET.gpu_slots
    assert plan.estimate.system.draft_kv == 0
    assert "of 33 layers of the target fit on the GPU" in plan.sentence
    one_more = estimate(
        TARGET,
        DRAFT,
        context_length=8192,
        target_gpu_layers=plan.target_gpu_layers + 1,
        draft_gpu_layers=ALL_LAYERS,
    )
    assert one_more.gpu.total > plan.gpu_space >= plan.estimate.gpu.total


def test_a_gpu_too_small_for_the_draft_is_left_to_the_target() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16, 1.2))
    assert plan.fits and plan.with_draft and plan.draft_gpu_layers == 0
    assert plan.target_gpu_layers >= 1


def test_a_small_gpu_is_no_reason_to_refuse() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16, 0.2))
    assert plan.fits and plan.with_draft
    assert (plan.target_gpu_layers, plan.draft_gpu_layers) == (0, 0)


def test_an_integrated_gpu_takes_from_the_systems_memory() -> None:
    assert make_plan(TARGET, DRAFT, machine(16, 12, kind="integrated")).target_gpu_layers == ALL_LAYERS
    tight = machine(6.6, 6.6, kind="integrated")
    plan = make_plan(TARGET, DRAFT, tight)
    assert plan.fits and not plan.with_draft
    assert plan.estimate.system.total + plan.estimate.gpu.total <= MemoryLimits(tight).system_bytes
    assert make_plan(TARGET, DRAFT, machine(6.6, 6.6)).with_draft


def test_an_integrated_gpu_beside_another_one_is_not_used() -> None:
    both = machine(16, 12)
    integrated = Device(name="I", description="", kind="integrated", total_bytes=9 * GIB, free_bytes=9 * GIB)
    both = msgspec.structs.replace(both, devices=[integrated, *both.devices])
    assert MemoryLimits(both).gpu_bytes == MemoryLimits(machine(16, 12)).gpu_bytes


def test_several_gpus_count_together_less_a_margin_each() -> None:
    assert MemoryLimits(machine(16, 4, 8)).gpu_bytes == 12 * GIB - 2 * 512 * MIB
    assert MemoryLimits(machine(16, 24)).gpu_bytes == 24 * GIB - 24 * GIB // 20
    assert make_plan(TARGET, DRAFT, machine(16, 4, 4)).target_gpu_layers == ALL_LAYERS


# ---------------------------------------------------------------- what gives way


def test_the_draft_is_dropped_before_the_context_is_cut() -> None:
    plan = make_plan(TARGET, DRAFT, machine(6.4))
    assert plan.fits and not plan.with_draft
    assert (plan.context_length, plan.kv_type) == (8192, "f16")
    assert plan.sentence.startswith("Without the draft: the pair needs 6")
    assert plan.sentence.endswith(" GB is free.")


def test_then_the_cache_gets_smaller_and_then_the_context() -> None:
    smaller = make_plan(TARGET, DRAFT, machine(5.5))
    assert smaller.fits and (smaller.kv_type, smaller.context_length) == ("q8_0", 8192)
    shorter = make_plan(TARGET, DRAFT, machine(4.9))
    assert shorter.fits and shorter.context_length < 8192
    assert "context " in shorter.sentence.lower()


def test_heads_that_are_no_whole_blocks_keep_their_cache_as_it_is() -> None:
    odd = model(4.0, key_length=80)
    plans = [make_plan(odd, None, machine(free)) for free in (4.9, 5.2, 5.5, 6.0)]
    assert {plan.kv_type for plan in plans} == {"f16"}


def test_nothing_fits() -> None:
    plan = make_plan(TARGET, DRAFT, machine(2))
    assert not plan.fits and plan.with_draft and plan.context_length == 8192
    assert plan.sentence == f"The pair needs {plan.estimate.system.total / 1e9:.1f} GB, but only 1.9 GB is free."
    assert alternatives(TARGET, DRAFT, machine(2)) == []


def test_wishes_are_kept_or_refused_with_numbers() -> None:
    wishes = Wishes(context_length=32768, kv_type="f16", target_gpu_layers=ALL_LAYERS, keep_draft=True)
    plan = make_plan(TARGET, DRAFT, machine(16, 8), wishes)
    assert not plan.fits and plan.with_draft
    assert (plan.context_length, plan.kv_type, plan.target_gpu_layers) == (32768, "f16", ALL_LAYERS)
    assert " GB on the GPU, but only 8.1 GB is free." in plan.sentence


def test_the_default_context_is_no_longer_than_the_training() -> None:
    assert make_plan(model(1.0, training_context=2048), None, machine(16)).context_length == 2048


def test_a_plan_becomes_load_settings() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16, 3))
    fields = {name: getattr(plan, name) for name in LoadSettings.__struct_fields__ if hasattr(plan, name)}
    assert set(fields) == {"context_length", "kv_type", "target_gpu_layers", "draft_gpu_layers"}
    assert msgspec.convert(fields, LoadSettings).target_gpu_layers == plan.target_gpu_layers


# ---------------------------------------------------------------- alternatives


def test_alternatives_give_up_one_thing_each() -> None:
    wishes = Wishes(context_length=16384, kv_type="f16", keep_draft=True)
    small = machine(7.5)
    assert not make_plan(TARGET, DRAFT, small, wishes).fits
    found = alternatives(TARGET, DRAFT, small, wishes)
    assert all(plan.fits for plan in found)
    given_up = [(plan.with_draft, plan.kv_type, plan.context_length < 16384) for plan in found]
    assert given_up == [(False, "f16", False), (True, "q8_0", False), (True, "f16", True)]
    assert found[0].sentence.startswith("Without the draft: ")
    assert found[1].sentence.startswith("A q8_0 KV cache instead of f16: ")
    assert found[2].sentence.startswith(f"A context of {found[2].context_length:,} tokens instead of 16,384: ")
    longer = make_plan(TARGET, DRAFT, small, Wishes(context_length=found[2].context_length + 1024, kv_type="f16"))
    assert not longer.fits or not longer.with_draft


def test_fewer_layers_on_the_gpu_are_an_alternative() -> None:
    wishes = Wishes(target_gpu_layers=ALL_LAYERS, keep_draft=True)
    found = alternatives(TARGET, DRAFT, machine(16, 4), wishes)
    fewer = next(plan for plan in found if plan.target_gpu_layers != ALL_LAYERS)
    assert fewer.sentence.startswith(f"{fewer.target_gpu_layers} layers on the GPU instead of all: ")


def test_where_one_thing_is_not_enough_more_is_given_up() -> None:
    [plan] = alternatives(TARGET, DRAFT, machine(4.9), Wishes(context_length=8192, kv_type="f16"))
    assert plan.fits and not plan.with_draft and plan.kv_type == "q8_0" and plan.context_length < 8192
    assert plan.sentence.startswith("Without the draft, a q8_0 KV cache instead of f16, a context of ")


def test_two_things_are_given_up_before_much_of_the_context() -> None:
    wishes = Wishes(context_length=16384, kv_type="f16", keep_draft=True)
    found = alternatives(TARGET, DRAFT, machine(6.2), wishes)
    assert (found[0].with_draft, found[0].kv_type, found[0].context_length) == (False, "q8_0", 16384)
    assert found[0].sentence.startswith("Without the draft, a q8_0 KV cache instead of f16: ")


def test_no_alternatives_where_it_fits() -> None:
    assert alternatives(TARGET, DRAFT, machine(16)) == []


# ---------------------------------------------------------------- whatever the machine is

GIBS = st.floats(0.1, 24.0)
KINDS = st.sampled_from(["gpu", "integrated"])
WISHES = st.builds(
    Wishes,
    context_length=st.none() | st.integers(256, 65536),
    kv_type=st.none() | st.sampled_from(["f16", "q8_0", "q4_0"]),
    target_gpu_layers=st.none() | st.integers(-1, 40),
    draft_gpu_layers=st.none() | st.sampled_from([-1, 0, 5]),
    keep_draft=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(free=GIBS, gpus=st.lists(GIBS, max_size=2), kind=KINDS, more=GIBS, on_gpu=st.booleans())
def test_more_memory_is_never_worse(free: float, gpus: list[float], kind: str, more: float, on_gpu: bool) -> None:
    grown = [gpu + more for gpu in gpus] if on_gpu else gpus
    larger = machine(free if on_gpu else free + more, *grown, kind=kind)
    assert rank(make_plan(TARGET, DRAFT, larger)) >= rank(make_plan(TARGET, DRAFT, machine(free, *gpus, kind=kind)))


@settings(max_examples=200, deadline=None)
@given(free=GIBS, gpus=st.lists(GIBS, max_size=2), kind=KINDS, wishes=WISHES)
def test_what_fits_is_within_the_budget(free: float, gpus: list[float], kind: str, wishes: Wishes) -> None:
    here = machine(free, *gpus, kind=kind)
    plan = make_plan(TARGET, DRAFT, here, wishes)
    for found in [plan, *alternatives(TARGET, DRAFT, here, wishes)]:
        if found.fits:
            shared = found.estimate.gpu.total if kind == "integrated" else 0
            assert found.estimate.system.total + shared <= MemoryLimits(here).system_bytes
            assert found.estimate.gpu.total <= MemoryLimits(here).gpu_bytes
        assert found.sentence


@settings(max_examples=200, deadline=None)
@given(free=GIBS, gpus=st.lists(GIBS, max_size=1), wishes=WISHES)
def test_explicit_wishes_are_kept(free: float, gpus: list[float], wishes: Wishes) -> None:
    plan = make_plan(TARGET, DRAFT, machine(free, *gpus), wishes)
    for name in ("context_length", "kv_type", "target_gpu_layers", "draft_gpu_layers"):
        wished = getattr(wishes, name)
        assert wished is None or getattr(plan, name) == wished
    assert plan.with_draft or not wishes.keep_draft


@given(free=GIBS)
def test_a_shorter_context_never_comes_with_the_draft(free: float) -> None:
    plan = make_plan(TARGET, DRAFT, machine(free))
    assert plan.context_length == 8192 or not plan.with_draft


@pytest.mark.parametrize("gpus", [(), (3.0,)])
@given(context=st.integers(256, 60_000))
def test_a_longer_context_needs_no_less(gpus: tuple[float, ...], context: int) -> None:
    here = machine(64, *gpus)
    shorter, longer = (
        make_plan(TARGET, DRAFT, here, Wishes(context_length=length, kv_type="f16", target_gpu_layers=8))
        for length in (context, context + 1000)
    )
    assert longer.needed >= shorter.needed


# ---------------------------------------------------------------- words


def test_all_layers_are_called_all() -> None:
    (plan,) = alternatives(model(8.0), None, machine(4.0, 24.0), Wishes(target_gpu_layers=0))
    assert plan.sentence.startswith("All layers on the GPU instead of 0: ")


def test_a_draft_that_was_wished_elsewhere_is_not_on_the_gpu() -> None:
    plan = make_plan(TARGET, DRAFT, machine(32.0, 24.0), Wishes(draft_gpu_layers=0))
    assert plan.sentence.startswith("All of the target fits on the GPU and needs ")


def test_what_is_refused_needs_more_than_there_is() -> None:
    gpus = machine(32.0, 4.0, 4.0, 4.0)
    wishes = Wishes(target_gpu_layers=ALL_LAYERS, kv_type="f16", context_length=8192)
    for gib in range(40, 120):
        target = model(gib / 10, feed_forward=16384)
        plan = make_plan(target, None, gpus, wishes)
        if not plan.fits:
            needs = plan.estimate.gpu.total + 2 * plan.estimate.gpu.compute
            assert plan.sentence.startswith(f"The target needs {size_text(needs)} on the GPU, ")
            return
    raise AssertionError("all fit")


def test_a_draft_that_is_given_up_does_not_decide_on_the_cache() -> None:
    odd = msgspec.structs.replace(DRAFT, key_length=80, value_length=80)
    tight = next(
        here
        for tenths in range(120, 40, -1)
        if (here := machine(tenths / 10)) and make_plan(TARGET, None, here).kv_type == "q8_0"
    )
    plan = make_plan(TARGET, odd, tight)
    assert (plan.fits, plan.with_draft, plan.kv_type, plan.context_length) == (True, False, "q8_0", 8192)


def test_a_type_of_cache_the_model_cannot_have_is_refused() -> None:
    odd = msgspec.structs.replace(TARGET, key_length=80, value_length=80)
    plan = make_plan(odd, None, machine(64.0), Wishes(kv_type="q8_0"))
    assert not plan.fits
    assert plan.sentence == "The target's KV cache can't be q8_0."
    assert [other.kv_type for other in alternatives(odd, None, machine(64.0), Wishes(kv_type="q8_0"))] == ["f16"]
