"""Questions to Hugging Face: which repositories exist, and what they contain.

All of them block; the window asks in a separate thread, and discards the answer if the user has moved on. Answers are
checked value by value, because a mirror may send anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from app.errors import KnownError
from app.models.hub.errors import RefusedError
from app.models.hub.names import is_commit, is_repository_id, is_safe_path
from app.models.hub.network import Network, NetworkSettings
from app.models.hub.refusals import refused
from app.models.hub.repository import (
    MAX_RESULTS,
    RemoteFile,
    Repository,
    SearchResult,
    Sort,
    group,
    heads,
    in_pieces,
    vision_files,
)
from app.models.hub.tokens import TokenStore
from app.models.text import is_sha256, printable

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

    def repository(self, id: str, revision: str | None = None) -> Repository:
        """A repository at its newest commit, or at ``revision``. Raises `KnownError`."""
        if not is_repository_id(id):
            raise KnownError(f"{printable(id)} is not a repository name. It should look like owner/name.")

        def ask(api: HfApi) -> Repository:
            return _repository(id, api.model_info(id, revision=revision, files_metadata=True))

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
    """Hugging Face according to the settings: the network, the hub, and the access token.

    One per process. ``network.settings`` may change while it is used.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        self.tokens = TokenStore()
        self.network = Network(settings, lambda: self.tokens.get(self.host))
        self.hub = Hub(self.network)

    @property
    def host(self) -> str:
        """The host that the token belongs to. Raises `KnownError` for an unsafe address."""
        return urlsplit(self.network.endpoint).hostname or ""


def network_settings(values: Settings) -> NetworkSettings:
    """The part of the settings about the network."""
    return NetworkSettings(endpoint=values.hub_endpoint, offline=values.offline, token_to_mirror=values.token_to_mirror)


def _known(error: Exception, endpoint: str, repository: str) -> KnownError:
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return refused(error.response, endpoint, repository)
    # huggingface_hub fails in any way on unexpected answers.
    _log.info("unexpected answer: %s: %s", type(error).__name__, printable(str(error)))
    host = urlsplit(endpoint).hostname or ""  # without the name and password that may come before it
    return RefusedError(f"The answer from {printable(host)} makes no sense. Check the address of the mirror.")


# ---------------------------------------------------------------- checking answers


def _repository(id: str, info: ModelInfo) -> Repository:
    commit = info.sha
    if not isinstance(commit, str) or not is_commit(commit):
        raise ValueError("no commit")
    files = [file for sibling in info.siblings or [] if (file := _file(id, commit, sibling)) is not None]
    models, head_files, vision = group(files), heads(files), vision_files(files)
    facts = {"pieces": in_pieces(files), **_facts(info)}
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
    """A file, if it can be downloaded and checked: it has a safe path, a size and a checksum."""
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
        # The name of a license that has no tag.
        named = getattr(info.card_data, "license_name", None) or named
    return printable(named, _MAX_TEXT_CHARS) if isinstance(named, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER else 0
