"""What can be requested of an engine, and limits that determine its memory; for engine, window and planner."""

from __future__ import annotations

from typing import Literal

MAX_DRAFT_LENGTH = 16
DEFAULT_DRAFT_LENGTH = 5
MAX_CONTEXT_LENGTH = 2**24
MAX_COUNT = 2**30
"""For whole numbers without a limit of their own: what llama.cpp, Qt and JSON can take."""
MAX_THREADS = 512
"""The most that ggml accepts; it aborts the process above that."""
DEFAULT_BATCH_SIZE = 512
"""Prompt tokens that are computed at once."""
MAX_LAYERS = 512
"""The most that llama.cpp can load."""
ALL_LAYERS = -1
"""As a number of GPU layers."""
AS_PLANNED = -1
"""As a number of layers whose experts stay in system memory: the memory plan decides it."""
LEAST_PICKED_VOCABULARY = 200_000
"""From so many tokens on, a GPU picks the largest logits of each row itself (`app.engine.llama.top_k`). With the
default sampling, copying whole rows took less time for 152,000 tokens on an H100, and more for 248,000
(benchmarks/notes/top_k.md).
"""
MAX_LOGPROBS = 20
"""Likely tokens that are sent with each one of an answer."""
MAX_GRAMMAR_CHARACTERS = 256 * 1024
"""Of a schema, regular expression or grammar that an answer has to follow."""
KvType = Literal["f16", "q8_0", "q4_0"]
SplitMode = Literal["layer", "row", "none"]
"""How a model is spread over several GPUs: whole layers, or the rows of its matrices; ``none``: it is on one."""
HeadChoice = Literal["auto", "on", "off"]
"""Whether an MTP head inside the target is used. ``auto``: where one is expected to save time (`app.models.mtp`)."""
EXACT_WIDTH = MAX_DRAFT_LENGTH
"""Under the accept rule ``exact``, the most tokens of a pass: a number that GPUs have kernels for."""
TARGET_OUTPUTS, DRAFT_OUTPUTS = MAX_DRAFT_LENGTH + 1, 1
"""Positions whose logits are requested at once."""
WAITING_STATES_BYTES = 64 * 1024 * 1024
"""What hidden states may take at most that wait until the target's MTP head processes them. Only what is used takes
memory: an answer after a prompt of a thousand tokens takes less.
"""

_DEFAULT_CONTEXT_LENGTH = 8192
_MOST_SNAPSHOTS, _LEAST_SNAPSHOTS = 8, 2
"""Snapshots cost memory, and time in every pass (8 of them cost 2% in a hybrid model of 0.2 B on a CPU). Drafts that
are longer need a copy of the state, and their accepted tokens have to be processed again.
"""
_HEAD_SNAPSHOTS = 4
"""The most for a target that drafts with its own head: long drafts of a head are seldom right to their end, so 8 cost
more time in every pass than they bring.
"""
_SNAPSHOT_SHARE = 8


def default_context_length(training_context: int | None) -> int:
    """The context length in tokens if none is requested. ``training_context``: from the model's file, if it has one."""
    return min(training_context or _DEFAULT_CONTEXT_LENGTH, _DEFAULT_CONTEXT_LENGTH)


def snapshots_for(state_bytes: int, memory_bytes: int, *, has_head: bool = False) -> int:
    """How many snapshots of a running state of ``state_bytes`` llama.cpp should keep after each pass.

    They may take an eighth of ``memory_bytes``, which is the size of the weights or the free memory, whichever is less.
    ``has_head``: an MTP head drafts, and no draft model.
    """
    most = _HEAD_SNAPSHOTS if has_head else _MOST_SNAPSHOTS
    count = min(memory_bytes // _SNAPSHOT_SHARE // state_bytes, most) if state_bytes else 0
    return count if count >= _LEAST_SNAPSHOTS else 0


def fewer_snapshots(count: int) -> int:
    """What to try next if there was no memory for ``count``."""
    return count // 2 if count >= 2 * _LEAST_SNAPSHOTS else 0
