"""Which steps there are, in which order, and how long each may take."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field

TOP_K, TOP_K_MODULE = "top-k on the GPU", "benchmarks.own_time"
"""A step that is left out where its benchmark is missing."""


@dataclass(frozen=True)
class Entry:
    """A step in the timetable. Seconds."""

    name: str
    limit: float
    """After this it is ended."""
    least: float
    """It isn't begun if the call has less time left than this."""
    environment: dict[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    """Where it makes sense; everywhere if there are none."""
    needs_models: bool = True
    """Whether it waits for the large models, which take minutes to make: because it uses them, or because it times
    something, which needs a quiet machine.
    """


_NO_REUSE, _NO_CUDA_GRAPHS = {"LLAMA_GRAPH_REUSE_DISABLE": "1"}, {"GGML_CUDA_DISABLE_GRAPHS": "1"}
_ALL = (
    Entry("devices", 60, 5, needs_models=False),
    Entry("selftest", 120, 15, needs_models=False),
    Entry("greedy texts", 150, 30, needs_models=False),
    Entry("a context too large", 90, 25),
    Entry("widths q8_0", 120, 25),
    Entry("widths q4_k_m", 120, 25),
    Entry("widths q8_0, no graph reuse", 120, 25, _NO_REUSE),
    Entry("widths q8_0, no CUDA graphs", 120, 25, _NO_CUDA_GRAPHS, ("cuda",)),
    Entry("widths q4_k_m, no graph reuse", 120, 25, _NO_REUSE),
    Entry("widths q4_k_m, no CUDA graphs", 120, 25, _NO_CUDA_GRAPHS, ("cuda",)),
    Entry("draft steps", 60, 15),
    Entry("own time", 150, 30),
    Entry(TOP_K, 150, 30),
    Entry("draft lengths q8_0", 180, 40),
    Entry("draft lengths q4_k_m", 180, 40),
    Entry("bare loop q8_0", 90, 25),
    Entry("bare loop q4_k_m", 90, 25),
    Entry("hybrids", 60, 15),
    Entry("batch sizes", 120, 20),
    Entry("images", 150, 25),
    Entry("stop", 120, 25),
    Entry("memory", 150, 30),
    Entry("architectures", 240, 40, needs_models=False),
)


def entries(backend: str) -> list[Entry]:
    """The steps that can run here, in order."""
    return [entry for entry in _ALL if (not entry.backends or backend in entry.backends) and _is_there(entry.name)]


def _is_there(name: str) -> bool:
    return name != TOP_K or importlib.util.find_spec(TOP_K_MODULE) is not None
