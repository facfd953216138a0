"""Names of models."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from app.system import KnownError
from app.words import printable

_QUANTIZATION = re.compile(
    r"""(?<![A-Za-z0-9])(
        (?:UD-)?
        (?: I?Q\d_K(?:_(?:XXL|XL|S|M|L|P))?
          | I?Q\d_(?:XXS|XS|S|M|L|XL|NL(?:_XL)?|KS|KSS|KT|KL)
          | Q\d_0(?:_\d_\d)? | Q\d_1 | I\d_S
          | TQ\d_\d | MXFP4(?:_MOE)? | NVFP4
          | BF16 | FP?16 | FP?32 )
    )(?![A-Za-z0-9])""",
    re.VERBOSE | re.IGNORECASE,
)
_ENDING = re.compile(r"(?:[-._ ](?:gguf|i1|imat(?:rix)?|q[2-8]|kquant(?:-\d+gb|-dynamic)?)| ?\(\d+\))$", re.IGNORECASE)
"""Other suffixes of a name: the kind of file, how it was quantized, the number a browser added."""
_SAYS_NOTHING = re.compile(
    r"(?:sha256[-:])?[0-9a-f]{32,}|(?:[\W\d_]|ggml|gguf|hf|model|mmproj|pytorch|safetensors|snapshots|consolidated|"
    r"weights|main|unsloth|guide|target|draft|llama v2)*",
    re.IGNORECASE,
)
_PAGE = re.compile(r"(?:models--.+?--)?(.*(?<=gguf))|models--.+?--(.+)", re.IGNORECASE)
"""A folder named after a repository, as in Hugging Face's cache or with the usual ending."""
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MAX_MANIFEST_BYTES, _MOST_MANIFESTS = 1_000_000, 2000


def model_name(path: str | PurePath, inner: str = "", repository: str = "") -> str:
    """The name that people use for a model; ``inner`` is the one in its file, ``repository`` its origin.

    For Ollama's blobs it is Ollama's. Otherwise the file's, in the spelling of its repository or folder; if that says
    nothing (``model.gguf``, a checksum), the repository's, that of a folder that begins like the inner name, or the
    inner name.
    """
    path, inner = PurePath(path), plain_name(inner[:200])
    if found := name_of_blob(Path(path)):
        return ollama_title(found)
    folders = [folder.name for folder in path.parents[:4]]  # a quantization, a commit, all commits, a repository
    repositories = (page[1] or page[2] for page in map(_PAGE.fullmatch, folders) if page)
    known = stem_of(path.name), repository.rpartition("/")[2], *repositories
    own, *pages = (_without_owner(plain_name(name), inner) for name in known)
    near = next(filter(None, map(plain_name, folders)), "")
    if not _SAYS_NOTHING.fullmatch(own):
        around = [name for one in (own, *pages, near) for name in (one, one.partition("_")[2])]
        same = [name for name in around if _letters(name) == _letters(own)]
        return max(same, key=lambda name: sum(map(str.isupper, name)))
    is_alike = _SAYS_NOTHING.fullmatch(inner) or _letters(near)[:3] in _letters(inner)
    if is_alike and "-" in near and any(map(str.isdigit, near)):
        pages.append(near)
    return next((name for name in (*pages, inner) if not _SAYS_NOTHING.fullmatch(name)), path.stem)


def base_name(name: str) -> str:
    """The identifying part of the name of a model, file or repository: without owner, quantization, part number, case
    and separators.
    """
    return _letters(plain_name(stem_of(name.rpartition("/")[2])))


def quantization(path: str) -> str:
    """The quantization in a path, as model pages write it: ``Q4_K_M``; empty if there is none."""
    for name in reversed(path.split("/")):  # some repositories have a folder for each
        if found := _QUANTIZATION.findall(name.removesuffix(".gguf")):
            return str(found[-1]).upper().replace("FP16", "F16").replace("FP32", "F32")
    return ""


def stem_of(file: str) -> str:
    """A file's name without extension and part number."""
    return re.sub(r"(?:-\d{5}-of-\d{5})?(?:\.gguf)?$", "", file, count=1, flags=re.IGNORECASE)


def plain_name(name: str) -> str:
    """A name without how it was quantized and stored."""
    name = re.sub(r".*[-_]gguf_", "", name, flags=re.IGNORECASE)  # llama.cpp's downloads: owner_repository-GGUF_file
    before, name = "", _QUANTIZATION.sub("", name)
    while name != before:
        before, name = name, _ENDING.sub("", name.strip("-._ "))
    return re.sub(r"([-._ ])[-._ ]+", r"\1", name)


def _without_owner(name: str, inner: str) -> str:
    """Without an owner before the name, as in ``google_gemma-3-4b-it``; the inner name shows where the name begins."""
    owner, _, rest = name.partition("_")
    end, known = _letters(rest), _letters(inner)
    is_owner = end and len(known) > 2 and not any(map(str.isdigit, owner))
    return rest if is_owner and (end.startswith(known) or known.startswith(end)) else name


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "", name.lower()).strip(".")


# ---------------------------------------------------------------- Ollama: blobs, and manifests that name them


def models_of(manifests: Iterable[Path]) -> dict[str, Path]:
    """Each model's manifest by its SHA-256; of several names for one file, the most informative one."""
    found: dict[str, Path] = {}
    for manifest in sorted(manifests, key=lambda path: (path.name == "latest", str(path))):
        for digest in _digests(manifest):
            found.setdefault(digest, manifest)
    return found


def manifest_name(manifest: Path) -> str:
    """``llama3.1:8b`` for ``registry.ollama.ai/library/llama3.1/8b``: defaults are left out, as in Ollama."""
    model = manifest.parent.as_posix().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return f"{model.removeprefix('.')}:{manifest.name}"


def ollama_title(name: str) -> str:
    """``llama3.2:3b`` as it is; the model's name for ``hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M``."""
    is_from_hub = name.startswith(("hf.co/", "huggingface.co/"))
    return plain_name(name.rpartition("/")[2].partition(":")[0]) if is_from_hub else name


def name_of_blob(blob: Path) -> str:
    """Ollama's name for one of its blobs; empty for all other files."""
    digest, top = _DIGEST.fullmatch(blob.name), blob.parent.parent / "manifests"
    if digest is None or blob.parent.name != "blobs":
        return ""
    files = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
    manifest = models_of(islice(files, _MOST_MANIFESTS)).get(digest[1])
    return manifest_name(manifest.relative_to(top)) if manifest else ""


def _digests(manifest: Path) -> list[str]:
    """The digests of models in a manifest; empty if it isn't one."""
    try:
        with manifest.open("rb") as file:
            content: Any = json.loads(file.read(_MAX_MANIFEST_BYTES))
        layers = [one for one in content["layers"] if one["mediaType"] == "application/vnd.ollama.image.model"]
        matches = [_DIGEST.fullmatch(layer["digest"]) for layer in layers]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
    return [match[1] for match in matches if match]


# Arguments that name model files, from a file manager, a terminal or the system.

SUFFIX = ".gguf"
_SCHEME = "file:"


def names_file(argument: str) -> bool:
    """Whether an argument is a file rather than a command; a file named like a command is written ``./name``."""
    if argument.startswith("-"):
        return False
    lower = argument.lower()
    return lower.startswith(_SCHEME) or lower.endswith(SUFFIX) or os.sep in argument


def path_of(argument: str) -> Path:
    """The absolute path for a path or a ``file:`` address; doesn't access the disk.

    Raises `KnownError` if it can't be the name of a model.
    """
    path = Path(_from_address(argument) if argument.lower().startswith(_SCHEME) else argument)
    name = printable(path.name)
    try:
        path = path.absolute()
    except FileNotFoundError:
        raise KnownError(f"“{name}” can't be found: the folder Slipstream was started in no longer exists.") from None
    if path.suffix.lower() != SUFFIX:
        raise KnownError(f"“{name}” is not a GGUF model: the file name should end in {SUFFIX}.")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise KnownError(f"“{name}” can't be opened: its path is not valid text. Rename it.") from None
    return path


def _from_address(address: str) -> str:
    from urllib.request import url2pathname  # would import half of the network

    try:
        parts = urlsplit(address)
    except ValueError:
        raise KnownError(f"“{printable(address)}” is not the address of a file.") from None
    if parts.netloc not in ("", "localhost"):
        raise KnownError(f"“{printable(address)}” is on another computer. Copy it to this one first.")
    return url2pathname(parts.path)
