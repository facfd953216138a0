"""From the files of a repository to its models: parts put together, and what is no model left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from app.models.gguf import MAX_PARTS, PART_NAME
from app.models.hub.repository import RemoteFile, RemoteModel

_QUANTIZATION = re.compile(
    r"""(?<![A-Za-z0-9])(
        (?:UD-)?
        (?: I?Q\d_K(?:_(?:XXL|XL|S|M|L))?
          | I?Q\d_(?:XXS|XS|S|M|L|XL|NL(?:_XL)?|KS|KSS|KT|KL)
          | Q\d_0(?:_\d_\d)? | Q\d_1
          | TQ\d_\d | MXFP4(?:_MOE)? | NVFP4
          | BF16 | FP?16 | FP?32 )
    )(?![A-Za-z0-9])""",
    re.VERBOSE | re.IGNORECASE,
)
_PART_ENDING = re.compile(r"-\d{5}-of-\d{5}$")
_NO_MODEL = re.compile(
    r"(?<![a-z0-9])(mmproj|imatrix|i-matrix|lora|qlora|adapter|control-?vector|vocab|eagle-?3|dflash2?|dspark)(?![a-z0-9])"
)
_HEADS = re.compile(r"(mtp|nextn|assistant)[-_.]|.*[-_.](mtp|nextn)[-_](heads?|only)(?![a-z0-9])")


def group(files: Iterable[RemoteFile]) -> tuple[RemoteModel, ...]:
    """The models among the files, smallest first. Split models that are not complete are left out."""
    models: list[RemoteModel] = []
    parts: defaultdict[tuple[str, int], dict[int, RemoteFile]] = defaultdict(dict)
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if not _is_model(name):
            continue
        part = PART_NAME.match(name)
        if part is None:
            models.append(_model((file,)))
        else:
            parts[f"{folder}/{part['stem']}", int(part["count"])][int(part["number"])] = file
    for (_, count), numbered in parts.items():
        if count <= MAX_PARTS and set(numbered) == set(range(1, count + 1)):
            models.append(_model(tuple(numbered[number] for number in range(1, count + 1))))
    return tuple(sorted(models, key=lambda model: (model.size, model.files[0].path)))


def quantization(path: str) -> str:
    """The quantization a path names, as model pages spell it: ``Q4_K_M``; empty where it names none."""
    for name in reversed(path.split("/")):  # some repositories have a folder for each
        found = _QUANTIZATION.findall(_PART_ENDING.sub("", name.removesuffix(".gguf")))
        if found:
            return str(found[-1]).upper().replace("FP16", "F16").replace("FP32", "F32")
    return ""


def _model(files: tuple[RemoteFile, ...]) -> RemoteModel:
    return RemoteModel(files=files, quantization=quantization(files[0].path))


def _is_model(name: str) -> bool:
    name = name.lower()
    return name.endswith(".gguf") and _NO_MODEL.search(name) is None and _HEADS.match(name) is None
