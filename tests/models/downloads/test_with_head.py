"""A model is downloaded with its MTP head, as a target is with its draft; and what earlier versions left goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from app.models.downloads.item import FILE_NAME, Item, ItemState
from app.models.hub.repository import RemoteModel
from tests.models.downloads.fetching import MIB
from tests.models.downloads.watched import Watched
from tests.support.hub_server import HubServer
from tests.support.vision_models import make_projector

TARGET, HEAD, DRAFT = "Q4_K_M/target.bin", "MTP/mtp-target.bin", "draft.bin"
SIZES = {TARGET: 3 * MIB, HEAD: MIB, DRAFT: MIB}

Opens = Callable[..., Watched]


@pytest.fixture
def item(hub: HubServer) -> Item:
    hub.add("maker/m", {name: bytes([number + 1]) * size for number, (name, size) in enumerate(SIZES.items())})
    target, head = (hub.remote_file("maker/m", name) for name in (TARGET, HEAD))
    return Item(id="m", title="Target with MTP head", target=(target,), head=(head,), license="mit")


def stored(folder: Path) -> list[str]:
    models = folder / "data" / "models"
    return sorted(path.relative_to(models).as_posix() for path in models.rglob("*") if path.is_file())


def test_the_head_comes_into_the_folder_of_its_model(opens: Opens, item: Item, tmp_path: Path) -> None:
    watched = opens()
    watched.queue.add(item)
    progress = watched.wait_for("m", ItemState.DONE)
    assert (progress.done, progress.item.size) == (4 * MIB, 4 * MIB)
    assert stored(tmp_path) == ["maker/m/Q4_K_M/mtp-target.bin", "maker/m/Q4_K_M/target.bin"]
    target, head = watched.queue.paths("m")
    assert head == target.with_name("mtp-target.bin")
    origin = watched.queue.origins.get(head)
    assert origin is not None and (origin.path, origin.license) == (HEAD, "mit")
    seeing = msgspec.structs.replace(item, id="s", head=(), projector=item.head)
    watched.queue.add(seeing)
    watched.wait_for("s", ItemState.DONE)
    assert watched.queue.paths("s")[1] is None, "a projector is no draft"
    watched.queue.close()
    assert opens().of("m").item == item


def test_a_pair_that_an_earlier_version_began(hub: HubServer, opens: Opens, item: Item, tmp_path: Path) -> None:
    """A pair that is no longer recommended, in a queue from before there were heads."""
    target, draft = (msgspec.to_builtins(hub.remote_file("maker/m", name)) for name in (TARGET, DRAFT))
    saved = {
        "item": {
            "id": "maker/m:0123456789abcdef maker/m:0123456789abcdef",
            "title": "Qwen2.5 1.5B with draft 0.5B",
            "target": [target],
            "draft": [draft],
            "licence": "apache-2.0",
        },
        "folder": str(tmp_path / "data" / "models"),
        "state": "running",
        "message": "",
        "page": "",
    }
    file = tmp_path / "data" / FILE_NAME
    file.parent.mkdir()
    file.write_text(json.dumps({"version": 1, "items": [saved]}), encoding="utf-8")
    watched = opens()
    watched.wait_for(saved["item"]["id"], ItemState.DONE)  # type: ignore[index]
    assert stored(tmp_path) == ["maker/m/Q4_K_M/target.bin", "maker/m/draft.bin"]
    watched.queue.close()
    assert opens().of(saved["item"]["id"]).state is ItemState.DONE  # type: ignore[index]


def test_a_projector_for_a_model_that_is_here(opens: Opens, hub: HubServer, tmp_path: Path) -> None:
    hub.add("maker/m", {"mmproj-F16.gguf": make_projector(tmp_path / "projector.gguf", "llava")})
    file = hub.remote_file("maker/m", "mmproj-F16.gguf")
    item = Item.for_model("Images", "model-Q4_0.gguf", RemoteModel(files=(file,), quantization="F16"), "mit")
    other = Item.for_model("Images", "other.gguf", RemoteModel(files=(file,), quantization="F16"))
    assert item.id != other.id
    folder = tmp_path / "mine" / "m"
    watched = opens()
    watched.queue.add(item, folder)
    watched.wait_for(item.id, ItemState.DONE)
    assert [path.name for path in folder.iterdir()] == ["model-Q4_0.mmproj-F16.gguf"]
    assert watched.queue.paths(item.id) == (folder / "model-Q4_0.gguf", None)
    watched.queue.close()
    again = opens()
    assert again.of(item.id).item == item
    assert again.queue.paths(item.id)[0] == folder / "model-Q4_0.gguf"
