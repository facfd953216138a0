"""A recommended model and what accelerates it become one download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.models.hub.api import Hub
from app.models.hub.catalog import (
    Accelerator,
    Alternate,
    CatalogFile,
    CatalogModel,
    DraftModel,
    NGrams,
    Offer,
    Sidecar,
    load_catalog,
)
from app.models.hub.catalog_items import places, resolve
from app.models.hub.network import Network
from app.models.hub.repository import NotFoundError
from app.system import KnownError
from tests.support.hub_server import HubServer

HEAD = Sidecar(architecture="qwen35", file="mtp-m.gguf", size=1)
DRAFT = DraftModel(
    title="Small",
    repository="maker/small",
    file="small-Q8_0.gguf",
    quantization="Q8_0",
    size=1,
    kv_per_token=1,
    license="mit",
)


def offer(accelerator: Accelerator | None = None, **values: Any) -> Offer:
    values = {"repository": "maker/m", "file": "m-Q4_K_M.gguf", "quantization": "Q4_K_M", **values}
    accelerator = accelerator or NGrams()
    file = CatalogFile(size=1, gpu=8, context=8192, accelerator=accelerator, **values)
    model = CatalogModel(
        id="m", title="Model", kind="chat", why="For tests.", license="apache-2.0", files=[file], kv_per_token=1
    )
    return Offer.of(model, file, metal=False)


def test_every_file_of_the_catalog_becomes_one_item(
    server: HubServer, network: Network, files: dict[str, Path]
) -> None:
    """The first file of each model, and all with another kind of accelerator."""
    offers = [Offer.of(model, file, metal=False) for model in load_catalog().models for file in model.files]
    offers = list({(one.model.id, type(one.accelerator)): one for one in offers}.values())
    hosted: dict[str, dict[str, bytes | Path]] = {}
    for one in offers:
        accelerator = one.accelerator
        hosted.setdefault(one.file.repository, {})[one.file.file] = one.file.file.encode()
        if isinstance(accelerator, Sidecar):
            beside = hosted.setdefault(accelerator.repository or one.file.repository, {})
            beside[accelerator.file] = files["assistant"]
        elif isinstance(accelerator, DraftModel):
            hosted.setdefault(accelerator.repository, {})[accelerator.file] = b"draft"
    for repository, content in hosted.items():
        server.add(repository, {**content, "other-Q2_K.gguf": b"other", "README.md": b"hi"})
    for one in offers:
        item = resolve(Hub(network), one, metal=False)
        assert item.target == (server.remote_file(one.file.repository, one.file.file),)
        assert bool(item.head) == isinstance(one.accelerator, Sidecar)
        assert bool(item.draft) == isinstance(one.accelerator, DraftModel)
        assert item.title.endswith("with MTP head") == bool(item.head)
    assert item.id == resolve(Hub(network), one, metal=False).id


def test_a_head_is_told_by_its_header(server: HubServer, network: Network, files: dict[str, Path]) -> None:
    with_head = offer(HEAD)
    server.add("maker/m", {"m-Q4_K_M.gguf": b"model", "MTP/mtp-m.gguf": files["head"]})
    item = resolve(Hub(network), with_head)
    assert item.head == (server.remote_file("maker/m", "MTP/mtp-m.gguf"),)
    assert item.title == "Model Q4_K_M with MTP head"
    for not_a_head in ("plain", "assistant", "other"):
        server.add("maker/m", {"m-Q4_K_M.gguf": b"model", "mtp-m.gguf": files[not_a_head]})
        item = resolve(Hub(network), with_head)
        assert (item.head, item.title) == ((), "Model Q4_K_M")


def test_a_draft(server: HubServer, network: Network) -> None:
    server.add("maker/m", {"m-Q4_K_M.gguf": b"model"}, license="")
    with pytest.raises(NotFoundError):
        resolve(Hub(network), offer(DRAFT))
    server.add("maker/small", {"small-Q2_K.gguf": b"small"})
    with pytest.raises(KnownError, match=r"no longer offers small-Q8_0.gguf"):
        resolve(Hub(network), offer(DRAFT))
    server.add("maker/small", {"small-Q8_0.gguf": b"small"}, license="mit")
    item = resolve(Hub(network), offer(DRAFT))
    assert item.draft == (server.remote_file("maker/small", "small-Q8_0.gguf"),)
    assert (item.title, item.license) == ("Model Q4_K_M with draft", "apache-2.0, mit")


def test_another_spelling(server: HubServer, network: Network) -> None:
    both = offer(
        alternates=[
            Alternate(repository="maker/m", file="model.Q4_K_M.gguf", quantization="Q4_K_M"),
            Alternate(repository="b/m", file="m-q4_k_m.gguf", quantization="Q4_K_M"),
        ]
    )
    with pytest.raises(NotFoundError, match="maker/m"):
        resolve(Hub(network), both)
    server.add("maker/m", {"m-Q8_0.gguf": b"other"})
    with pytest.raises(KnownError, match=r"maker/m no longer offers m-Q4_K_M\.gguf"):
        resolve(Hub(network), both)
    server.add("b/m", {"M-Q4_K_M.gguf": b"model"})
    assert resolve(Hub(network), both).target[0].repository == "b/m"
    server.add("maker/m", {"model.Q4_K_M.gguf": b"model"})
    assert resolve(Hub(network), both).target[0].path == "model.Q4_K_M.gguf"
    del server.repositories["b/m"]
    server.add("maker/m", {"M-Q4_K_M.gguf": b"model"})
    assert resolve(Hub(network), both).target[0].path == "M-Q4_K_M.gguf"


def test_on_a_mac_the_quicker_file_comes_first(server: HubServer, network: Network) -> None:
    plain = Alternate(repository="b/m", file="m-Q4_0.gguf", quantization="Q4_0", metal=True)
    both = offer(alternates=[plain])
    server.add("maker/m", {"m-Q4_K_M.gguf": b"model"})
    assert resolve(Hub(network), both, metal=True).target[0].repository == "maker/m"
    server.add("b/m", {"m-Q4_0.gguf": b"plain"})
    item = resolve(Hub(network), both, metal=True)
    assert (item.target[0].repository, item.title) == ("b/m", "Model Q4_0")
    assert resolve(Hub(network), both, metal=False).target[0].repository == "maker/m"
    assert list(places(both, metal=False)) == [both.file]
