"""Headers over HTTP: the same as from the disk, for a few megabytes, from servers of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.models.gguf import GgufHeader, ModelFileError, read_header
from app.models.hub import api
from app.models.hub.api import LARGEST_PIECE, read_remote_header
from app.models.hub.network import Network, NetworkSettings
from app.models.hub.repository import NoAccessError, NotFoundError, RefusedError, RemoteModel, UnreachableError, group
from app.system import KnownError
from tests.support.gguf_files import make_model, make_vocabulary_file
from tests.support.hub_faults import Fault
from tests.support.hub_server import CDN_HOST, HubServer

ID = "maker/model"
FILE = "model-Q4_K_M.gguf"


def hosted(server: HubServer, *paths: Path, **about: Any) -> RemoteModel:
    """The files as one model of a repository."""
    server.add(ID, {path.name: path for path in paths}, **about)
    (model,) = group(server.remote_file(ID, path.name) for path in paths)
    return model


def facts(header: GgufHeader) -> dict[str, Any]:
    left_out = ("path", "tokenizer", "metadata", "split")
    assert header.tokenizer is not None
    own = {name: value for name, value in msgspec.structs.asdict(header).items() if name not in left_out}
    return own | {"tokens": header.tokenizer.fingerprint, "keys": list(header.metadata)}


def test_a_large_vocabulary_costs_little_more_than_the_header(
    tmp_path: Path, server: HubServer, network: Network
) -> None:
    path = make_model(tmp_path / FILE, tokenizer="gpt2", vocab_size=80_000, width=32, heads=1, layers=1)
    local = read_header(path)
    remote = read_remote_header(network, hosted(server, path))
    assert facts(remote) == facts(local)
    fetched, needed = sum(request.sent for request in server.bodies()), min(tensor.offset for tensor in local.tensors)
    assert 1_000_000 < needed <= fetched <= needed + LARGEST_PIECE
    assert fetched < path.stat().st_size / 2
    assert sum(entry.received for entry in network.traffic()) <= fetched
    assert {entry.purpose for entry in network.traffic()} == {"model header"}


def test_all_parts_of_a_split_model(
    tmp_path: Path, server: HubServer, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_model(tmp_path / "split.gguf", max_tensors_per_file=8)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    model = hosted(server, *parts)
    remote = read_remote_header(network, model)
    assert facts(remote) == facts(read_header(first))
    assert remote.file_size == sum(part.stat().st_size for part in parts)
    assert remote.split is not None
    assert not remote.split.missing
    monkeypatch.setattr(api, "MAX_FETCHED", 100)
    with pytest.raises(ModelFileError, match="the headers of its parts are too large"):
        read_remote_header(network, model)


def test_files_that_are_no_models_get_the_same_sentence(tmp_path: Path, server: HubServer, network: Network) -> None:
    path = make_vocabulary_file(tmp_path / FILE)
    with pytest.raises(ModelFileError, match="contains only a vocabulary"):
        read_remote_header(network, hosted(server, path))
    path.write_bytes(b"<html>no model" * 100)
    with pytest.raises(ModelFileError, match="is a web page"):
        read_remote_header(network, hosted(server, path))
    path.write_bytes(make_model(tmp_path / "whole.gguf").read_bytes()[:5000])
    with pytest.raises(ModelFileError, match="is incomplete"):
        read_remote_header(network, hosted(server, path))


def test_a_server_that_ignores_ranges_does_not_send_it_all(tmp_path: Path, server: HubServer, network: Network) -> None:
    path = tmp_path / FILE
    with path.open("wb") as file:
        file.truncate(300_000_000)
    model = hosted(server, path)
    server.faults.always(FILE, Fault(ignore_range=True))
    with pytest.raises(KnownError, match=rf"^{CDN_HOST} doesn't send parts of files"):
        read_remote_header(network, model)
    assert server.bodies()[0].sent < 50_000_000
    assert network.traffic()[0].received == 0


@pytest.mark.parametrize(
    ("fault", "kind", "sentence"),
    [
        (Fault(headers=(("Content-Range", "bytes 7-9/10"),)), ModelFileError, "isn't as large as its page says"),
        (Fault(headers=(("Content-Range", ""),)), ModelFileError, "isn't as large as its page says"),
        (Fault(headers=(("Content-Encoding", "gzip"),)), RefusedError, "in an unexpected format"),
        (Fault(status=416), ModelFileError, "isn't as large as its page says"),
        (Fault(status=429), UnreachableError, "Too many requests"),
        (Fault(status=500), UnreachableError, "has a problem"),
        (Fault(cut_at=1000), UnreachableError, "was lost"),
    ],
)
def test_servers_that_misbehave(
    tmp_path: Path, server: HubServer, network: Network, fault: Fault, kind: type[KnownError], sentence: str
) -> None:
    model = hosted(server, make_model(tmp_path / FILE))
    server.faults.add(FILE, fault)
    with pytest.raises(kind, match=sentence):
        read_remote_header(network, model)


def test_a_file_that_is_gone(tmp_path: Path, server: HubServer, network: Network) -> None:
    model = hosted(server, make_model(tmp_path / FILE))
    server.add(ID, {"other.gguf": b"other"}, commit=model.files[0].commit)
    with pytest.raises(NotFoundError, match="doesn't have this file"):
        read_remote_header(network, model)


@pytest.mark.parametrize(
    ("token", "sentence"), [(None, "accept its terms on its page first"), ("hf_stranger", "doesn't give you access")]
)
def test_gated(tmp_path: Path, server: HubServer, token: str | None, sentence: str) -> None:
    model = hosted(server, make_model(tmp_path / FILE), gated="auto")
    settings = NetworkSettings(endpoint=server.endpoint, token_to_mirror=True)
    with pytest.raises(NoAccessError, match=sentence) as caught:
        read_remote_header(Network(settings, lambda: token), model)
    assert caught.value.page == f"{server.endpoint}/{ID}"
    assert read_remote_header(Network(settings, lambda: "hf_good"), model).layers == 2
