"""Projectors on a GPU: what they see is what the processor sees, and they are where the target is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.llama import backend
from app.engine.llama.model import ON_THE_CPU, Model
from app.protocol.commands import Image
from app.protocol.events import Device
from tests.support.vision_models import (
    KINDS,
    Encoder,
    Projector,
    make_image,
    make_projector,
    make_seeing_model,
)

REAL = Encoder(width=128, heads=2, layers=4, feed_forward=256, patch=14, size=224)
"""Heads of 64, as real encoders have."""


def seen(target: Path, projector: Path, image: Image, gpu: int | None) -> Floats:
    """The embeddings of an image."""
    model = Model(target, 0, lambda _: True, placement=ON_THE_CPU)
    try:
        model.load_projector(projector, gpu=gpu, threads=1, on_progress=lambda _: True)
        assert model.vision
        model.vision.tokens(image)
        return np.concatenate(model.vision._embeddings(model.vision._known[image.sha256]))
    finally:
        model.close()


@pytest.mark.parametrize("encoder", [Encoder(), REAL], ids=["tiny", "real heads"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_sees_what_the_processor_sees(kind: Projector, encoder: Encoder, tmp_path: Path, gpu: Device) -> None:
    target = make_seeing_model(tmp_path / "target.gguf", kind)
    projector = make_projector(tmp_path / "mmproj.gguf", kind, encoder=encoder)
    image = make_image(tmp_path / "a.png", 224, 160)
    there = seen(target, projector, image, backend.offload_handles()[gpu.name])
    here = seen(target, projector, image, None)
    assert there.shape == here.shape and len(there) > 0
    assert np.square(there - here).mean() < 0.001 * here.var()
