"""Recommended pairs of target and draft, by the memory they take: ``resources/catalog.json``.

The file says what to download and its approximate size. Commits, sizes and checksums are looked up before the download.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from app import paths
from app.errors import KnownError
from app.models.downloads.item import Item
from app.models.hub.repository import RemoteModel, Repository, base_name
from app.models.machine_memory import MachineMemory
from app.protocol.devices import Device

if TYPE_CHECKING:
    from app.models.hub.api import Hub  # the first start suggests a pair without the network

BUFFER_BYTES = 600_000_000
"""What llama.cpp needs for computing, both models together; a generous estimate."""
_RESERVED_BYTES = 1_000_000_000
"""The part of the system's memory left for other programs."""
_USABLE_SHARE = 0.95
"""The memory of a GPU whose free memory is unknown."""
_LEAST_GB = 900_000_000
"""The fewest bytes that count as a memory of "1 GB", because systems keep some for themselves."""

Place = Literal["gpu", "processor"]
Text = Annotated[str, Meta(min_length=1, max_length=300)]
Bytes = Annotated[int, Meta(ge=1)]


class CatalogSampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sampling recommended by a model's authors, as far as they do: fields of the protocol's `Sampling`."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None


class CatalogModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a pair. Bytes."""

    repository: Annotated[str, Meta(pattern=r"^[\w.-]+/[\w.-]+$")]
    file: Annotated[str, Meta(pattern=r"\.gguf$")]
    """The name of its first file; ``*`` stands for anything."""
    quantization: Text
    size: Bytes
    """The approximate size of all its files."""
    kv_per_token: Bytes
    """In F16: 2 × layers × KV heads × head width × 2 bytes."""
    license: Text = msgspec.field(name="licence")
    sampling: CatalogSampling = CatalogSampling()


class CatalogPair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recommended target with its draft."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9.-]+$")]
    title: Text
    kind: Literal["chat", "code"]
    memory: Literal[4, 6, 8, 12, 16, 24, 48]
    """GB of the smallest common GPU, or computer, it is intended for."""
    runs_on: Annotated[list[Place], Meta(min_length=1)]
    """Where it is fast enough to be recommended."""
    context: Annotated[int, Meta(ge=1024)]
    """Tokens of context the memory is calculated for."""
    why: Text
    measured: bool
    """Whether we measured its speed and acceptance."""
    target: CatalogModel
    draft: CatalogModel

    @property
    def size(self) -> int:
        """The approximate number of bytes to download."""
        return self.target.size + self.draft.size

    @property
    def needed(self) -> int:
        """The approximate memory in bytes of both, with their KV caches in F16."""
        kv = (self.target.kv_per_token + self.draft.kv_per_token) * self.context
        return self.size + kv + BUFFER_BYTES

    def fits(self, place: Place, total: int, free: int) -> bool:
        """Whether it is intended for this much memory, and fits now. Bytes."""
        return place in self.runs_on and self.memory * _LEAST_GB <= total and self.needed <= free


class Catalog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; pairs of the same memory in the order they are recommended."""

    notes: list[Text]
    """The source of its facts."""
    pairs: list[CatalogPair]

    def propose(self, machine: MachineMemory) -> CatalogPair | None:
        """The best pair for chatting that fits this machine as it is now; ``None``: only the bundled guide."""
        for place, total, free in (_gpus(machine), _processor(machine)):
            fitting = [pair for pair in self.pairs if pair.kind == "chat" and pair.fits(place, total, free)]
            if fitting:
                return max(fitting, key=lambda pair: pair.memory)
        return None

    def sampling_for(self, *names: str) -> CatalogSampling:
        """The sampling for a model that has one of these names, as its file name or inside the file, in any
        quantization.
        """
        wanted = {base_name(name) for name in names} - {""}
        models = (model for pair in self.pairs for model in (pair.target, pair.draft))
        found = (model for model in models if wanted & {base_name(model.file), base_name(model.repository)})
        return next((model.sampling for model in found), CatalogSampling())


@functools.cache
def load_catalog() -> Catalog:
    """The catalog this version came with."""
    return msgspec.json.decode(paths.resource("catalog.json").read_bytes(), type=Catalog)


def resolve(hub: Hub, pair: CatalogPair) -> Item:
    """Look up a pair and make one item of it, target and draft. Raises `KnownError`, also if a file is gone."""
    repositories = [hub.repository(model.repository) for model in (pair.target, pair.draft)]
    target, draft = map(_chosen, repositories, (pair.target, pair.draft))
    # What the repositories say now takes precedence over the catalog.
    licenses = (repositories[0].license or pair.target.license, repositories[1].license or pair.draft.license)
    return Item.of(pair.title, target, draft, licenses)


def _chosen(repository: Repository, wanted: CatalogModel) -> RemoteModel:
    for model in repository.models:
        if model.quantization == wanted.quantization and fnmatchcase(model.name.lower(), wanted.file.lower()):
            return model
    raise KnownError(f"{repository.id} no longer offers {wanted.file}. Look for another file of this model.")


def _gpus(machine: MachineMemory) -> tuple[Place, int, int]:
    """Total and free bytes for models: on all GPUs with separate memory, which llama.cpp splits a model over.

    A GPU that shares the system's memory counts if there is no other, or if it has more.
    """
    own = [device for device in machine.devices if device.kind == "gpu"]
    shared = [device for device in machine.devices if device.kind == "integrated"]
    free_of_own = sum(map(_free, own))
    free_of_shared = min(max(map(_free, shared), default=0), machine.memory_free - _RESERVED_BYTES)
    if free_of_shared > free_of_own:
        return "gpu", max(device.total_bytes for device in shared), free_of_shared
    return "gpu", sum(device.total_bytes for device in own), free_of_own


def _processor(machine: MachineMemory) -> tuple[Place, int, int]:
    return "processor", machine.memory_total, machine.memory_free - _RESERVED_BYTES


def _free(device: Device) -> int:
    return device.free_bytes or int(_USABLE_SHARE * device.total_bytes)
