"""Recommended models with their accelerators and memory needs: ``resources/catalog.json``.

The file has sources, approximate sizes, sampling and thinking settings, and measurements with their authors. Commits,
sizes and checksums are looked up before a download (`app.models.hub.catalog_items`).
"""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from app import system
from app.models.heads import can_compute
from app.models.machine_memory import MachineMemory
from app.models.names import base_name
from app.protocol.answering import SamplingChoice
from app.protocol.events import Device
from app.protocol.options import snapshots_for

BUFFER_BYTES = 600_000_000
"""A generous estimate of llama.cpp's compute buffers, with a head or a draft."""
_RESERVED_BYTES = 1_000_000_000
"""The fraction of system memory left for other programs."""
_USABLE_SHARE = 0.95
"""The assumed memory of a GPU whose free memory is unknown."""
_LEAST_GB = 900_000_000
"""The fewest bytes that count as "1 GB", because systems reserve some memory."""

Place = Literal["gpu", "processor"]
Text = Annotated[str, Meta(min_length=1, max_length=300)]
Bytes = Annotated[int, Meta(ge=1)]
RepositoryName = Annotated[str, Meta(pattern=r"^[\w.-]+/[\w.-]+$")]
FileName = Annotated[str, Meta(pattern=r"\.gguf$")]
"""The first part's name, if there are more; ``*`` matches anything, and case is ignored."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class CatalogSampling(SamplingChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sampling recommended by a model's authors, as far as they give one."""


class Advice(_Struct, frozen=True, kw_only=True):
    """How to use a model, according to its authors or to people who tried it."""

    plain: CatalogSampling = CatalogSampling()
    """Without thinking."""
    thinking: CatalogSampling | None = None
    """With thinking; ``None`` for the same."""
    level: Annotated[str, Meta(max_length=20)] = ""
    """The default thinking level, which sets the chat template's variables (`app.engine.decoding.thinking`): ``medium``
    is ``reasoning_effort="medium"``. Empty for the template's default.
    """

    def sampling(self, *, thinks: bool) -> CatalogSampling:
        """The sampling with or without thinking."""
        return self.thinking if thinks and self.thinking is not None else self.plain


# ---------------------------------------------------------------- accelerators


class Inside(_Struct, frozen=True, kw_only=True, tag_field="kind", tag="inside"):
    """An MTP head inside the model's file."""

    architecture: Text
    """The head's architecture in the header: `app.models.heads` says whether this version can run it."""


class Sidecar(_Struct, frozen=True, kw_only=True, tag_field="kind", tag="sidecar"):
    """A head in a separate file, downloaded with the model. Sizes in bytes."""

    architecture: Text
    repository: RepositoryName | None = None
    """``None`` for the model's."""
    file: FileName
    size: Bytes


class DraftModel(_Struct, frozen=True, kw_only=True, tag_field="kind", tag="draft"):
    """A small model, downloaded with the model. Sizes in bytes."""

    title: Text
    repository: RepositoryName
    file: FileName
    quantization: Text
    size: Bytes
    kv_per_token: Bytes
    license: Text


class NGrams(_Struct, frozen=True, kw_only=True, tag_field="kind", tag="ngram"):
    """Needs no files: drafts come from the chat itself."""


Accelerator = Inside | Sidecar | DraftModel | NGrams


# ---------------------------------------------------------------- models


class Alternate(_Struct, frozen=True, kw_only=True):
    """An alternative file."""

    repository: RepositoryName
    file: FileName
    quantization: Text
    metal: bool = False
    """Preferred on a Mac; others are for when the usual file is gone."""


class CatalogFile(_Struct, frozen=True, kw_only=True):
    """A quantization of a model for a size of memory. Sizes in bytes."""

    repository: RepositoryName
    file: FileName
    quantization: Text
    size: Bytes
    """The approximate size of all its files."""
    gpu: Literal[4, 6, 8, 12, 16, 24, 32, 48] | None = None
    """GB of the smallest common GPU it is meant for; ``None`` if it isn't for GPUs."""
    processor: Literal[4, 8, 16] | None = None
    """GB of memory of the smallest computer without a GPU on which it is fast enough."""
    context: Annotated[int, Meta(ge=1024)]
    """The context length in tokens for the memory estimate."""
    accelerator: Accelerator
    alternates: list[Alternate] = []


class VisionFile(_Struct, frozen=True, kw_only=True):
    """What a model needs to see images (``mmproj``). Size in bytes."""

    file: FileName
    """The path in the model's repository."""
    size: Bytes | None = None


class Measured(_Struct, frozen=True, kw_only=True):
    """A measurement by others. Nothing in the catalog was measured by us."""

    result: Text
    hardware: Text
    source: Text
    """The author or the publication."""


class CatalogModel(_Struct, frozen=True, kw_only=True):
    """A recommended model. Sizes in bytes."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9.-]+$")]
    title: Text
    kind: Literal["chat", "code"]
    why: Text
    license: Text
    license_note: Annotated[str, Meta(max_length=300)] = ""
    """What to know before using it; empty for the usual free licenses."""
    files: Annotated[list[CatalogFile], Meta(min_length=1)]
    """From the smallest memory to the largest."""
    kv_per_token: Bytes
    """KV cache per token of the layers with full context, in F16: 2 × layers × KV heads × head width × 2 bytes."""
    window: Annotated[int, Meta(ge=0)] = 0
    """KV cache of the sliding-window layers, independent of the context length."""
    state: Annotated[int, Meta(ge=0)] = 0
    """Recurrent state of one sequence; a snapshot for rolling back takes the same again."""
    mmproj: VisionFile | None = None
    advice: Advice = Advice()
    advice_for: list[Text] = []
    """Other names of this model, and related models that are used the same way."""
    measured: list[Measured] = []


class Known(_Struct, frozen=True, kw_only=True):
    """A model that isn't recommended, but whose makers say how to use it."""

    names: Annotated[list[Text], Meta(min_length=1)]
    """As `CatalogModel.advice_for`."""
    advice: Advice


class PublishedHead(_Struct, frozen=True, kw_only=True):
    """An EAGLE-3 head in a repository of its own."""

    names: Annotated[list[Text], Meta(min_length=1)]
    """Of the model it was trained for, as `CatalogModel.advice_for`."""
    repository: RepositoryName
    source: Text
    """Who says so."""


class Offer(NamedTuple):
    """One file of a model, with its accelerators in this version on this system."""

    model: CatalogModel
    file: CatalogFile
    accelerator: Accelerator

    @classmethod
    def of(cls, model: CatalogModel, file: CatalogFile, *, metal: bool = sys.platform == "darwin") -> Offer:
        """``metal``: it runs on a Mac's GPU, where heads of dense models were measured to cost time."""
        accelerator: Accelerator = file.accelerator
        if isinstance(accelerator, Inside | Sidecar) and (metal or not can_compute(accelerator.architecture)):
            accelerator = NGrams()
        return cls(model, file, accelerator)

    @property
    def size(self) -> int:
        """The approximate download size in bytes."""
        extra = self.accelerator.size if isinstance(self.accelerator, Sidecar | DraftModel) else 0
        return self.file.size + extra

    @property
    def needed(self) -> int:
        """The approximate total memory in bytes, with F16 KV caches and snapshots of a recurrent state."""
        model = self.model
        kv = model.kv_per_token
        if isinstance(self.accelerator, DraftModel):
            kv += self.accelerator.kv_per_token
        states = model.state * (1 + snapshots_for(model.state, self.file.size))
        return self.size + kv * self.file.context + model.window + states + BUFFER_BYTES

    def fits(self, place: Place, total: int, free: int) -> bool:
        """Whether it is meant for this memory (bytes), and fits now."""
        memory = self.file.gpu if place == "gpu" else self.file.processor
        return memory is not None and memory * _LEAST_GB <= total and self.needed <= free


class Catalog(_Struct, frozen=True, kw_only=True):
    """The whole file; models for the same memory in order of recommendation."""

    notes: list[Text]
    """The source of its facts."""
    models: list[CatalogModel]
    known: list[Known] = []
    heads: list[PublishedHead] = []

    def propose(self, machine: MachineMemory) -> Offer | None:
        """The best chat model that fits this machine now; ``None`` for the bundled guide only.

        On a GPU the one for the largest memory; on a CPU the first one, because small ones are fast enough there. Never
        proposes a model with a license caveat.
        """
        free = [model for model in self.models if model.kind == "chat" and not model.license_note]
        chat = [Offer.of(model, file) for model in free for file in model.files]
        on_gpu = [offer for offer in chat if offer.fits(*_gpus(machine))]
        if on_gpu:
            return max(on_gpu, key=lambda offer: offer.file.gpu or 0)
        return next((offer for offer in chat if offer.fits(*_processor(machine))), None)

    def offers(self, machine: MachineMemory) -> list[Offer]:
        """One offer per model: its largest file that fits this machine now, otherwise its smallest."""
        places = _gpus(machine), _processor(machine)
        chosen = []
        for model in self.models:
            offers = [Offer.of(model, file) for file in model.files]
            fitting = [offer for offer in offers if any(offer.fits(*place) for place in places)]
            chosen.append((fitting or offers[:1])[-1])
        return chosen

    def advice_for(self, *names: str) -> Advice:
        """How to use a model with one of these names (of or in the file), in any quantization."""
        wanted = {base_name(name) for name in names} - {""}
        found = (model.advice for model in self.models if wanted & _names(model))
        known = (one.advice for one in self.known if wanted & set(map(base_name, one.names)))
        return next(itertools.chain(found, known), Advice())

    def heads_for(self, *names: str) -> list[PublishedHead]:
        """The heads for a model with one of these names."""
        wanted = {base_name(name) for name in names} - {""}
        return [head for head in self.heads if wanted & set(map(base_name, head.names))]

    def seeing(self, *names: str) -> CatalogModel | None:
        """The model with one of these names, as in `advice_for`, if it can see images; not a related model."""
        wanted = {base_name(name) for name in names} - {""}
        return next((model for model in self.models if model.mmproj and wanted & _own_names(model)), None)


def _own_names(model: CatalogModel) -> set[str]:
    return {name for name in _names(model) if name.startswith(base_name(model.title))}


def _names(model: CatalogModel) -> set[str]:
    files = (name for file in model.files for name in (file.file, *(one.file for one in file.alternates)))
    return {base_name(name) for name in (*files, model.title, *model.advice_for) if "*" not in name}


@functools.cache
def load_catalog() -> Catalog:
    """The catalog of this version."""
    return system.decode(system.resource("catalog.json").read_bytes(), Catalog)


def _gpus(machine: MachineMemory) -> tuple[Place, int, int]:
    """Total and free bytes for models: on all GPUs with separate memory, over which llama.cpp splits a model.

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
