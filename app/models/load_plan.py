"""What can be requested of a memory plan, and what it says."""

from __future__ import annotations

import msgspec

from app.models.memory_estimate import MemoryEstimate
from app.protocol.limits import DEFAULT_BATCH_SIZE, HeadChoice, KvType, SplitMode


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user requests; the rest is chosen automatically."""

    context_length: int | None = None
    """Tokens."""
    kv_type: KvType | None = None
    target_gpu_layers: int | None = None
    """Counted as llama.cpp does; `ALL_LAYERS` is all."""
    draft_gpu_layers: int | None = None
    keep_draft: bool = False
    """A plan that leaves the draft out isn't acceptable."""
    head: HeadChoice = "auto"
    """As `app.protocol.commands.Load.head`."""
    expert_layers_on_cpu: int | None = None
    """Of how many layers, counted from the first, the experts stay in system memory."""
    draft_context_length: int | None = None
    """Tokens; by default as many as the target has, and never more."""
    draft_kv_type: KvType | None = None
    """By default the target's."""
    split_mode: SplitMode = "layer"
    main_gpu: str = ""
    """`Device.name` of the only GPU to use with the ``split_mode`` ``none``; empty for the first one."""
    tensor_split: tuple[float, ...] = ()
    """The share of each GPU; ignored if there is another number of them, which the engine refuses."""
    draft_device: str = ""
    """`Device.name` of the GPU for the draft."""
    projector_bytes: int = 0
    """What the target's projector takes, on the first GPU that any of the target is on."""
    batch_size: int = DEFAULT_BATCH_SIZE
    """`LoadSettings.micro_batch_size`."""


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to load a pair. The first fields are those of `app.protocol.options.LoadSettings`."""

    context_length: int
    """Tokens."""
    kv_type: KvType
    target_gpu_layers: int
    draft_gpu_layers: int
    expert_layers_on_cpu: int
    tensor_split: tuple[float, ...] = ()
    """Empty if llama.cpp's own way, by free memory, is good enough."""
    draft_device: str = ""
    with_draft: bool
    with_head: bool
    """An MTP head is used: the target's own, or that of a file given as the draft."""
    estimate: MemoryEstimate
    fits: bool
    system_space: int = msgspec.field(name="system_room")
    """Bytes of system memory that a pair may use on this machine, after the safety margin."""
    gpu_space: int = msgspec.field(name="gpu_room")
    """The same for all GPUs together."""
    gpu_spaces: dict[str, int] = msgspec.field(name="gpu_rooms", default_factory=dict)
    """The same for each GPU of `MemoryEstimate.gpus`, by `Device.name`; 0 for those that are not to be used."""
    sentence: str
    """Why the plan is as it is, or how it differs from what was requested."""
    gives_up: bool = False
    """Whether it fits only because it differs from what was requested."""

    @property
    def needed(self) -> int:
        """Bytes, system and GPUs together."""
        return self.estimate.system.total + self.estimate.gpu.total
