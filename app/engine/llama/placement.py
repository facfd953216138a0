"""Which of a model's weights go on which GPU, as llama.cpp is told."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp

from app.engine.llama import backend
from app.errors import KnownError
from app.protocol.limits import SplitMode
from app.protocol.options import LoadSettings

_SPLIT_MODES: dict[SplitMode, int] = {
    "layer": llama_cpp.LLAMA_SPLIT_MODE_LAYER,
    "row": llama_cpp.LLAMA_SPLIT_MODE_ROW,
    "none": llama_cpp.LLAMA_SPLIT_MODE_NONE,
}
_EXPERTS = r"^blk\.({layers})\.ffn_(up|down|gate|gate_up)_(ch|)exps\."
"""The tensors of a layer's experts; shared experts (``shexp``), which every token uses, are not among them."""


class _Override(ctypes.Structure):
    """llama.cpp's ``llama_model_tensor_buft_override``, which llama-cpp-python doesn't declare."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


@dataclass(frozen=True)
class Placement:
    """Where a model goes, besides how many of its layers are on a GPU. See the fields of `LoadSettings`."""

    only_gpu: str = ""
    split_mode: SplitMode = "layer"
    tensor_split: Sequence[float] = ()
    expert_layers_on_cpu: int = 0
    without_gpus: bool = False
    """llama.cpp doesn't even know of any. Otherwise it computes long batches on them, without a single layer there."""

    @classmethod
    def of_target(cls, settings: LoadSettings) -> Placement:
        only = settings.main_gpu if settings.split_mode == "none" else ""
        return cls(only, settings.split_mode, settings.tensor_split, max(settings.expert_layers_on_cpu, 0))

    @classmethod
    def of_draft(cls, settings: LoadSettings) -> Placement:
        """On its own GPU if it has one, otherwise like the target."""
        if settings.draft_device:
            return cls(settings.draft_device, "none")
        target = cls.of_target(settings)
        return cls(target.only_gpu, target.split_mode, target.tensor_split)

    def gpus(self) -> dict[str, int]:
        """llama.cpp's handles of the GPUs that get a part of the model, by name."""
        found = backend.offload_handles()
        if self.only_gpu:
            return {self.only_gpu: _handle(self.only_gpu)}
        if self.without_gpus:
            return {}
        if self.split_mode == "none":
            return dict(list(found.items())[:1])
        if any(self.tensor_split):
            return {name: found[name] for name, share in zip(found, self.tensor_split, strict=True) if share}
        return found

    def first_gpu(self) -> int | None:
        """llama.cpp's handle of the first of them, for what is not split; None if there are none."""
        return next(iter(self.gpus().values()), None)

    def apply(self, params: llama_cpp.llama_model_params) -> list[object]:
        """Set it in ``params``. What is returned must live until the model is loaded.

        Raises `KnownError` for GPUs that don't exist.
        """
        params.split_mode = _SPLIT_MODES[self.split_mode]
        kept: list[object] = []
        if self.without_gpus:
            kept.append(none := (ctypes.c_void_p * 1)(None))
            params.devices = ctypes.addressof(none)  # type: ignore[assignment]
        elif self.only_gpu:
            gpu = (ctypes.c_void_p * 2)(_handle(self.only_gpu), None)
            params.devices, params.main_gpu = ctypes.addressof(gpu), 0  # type: ignore[assignment]
            kept.append(gpu)
        elif self.tensor_split:
            shares = _shares(self.tensor_split)
            if used := [gpu for gpu, share in shares.items() if share]:
                # With the others, llama.cpp would prepare for passing batches from one to the next.
                kept.append(gpus := (ctypes.c_void_p * (len(used) + 1))(*used, None))
                params.devices = ctypes.addressof(gpus)  # type: ignore[assignment]
            kept.append(given := (ctypes.c_float * llama_cpp.llama_max_devices())(*filter(None, shares.values())))
            params.tensor_split = given
        if self.expert_layers_on_cpu:
            kept.append(overrides := _experts_on_cpu(self.expert_layers_on_cpu))
            params.tensor_buft_overrides = ctypes.addressof(overrides)  # type: ignore[assignment]
        return kept


WHERE_IT_FITS = Placement()
ON_THE_CPU = Placement(without_gpus=True)


def _handle(name: str) -> int:
    handles = backend.offload_handles()
    if name not in handles:
        there = f"The GPUs here are {', '.join(handles)}." if handles else "No GPU can be used here."
        raise KnownError(f"There is no GPU named {name}. {there} Choose another one for this model, or none.")
    return handles[name]


def _shares(split: Sequence[float]) -> dict[int, float]:
    """By llama.cpp's handles of the GPUs."""
    gpus = backend.offload_handles()
    if len(split) != len(gpus):
        count = {0: "no GPU", 1: "one GPU"}.get(len(gpus), f"{len(gpus)} GPUs")
        raise KnownError(
            f"The shares of {len(split)} GPUs are given for this model, but this computer has {count}. Give one share "
            "for each, or none."
        )
    return dict(zip(gpus.values(), split, strict=True))


def _experts_on_cpu(layers: int) -> ctypes.Array[_Override]:
    """The experts of the first ``layers`` layers; the list ends with an empty entry."""
    pattern = _EXPERTS.format(layers="|".join(map(str, range(layers))))
    return (_Override * 2)(_Override(pattern.encode(), backend.cpu_buffer_type()), _Override())
