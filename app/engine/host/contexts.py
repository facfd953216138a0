"""The contexts of a pair: how many snapshots of a running state they keep, and how far they can be rolled back."""

from __future__ import annotations

import contextlib
import logging

import msgspec
import psutil

from app.engine.host.gpu_limits import has_state_on_gpu
from app.engine.llama.backend import devices
from app.engine.llama.checkpoints import RollBackSupport, try_out
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.engine.llama.thread_count import Threads
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.protocol.limits import MAX_DRAFT_LENGTH, fewer_snapshots, snapshots_for
from app.protocol.options import LoadSettings
from app.storage.keyed_file import KeyedFile, cache_file, key_of

log = logging.getLogger("slipstream.engine")

_ROOM = 2
"""A copy stays on the GPU if so many of them would fit."""


def target_context(
    model: Model, settings: LoadSettings, length: int, threads: Threads, *, has_head: bool = False
) -> Context:
    """With as many snapshots of its running state as there is memory for, or none if it wouldn't fit otherwise."""
    snapshots = _affordable_snapshots(model, settings, threads.batch, has_head=has_head)

    def with_snapshots(count: int) -> Context:
        one, batch = threads
        return Context(
            model, settings, length=length, threads=one, batch_threads=batch, snapshots=count, same_kernels=True
        )

    while snapshots:
        try:
            return with_snapshots(snapshots)
        except KnownError as error:
            log.info("too little memory for %d snapshots: %s", snapshots, error)
            snapshots = fewer_snapshots(snapshots)
    return with_snapshots(0)


def _affordable_snapshots(model: Model, settings: LoadSettings, threads: int, *, has_head: bool = False) -> int:
    if not model.has_running_state:
        return 0
    small = msgspec.structs.replace(settings, batch_size=32, micro_batch_size=32)
    with contextlib.closing(Context(model, small, length=1, threads=threads, outputs=1, snapshots=1)) as probe:
        probe.decode_largest([0], 1, 1)
        if not probe.checkpoints.snapshots:
            return 0
        size = probe.checkpoints.size()
    memory = min(model.size_bytes, psutil.virtual_memory().available)
    return snapshots_for(size, memory, has_head=has_head)  # 0: llama.cpp can't tell


def longest_draft(context: Context, owner: str) -> int:
    """How many draft tokens the memory of ``owner`` can undo: tested the first time, then remembered."""
    back = context.checkpoints
    if back.any_length:
        return MAX_DRAFT_LENGTH
    store = KeyedFile(cache_file("rolling_back.json"), RollBackSupport)
    in_place = {"copies_in_place": True} if back.copies_in_place else {}
    key = key_of({"owner": owner, "snapshots": back.snapshots, **in_place})
    tried = store.get(key)
    if tried is None:
        tried = try_out(context, context.model.vocabulary_size)
        store.put(key, tried)
    back.use(tried)
    if back.copies_in_place:  # allocates the copy while there is room for it
        context.decode_largest([0], 1, 1)
        context.hold(MAX_DRAFT_LENGTH)
        context.clear()
    return tried.longest_draft


def keep_copies_on_gpu(context: Context, header: GgufHeader, gpu_layers: int) -> None:
    """Let the copy of the running state before a draft stay on the GPU that has the state, where one is needed for
    drafts: not with snapshots. If there were no room for it, llama.cpp would end the process.
    """
    if context.checkpoints.snapshots or not has_state_on_gpu(header, gpu_layers):
        return
    context.decode_largest([0], 1, 1)
    size = context.checkpoints.size()
    context.clear()
    free = min(device.free_bytes for device in devices())
    context.checkpoints.copies_in_place = free >= _ROOM * size
    log.info("a copy of the running state takes %d bytes of %d on the GPU", size, free)
