"""``slipstream models plan``: how much memory a pair takes, and how it would be loaded on this machine now."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

import msgspec

from app.client.process import EngineProcess
from app.commands.models import choosing
from app.commands.options import add_gpu_options, check_main_gpu, command, option, whole
from app.commands.output import show_result
from app.models.library.library import LibraryEntry
from app.models.machine_memory import MachineMemory, machine_now
from app.models.model_memory import ModelShape
from app.models.names import size_text
from app.models.planner import LoadPlan, Wishes, alternatives, layers_text, make_plan
from app.models.ranking import Judge
from app.protocol.options import MAX_CONTEXT_LENGTH, KvType
from app.system import KnownError

_PARTS = {
    "target_weights": "Target weights",
    "target_kv": "Target KV cache",
    "draft_weights": "Draft weights",
    "draft_kv": "Draft KV cache",
    "head": "MTP head",
    "projector": "Projector",
    "compute": "Compute buffers",
}


def _add_wishes(parser: argparse.ArgumentParser) -> None:
    wishes = parser.add_argument_group("preferences (default: what fits best)")
    wishes.add_argument("--context", type=whole(1, MAX_CONTEXT_LENGTH), metavar="N", help="context length in tokens")
    wishes.add_argument("--kv-type", choices=get_args(KvType), help="KV cache type")
    wishes.add_argument("--gpu-layers", type=whole(-1), metavar="N", help="layers on the GPU; -1 means all")
    wishes.add_argument("--draft-gpu-layers", type=whole(-1), metavar="N", help="draft layers on the GPU")
    add_gpu_options(wishes)
    wishes.add_argument("--keep-draft", action="store_true", help="fail rather than leave the draft out")


@command(
    "plan",
    "show how much memory a model or a pair needs, and how it would be loaded",
    option("target", metavar="TARGET"),
    option("draft", nargs="?", metavar="DRAFT"),
    _add_wishes,
)
def show_plan(options: argparse.Namespace) -> int:
    """The exit status is 1 if nothing fits."""
    check_main_gpu(options)
    target, draft = _shapes(options)
    with EngineProcess() as engine:
        machine = machine_now(engine.hello().devices)
    wishes = Wishes(
        context_length=options.context,
        kv_type=options.kv_type,
        target_gpu_layers=options.gpu_layers,
        draft_gpu_layers=options.draft_gpu_layers,
        expert_layers_on_cpu=options.expert_layers_on_cpu,
        split_mode=options.split_mode or "layer",
        main_gpu=options.main_gpu or "",
        tensor_split=options.tensor_split or (),
        draft_device=options.draft_device or "",
        keep_draft=options.keep_draft,
    )
    found = make_plan(target, draft, machine, wishes)
    others = [] if found.fits else alternatives(target, draft, machine, wishes)
    described = msgspec.to_builtins({"machine": machine, "plan": found, "alternatives": others})
    show_result(options, described, _lines(found, others, machine))
    return 0 if found.fits else 1


def _shapes(options: argparse.Namespace) -> tuple[ModelShape, ModelShape | None]:
    library = choosing.library()
    entries = library.scan()
    target = choosing.model(library, options.target, entries)
    choosing.check_usable(target)
    if options.draft is None:
        return _shape(target), None
    draft = choosing.model(library, options.draft, entries)
    if not draft.is_head:  # which is no model by itself
        choosing.check_usable(draft)
    verdict = Judge(library.differences).verdict(target, draft)
    library.save()
    if not verdict.fits:
        raise KnownError(f"This pair can't be loaded because the models don't fit together. {verdict.reason}")
    return _shape(target), _shape(draft)


def _shape(entry: LibraryEntry) -> ModelShape:
    assert entry.summary is not None  # otherwise, it couldn't be loaded
    return entry.summary.shape


def _lines(plan: LoadPlan, others: Sequence[LoadPlan], machine: MachineMemory) -> list[str]:
    lines = [plan.sentence, ""]
    places = [("memory", plan.estimate.system, plan.system_space)]
    if machine.devices:
        names = [*plan.gpu_spaces] if len(plan.gpu_spaces) > 1 else ["GPU"]
        places += zip(names, plan.estimate.gpus, plan.gpu_spaces.values(), strict=False)
    lines.append(f"{'':<17}" + "".join(f"{name:>10}" for name, _, _ in places))
    for field, label in _PARTS.items():
        sizes = [getattr(parts, field) for _, parts, _ in places]
        if any(sizes):
            lines.append(f"{label:<17}" + "".join(f"{size_text(size):>10}" for size in sizes))
    lines.append(f"{'total':<17}" + "".join(f"{size_text(parts.total):>10}" for _, parts, _ in places))
    lines.append(f"{'available':<17}" + "".join(f"{size_text(space):>10}" for _, _, space in places))
    lines += ["", f"context {plan.context_length:,} tokens, {plan.kv_type} KV cache{_layers(plan, machine)}"]
    return lines + (["", "What would fit:", *(f"  {other.sentence}" for other in others)] if others else [])


def _layers(plan: LoadPlan, machine: MachineMemory) -> str:
    if not machine.devices:
        return ""
    target, draft = map(layers_text, (plan.target_gpu_layers, plan.draft_gpu_layers))
    device = f" on {plan.draft_device}" if plan.draft_device and plan.draft_gpu_layers else ""
    return f", layers on the GPU: {target} of the target" + (
        f", {draft} of the draft{device}" if plan.with_draft else ""
    )
