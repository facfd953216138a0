"""Queries to Hugging Face: repositories, their contents, the headers of their files.

All of them block; the window runs them in a separate thread, and discards the answer if the user has moved on. Answers
are validated, because a mirror may send anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from app.models.gguf import GgufHeader, ModelFileError, check_loadable, read_header_from
from app.models.gguf_parser import MAX_HEADER_BYTES
from app.models.hub.network import Network, NetworkSettings, TokenStore, refused
from app.models.hub.repository import (
    MAX_RESULTS,
    RefusedError,
    RemoteFile,
    RemoteModel,
    Repository,
    SearchResult,
    Sort,
    block_drafters,
    file_url,
    group,
    heads,
    in_pieces,
    is_commit,
    is_repository_id,
    is_safe_path,
    vision_files,
)
from app.storage.files import is_sha256
from app.system import Canceled, KnownError
from app.words import printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo, ModelSort_T, RepoSibling

    from app.settings import Settings


_SORTS: dict[Sort, ModelSort_T] = {
    "trending": "trending_score",
    "downloads": "downloads",
    "likes": "likes",
    "newest": "created_at",
}
_MAX_WORDS_CHARS = 200
_MAX_NUMBER = 2**50
_MAX_TEXT_CHARS = 100

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Hub:
    """Hugging Face or a mirror, over one `Network`. Safe from any thread."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._lock = threading.Lock()
        self._api: HfApi | None = None

    def search(self, words: str, sort: Sort = "trending", limit: int = 30) -> list[SearchResult]:
        """GGUF repositories with these words in their names, at most ``limit``, best first. Raises `KnownError`."""

        def ask(api: HfApi) -> list[SearchResult]:
            found = api.list_models(
                filter="gguf",
                search=words.strip()[:_MAX_WORDS_CHARS] or None,
                sort=_SORTS[sort],
                limit=min(limit, MAX_RESULTS),
                expand=["downloads", "likes", "lastModified", "gated", "tags"],
            )
            return [SearchResult(id=info.id, **_facts(info)) for info in found if is_repository_id(info.id)]

        return self._ask("search", "", ask)

    def repository(self, id: str) -> Repository:
        """A repository at its newest commit. Raises `KnownError`."""
        if not is_repository_id(id):
            raise KnownError(f"{printable(id)} is not a repository name. It should look like owner/name.")

        def ask(api: HfApi) -> Repository:
            return _repository(id, api.model_info(id, files_metadata=True))

        return self._ask("model page", id, ask)

    def _ask(self, purpose: str, repository: str, question: Callable[[HfApi], T]) -> T:
        endpoint = self.network.endpoint
        self.network.check_online()
        with self.network.purpose(purpose):
            try:
                with self._lock:
                    if self._api is None or self._api.endpoint != endpoint:
                        self._api = self.network.hub_api()
                    api = self._api
                return question(api)
            except KnownError:
                raise
            except Exception as error:
                raise _known(error, endpoint, repository) from None


class HubConnection:
    """Hugging Face with the app's settings: network, hub, and access token.

    One per process. ``network.settings`` may change while it is in use.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        self.tokens = TokenStore()
        self.network = Network(settings, lambda: self.tokens.get(self.host))
        self.hub = Hub(self.network)

    @property
    def host(self) -> str:
        """The host of the token. Raises `KnownError` for an unsafe address."""
        return urlsplit(self.network.endpoint).hostname or ""


def network_settings(values: Settings) -> NetworkSettings:
    """The network part of the settings."""
    return NetworkSettings(endpoint=values.hub_endpoint, offline=values.offline, token_to_mirror=values.token_to_mirror)


def _known(error: Exception, endpoint: str, repository: str) -> KnownError:
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return refused(error.response, endpoint, repository)
    # huggingface_hub may raise anything on unexpected answers.
    _log.info("unexpected answer: %s: %s", type(error).__name__, printable(str(error)))
    host = urlsplit(endpoint).hostname or ""  # without a name and password
    return RefusedError(f"The answer from {printable(host)} makes no sense. Check the address of the mirror.")


# ---------------------------------------------------------------- checking answers


def _repository(id: str, info: ModelInfo) -> Repository:
    commit = info.sha
    if not isinstance(commit, str) or not is_commit(commit):
        raise ValueError("no commit")
    files = [file for sibling in info.siblings or [] if (file := _file(id, commit, sibling)) is not None]
    models, head_files, vision = group(files), heads(files), vision_files(files)
    facts = {"pieces": in_pieces(files), "block_drafters": block_drafters(files), **_facts(info)}
    return Repository(id=id, commit=commit, models=models, heads=head_files, vision=vision, **facts)


def _facts(info: ModelInfo) -> dict[str, Any]:
    tags = [tag for tag in info.tags or [] if isinstance(tag, str)]
    # From tags like ``base_model:Qwen/Qwen3-8B`` and ``base_model:quantized:Qwen/Qwen3-8B``.
    bases = (tag.rpartition(":")[2] for tag in tags if tag.startswith("base_model:"))
    modified = info.last_modified
    return {
        "license": _license(info, tags),
        "gated": "manual" if info.gated == "manual" else "automatic" if info.gated else "no",
        "downloads": _number(info.downloads),
        "likes": _number(info.likes),
        "modified": f"{modified.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if isinstance(modified, datetime) else "",
        "base_models": tuple(dict.fromkeys(id for id in bases if is_repository_id(id))),
    }


def _file(id: str, commit: str, sibling: RepoSibling) -> RemoteFile | None:
    """A file, if it is safe to download and verify: it has a safe path, a size and a checksum."""
    path, large = sibling.rfilename, sibling.lfs
    if not isinstance(path, str) or not is_safe_path(path) or large is None:
        return None
    size, sha256 = _number(large.size), large.sha256
    if size == 0 or not isinstance(sha256, str) or not is_sha256(sha256):
        return None
    return RemoteFile(repository=id, commit=commit, path=path, size=size, sha256=sha256)


def _license(info: ModelInfo, tags: list[str]) -> str:
    named = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    if named in ("", "other"):
        # The name of a license without a tag.
        named = getattr(info.card_data, "license_name", None) or named
    return printable(named, _MAX_TEXT_CHARS) if isinstance(named, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER else 0


# Headers of models that haven't been downloaded: their first megabytes, read by the same parser as local files.

FIRST_PIECE = 256 * 1024
MAX_FETCHED = 2 * MAX_HEADER_BYTES
"""Per model; a split model can have a thousand parts, each with a header."""
LARGEST_PIECE = 1024 * 1024
"""The most to fetch unnecessarily; small headers are fetched in smaller pieces."""


def read_remote_header(
    network: Network, model: RemoteModel, is_canceled: Callable[[], bool] = lambda: False, *, any_kind: bool = False
) -> GgufHeader:
    """Read and check a header with range requests, fetching at most twice its size.

    With ``any_kind``, it need not be a loadable text model, for example a head by itself. Raises `ModelFileError` for a
    file that isn't a model, `KnownError` if the network or the hub fails, and `Canceled` soon after ``is_canceled()``
    returns true.
    """
    files = {file.path: file for file in model.files}
    header = read_header_from(_Remote(network, files, is_canceled), Path(model.files[0].path))
    if not any_kind:
        check_loadable(header)
    return header


@dataclass
class _Remote:
    """The files of a model, as a `Source`."""

    network: Network
    files: Mapping[str, RemoteFile]
    """By path."""
    is_canceled: Callable[[], bool]
    fetched: int = 0

    @contextmanager
    def opened(self, path: Path) -> Iterator[tuple[_Pieces, int]]:
        file = self.files[path.as_posix()]
        if self.fetched > MAX_FETCHED:
            raise ModelFileError(path, "is damaged: the headers of its parts are too large.")
        pieces = _Pieces(self.network, file, self.is_canceled)
        yield pieces, file.size
        self.fetched += pieces.position

    def has(self, path: Path) -> bool:
        return path.as_posix() in self.files


@dataclass
class _Pieces:
    """A file from its start, fetched piece by piece."""

    network: Network
    file: RemoteFile
    is_canceled: Callable[[], bool]
    position: int = 0
    """Bytes fetched so far."""

    def read(self, size: int) -> bytes:
        # At most as much as there is already, so that at most twice the header is fetched.
        piece = min(max(FIRST_PIECE, self.position), LARGEST_PIECE)
        data = self._fetch(min(size, piece, self.file.size - self.position))
        self.position += len(data)
        return data

    def _fetch(self, size: int) -> bytes:
        if size <= 0:
            return b""
        endpoint = self.network.endpoint
        headers = {"Range": f"bytes={self.position}-{self.position + size - 1}"}
        url = file_url(endpoint, self.file)
        with self.network.stream(url, purpose="model header", headers=headers) as response:
            self._check(response, endpoint)
            data = b""
            for chunk in response.iter_raw():
                if self.is_canceled():
                    raise Canceled
                data += chunk
                if len(data) > size:  # otherwise read to the end, so that the connection can be reused
                    break
        return data[:size]

    def _check(self, response: httpx2.Response, endpoint: str) -> None:
        if self.is_canceled():
            raise Canceled
        if response.status_code == 416:
            raise self._other_size()
        if response.status_code >= 400:
            raise refused(response, endpoint, self.file.repository)
        if response.status_code != 206:
            host = printable(response.url.host)
            raise KnownError(f"{host} doesn't send parts of files, so models can't be checked before the download.")
        start, _, total = response.headers.get("Content-Range", "").partition("/")
        if not start.startswith(f"bytes {self.position}-") or total != str(self.file.size):
            raise self._other_size()

    def _other_size(self) -> ModelFileError:
        return ModelFileError(Path(self.file.path), "isn't as large as its page says. Look the repository up again.")
