"""What an engine can be asked for, and how much of it takes memory: shared by engine, window and memory planner."""

from __future__ import annotations

from typing import Literal

MAX_DRAFT_LENGTH = 16
DEFAULT_DRAFT_LENGTH = 5
MAX_CONTEXT_LENGTH = 2**24
MAX_THREADS = 512
"""What ggml can take; it ends the process above it."""
DEFAULT_BATCH_SIZE = 512
"""Tokens of a prompt that are computed at once."""
ALL_LAYERS = -1
"""As a number of GPU layers."""
KvType = Literal["f16", "q8_0", "q4_0"]
TARGET_OUTPUTS, DRAFT_OUTPUTS = MAX_DRAFT_LENGTH + 1, 1
"""Positions whose logits are asked for at once."""

_DEFAULT_CONTEXT_LENGTH = 8192
_MOST_SNAPSHOTS, _LEAST_SNAPSHOTS = 8, 2
"""They cost memory, and time in every pass (8 of them 2 % in a hybrid of 0.2 B on a CPU); what is drafted beyond them
is held with a copy, and what was accepted of it has to be fed again."""
_SNAPSHOT_SHARE = 8


def default_context_length(training_context: int | None) -> int:
    """Tokens, where nobody asks for a length. ``training_context``: as the model's file has it, if it does."""
    return min(training_context or _DEFAULT_CONTEXT_LENGTH, _DEFAULT_CONTEXT_LENGTH)


def snapshots_for(state_bytes: int, memory_bytes: int) -> int:
    """How many snapshots of a running state of ``state_bytes`` llama.cpp is to keep after each pass.

    They may take an eighth of ``memory_bytes``: what the weights take, or is free if that is less.
    """
    count = min(memory_bytes // _SNAPSHOT_SHARE // state_bytes, _MOST_SNAPSHOTS) if state_bytes else 0
    return count if count >= _LEAST_SNAPSHOTS else 0


def fewer_snapshots(count: int) -> int:
    """To try next where ``count`` had no room."""
    return count // 2 if count >= 2 * _LEAST_SNAPSHOTS else 0
