"""Questions to Hugging Face: which repositories exist, and what they contain.

All of them block; the window asks in a separate thread, and discards the answer if the user has moved on. Answers are
checked value by value, because a mirror may send anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode, urlsplit

from app.errors import KnownError
from app.models.hub.errors import RefusedError
from app.models.hub.names import is_commit, is_repository_id, is_safe_path
from app.models.hub.network import Network, NetworkSettings
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
    from app.settings import Settings

_SORTS: dict[Sort, str] = {
    "trending": "trendingScore",
    "downloads": "downloads",
    "likes": "likes",
    "newest": "createdAt",
}
_EXPANDED = ["downloads", "likes", "lastModified", "gated", "tags"]
_MAX_WORDS_CHARS = 200
_MAX_NUMBER = 2**50
_MAX_TEXT_CHARS = 100

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Hub:
    """Hugging Face or a mirror, over one `Network`. Safe from any thread."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def search(self, words: str, sort: Sort = "trending", limit: int = 30) -> list[SearchResult]:
        """GGUF repositories with these words in their names, at most ``limit``, best first. Raises `KnownError`."""
        wanted = {"search": text} if (text := words.strip()[:_MAX_WORDS_CHARS]) else {}
        query = {
            "filter": "gguf",
            **wanted,
            "sort": _SORTS[sort],
            "limit": min(limit, MAX_RESULTS),
            "expand": _EXPANDED,
        }
        return self._ask("search", "", f"?{urlencode(query, doseq=True)}", _results)

    def repository(self, id: str) -> Repository:
        """A repository at its newest commit. Raises `KnownError`."""
        if not is_repository_id(id):
            raise KnownError(f"{printable(id)} is not a repository name. It should look like owner/name.")
        return self._ask("model page", id, f"/{id}?blobs=true", partial(_repository, id))

    def _ask(self, purpose: str, repository: str, place: str, read: Callable[[Any], T]) -> T:
        endpoint = self.network.endpoint
        try:
            return read(self.network.json(f"{endpoint}/api/models{place}", purpose=purpose, repository=repository))
        except KnownError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
            _log.info("unexpected answer: %s: %s", type(error).__name__, printable(str(error)))
            host = urlsplit(endpoint).hostname or ""  # without the name and password that may come before it
            raise RefusedError(
                f"The answer from {printable(host)} makes no sense. Check the address of the mirror."
            ) from None


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


# ---------------------------------------------------------------- checking answers


def _results(found: list[Any]) -> list[SearchResult]:
    return [SearchResult(id=info["id"], **_facts(info)) for info in found if is_repository_id(info["id"])]


def _repository(id: str, info: dict[str, Any]) -> Repository:
    commit = info["sha"]
    if not is_commit(commit):
        raise ValueError("no commit")
    files = [file for sibling in info.get("siblings") or [] if (file := _file(id, commit, sibling)) is not None]
    models, head_files, vision = group(files), heads(files), vision_files(files)
    facts = {"pieces": in_pieces(files), **_facts(info)}
    return Repository(id=id, commit=commit, models=models, heads=head_files, vision=vision, **facts)


def _facts(info: dict[str, Any]) -> dict[str, Any]:
    tags = [tag for tag in info.get("tags") or [] if isinstance(tag, str)]
    # From tags like ``base_model:Qwen/Qwen3-8B`` and ``base_model:quantized:Qwen/Qwen3-8B``.
    bases = (tag.rpartition(":")[2] for tag in tags if tag.startswith("base_model:"))
    modified, gated = info.get("lastModified"), info.get("gated")
    return {
        "license": _license(info, tags),
        "gated": "manual" if gated == "manual" else "automatic" if gated else "no",
        "downloads": _number(info.get("downloads")),
        "likes": _number(info.get("likes")),
        "modified": f"{datetime.fromisoformat(modified).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if modified else "",
        "base_models": tuple(dict.fromkeys(id for id in bases if is_repository_id(id))),
    }


def _file(id: str, commit: str, sibling: dict[str, Any]) -> RemoteFile | None:
    """A file, if it can be downloaded and checked: it has a safe path, a size and a checksum."""
    path, large = sibling["rfilename"], sibling.get("lfs")
    if not isinstance(path, str) or not is_safe_path(path) or not isinstance(large, dict):
        return None
    size, sha256 = _number(large.get("size")), large.get("sha256")
    if size == 0 or not isinstance(sha256, str) or not is_sha256(sha256):
        return None
    return RemoteFile(repository=id, commit=commit, path=path, size=size, sha256=sha256)


def _license(info: dict[str, Any], tags: list[str]) -> str:
    named = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    if named in ("", "other"):
        # The name of a license that has no tag.
        named = (info.get("cardData") or {}).get("license_name") or named
    return printable(named, _MAX_TEXT_CHARS) if isinstance(named, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER else 0
