"""Images: what a projector of a real one's size takes on the GPU, in time and memory, and whether it sees the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from app.engine.decoding.sampling import Floats
from app.engine.llama import backend
from app.engine.llama.backend import default_threads
from app.engine.llama.model import ON_THE_CPU, Model
from app.models.gguf import read_header
from app.models.heads import projector_bytes
from app.protocol.commands import Image
from benchmarks.gpu_report.sizes import Bench
from tests.support.vision_models import Projector, make_image, make_projector, make_seeing_model

_REPEATS = 5
_KINDS: tuple[Projector, ...] = ("llava", "qwen2vl")
"""One that scales every image to the same size, and one whose patches depend on it."""


def images(bench: Bench) -> Iterator[dict[str, Any]]:
    """Milliseconds to encode an image, how far its embeddings are from the processor's, and bytes on the GPU."""
    backend.start()
    gpu = next(iter(backend.offload_handles().values()), None)
    for kind in _KINDS:
        target = make_seeing_model(bench.folder / f"seeing-{kind}.gguf", kind)
        projector = make_projector(bench.folder / f"mmproj-{kind}.gguf", kind, encoder=bench.sizes.encoder)
        sides = (bench.sizes.encoder.size, *([bench.sizes.photo] if kind == "qwen2vl" else []))
        planned = projector_bytes(read_header(projector))
        for side in sides:
            image = make_image(bench.folder / f"{side}.png", side, side)
            there, times, taken = _encoded(target, projector, image, gpu, _REPEATS)
            figures: dict[str, Any] = {"cells": len(there), "GPU": statistics.median(times[1:]), "first": times[0]}
            if side == bench.sizes.encoder.size:  # a photo would take the processor a minute
                here, (figures["processor"],), _ = _encoded(target, projector, image, None, 1)
                figures["difference"] = float(np.square(there - here).mean() / here.var())
            yield {f"{kind}, {side} pixels": {**figures, "planned MiB": planned >> 20, "taken MiB": taken >> 20}}


def _encoded(
    target: Path, projector: Path, image: Image, gpu: int | None, repeats: int
) -> tuple[Floats, list[float], int]:
    """The embeddings, the milliseconds of each time, and the bytes that are taken on GPUs afterwards."""
    free = sum(device.free_bytes for device in backend.devices())
    model = Model(target, 0, lambda _: True, placement=ON_THE_CPU)
    try:
        model.load_projector(projector, gpu=gpu, threads=default_threads(), on_progress=lambda _: True)
        assert model.vision
        model.vision.tokens(image)
        times = []
        for _ in range(repeats):
            model.vision.forget_embeddings()
            begun = time.perf_counter()
            rows = np.concatenate(model.vision._embeddings(model.vision._known[image.sha256]))
            times.append(1e3 * (time.perf_counter() - begun))
        return rows, times, free - sum(device.free_bytes for device in backend.devices())
    finally:
        model.close()
