"""The files of a model while it is loaded: that they stay the same, and how to recognize them later."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import KnownError
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.text import printable

_FINGERPRINT_BYTES, _LEAST_FINGERPRINT_BYTES = 1024 * 1024, 16 * 1024
"""How many bytes are read at each of three places of a model, distributed over its parts; and the minimum for each
part.
"""

Stamp = tuple[int, ...]
"""Size in bytes and modification time in nanoseconds of each file of a model; if these are the same, so is the model.
"""


@dataclass(frozen=True)
class ModelFiles:
    """The file of a model, or all its parts, in the state in which the header was read."""

    header: GgufHeader
    paths: tuple[Path, ...]
    stamp: Stamp

    @classmethod
    def checked(cls, path: Path) -> ModelFiles:
        """Read the header. Raises `KnownError` for files that llama.cpp can't load, or that change in the meantime."""
        header = read_header(path)
        check_loadable(header)
        paths = header.split.files if header.split else (path,)
        files = cls(header, paths, stamp_of(paths))
        if sum(files.stamp[::2]) != header.file_size:
            raise _changed(path)
        return files

    @classmethod
    def of_projector(cls, path: Path) -> ModelFiles:
        """The same for what a model sees images with. Raises `KnownError` for a file that isn't that."""
        header = read_header(path)
        if not header.is_projector:
            raise KnownError(f"{printable(path.name)} is a model, not a projector for images (mmproj).")
        return cls(header, (path,), stamp_of((path,)))

    def check_unchanged(self) -> None:
        """Raise `KnownError` if a file was replaced or written to since `checked`."""
        if stamp_of(self.paths) != self.stamp:
            raise _changed(self.header.path)

    def fingerprint(self) -> str:
        """A digest of parts of the files: header, middle and end of each. Modification times can't always be trusted,
        and a state of another model with the same shape would be taken for one of its own.
        """
        digest = hashlib.sha256()
        length = max(_FINGERPRINT_BYTES // len(self.paths), _LEAST_FINGERPRINT_BYTES)
        for path in self.paths:
            with _reading(path), path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                for place in (0, size // 2, max(size - length, 0)):
                    file.seek(place)
                    digest.update(file.read(length))
        return digest.hexdigest()


def stamp_of(paths: tuple[Path, ...]) -> Stamp:
    """Raises `KnownError` for files that can't be read."""
    stamp: list[int] = []
    for path in paths:
        with _reading(path):
            status = path.stat()
        stamp += (status.st_size, status.st_mtime_ns)
    return tuple(stamp)


def _changed(path: Path) -> KnownError:
    return KnownError(f"{printable(path.name)} changed while it was being loaded, so it wasn't used. Load it again.")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "it no longer exists" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise KnownError(
            f"{printable(path.name)} couldn't be read while it was being loaded: {reason}. Load it again."
        ) from None
