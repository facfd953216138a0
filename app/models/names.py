"""What a model is called: as on the page it comes from, without quantization and number of the part."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from app.models.ollama import name_of_blob

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
_PART_ENDING = re.compile(r"-\d{5}-of-\d{5}$")
_ENDING = re.compile(r"(?:[-._ ](?:gguf|i1|imat(?:rix)?|q[2-8]|kquant(?:-\d+gb|-dynamic)?)| ?\(\d+\))$", re.IGNORECASE)
"""What else follows a name: the kind of file, how it was quantized, the number a browser gave it."""
_DOWNLOADED = re.compile(r".*[-_]gguf_", re.IGNORECASE)
"""What llama.cpp's downloads had before the file's name: ``owner_repository-GGUF_``."""
_SAYS_NOTHING = re.compile(
    r"(?:sha256[-:])?[0-9a-f]{32,}|(?:[\W\d_]|ggml|gguf|hf|model|mmproj|pytorch|safetensors|snapshots|consolidated|"
    r"weights|main|unsloth|guide|target|draft|llama v2)*",
    re.IGNORECASE,
)
_CACHED = re.compile(r"models--.+?--(?P<name>.+)")
"""A repository's folder in Hugging Face's cache."""
_LONGEST = 200
_DEEPEST = 4
"""How far above a file the folder of its repository is at most: folders of a quantization, a commit and all commits."""


def model_name(path: str | PurePath, inner: str = "", repository: str = "") -> str:
    """The name that people know a model by; ``inner`` is the one in its file, ``repository`` where it is from.

    For Ollama's files it is Ollama's name. Otherwise the file's, in the spelling of its repository or folder; if that
    says nothing (``model.gguf``, a checksum), that of its repository, of a folder that goes with the inner name, or the
    inner name.
    """
    path = PurePath(path)
    if found := name_of_blob(Path(path)):
        return shown_ollama(found)
    own, within = _without_owner(_plain(_stem(path.name)), inner), _plain(inner[:_LONGEST])
    folders = [folder.name for folder in path.parents[:_DEEPEST]]
    pages = [
        cached["name"] if cached else folder
        for folder in folders
        if (cached := _CACHED.match(folder)) or _is_page(folder)
    ]
    pages = [_without_owner(_plain(page.rpartition("/")[2]), inner) for page in (repository, *pages) if page]
    near = next(filter(None, map(_plain, folders)), "")
    if not _says_nothing(own):
        around = [name for one in (own, *pages, near) for name in (one, one.partition("_")[2])]
        same = [name for name in around if _squeezed(name) == _squeezed(own)]
        return max(same, key=lambda name: sum(map(str.isupper, name)))
    if _goes_with(near, within):
        pages.append(near)
    return next((name for name in (*pages, within) if not _says_nothing(name)), _stem(path.name) or path.name)


def shown_ollama(name: str) -> str:
    """``llama3.2:3b`` as it is; of ``hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M`` the model's name."""
    is_from_hub = name.startswith(("hf.co/", "huggingface.co/"))
    return _plain(name.rpartition("/")[2].partition(":")[0]) if is_from_hub else name


def base_name(name: str) -> str:
    """The part of a model's name, file or repository that identifies it: without owner, quantization, part number, case
    and separators.
    """
    return _squeezed(_plain(_stem(name.rpartition("/")[2])))


def quantization(path: str) -> str:
    """The quantization in a path, as model pages write it: ``Q4_K_M``; empty if there is none."""
    for name in reversed(path.split("/")):  # some repositories have a folder for each
        found = _QUANTIZATION.findall(_PART_ENDING.sub("", name.removesuffix(".gguf")))
        if found:
            return str(found[-1]).upper().replace("FP16", "F16").replace("FP32", "F32")
    return ""


def _stem(file: str) -> str:
    return _PART_ENDING.sub("", file[:-5] if file.lower().endswith(".gguf") else file)


def _plain(name: str) -> str:
    """Without what says how it was quantized and stored."""
    before, name = "", _QUANTIZATION.sub("", _DOWNLOADED.sub("", name))
    while name != before:
        before, name = name, _ENDING.sub("", name.strip("-._ "))
    return re.sub(r"([-._ ])[-._ ]+", r"\1", name)


def _without_owner(name: str, inner: str) -> str:
    """Some put the owner before the name: ``google_gemma-3-4b-it``; the inner name then begins later."""
    owner, line, rest = name.partition("_")
    rest_ends, inner_ends = _squeezed(rest), _squeezed(_plain(inner))
    is_owner = line and not any(map(str.isdigit, owner)) and len(inner_ends) > 2
    return rest if is_owner and (rest_ends.startswith(inner_ends) or inner_ends.startswith(rest_ends)) else name


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "", name.lower()).strip(".")


def _says_nothing(name: str) -> bool:
    return _SAYS_NOTHING.fullmatch(name) is not None


def _is_page(folder: str) -> bool:
    """Whether a folder is named like a repository of such files."""
    return folder.lower().endswith("gguf") and not _says_nothing(_plain(folder))


def _goes_with(folder: str, inner: str) -> bool:
    """Whether a folder's name is that of a model: it begins as the inner name does, or there is none."""
    begins = re.sub(r"[^a-z].*", "", _squeezed(folder))
    is_model = any(map(str.isdigit, folder)) and len(begins) > 1
    return is_model and (_says_nothing(inner) or begins in _squeezed(inner))
