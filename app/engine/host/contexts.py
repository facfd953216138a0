"""Contexts as the settings ask for them: with snapshots of a running state, and tried out whether they can go back."""

from __future__ import annotations

import contextlib
import logging

import msgspec
import psutil

from app.engine.llama.checkpoints import RollBackSupport, try_out
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.errors import KnownError
from app.protocol.limits import MAX_DRAFT_LENGTH, TARGET_OUTPUTS, fewer_snapshots, snapshots_for
from app.protocol.messages import LoadSettings
from app.storage.keyed_file import KeyedFile, cache_file, key_of

log = logging.getLogger("slipstream.engine")


def target_context(model: Model, settings: LoadSettings, length: int, threads: int) -> Context:
    """With as many snapshots of its running state as there is memory for; without any where it would not fit else."""
    snapshots = _affordable_snapshots(model, settings, threads)
    while snapshots:
        try:
            return new_context(model, settings, length, threads, TARGET_OUTPUTS, snapshots)
        except KnownError as error:
            log.info("too little memory for %d snapshots: %s", snapshots, error)
            snapshots = fewer_snapshots(snapshots)
    return new_context(model, settings, length, threads, TARGET_OUTPUTS)


def _affordable_snapshots(model: Model, settings: LoadSettings, threads: int) -> int:
    if not model.has_running_state:
        return 0
    small = msgspec.structs.replace(settings, batch_size=32, micro_batch_size=32)
    with contextlib.closing(new_context(model, small, 1, threads, 1, snapshots=1)) as probe:
        probe.decode([0], 1)
        if not probe.checkpoints.snapshots:
            return 0
        size = probe.checkpoints.size()
    return snapshots_for(size, min(model.size_bytes, psutil.virtual_memory().available))  # 0: llama.cpp cannot tell


def longest_draft(context: Context, owner: str) -> int:
    """How many draft tokens the memory of ``owner`` can take back: tried out the first time, then known."""
    back = context.checkpoints
    if back.any_length:
        return MAX_DRAFT_LENGTH
    store = KeyedFile(cache_file("rolling_back.json"), RollBackSupport)
    key = key_of({"owner": owner, "snapshots": back.snapshots})
    tried = store.get(key)
    if tried is None:
        tried = try_out(context, context.model.vocabulary_size)
        store.put(key, tried)
    back.use(tried)
    return tried.longest_draft


def new_context(
    model: Model, settings: LoadSettings, length: int, threads: int, outputs: int, snapshots: int = 0
) -> Context:
    return Context(
        model,
        length=length,
        batch_size=settings.batch_size,
        micro_batch_size=settings.micro_batch_size,
        threads=threads,
        kv_type=settings.kv_type,
        outputs=outputs,
        snapshots=snapshots,
    )


def warm_up(context: Context) -> None:
    """One pass before the first question: pages the weights in and sets the compute buffers up."""
    context.decode([0], 1)
    context.clear()
