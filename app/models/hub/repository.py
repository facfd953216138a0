"""What a repository on Hugging Face offers: its GGUF files, put together to models."""

from __future__ import annotations

from typing import Literal

import msgspec

Sort = Literal["trending", "downloads", "likes", "newest"]
"""Of what a search finds."""
MAX_RESULTS = 200
"""Of a search."""


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a repository, pinned to a commit."""

    repository: str
    """``Qwen/Qwen3-0.6B-GGUF``."""
    commit: str
    """40 hexadecimal digits."""
    path: str
    """Inside the repository, with ``/``."""
    size: int
    """Bytes."""
    sha256: str
    """64 hexadecimal digits."""


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a repository: one file, or all parts of a split one in order."""

    files: tuple[RemoteFile, ...]
    quantization: str
    """As the file's name says it: ``Q4_K_M``; empty where it says nothing."""

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(file.size for file in self.files)

    @property
    def name(self) -> str:
        """The first file's name without folders."""
        return self.files[0].path.rsplit("/", 1)[-1]


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A repository as a search finds it: without its files."""

    id: str
    licence: str = ""
    """As the repository names it: ``apache-2.0``; empty where it does not."""
    gated: Literal["no", "automatic", "manual"] = "no"
    """Whether its terms must be accepted first; ``manual`` waits for its owner."""
    downloads: int = 0
    """In the last 30 days."""
    likes: int = 0
    modified: str = ""
    """ISO 8601, UTC."""
    base_models: tuple[str, ...] = ()


class Repository(SearchResult, frozen=True, kw_only=True):
    """A repository with its models, smallest first."""

    commit: str
    models: tuple[RemoteModel, ...] = ()
