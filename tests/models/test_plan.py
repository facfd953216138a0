"""Plans: what goes where, what is given up first, and what is said about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import words
from app.models.machine_memory import MachineMemory, MemoryLimits
from app.models.memory_shape import Layer
from app.models.model_memory import ModelShape, gpus_of_layers
from app.models.planner import LoadPlan, Wishes, alternatives, make_plan
from app.protocol.events import Device
from app.protocol.options import ALL_LAYERS
from tests.support.memory import estimate

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
        plan.with_head or plan.with_draft,
        plan.context_length,
        plan.kv_type == "f16",
        layers.get(plan.draft_gpu_layers, plan.draft_gpu_layers),
        layers.get(plan.target_gpu_layers, plan.target_gpu_layers),
        -plan.expert_layers_on_cpu,
    )


# ---------------------------------------------------------------- what goes where


def test_with_room_for_everything_everything_is_on_the_gpu() -> None:
    plan = make_plan(TARGET, DRAFT, machine(16, 12))
    assert plan.fits and plan.with_draft
    assert (plan.target_gpu_layers, plan.draft_gpu_layers) == (ALL_LAYERS, ALL_LAYERS)
    assert (plan.context_length, plan.kv_type) == (8192, "f16")
    assert plan.sentence.startswith("Everything fits on the GPU and needs ")


def test_the_sentence_says_what_was_chosen_and_what_fits() -> None:
    without = make_plan(TARGET, DRAFT, machine(16))
    chosen = make_plan(TARGET, DRAFT, machine(16, 12), Wishes(target_gpu_layers=0, draft_gpu_layers=0))
    for plan in (without, chosen):
        assert plan.fits and plan.estimate.gpu.total == 0
        assert plan.sentence.startswith("Runs on the CPU and needs 6") and plan.sentence.endswith(" of 15.5 GB.")
    some = make_plan(TARGET, DRAFT, machine(16, 12), Wishes(target_gpu_layers=5))
    assert some.sentence.startswith("5 of 33 layers of the target are on the GPU. ")
    none = make_plan(TARGET, None, machine(16, 0.6))
    assert (none.target_gpu_layers, none.estimate.gpu.total) == (0, 0)
    assert none.sentence.startswith("No layer of the target fits on the GPU, so it runs on the CPU and needs 5")
    (all_layers,) = alternatives(model(8.0), None, machine(4.0, 24.0), Wishes(target_gpu_layers=0))
    assert all_layers.sentence.startswith("All layers on the GPU instead of 0: ")
    alone = make_plan(TARGET, DRAFT, machine(32.0, 24.0), Wishes(draft_gpu_layers=0))
    assert alone.sentence.startswith("All of the target fits on the GPU and needs ")


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


def test_an_integrated_gpu_takes_from_the_systems_memory_and_is_not_used_beside_another_one() -> None:
    assert make_plan(TARGET, DRAFT, machine(16, 12, kind="integrated")).target_gpu_layers == ALL_LAYERS
    tight = machine(6.6, 6.6, kind="integrated")
    plan = make_plan(TARGET, DRAFT, tight)
    assert plan.fits and not plan.with_draft
    assert plan.estimate.system.total + plan.estimate.gpu.total <= MemoryLimits(tight).system_bytes
    assert make_plan(TARGET, DRAFT, machine(6.6, 6.6)).with_draft
    one = machine(16, 12)
    both = msgspec.structs.replace(one, devices=[*tight.devices, *one.devices])
    assert MemoryLimits(both).gpu_bytes == MemoryLimits(one).gpu_bytes


def test_several_gpus_count_together_less_a_margin_each() -> None:
    assert MemoryLimits(machine(16, 4, 8)).gpu_bytes == 12 * GIB - 2 * 512 * MIB
    assert MemoryLimits(machine(16, 24)).gpu_bytes == 24 * GIB - 24 * GIB // 20
    assert make_plan(TARGET, DRAFT, machine(16, 4, 4)).target_gpu_layers == ALL_LAYERS


# ---------------------------------------------------------------- several GPUs


def totals(plan: LoadPlan) -> list[int]:
    return [parts.total for parts in plan.estimate.gpus]


def test_layers_are_spread_by_free_memory_unless_shares_are_given() -> None:
    assert gpus_of_layers((3.0, 1.0), 8) == [0] * 6 + [1] * 2
    assert gpus_of_layers((0.0, 5.0, 5.0), 4) == [1, 1, 2, 2]
    assert gpus_of_layers((2.0, 2.0), 1) == [0]
    for first in range(1, 33):  # numbers of layers, given as shares, are what each GPU gets
        assert gpus_of_layers((first, 33 - first), 33).count(0) == first
    plan = make_plan(TARGET, None, machine(32, 6, 3))
    layers = TARGET.layers[0].weights
    assert plan.tensor_split == () and plan.target_gpu_layers == ALL_LAYERS
    assert [parts.target_weights for parts in plan.estimate.gpus] == [22 * layers, 11 * layers]
    given = make_plan(TARGET, None, machine(32, 8, 8), Wishes(tensor_split=(1.0, 10.0)))
    assert given.fits and given.tensor_split == (1.0, 10.0)
    assert [parts.target_weights for parts in given.estimate.gpus] == [3 * layers, 30 * layers]


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
    odd = model(4.0, key_length=80)  # no whole blocks
    assert {make_plan(odd, None, machine(free)).kv_type for free in (4.9, 5.2, 5.5, 6.0)} == {"f16"}
    refused = make_plan(odd, None, machine(64.0), Wishes(kv_type="q8_0"))
    assert not refused.fits and refused.sentence == "The target's KV cache can't be q8_0."
    assert [other.kv_type for other in alternatives(odd, None, machine(64.0), Wishes(kv_type="q8_0"))] == ["f16"]


def test_nothing_fits() -> None:
    plan = make_plan(TARGET, DRAFT, machine(2))
    assert not plan.fits and plan.with_draft and plan.context_length == 8192
    assert plan.sentence == f"The pair needs {plan.estimate.system.total / 1e9:.1f} GB, but only 1.9 GB is free."
    assert alternatives(TARGET, DRAFT, machine(2)) == alternatives(TARGET, DRAFT, machine(16)) == []


def test_wishes_are_kept_or_refused_with_numbers() -> None:
    wishes = Wishes(context_length=32768, kv_type="f16", target_gpu_layers=ALL_LAYERS, keep_draft=True)
    plan = make_plan(TARGET, DRAFT, machine(16, 8), wishes)
    assert not plan.fits and plan.with_draft
    assert (plan.context_length, plan.kv_type, plan.target_gpu_layers) == (32768, "f16", ALL_LAYERS)
    assert " GB on the GPU, but only 8.1 GB is free." in plan.sentence


@pytest.mark.parametrize("architecture", ["gpt2", "mpt", "starcoder"])
def test_no_context_beyond_the_positions_a_model_has(architecture: str) -> None:
    short = model(1.0, training_context=1024)
    assert make_plan(short, None, machine(16)).context_length == 1024
    target = msgspec.structs.replace(short, architecture=architecture)
    plan = make_plan(target, None, machine(16), Wishes(context_length=8192))
    assert plan.fits and plan.context_length == 1024 and not plan.gives_up
    assert plan.needed == make_plan(target, None, machine(16)).needed
    assert plan.sentence.endswith(" This model can't have a context of more than 1,024 tokens.")
    assert make_plan(short, None, machine(16), Wishes(context_length=8192)).context_length == 8192
    beside_longer = estimate(TARGET, target, context_length=8192)
    assert beside_longer.system.draft_kv == estimate(TARGET, short, context_length=1024).system.draft_kv


def test_a_cache_that_the_gpu_cannot_compute_with_stays_off_it() -> None:
    """TARGET has 1,024 keys in each layer and token: 2 KiB."""
    two = machine(64, 24, 24)
    limited = msgspec.structs.replace(two.devices[0], largest_tensor=16384 * 2048)
    one = msgspec.structs.replace(two, devices=[limited])
    wishes = Wishes(context_length=16384)
    assert make_plan(TARGET, None, one, wishes).target_gpu_layers == ALL_LAYERS
    longer = msgspec.structs.replace(wishes, context_length=16385)
    plan = make_plan(TARGET, None, one, longer)
    assert (plan.fits, plan.context_length, plan.target_gpu_layers) == (True, 16385, 1)  # only the output
    everything = msgspec.structs.replace(longer, target_gpu_layers=ALL_LAYERS, kv_type="f16")
    refused = make_plan(TARGET, None, one, everything)
    assert not refused.fits and refused.sentence == "A KV cache for 16,385 tokens is too large for the GPU."
    offered = alternatives(TARGET, None, one, everything)
    assert {(plan.context_length, plan.kv_type, plan.target_gpu_layers) for plan in offered} == {
        (16384, "f16", ALL_LAYERS),
        (16385, "q8_0", ALL_LAYERS),
        (16385, "f16", 1),
    }
    both = msgspec.structs.replace(two, devices=[limited, two.devices[1]])
    assert make_plan(TARGET, None, both, everything).tensor_split == (0.0, 33.0)  # by free memory, each would get half
    assert not make_plan(TARGET, None, both, msgspec.structs.replace(everything, tensor_split=(1.0, 1.0))).fits


# ---------------------------------------------------------------- MTP heads


def with_head(shape: ModelShape, gib: float = 0.4, parameters: int = 8_000_000_000) -> ModelShape:
    head = Layer(int(gib * GIB), keys=1024, values=1024)
    layers = [*shape.layers, Layer(0)]
    return msgspec.structs.replace(shape, layers=layers, head=head, skipped=head.weights, parameters=parameters)


def beside(gib: float = 0.4) -> ModelShape:
    """The head of `TARGET` in a file of its own."""
    return msgspec.structs.replace(
        with_head(TARGET, gib), layers=[Layer(0)] * 33, input_weights=0, output_weights=0, is_head_only=True
    )


def between(smaller: LoadPlan, larger: LoadPlan) -> MachineMemory:
    """With just enough system memory for the one and not for the other."""
    space = (smaller.needed + larger.needed) // 2
    return MachineMemory(memory_total=space, memory_free=space + space // 10)


def test_a_head_is_used_where_it_fits_and_pays_off() -> None:
    plan = make_plan(with_head(TARGET), None, machine(16))
    assert plan.fits and plan.with_head and not plan.gives_up and plan.estimate.system.head > 0.4 * GIB
    small = make_plan(with_head(TARGET, parameters=1_000_000_000), None, machine(16))
    assert not small.with_head and small.estimate.system.head == 0
    assert make_plan(with_head(TARGET, parameters=1), None, machine(16), Wishes(head="on")).with_head
    assert not make_plan(with_head(TARGET), None, machine(16), Wishes(head="off")).with_head
    assert not make_plan(TARGET, None, machine(16), Wishes(head="on")).with_head


def test_a_head_is_given_up_before_the_cache_and_the_context() -> None:
    target = with_head(TARGET)
    plenty = make_plan(target, None, machine(16))
    without = make_plan(target, None, machine(16), Wishes(head="off"))
    plan = make_plan(target, None, between(without, plenty))
    assert plan.fits and plan.gives_up and not plan.with_head
    assert (plan.context_length, plan.kv_type) == (8192, "f16")
    assert plan.sentence.startswith("Without the head: the target with its head needs 6")
    tighter = make_plan(target, None, machine(4.9))
    assert tighter.fits and not tighter.with_head and tighter.context_length < 8192
    assert tighter.sentence.startswith("Without the head, ")


# ---------------------------------------------------------------- experts on the processor


def mixture(gib: float, layers: int = 32, **options: Any) -> ModelShape:
    """All layers but the first have experts, which are nine tenths of them."""
    dense = model(gib, layers, experts=64, experts_used=8, **options)
    whole = dense.layers[0].weights
    spread = [Layer(whole, keys=1024, values=1024, experts=whole * 9 // 10)] * (layers - 1)
    return msgspec.structs.replace(dense, layers=[dense.layers[0], *spread], largest_experts=whole * 3 // 10)


MIXTURE = mixture(16.0)


def test_experts_are_given_up_before_layers_and_only_as_many_as_needed() -> None:
    here = machine(32, 10)
    plan = make_plan(MIXTURE, None, here)
    assert plan.fits and plan.target_gpu_layers == ALL_LAYERS and not plan.gives_up
    assert 1 < plan.expert_layers_on_cpu < 32
    options: dict[str, Any] = {"context_length": 8192, "target_gpu_layers": ALL_LAYERS}
    one_less = estimate(MIXTURE, **options, expert_layers_on_cpu=plan.expert_layers_on_cpu - 1)
    assert one_less.gpu.total > plan.gpu_space >= plan.estimate.gpu.total
    apart = plan.expert_layers_on_cpu - 1
    assert plan.sentence.startswith(f"All layers of the target fit on the GPU, {apart} of them without their experts. ")


def test_layers_are_given_up_where_even_all_experts_are_not_enough() -> None:
    plan = make_plan(MIXTURE, None, machine(32, 2.5))
    assert plan.fits and plan.expert_layers_on_cpu == 32
    assert 0 < plan.target_gpu_layers < MIXTURE.gpu_slots
    assert plan.estimate.gpu.total <= plan.gpu_space
    layers = plan.target_gpu_layers
    assert plan.sentence.startswith(
        f"{layers} of 33 layers of the target fit on the GPU, {layers - 1} of them without "
    )


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


# ---------------------------------------------------------------- whatever the machine is

GIBS = st.floats(0.1, 24.0)
GPUS = st.lists(GIBS, max_size=3)
KINDS = st.sampled_from(["gpu", "integrated"])
WISHES = st.builds(
    Wishes,
    context_length=st.none() | st.integers(256, 65536),
    kv_type=st.none() | st.sampled_from(["f16", "q8_0", "q4_0"]),
    target_gpu_layers=st.none() | st.integers(-1, 40),
    draft_gpu_layers=st.none() | st.sampled_from([-1, 0, 5]),
    keep_draft=st.booleans(),
    head=st.sampled_from(["auto", "on", "off"]),
    expert_layers_on_cpu=st.none() | st.sampled_from([0, 3, 40]),
    split_mode=st.sampled_from(["layer", "row", "none"]),
    main_gpu=st.sampled_from(["", "G1"]),
    tensor_split=st.sampled_from([(), (2.0, 1.0), (0.0, 1.0)]),
    draft_device=st.sampled_from(["", "G1"]),
    projector_bytes=st.sampled_from([0, GIB // 2, 2 * GIB]),
)
TARGETS = st.sampled_from([TARGET, with_head(TARGET), MIXTURE, with_head(MIXTURE)])
DRAFTS = st.sampled_from([DRAFT, None, beside()])


@settings(max_examples=200, deadline=None)
@given(
    free=GIBS,
    gpus=st.lists(GIBS, max_size=3),
    kind=KINDS,
    more=GIBS,
    on_gpu=st.booleans(),
    target=TARGETS,
    draft=DRAFTS,
)
def test_more_memory_is_never_worse(
    free: float,
    gpus: list[float],
    kind: str,
    more: float,
    on_gpu: bool,
    target: ModelShape,
    draft: ModelShape | None,
) -> None:
    grown = [gpu + more for gpu in gpus] if on_gpu else gpus
    larger = machine(free if on_gpu else free + more, *grown, kind=kind)
    before, after = (make_plan(target, draft, here) for here in (machine(free, *gpus, kind=kind), larger))
    assert rank(after) >= rank(before)
    for plan in (before, after):
        assert plan.context_length == 8192 or not plan.with_draft  # which is given up before


@settings(max_examples=200, deadline=None)
@given(free=GIBS, gpus=GPUS, kind=KINDS, wishes=WISHES, target=TARGETS, draft=DRAFTS)
def test_what_fits_is_within_the_budget_and_as_wished(
    free: float, gpus: list[float], kind: str, wishes: Wishes, target: ModelShape, draft: ModelShape | None
) -> None:
    here = machine(free, *gpus, kind=kind)
    plan = make_plan(target, draft, here, wishes)
    for name in ("context_length", "kv_type", "target_gpu_layers", "draft_gpu_layers", "expert_layers_on_cpu"):
        assert getattr(wishes, name) in (None, getattr(plan, name))
    assert plan.with_draft or draft is not DRAFT or not wishes.keep_draft
    for found in [plan, *alternatives(target, draft, here, wishes)]:
        if found.fits:
            shared = found.estimate.gpu.total if kind == "integrated" else 0
            assert found.estimate.system.total + shared <= MemoryLimits(here).system_bytes
            for parts, space in zip(found.estimate.gpus, MemoryLimits(here).spaces, strict=False):
                assert parts.total <= space
        assert found.sentence


# ---------------------------------------------------------------- words


def test_what_is_refused_needs_more_than_there_is() -> None:
    gpus = machine(32.0, 4.0, 4.0, 4.0)
    wishes = Wishes(target_gpu_layers=ALL_LAYERS, kv_type="f16", context_length=8192)
    for gib in range(40, 120):
        target = model(gib / 10, feed_forward=16384)
        plan = make_plan(target, None, gpus, wishes)
        if not plan.fits:
            taken = dict(zip(plan.gpu_spaces, totals(plan), strict=True))
            taken["the GPUs"] = plan.estimate.gpu.total
            space = {**plan.gpu_spaces, "the GPUs": plan.gpu_space}
            said = [place for place in taken if f"needs {words.size(taken[place])} on {place}, but" in plan.sentence]
            assert said and all(taken[place] > space[place] for place in said)
            return
    raise AssertionError("all fit")
