"""The files of a model while it is loaded: what says whether they are still the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.errors import KnownError
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.text import printable

_FINGERPRINT_BYTES, _LEAST_FINGERPRINT_BYTES = 1024 * 1024, 16 * 1024
"""Read at each of three places of a model, shared by its parts; and of a part at least."""

Stamp = tuple[int, ...]
"""Size in bytes and time of the last change in nanoseconds of each file of a model: with the same it is the same."""


@dataclass(frozen=True)
class ModelFiles:
    """The file of a model, or all its parts, as they were when the header was read."""

    header: GgufHeader
    paths: tuple[Path, ...]
    stamp: Stamp

    @classmethod
    def checked(cls, path: Path) -> ModelFiles:
        """Read the header. Raises `KnownError` for what llama.cpp cannot load, or what changes meanwhile."""
        header = read_header(path)
        check_loadable(header)
        paths = header.split.files if header.split else (path,)
        files = cls(header, paths, _stamp(paths))
        if sum(files.stamp[::2]) != header.file_size:
            raise _changed(path)
        return files

    def check_unchanged(self) -> None:
        """Raise `KnownError` where a file was replaced, or written to, since `checked`."""
        if _stamp(self.paths) != self.stamp:
            raise _changed(self.header.path)

    def fingerprint(self) -> str:
        """A digest of parts of the files: header, middle and end of each. Times of change are not always to be trusted,
        and a state of another model of the same shape would be taken for its own."""
        digest = hashlib.sha256()
        length = max(_FINGERPRINT_BYTES // len(self.paths), _LEAST_FINGERPRINT_BYTES)
        for path in self.paths:
            try:
                with path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    for place in (0, size // 2, max(size - length, 0)):
                        file.seek(place)
                        digest.update(file.read(length))
            except OSError as error:
                raise _unreadable(path, error) from None
        return digest.hexdigest()


def _stamp(paths: Iterable[Path]) -> Stamp:
    stamp: list[int] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from None
        stamp += (status.st_size, status.st_mtime_ns)
    return tuple(stamp)


def _changed(path: Path) -> KnownError:
    return KnownError(f"{printable(path.name)} changed while it was being loaded, so it was not used. Load it again.")


def _unreadable(path: Path, error: OSError) -> KnownError:
    reason = "it is no longer there" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return KnownError(f"{printable(path.name)} could not be read while it was being loaded: {reason}. Load it again.")
