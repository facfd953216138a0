"""How much is measured: as on a real GPU, or small, to try out the report itself on any machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.engine.llama.backend import default_threads
from app.protocol.options import LoadSettings
from benchmarks.inflate import GUIDE, inflated, vocabulary_pair
from benchmarks.quantizing import Quantization
from tests.support.architectures import make
from tests.support.vision_models import Encoder

QUANTIZATIONS: tuple[Quantization, ...] = ("q8_0", "q4_k_m")

_REAL_ENCODER = Encoder(width=1280, heads=16, layers=24, feed_forward=5120, patch=14, size=448, weights="F16")


@dataclass(frozen=True)
class Sizes:
    """Numbers of everything."""

    parameters: int = 8_000_000_000
    """Of the guide, inflated."""
    draft_parameters: int = 500_000_000
    """Of its draft, inflated, besides the draft as it is."""
    hybrid_layers: int = 24
    hybrid_width: int = 1024
    texts: int = 40
    tokens: int = 120
    """Of an answer."""
    widths: int = 17
    passes: int = 20
    vocabularies: tuple[int, ...] = (152_000, 248_000)
    rounds: int = 100
    questions: int = 2
    """Of each kind, for draft lengths against each other."""
    lengths: tuple[int, ...] = (2, 3, 5, 8, 12)
    kinds: tuple[str, ...] = ("prose", "code", "list")
    repeats: int = 6
    micro_batches: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    prompt: int = 2048
    contexts: tuple[int, ...] = (2048, 8192, 16384)
    stops: int = 10
    encoder: Encoder = _REAL_ENCODER
    photo: int = 1792
    """Pixels of a side; what Qwen's projectors make of a photo."""
    architectures: tuple[str, ...] = ("qwen35", "lfm2", "granitehybrid", "gemma3", "deepseek2")


USUAL = Sizes()
SMALL = Sizes(
    parameters=20_000_000,
    draft_parameters=10_000_000,
    hybrid_layers=2,
    hybrid_width=64,
    texts=2,
    tokens=24,
    widths=3,
    passes=3,
    vocabularies=(2_000,),
    rounds=4,
    questions=1,
    lengths=(2,),
    kinds=("prose",),
    repeats=2,
    micro_batches=(32, 64),
    prompt=128,
    contexts=(512, 1024),
    stops=2,
    encoder=Encoder(),
    photo=96,
    architectures=("lfm2",),
)


@dataclass(frozen=True)
class Bench:
    """What a step works with."""

    sizes: Sizes
    folder: Path
    """Of models; those that are missing are made."""

    def target(self, quantization: Quantization) -> Path:
        """The guide, inflated."""
        return inflated(folder=self.folder, parameters=self.sizes.parameters, quantization=quantization)

    def drafts(self) -> dict[str, Path]:
        """The guide's draft as it is, and at the cost of a real one."""
        real = inflated(GUIDE[1], self.folder, self.sizes.draft_parameters, "q8_0")
        return {"the guide's draft": GUIDE[1], "inflated, Q8_0": real}

    def vocabulary_pair(self, size: int) -> tuple[Path, Path]:
        """See `benchmarks.inflate.vocabulary_pair`."""
        return vocabulary_pair(self.folder, size)

    def hybrid(self) -> Path:
        """A model with a running state and an ordinary KV cache, with random weights; made once."""
        layers, width = self.sizes.hybrid_layers, self.sizes.hybrid_width
        path = self.folder / f"hybrid-{width}x{layers}.gguf"
        if not path.is_file():
            part = path.with_suffix(".part")
            shape = {"width": width, "heads": max(width // 128, 2), "layers": layers, "feed_forward": 3 * width}
            make(part, "qwen35", context_length=4096, weights="F16", **shape)
            part.replace(path)
        return path

    def settings(self, **options: object) -> LoadSettings:
        """Everything on the GPU; the number of threads isn't timed."""
        return partial(LoadSettings, threads=default_threads(), chat_cache_mib=0)(**options)  # type: ignore[arg-type]
