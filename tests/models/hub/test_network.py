"""The rules of the network, against real servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
import pytest

from app import __version__
from app.models.hub.api import Hub
from app.models.hub.network import Network, NetworkSettings
from app.models.hub.repository import RefusedError, UnreachableError
from tests.support.certificates import self_signed
from tests.support.hub_faults import Fault
from tests.support.hub_server import CDN_HOST, HubServer

FILE = "model-Q4_K_M.gguf"


@pytest.fixture
def hub(server: HubServer) -> HubServer:
    server.add("maker/model", {FILE: b"weights " * 1000})
    return server


class Asker(Network):
    """A network that reads whole answers, as only tests may: nothing says how long they are."""

    def get(self, url: str, *, purpose: str, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        with self.stream(url, purpose=purpose, headers=headers) as response:
            response.read()
            return response


def network(hub: HubServer, *, token: str | None = None, to_mirror: bool = False, stall_seconds: float = 20.0) -> Asker:
    settings = NetworkSettings(endpoint=hub.endpoint, token_to_mirror=to_mirror, stall_seconds=stall_seconds)
    return Asker(settings, lambda: token)


def url(hub: HubServer) -> str:
    return f"{hub.endpoint}/maker/model/resolve/{hub.repositories['maker/model'].commit}/{FILE}"


def test_content_and_who_we_are(hub: HubServer) -> None:
    response = network(hub).get(url(hub), purpose="download")
    assert (response.status_code, response.content) == (200, b"weights " * 1000)
    assert [request.host for request in hub.requests] == ["hub", "cdn"]
    assert {request.headers["user-agent"] for request in hub.requests} == {f"Slipstream/{__version__}"}
    assert {request.headers["accept-encoding"] for request in hub.requests} == {"identity"}


def test_the_token_goes_to_the_hub_and_not_to_the_cdn_nor_elsewhere(hub: HubServer) -> None:
    one = network(hub, token="hf_good", to_mirror=True)
    one.get(url(hub), purpose="download")
    assert [(request.host, request.authorization) for request in hub.requests] == [
        ("hub", "Bearer hf_good"),
        ("cdn", None),
    ]
    with HubServer(cdn=False) as other:
        other.add("maker/model", {FILE: b"other"}, commit=hub.repositories["maker/model"].commit)
        hub.faults.add(FILE, Fault(redirect=url(other)), at="resolve")
        assert one.get(url(hub), purpose="download").content == b"other"
        assert [request.authorization for request in other.requests] == [None]


def test_no_token_for_a_mirror_unless_asked(hub: HubServer) -> None:
    one = network(hub, token="hf_good")
    one.get(url(hub), purpose="download")
    headers = {"Authorization": "Bearer hf_good"}
    one.get(url(hub), purpose="download", headers=headers)
    assert {request.authorization for request in hub.requests} == {None}


def test_a_token_of_other_settings_is_not_sent(hub: HubServer) -> None:
    def token() -> str:
        one.settings = NetworkSettings()  # meanwhile the user goes back to huggingface.co, and this is its token
        return "hf_good"

    one = Asker(NetworkSettings(endpoint=hub.endpoint, token_to_mirror=True), token)
    with pytest.raises(RefusedError, match="would not be encrypted"):  # the CDN of this hub, by then
        one.get(url(hub), purpose="download")
    assert [request.authorization for request in hub.requests] == [None]


def test_offline_asks_nobody(hub: HubServer) -> None:
    one = network(hub)
    one.settings = NetworkSettings(endpoint=hub.endpoint, offline=True)
    with pytest.raises(RefusedError, match="offline"):
        one.get(url(hub), purpose="download")
    with pytest.raises(RefusedError, match="offline"):
        one.hub_api().model_info("maker/model")
    assert hub.requests == [] and one.traffic() == []


@pytest.mark.parametrize(
    "address", ["http://example.org", "ftp://example.org", "example.org", "https://", "http://[::bad"]
)
def test_only_safe_endpoints(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="isn't safe"):
        _ = Asker(NetworkSettings(endpoint=address)).endpoint
    one = Asker(NetworkSettings())
    assert one.endpoint == "https://huggingface.co"
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert one.endpoint == "https://mirror.example"
    assert Network(NetworkSettings(endpoint="https://own.example")).endpoint == "https://own.example"


def test_never_on_without_encryption(hub: HubServer) -> None:
    hub.faults.add(FILE, Fault(redirect="http://example.org/file"), at="resolve")
    with pytest.raises(RefusedError, match="would not be encrypted"):
        network(hub).get(url(hub), purpose="download")
    outside = Asker(NetworkSettings(endpoint="https://mirror.example"))
    with pytest.raises(RefusedError, match="would not be encrypted"):
        outside.get(url(hub), purpose="download")


def test_redirects_without_an_end(hub: HubServer) -> None:
    hub.faults.always(FILE, Fault(redirect=url(hub)), at="resolve")
    with pytest.raises(RefusedError, match="keeps redirecting"):
        network(hub).get(url(hub), purpose="download")


def test_nobody_there_and_lines_that_break(hub: HubServer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = Asker(NetworkSettings(endpoint=f"http://127.0.0.1:{port}"))
    with pytest.raises(UnreachableError, match=r"can't be reached"):
        one.get(f"{one.endpoint}/x", purpose="search")
    hub.faults.add(FILE, Fault(cut_at=100), Fault(stall_at=100))
    with pytest.raises(UnreachableError, match="was lost"):
        network(hub).get(url(hub), purpose="download")
    with pytest.raises(UnreachableError, match="stopped responding"):
        network(hub, stall_seconds=0.2).get(url(hub), purpose="download")


def test_what_was_asked_is_listed(hub: HubServer) -> None:
    one = network(hub)
    with one.purpose("search"):
        assert [model.id for model in one.hub_api().list_models(search="model")] == ["maker/model"]
    one.get(url(hub), purpose="download")
    newest, redirect, search = one.traffic()
    assert (newest.host, newest.purpose, newest.received) == (CDN_HOST, "download", 8000)
    assert (redirect.host, redirect.received) == ("127.0.0.1", 0)
    assert search.purpose == "search" and search.received > 100
    hub.faults.add(FILE, Fault(redirect=f"http://{CDN_HOST}:9/"), at="resolve")  # where nobody answers
    with pytest.raises(UnreachableError, match=f"^{CDN_HOST} can't be reached"):
        one.get(url(hub), purpose="download")
    assert [(entry.host, entry.received) for entry in one.traffic()[:2]] == [(CDN_HOST, 0), ("127.0.0.1", 0)]


def test_huggingface_hub_goes_the_same_way(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    api = network(hub, token="hf_good", to_mirror=True).hub_api()
    info = api.model_info("maker/model", files_metadata=True)
    assert info.siblings is not None and info.siblings[0].lfs is not None
    file = hub.remote_file("maker/model", FILE)
    assert (info.sha, info.siblings[0].size, info.siblings[0].lfs.sha256) == (file.commit, file.size, file.sha256)
    assert [entry.path for entry in api.list_repo_tree("maker/model", recursive=True)] == [FILE]
    assert {request.authorization for request in hub.requests} == {"Bearer hf_good"}
    assert {request.headers["user-agent"] for request in hub.requests} == {f"Slipstream/{__version__}"}


class ClosedMeanwhile(Asker):
    """Closed by another thread just before each request."""

    @contextlib.contextmanager
    def purpose(self, purpose: str) -> Iterator[None]:
        self.close()
        with super().purpose(purpose):
            yield


def test_a_request_that_begins_while_the_network_is_closed(hub: HubServer) -> None:
    one = ClosedMeanwhile(NetworkSettings(endpoint=hub.endpoint))
    with pytest.raises(UnreachableError, match=r"The connection to 127\.0\.0\.1 was lost\."):
        one.get(url(hub), purpose="model header")


class Proxy:
    """A proxy that answers whatever it is asked for by itself."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.asked = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            while b"\r\n\r\n" not in self.asked:
                self.asked += connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nproxy")

    def close(self) -> None:
        self._server.close()
        self._thread.join(5)


def test_the_proxy_of_the_environment_is_used(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    monkeypatch.setenv("HTTP_PROXY", proxy.address)
    try:
        assert network(hub).get(url(hub), purpose="download").content == b"proxy"
    finally:
        proxy.close()
    assert proxy.asked.startswith(f"GET {url(hub)} HTTP/1.1".encode()) and hub.requests == []
    monkeypatch.setenv("NO_PROXY", f"127.0.0.1,{CDN_HOST}")
    assert network(hub).get(url(hub), purpose="download").content == b"weights " * 1000


@pytest.mark.parametrize("proxy", ["socks://me:secret@127.0.0.1:1080", "socks5://me:secret@127.0.0.1:1080"])
def test_a_proxy_that_cannot_be_used_is_said(hub: HubServer, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    for ask in (lambda one: one.get(url(hub), purpose="download"), lambda one: Hub(one).search("model")):
        with pytest.raises(RefusedError, match="proxy") as caught:
            ask(network(hub))
        assert "secret" not in str(caught.value)
    assert hub.requests == []


def test_certificates_that_are_not_there_are_said(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/own.pem")
    with pytest.raises(RefusedError, match="SSL_CERT_FILE"):
        network(hub).get(url(hub), purpose="download")


def test_an_own_certificate_of_the_system_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, certificate = b"weights " * 500_000, self_signed(tmp_path)
    with HubServer(certificate=certificate) as hub:
        hub.add("maker/model", {FILE: content})
        one = network(hub, token="hf_good", to_mirror=True)
        with pytest.raises(UnreachableError, match=r"doesn't trust the certificate of 127\.0\.0\.1"):
            one.get(url(hub), purpose="download")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        one.close()
        hub.faults.add(FILE, Fault(stall_at=1_000_000))
        with one.stream(url(hub), purpose="download") as response:

            def check(count: int) -> None:
                if count == 0:
                    hub.release()

            assert b"".join(one.read_body(response, check)) == content
        assert [request.authorization for request in hub.requests] == ["Bearer hf_good", None]
        assert one.traffic()[0].received == len(content)
