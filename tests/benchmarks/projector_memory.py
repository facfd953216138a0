"""What a projector takes in memory with images of growing sizes, on the CPU, beside what the memory plan counts for it.

    python -m tests.benchmarks.projector_memory [--sides 448 896 1288 1792]

One layer of the width of a real encoder (buffers don't depend on how many there are), where an image's size decides
how many patches there are; the largest image takes half a minute.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from pathlib import Path

import psutil

from app.engine.llama import backend
from app.engine.llama.model import Model
from app.models.gguf import read_header
from app.models.projectors import projector_bytes
from tests.support.vision_models import Encoder, make_image, make_projector, make_seeing_model

_ENCODER = Encoder(width=1280, heads=16, layers=1, feed_forward=5120, patch=14, size=560)
_MIB = 2**20
_SECONDS_BETWEEN = 0.02


def peak(folder: Path, projector: Path, side: int) -> int:
    """Bytes of this process at most, above what it took without the projector, when it encodes a square image."""
    process = psutil.Process()
    model = Model(folder / "target.gguf", 0, lambda _: True)
    before = most = process.memory_full_info().uss
    is_done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_done.wait(_SECONDS_BETWEEN):
            most = max(most, process.memory_full_info().uss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        model.load_projector(projector, gpu=None, threads=2, on_progress=lambda _: True)
        assert model.vision
        image = make_image(folder / f"{side}.png", side, side)
        model.vision.tokens(image)
        model.vision._embeddings(model.vision._known[image.sha256])
    finally:
        is_done.set()
        watcher.join()
        model.close()
    return most - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[448, 896, 1288, 1792], help="of the images, in pixels")
    sides = parser.parse_args().sides
    backend.start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_seeing_model(folder / "target.gguf", "qwen2vl")
        projector = make_projector(folder / "mmproj.gguf", "qwen2vl", encoder=_ENCODER)
        planned = projector_bytes(read_header(projector)) / _MIB
        print("| patches | taken, MiB | counted, MiB |\n|---|---|---|")
        for side in sides:
            patches = (side // _ENCODER.patch) ** 2
            print(f"| {patches:,} | {peak(folder, projector, side) / _MIB:.0f} | {planned:.0f} |", flush=True)


if __name__ == "__main__":
    main()
