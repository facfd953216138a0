"""Heads on the hub are told by headers, never by names."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models import heads as model_heads
from app.models.gguf import ModelFileError
from app.models.hub.api import Hub
from app.models.hub.drafts import HubModel, look_at
from app.models.hub.network import Network
from app.system import KnownError
from tests.support.hub_server import HubServer


def looked_at(server: HubServer, network: Network, hosted: dict[str, Path], name: str = "") -> HubModel:
    """A model of a repository with these files."""
    server.add("owner/one", dict(hosted))
    repository = Hub(network).repository("owner/one")
    model = next(model for model in repository.models if name in model.name)
    return look_at(network, model, repository.heads)


def test_a_head_inside(server: HubServer, network: Network, files: dict[str, Path]) -> None:
    found = looked_at(server, network, {"m-Q4_0.gguf": files["inside"], "mtp-m.gguf": files["head"]})
    assert (found.place, found.head, found.can_run) == ("inside", None, True)
    assert not server.bodies("mtp-m.gguf")


def test_a_head_beside(server: HubServer, network: Network, files: dict[str, Path]) -> None:
    found = looked_at(server, network, {"m-Q4_0.gguf": files["plain"], "MTP/mtp-m-Q4_0.gguf": files["head"]})
    assert found.place == "beside" and found.can_run
    assert found.head is not None and found.head.files == (server.remote_file("owner/one", "MTP/mtp-m-Q4_0.gguf"),)
    heads = {"mtp-a.gguf": files["other"], "mtp-b.gguf": files["assistant"]}  # only the name promises one
    found = looked_at(server, network, {"m-Q4_0.gguf": files["plain"], **heads})
    assert (found.place, found.head) == ("none", None)


def test_an_eagle3_head_beside_and_alone(server: HubServer, network: Network, files: dict[str, Path]) -> None:
    hosted = {"m-Q4_0.gguf": files["llama"], "eagle3-m-Q8_0.gguf": files["eagle3"]}
    found = looked_at(server, network, hosted)
    assert (found.place, found.title, found.can_run) == ("beside", "EAGLE-3 head", True)
    assert found.head is not None and found.head.name == "eagle3-m-Q8_0.gguf"
    assert looked_at(server, network, {"m-Q4_0.gguf": files["gemma"], "m-EAGLE3.gguf": files["eagle3"]}).head is None
    named_as_a_model = looked_at(server, network, {"m-Q8_0.gguf": files["eagle3"]})
    assert (named_as_a_model.place, named_as_a_model.title) == ("alone", "EAGLE-3 head")


def test_an_mtp_head_goes_before_an_eagle3_head(
    server: HubServer, network: Network, files: dict[str, Path], tmp_path: Path
) -> None:
    """Whatever their sizes are."""
    tiny = tmp_path / "tiny"
    tiny.write_bytes(bytes(8))
    hosted = {"m-Q4_0.gguf": files["plain"], "eagle3-m.gguf": tiny, "mtp-m.gguf": files["head"]}
    found = looked_at(server, network, hosted)
    assert found.title == "MTP head" and not server.bodies("eagle3-m.gguf")


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_a_head_that_this_version_cannot_use(
    server: HubServer, network: Network, files: dict[str, Path], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_heads, "ARCHITECTURES", ())
    model = files["inside" if where == "inside" else "plain"]
    found = looked_at(server, network, {"m-Q4_0.gguf": model, "mtp-m.gguf": files["head"]})
    assert (found.place, found.can_run) == (where, False)


def test_what_is_no_model_and_what_cannot_be_fetched(
    server: HubServer, network: Network, files: dict[str, Path], tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no model")
    with pytest.raises(ModelFileError):
        looked_at(server, network, {"m.gguf": text})
    server.add("owner/one", {"m-Q4_0.gguf": files["plain"], "mtp-m.gguf": files["head"]})
    repository = Hub(network).repository("owner/one")
    del server.repositories["owner/one"].files["mtp-m.gguf"]
    with pytest.raises(KnownError):
        look_at(network, repository.models[0], repository.heads)


def test_heads_are_not_among_the_models(server: HubServer, network: Network) -> None:
    heads = ["mtp-m-Q8_0.gguf", "MTP/mtp-m-Q4_0.gguf", "nextn-m.gguf", "m-mtp-only.gguf"]
    heads += [
        "eagle3-m.gguf",
        "Qwen3-8B_eagle3.Q4_K_M.gguf",
        "Q-PRISM-EAGLE3-Q8_0.gguf",
        "m-Eagle-3.gguf",
        "gemma-4-26B-A4B-it-speculator.eagle3-Q8_0.gguf",
    ]
    names = ["m-Q4_0.gguf", *heads, "mmproj-m.gguf"]
    server.add("owner/one", {name: bytes(length + 1) for length, name in enumerate(names)})
    repository = Hub(network).repository("owner/one")
    assert [model.files[0].path for model in repository.models] == ["m-Q4_0.gguf"]
    assert [model.files[0].path for model in repository.heads] == heads
