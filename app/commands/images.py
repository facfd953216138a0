"""What the commands have to do with images."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.models.gguf import read_header
from app.models.mtp import find_projector
from app.protocol.commands import Image
from app.protocol.images import HEAD_BYTES, problem_of, read_head
from app.storage.files import sha256_of
from app.system import KnownError


def image_at(path: Path) -> Image:
    """An image for a message. Raises `KnownError` if it can't be used."""
    try:
        with path.open("rb") as file:
            head = read_head(file.read(HEAD_BYTES))
        if problem := problem_of(head, path.name, path.stat().st_size):
            raise KnownError(problem)
        return Image(sha256=sha256_of(path, lambda: False), path=str(path.absolute()))
    except OSError as error:
        raise KnownError(f"The image {path} can't be read: {error.strerror or error}.") from error


def projector_for(options: argparse.Namespace, target: Path) -> Path | None:
    """The projector that was named, or, where there are images, the one in the folder of ``target``.

    Raises `KnownError` if the images can't be seen without one.
    """
    if (named := getattr(options, "mmproj", None)) is not None:
        return Path(named).absolute()
    if not getattr(options, "image", None):
        return None
    found = find_projector(read_header(target.absolute()))
    if found is None:
        raise KnownError(f"{target.name} can't see images without its projector. Name one with --mmproj.")
    return found.path
