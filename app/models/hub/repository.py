"""The contents of a repository on Hugging Face, rules for its names and commits, and the errors of the hub."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Literal
from urllib.parse import quote

import msgspec

from app.models.gguf import BLOCK_DRAFTERS, MAX_PARTS, PART_NAME, piece_of
from app.models.names import quantization
from app.system import KnownError

Sort = Literal["trending", "downloads", "likes", "newest"]
MAX_RESULTS = 200
"""The most results of a search."""
_NO_MODEL = re.compile(
    r"(?<![a-z0-9])(mmproj|imatrix|i-matrix|lora|qlora|adapter|control-?vector|vocab|dflash2?|dspark)(?![a-z0-9])"
)
_BLOCK = re.compile(r"(?<![a-z0-9])(dflash2?|dspark)(?![a-z0-9])")
_VISION = re.compile(r"(?<![a-z0-9])mmproj(?![a-z0-9])")
_EAGLE3 = re.compile(r"(?<![a-z0-9])eagle-?3(?![a-z0-9])", re.IGNORECASE)
_HEADS = re.compile(r"(mtp|nextn|assistant)[-_.]|.*[-_.](mtp|nextn)[-_](heads?|only)(?![a-z0-9])")


class RefusedError(KnownError):
    """A rule of Slipstream forbids the request; trying again doesn't help."""


class OfflineError(RefusedError):
    """The user switched the network off."""


class UnreachableError(KnownError):
    """The network failed; trying again may help."""


class NotFoundError(KnownError):
    """The repository, version or file doesn't exist, or is hidden from this user."""


class NoAccessError(KnownError):
    """The hub denies access: it doesn't know the token, or a repository's terms must be accepted first."""

    def __init__(self, message: str, page: str) -> None:
        """``page``: where the user can do something about it."""
        super().__init__(message)
        self.page = page


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a repository, pinned to a commit."""

    repository: str
    """``Qwen/Qwen3-0.6B-GGUF``."""
    commit: str
    """40 hexadecimal digits."""
    path: str
    """The path in the repository, with ``/``."""
    size: int
    """Bytes."""
    sha256: str
    """64 hexadecimal digits."""

    @property
    def name(self) -> str:
        """Without folders."""
        return self.path.rsplit("/", 1)[-1]


def file_url(endpoint: str, file: RemoteFile) -> str:
    """The address of a file on the hub, pinned to its commit."""
    return f"{endpoint}/{quote(file.repository)}/resolve/{quote(file.commit, safe='')}/{quote(file.path)}"


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a repository: one file, or all parts of a split one in order."""

    files: tuple[RemoteFile, ...]
    quantization: str
    """From the file's name: ``Q4_K_M``; empty if it has none."""

    @property
    def size(self) -> int:
        """Size of all parts in bytes."""
        return sum(file.size for file in self.files)

    @property
    def name(self) -> str:
        return self.files[0].name


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A search result: a repository without its files."""

    id: str
    license: str = ""
    """As in the repository: ``apache-2.0``; empty if unspecified."""
    gated: Literal["no", "automatic", "manual"] = "no"
    """Whether its terms must be accepted first; with ``manual``, the owner must approve as well."""
    downloads: int = 0
    """In the last 30 days."""
    likes: int = 0
    modified: str = ""
    """ISO 8601, UTC."""
    base_models: tuple[str, ...] = ()


class Repository(SearchResult, frozen=True, kw_only=True):
    """A repository with its models, smallest first."""

    commit: str
    models: tuple[RemoteModel, ...] = ()
    heads: tuple[RemoteModel, ...] = ()
    """Possible heads by name, MTP before EAGLE-3, smallest first; their headers decide (`app.models.hub.drafts`)."""
    block_drafters: tuple[str, ...] = ()
    """What it has, by name, of `BLOCK_DRAFTERS`, which can't be used."""
    pieces: int = 0
    """Models cut into pieces (`app.models.gguf`), not included in the models."""
    vision: tuple[RemoteModel, ...] = ()
    """Possible projectors for images (``mmproj``) by name, smallest first."""

    @property
    def offered(self) -> tuple[RemoteModel, ...]:
        """What to choose from: the models, or the heads of a repository that has nothing else."""
        return self.models or self.heads


def heads(files: Iterable[RemoteFile]) -> tuple[RemoteModel, ...]:
    """Files named like heads without a model: MTP before EAGLE-3, which adds little where a model has both; smallest
    first."""
    return tuple(sorted(group(files, _is_named_head), key=lambda head: names_eagle3(head.name)))


def names_eagle3(name: str) -> bool:
    """Whether the name of a file or a repository promises an EAGLE-3 head."""
    return _EAGLE3.search(name) is not None


def block_drafters(files: Iterable[RemoteFile]) -> tuple[str, ...]:
    """See `Repository.block_drafters`."""
    named = (_BLOCK.search(file.name.lower()) for file in files if file.name.lower().endswith(".gguf"))
    return tuple(sorted({found[1] for found in named if found}))


def without_models(repository: Repository) -> str:
    """What to say about a repository that has nothing to choose."""
    if not repository.block_drafters:
        return f"{repository.id} has no GGUF models to download."
    names = " and ".join(BLOCK_DRAFTERS[kind] for kind in repository.block_drafters)
    return f"{repository.id} has only {names} drafters, which this version of Slipstream can't use."


def in_pieces(files: Iterable[RemoteFile]) -> int:
    """The number of models that are cut into pieces."""
    return len({piece.whole for file in files if (piece := piece_of(file.path)) is not None})


def vision_files(files: Iterable[RemoteFile]) -> tuple[RemoteModel, ...]:
    """Files named like a model's vision part, smallest first."""
    named = (one for one in files if one.name.lower().endswith(".gguf") and _VISION.search(one.name.lower()))
    return _smallest_first((file,) for file in named)


def group(
    files: Iterable[RemoteFile], wanted: Callable[[RemoteFile], bool] = lambda file: not _is_named_head(file)
) -> tuple[RemoteModel, ...]:
    """The models among the files, smallest first, without incomplete split models."""
    whole: list[tuple[RemoteFile, ...]] = []
    parts: defaultdict[tuple[str, int], dict[int, RemoteFile]] = defaultdict(dict)
    for file in files:
        name = file.name.lower()
        if not name.endswith(".gguf") or _NO_MODEL.search(name) or not wanted(file):
            continue
        part = PART_NAME.match(file.path)
        if part is None:
            whole.append((file,))
        else:
            parts[part["stem"], int(part["count"])][int(part["number"])] = file
    for (_, count), numbered in parts.items():
        if count <= MAX_PARTS and set(numbered) == set(range(1, count + 1)):
            whole.append(tuple(numbered[number] for number in range(1, count + 1)))
    return _smallest_first(whole)


def _smallest_first(files_of: Iterable[tuple[RemoteFile, ...]]) -> tuple[RemoteModel, ...]:
    models = (RemoteModel(files=files, quantization=quantization(files[0].path)) for files in files_of)
    return tuple(sorted(models, key=lambda model: (model.size, model.files[0].path)))


def _is_named_head(file: RemoteFile) -> bool:
    return _HEADS.match(file.name.lower()) is not None or names_eagle3(file.name)


# Rules for names and commits from a repository. A mirror may send anything.

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_PATH_CHARS = 512
_MAX_NAME_BYTES = 200
"""Shorter than file systems allow, to leave room for the extensions of unfinished downloads."""
_NOT_ON_WINDOWS = re.compile(r'[<>:"\\|?*\x00-\x1f\x7f]')
_RESERVED_ON_WINDOWS = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?", re.IGNORECASE
)


def is_repository_id(text: str) -> bool:
    """Whether this is a valid name of a model repository: ``owner/name``."""
    # The hub allows none of these, and some have another meaning in an address or a path.
    forbidden = ".." in text or "--" in text or text.endswith((".", "-", ".git"))
    return _REPOSITORY.fullmatch(text) is not None and not forbidden


def is_commit(text: str) -> bool:
    return _COMMIT.fullmatch(text) is not None


def is_safe_path(path: str) -> bool:
    """Whether a file with this path can be written below a folder on every system, and not outside it."""
    return 0 < len(path) <= _MAX_PATH_CHARS and all(map(is_safe_name, path.split("/")))


def is_safe_name(name: str) -> bool:
    """Whether this is a valid file name on every system, without a special meaning."""
    if not name or not name.isprintable() or name.startswith("~") or name[-1] in ". " or name[0] == " ":
        return False
    if _NOT_ON_WINDOWS.search(name) or _RESERVED_ON_WINDOWS.fullmatch(name):
        return False
    return len(name.encode()) <= _MAX_NAME_BYTES
