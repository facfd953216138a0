"""Projectors on a GPU: what they see is what the processor sees, and they are where the target is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.llama.model import Model
from app.engine.llama.placement import ON_THE_CPU
from app.protocol.commands import Image, Load, Message
from app.protocol.devices import Device
from app.protocol.options import LoadSettings
from tests.support.generation import GREEDY, ask, run
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


@pytest.mark.parametrize("layers", [-1, 0])
def test_it_is_where_the_target_is(
    engine: Engine, tmp_path: Path, gpu: Device, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int | None] = []
    load_projector = Model.load_projector

    def noted(model: Model, path: Path, *, gpu: int | None, **options: object) -> None:
        given.append(gpu)
        load_projector(model, path, gpu=gpu, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Model, "load_projector", noted)
    target, projector = tmp_path / "target.gguf", make_projector(tmp_path / "mmproj.gguf", "llava")
    make_seeing_model(target, "llava")
    settings = LoadSettings(context_length=256, threads=1, target_gpu_layers=layers, split_mode="none")
    load = Load(request=1, target=str(target), projector=str(projector), settings=settings)
    assert engine.load(load, lambda _: None).projector_refused is None
    assert given == [backend.offload_handles()[gpu.name] if layers else None]
    message = Message(role="user", content="Look.", images=(make_image(tmp_path / "a.png"),))
    assert run(engine, ask("", messages=[message], sampling=GREEDY, max_tokens=8)).token_ids
