"""What `HubServer` hosts, in the shapes huggingface_hub 2.4 reads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class HostedFile:
    """A file of a repository; ``content`` is the bytes or where they are."""

    content: bytes | Path
    size: int
    sha256: str

    @classmethod
    def of(cls, content: bytes | Path) -> HostedFile:
        if isinstance(content, bytes):
            return cls(content, len(content), hashlib.sha256(content).hexdigest())
        with content.open("rb") as file:
            return cls(content, content.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


@dataclass(kw_only=True)
class HostedRepository:
    """A model repository as the hub knows it."""

    id: str
    files: dict[str, HostedFile]
    commit: str
    license: str = "apache-2.0"
    gated: Literal[False, "auto", "manual"] = False
    private: bool = False
    downloads: int = 0
    likes: int = 0
    modified: str = "2026-01-02T03:04:05.000Z"
    base_models: tuple[str, ...] = ()
    gguf: dict[str, Any] | None = None

    def info(self, *, blobs: bool = True) -> dict[str, Any]:
        """What ``/api/models/ID`` answers."""
        return {
            "_id": hashlib.sha1(self.id.encode()).hexdigest()[:24],
            "id": self.id,
            "modelId": self.id,
            "author": self.id.split("/")[0],
            "sha": self.commit,
            "lastModified": self.modified,
            "createdAt": self.modified,
            "private": self.private,
            "gated": self.gated,
            "disabled": False,
            "downloads": self.downloads,
            "likes": self.likes,
            "tags": ["gguf", f"license:{self.license}", *(f"base_model:{base}" for base in self.base_models)],
            "cardData": {"license": self.license, "base_model": list(self.base_models)},
            "siblings": [self._sibling(path, file, blobs=blobs) for path, file in self.files.items()],
            **({"gguf": self.gguf} if self.gguf is not None else {}),
        }

    @staticmethod
    def _sibling(path: str, file: HostedFile, *, blobs: bool) -> dict[str, Any]:
        if not blobs:
            return {"rfilename": path}
        large = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
        return {"rfilename": path, "size": file.size, "blobId": file.sha256[:40], "lfs": large}

    def tree(self, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
        """What ``/api/models/ID/tree/REVISION`` answers."""
        inside = f"{folder}/" if folder else ""
        entries: dict[str, dict[str, Any]] = {}
        for path, file in self.files.items():
            rest = path.removeprefix(inside)
            if not path.startswith(inside):
                continue
            if "/" in rest and not recursive:
                name = inside + rest.split("/")[0]
                entries[name] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
            else:
                large = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
                entries[path] = {"type": "file", "oid": "0" * 40, "size": file.size, "path": path, "lfs": large}
        return list(entries.values())
