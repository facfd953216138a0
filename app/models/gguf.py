"""The facts in a GGUF model file, read without llama.cpp and without trusting the file.

`read_header` parses a file, `check_loadable` decides whether llama.cpp may load it: nothing is loaded without both.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Protocol

import msgspec

from app import words
from app.models.gguf_parser import (
    FILE_TYPES,
    MODEL_KEY,
    SCORES_KEY,
    TOKENS_KEY,
    TYPES_KEY,
    VALUE_FLOAT32,
    VALUE_INT32,
    VALUE_STRING,
    Allowance,
    Array,
    HeaderError,
    RawHeader,
    Reader,
    Tensor,
    Tokenizer,
    TokenizerFacts,
    Value,
    parse,
    read_tokenizer,
    text_of,
)
from app.models.names import model_name
from app.protocol import options
from app.protocol.options import MAX_CONTEXT_LENGTH
from app.storage.files import CHUNK, Progress, write_whole
from app.system import Canceled, KnownError
from app.words import printable

# Capabilities of model architectures, according to llama.cpp of October 2026 (its ``src/llama-arch.cpp``). Only
# exceptions are listed: any other architecture is treated as an ordinary text model, and llama.cpp itself reports an
# error if it doesn't know it.

RECURRENT = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
"""Models without a KV cache: their recurrent state can't be cut back to an earlier token."""

KEEPS_STATES = (
    "bailingmoe3",
    "deepseek4",
    "glm5-next",
    "kimi-k3",
    "lfm2",
    "lfm2moe",
    "nemotron_h",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen4exp",
)
"""Hybrids for which llama.cpp can keep snapshots of the recurrent state (``llm_arch_supports_rs_rollback``)."""

HYBRID = (*KEEPS_STATES, "falcon-h1", "granitehybrid", "jamba", "kimi-linear", "minimax-01", "plamo2", "qwen3next")
"""Models in which some layers have a recurrent state instead of a KV cache."""

KEEPS_FLASH_ATTENTION = ("qwen3next", "qwen35", "qwen35moe")
"""Hybrids in which llama.cpp computes attention where the KV cache is, however layers are split between CPU and GPU.

Tested with qwen35; the others have the same graph.
"""

LARGE_GRAPHS = (
    "bailingmoe3",
    "deepseek4",
    "hy_v4",
    "kimi-linear",
    "minimax-01",
    "minimax-m3",
    "nanbeige",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "qwen4exp",
)
"""Architectures whose graphs grow with the batch (``llama_context::graph_max_nodes``)."""

_LEARNED_POSITIONS = ("gpt2", "mpt", "starcoder")
"""Models with a position table: llama.cpp aborts at the first token beyond the training context."""

_STATE_KEYS = ("ssm.", "wkv.", "shortconv.", "kda.")
"""Metadata that only models with a recurrent state have, for architectures newer than the lists above."""

_ENCODERS = (
    "bert",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llama-embed",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
)
ASSISTANTS = {"gemma4-assistant": "gemma4"}
"""Architectures of MTP heads that read their target's KV cache. They are always in a separate file."""
EAGLE3 = "eagle3"
"""The architecture of EAGLE-3 heads, which read inputs of three of their target's layers. Always in a separate file."""
_EAGLE3_TENSOR = "fc.weight"
_HEAD_TENSORS = (".nextn.eh_proj.weight", "nextn.pre_projection.weight")
_FIRST_LAYER = "blk.0.attn_norm.weight"

HeadPlace = Literal["none", "inside", "alone"]
"""Whether a file has a head (MTP, EAGLE-3), and if so, with its model or without."""

BLOCK_DRAFTERS = {"dflash": "DFlash", "dflash2": "DFlash2", "dspark": "DSpark"}
"""Architectures of drafters that propose a block of tokens in one pass. llama.cpp's files of all three are ``dflash``,
and tensors tell them apart."""
_BLOCK_TENSORS = {"selector_hidden.weight": "DFlash2", "markov_w1.weight": "DSpark"}
_DIFFUSION = ("dream", "llada", "llada-moe", "rnd1")

PROJECTOR = "clip"
"""The architecture of files that let models see images, or hear."""


def _refused(title: str) -> str:
    return f"is a {title} drafter, which this version of Slipstream can't use. It can use MTP and EAGLE-3 heads."


_REFUSALS = {
    PROJECTOR: "is the vision or audio part of a model (mmproj), not a language model. Open the model itself.",
    "controlvector": "is a control vector, not a model.",
    "imatrix": "is an importance matrix for quantizing, not a model.",
    "t5": "is an encoder–decoder model (t5), which Slipstream can't run.",
    "t5encoder": "is a text encoder (t5encoder), which can't write text.",
    "wavtokenizer-dec": "is a speech decoder, not a language model.",
    "qwen3tts": "is a speech model, not a language model.",
    **{name: f"is an embedding model ({name}), which can't write text." for name in _ENCODERS},
    **{name: _refused(title) for name, title in BLOCK_DRAFTERS.items()},
    "gemma4_assistant": "is an MTP head in an old format, which Slipstream can't use.",
    EAGLE3: "is the EAGLE-3 head of a model. Open that model, with this file as its draft model.",
    "gemma4-assistant": "is the MTP head of a Gemma 4 model. Open that model, with this file as its draft model.",
    **{name: f"is a diffusion language model ({name}), which Slipstream can't run." for name in _DIFFUSION},
}

_TYPE_REFUSALS = {
    "adapter": "is an adapter (LoRA), not a complete model. Open the model it was made for.",
    "mmproj": _REFUSALS[PROJECTOR],
    "imatrix": _REFUSALS["imatrix"],
    "controlvector": _REFUSALS["controlvector"],
}


def refusal(architecture: str, general_type: str, tensors: Iterable[str] = ()) -> str | None:
    """Why a file of this kind, with tensors of these names, isn't a text model, as the rest of a sentence that begins
    with its name."""
    reason = _TYPE_REFUSALS.get(general_type.lower()) or _REFUSALS.get(architecture.lower())
    if reason and architecture.lower() in BLOCK_DRAFTERS:
        title = next((_BLOCK_TENSORS[name] for name in tensors if name in _BLOCK_TENSORS), None)
        return _refused(title) if title else reason
    return reason


def head_place(architecture: str, mtp_layers: int, tensors: Iterable[str]) -> HeadPlace:
    """Whether a file with tensors of these names has a head: it must declare and contain it."""
    names = list(tensors)
    if architecture == EAGLE3:
        return "alone" if _EAGLE3_TENSOR in names else "none"
    if mtp_layers <= 0 or not any(name.endswith(_HEAD_TENSORS) for name in names):
        return "none"
    return "alone" if architecture in ASSISTANTS or _FIRST_LAYER not in names else "inside"


def longest_context(architecture: str, training_context: int) -> int:
    """The most tokens that a model can compute, for both the memory plan and the engine."""
    has_table = architecture in _LEARNED_POSITIONS and training_context > 0
    return min(training_context, MAX_CONTEXT_LENGTH) if has_table else MAX_CONTEXT_LENGTH


def is_part_of_model(architecture: str, general_type: str) -> bool:
    """Whether a file is only part of a model in another file, such as a vision part or an adapter."""
    return general_type.lower() in _TYPE_REFUSALS or architecture.lower() in (PROJECTOR, "controlvector", "imatrix")


def running_state(architecture: str, keys: Iterable[str] = ()) -> str | None:
    """``recurrent`` or ``hybrid`` if the model has a running state, otherwise ``None``.

    ``keys`` are the keys of the model's metadata.
    """
    if architecture in RECURRENT:
        return "recurrent"
    prefixes = tuple(f"{architecture}.{key}" for key in _STATE_KEYS)
    if architecture in HYBRID or any(key.startswith(prefixes) for key in keys):
        return "hybrid"
    return None


MAX_CHAT_TEMPLATE_BYTES = 256 * 1024
MAX_PARTS = 1000
MAX_LAYERS = options.MAX_LAYERS
MAX_DIMENSION = 2**20
"""The upper limit for numbers used in calculations: heads, widths, experts."""
_SHAPE_KEYS = (
    ".embedding_length",
    ".feed_forward_length",
    ".expert_count",
    ".expert_used_count",
    ".attention.head_count",
    ".attention.head_count_kv",
    ".attention.key_length",
    ".attention.value_length",
    ".rope.dimension_count",
)
_MAX_TEXT, _MAX_NAME = 4096, 64
PART_NAME = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
"""llama.cpp's naming scheme for split models."""


class Source(Protocol):
    """Where model files are read from: the disk, or a repository on the network."""

    def opened(self, path: Path) -> AbstractContextManager[tuple[Reader, int]]:
        """The file opened at its start, and its size; raises `KnownError` and `OSError`."""

    def has(self, path: Path) -> bool:
        """Whether this file exists."""


class ModelFileError(KnownError):
    """A file isn't a usable model; the text is one plain sentence that begins with the file's name."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{printable(path.name or str(path))} {problem}")
        self.path = path
        self.problem = problem
        """The sentence without the file's name."""


class Rope(msgspec.Struct, frozen=True):
    """Rotary position embedding; 0 or empty for llama.cpp's defaults."""

    dimensions: int = 0
    base: float = 0.0
    scaling: str = ""
    factor: float = 0.0
    original_context: int = 0


@dataclass(frozen=True)
class Split:
    """A model in several files, of which llama.cpp opens the first."""

    number: int
    """This file's number, from 1."""
    count: int
    files: tuple[Path, ...]
    """All parts in order; empty if this file's name doesn't follow the pattern ``…-00001-of-00003.gguf``."""
    missing: tuple[Path, ...]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The scalar values in a header. Unspecified numbers are 0, texts empty."""

    name: str
    architecture: str
    quantization: str
    """Spelled as on model pages: ``Q4_K_M``, ``F16``, …"""
    parameters: int
    tensor_bytes: int
    """The size of the weights in bytes."""
    layers: int
    heads: int
    """The largest of any layer, as for ``kv_heads``."""
    kv_heads: int
    width: int
    """Length of an embedding."""
    training_context: int
    experts: int
    experts_used: int
    mtp_layers: int
    """Layers that predict further tokens (``nextn``)."""
    head: HeadPlace = msgspec.field(name="mtp_head", default="none")
    running_state: str | None = msgspec.field(name="kept_state")
    """``recurrent`` or ``hybrid`` if the model has a recurrent state, which can't be cut back to an earlier token."""
    tokenizer: TokenizerFacts | None
    projection: int = 0
    """Of a projector: the length of the embeddings it makes. 0 for all other files."""


class GgufHeader(ModelFacts, frozen=True, kw_only=True, eq=False):
    """A model file's header."""

    path: Path
    file_size: int
    """Of all existing parts, in bytes."""
    version: int
    general_type: str
    rope: Rope
    chat_template: str | None
    tokenizer: Tokenizer | None
    split: Split | None
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, Value]

    def __repr__(self) -> str:
        return f"GgufHeader({str(self.path)!r})"

    @property
    def known_name(self) -> str:
        """The name people use (`model_name`); ``name`` is the one in the file."""
        return model_name(self.path, self.name)

    @property
    def is_projector(self) -> bool:
        """Whether it is a projector, which lets a model see images (``mmproj``)."""
        return self.architecture == PROJECTOR and self.projection > 0


def read_header(path: str | Path) -> GgufHeader:
    """Read and check the header of a model file, including all parts of a split one. Raises `ModelFileError`."""
    return read_header_from(_Disk(), Path(path))


def read_header_from(source: Source, path: Path) -> GgufHeader:
    """`read_header` for a file that isn't on the disk; also raises what ``source`` raises."""
    allowance = Allowance()
    raw, size = _read_raw(source, path, allowance)
    split = _split(source, path, raw.values)
    tensors = list(raw.tensors)
    if split is not None and split.files and split.number == 1 and not split.missing:
        for number, part in enumerate(split.files[1:], 2):
            part_raw, part_size = _read_raw(source, part, allowance)
            said = _whole(part_raw.values, "split.no") + 1
            if said != number:  # files of two models may be mixed up
                raise ModelFileError(part, f"is named part {number} of a model, but says it is part {said}.")
            tensors += part_raw.tensors
            size += part_size
        _check_together(path, raw.values, tensors)
    return _header(path, size, raw, tensors, split)


def check_loadable(header: GgufHeader, *, as_head: bool = False) -> None:
    """Raise `ModelFileError` unless llama.cpp may load this file as a text model, or ``as_head`` as a head of one."""
    # Later parts say nothing about the model itself, so the split is checked first.
    checks = (_split_problem, *(() if as_head else (_kind_problem,)), _content_problem, _tokenizer_problem)
    problem = next((problem for check in checks if (problem := check(header)) is not None), None)
    if problem is not None:
        raise ModelFileError(header.path, problem)


# ---------------------------------------------------------------- reading the file


def _read_raw(source: Source, path: Path, allowance: Allowance) -> tuple[RawHeader, int]:
    try:
        with source.opened(path) as (file, size):
            return parse(file, size, {TOKENS_KEY}, allowance), size
    except HeaderError as error:
        raise ModelFileError(path, str(error)) from None
    except FileNotFoundError:
        raise ModelFileError(path, f"no longer exists (looked in {printable(str(path.parent), 200)}).") from None
    except NotADirectoryError:
        raise ModelFileError(path, "doesn't exist: a part of its path is not a folder.") from None
    except PermissionError:
        raise ModelFileError(
            path, "can't be read because you don't have permission. Change the permissions or choose another file."
        ) from None
    except (OSError, ValueError) as error:
        reason = printable(getattr(error, "strerror", None) or str(error))
        raise ModelFileError(path, f"can't be read: {reason}.") from None


class _Disk:
    @contextmanager
    def opened(self, path: Path) -> Iterator[tuple[BinaryIO, int]]:
        """Open a regular file: opening a pipe or a device could block or have side effects."""
        _check_regular(path, path.stat().st_mode)
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            _check_regular(path, status.st_mode)
            yield file, status.st_size

    def has(self, path: Path) -> bool:
        return os.path.isfile(path)  # noqa: PTH113 - Path's raises for a link to where it lacks the right


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise ModelFileError(path, "is a folder, not a model file.")
    if not stat.S_ISREG(mode):
        raise ModelFileError(path, "is not a regular file.")


def _split(source: Source, path: Path, values: Mapping[str, Value]) -> Split | None:
    count = _whole(values, "split.count")
    if count <= 1:
        return None
    number = _whole(values, "split.no") + 1
    if count > MAX_PARTS or number > count:
        raise ModelFileError(path, f"is damaged: it says it is part {words.number(number)} of {words.number(count)}.")
    match = PART_NAME.match(path.name)
    if match is None or int(match["count"]) != count or int(match["number"]) != number:
        return Split(number, count, (), ())
    files = tuple(path.with_name(f"{match['stem']}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1))
    return Split(number, count, files, tuple(file for file in files if not source.has(file)))


def _check_together(path: Path, values: Mapping[str, Value], tensors: list[Tensor]) -> None:
    claimed = _whole(values, "split.tensors.count") or len(tensors)
    if claimed != len(tensors) or len({tensor.name for tensor in tensors}) != len(tensors):
        raise ModelFileError(
            path,
            (
                f"is damaged: its parts contain {words.number(len(tensors))} tensors instead of the "
                f"{words.number(claimed)} different ones that the model has."
            ),
        )


# ---------------------------------------------------------------- interpreting it


def _header(path: Path, size: int, raw: RawHeader, tensors: list[Tensor], split: Split | None) -> GgufHeader:
    values = raw.values
    architecture = text_of(values, "general.architecture", _MAX_NAME)

    def own(key: str) -> str:
        return f"{architecture}.{key}"

    return GgufHeader(
        path=path,
        file_size=size,
        version=raw.version,
        architecture=architecture,
        general_type=text_of(values, "general.type", _MAX_NAME),
        name=text_of(values, "general.name", _MAX_TEXT) or path.stem,
        quantization=_quantization(values, tensors),
        parameters=sum(tensor.elements for tensor in tensors),
        tensor_bytes=sum(tensor.size for tensor in tensors),
        layers=_whole(values, own("block_count")),
        heads=_whole(values, own("attention.head_count")),
        kv_heads=_whole(values, own("attention.head_count_kv")) or _whole(values, own("attention.head_count")),
        width=_whole(values, own("embedding_length")),
        training_context=_whole(values, own("context_length")),
        rope=Rope(
            dimensions=_whole(values, own("rope.dimension_count")),
            base=_real(values, own("rope.freq_base")),
            scaling=text_of(values, own("rope.scaling.type"), _MAX_NAME),
            factor=_real(values, own("rope.scaling.factor")),
            original_context=_whole(values, own("rope.scaling.original_context_length")),
        ),
        experts=_whole(values, own("expert_count")),
        experts_used=_whole(values, own("expert_used_count")),
        mtp_layers=(mtp_layers := _whole(values, own("nextn_predict_layers"))),
        head=head_place(architecture, mtp_layers, (tensor.name for tensor in tensors)),
        chat_template=text_of(values, "tokenizer.chat_template", MAX_CHAT_TEMPLATE_BYTES + 1) or None,
        tokenizer=read_tokenizer(values),
        split=split,
        tensors=tuple(tensors),
        running_state=running_state(architecture, values),
        projection=_whole(values, "clip.vision.projection_dim") if architecture == PROJECTOR else 0,
        metadata=values,
    )


def whole_numbers(value: Value | None) -> list[int]:
    """The numbers of a list with one per layer, or a single number; empty for a list that is too long."""
    if isinstance(value, Array) and value.count > MAX_LAYERS:
        return []
    candidates = value.numbers() if isinstance(value, Array) else (value,)
    return [number for number in candidates if isinstance(number, int)]


def _whole(values: Mapping[str, Value], key: str) -> int:
    """A non-negative integer; the largest of a list with one number per layer; otherwise 0."""
    return max((number for number in whole_numbers(values.get(key)) if number >= 0), default=0)


def _real(values: Mapping[str, Value], key: str) -> float:
    value = values.get(key)
    return float(value) if isinstance(value, int | float) and abs(value) < math.inf else 0.0


def _quantization(values: Mapping[str, Value], tensors: list[Tensor]) -> str:
    """The declared quantization, otherwise the type of most of its bytes."""
    named = FILE_TYPES.get(_whole(values, "general.file_type")) if "general.file_type" in values else None
    if named is not None:
        return named
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type] += tensor.size
    return sizes.most_common(1)[0][0] if sizes else ""


# ---------------------------------------------------------------- what llama.cpp may load


_HEAD_ONLY = "contains only the MTP head of a model. Open that model, with this file as its draft model."


def _kind_problem(header: GgufHeader) -> str | None:
    if not header.architecture:
        return "doesn't say which architecture it has, so it can't be loaded."
    problem = refusal(header.architecture, header.general_type, (tensor.name for tensor in header.tensors))
    return problem or (_HEAD_ONLY if header.head == "alone" else None)


def _split_problem(header: GgufHeader) -> str | None:
    split = header.split
    if split is None:
        return None
    if not split.files:
        return (
            f"is part {split.number} of {split.count} of a model, but was renamed. llama.cpp finds the parts by "
            f"names that end in -00001-of-{split.count:05d}.gguf."
        )
    if split.missing:
        names = ", ".join(printable(file.name) for file in split.missing[:3])
        more = f" and {len(split.missing) - 3} more" if len(split.missing) > 3 else ""
        return f"is part {split.number} of {split.count} of a model, but these files are missing: {names}{more}."
    if split.number != 1:
        first = printable(split.files[0].name)
        return f"is part {split.number} of {split.count} of a model. Open its first part, {first}."
    return None


def _content_problem(header: GgufHeader) -> str | None:
    if not header.tensors:
        return "contains only a vocabulary, no model." if header.tokenizer else "contains no weights."
    if not 1 <= header.layers <= MAX_LAYERS:
        return f"is damaged: it claims to have {words.number(header.layers)} layers."
    for key, value in header.metadata.items():
        # llama.cpp multiplies some of these in 32 bits, and aborts at a negative epsilon.
        if key.endswith(_SHAPE_KEYS) and _whole(header.metadata, key) > MAX_DIMENSION:
            return f"is damaged: its {printable(key)} is {words.number(_whole(header.metadata, key))}."
        if key.endswith("_epsilon") and isinstance(value, float) and not 0 <= value < math.inf:
            return f"is damaged: its {printable(key)} is {value}."
    template = header.metadata.get("tokenizer.chat_template")
    if isinstance(template, bytes) and len(template) > MAX_CHAT_TEMPLATE_BYTES:
        return f"has a chat template of {words.number(len(template))} bytes, far more than any real one."
    return None


def _tokenizer_problem(header: GgufHeader) -> str | None:
    tokenizer = header.tokenizer
    if tokenizer is None:
        if TOKENS_KEY in header.metadata and MODEL_KEY in header.metadata:
            return "is damaged: its list of tokens is not a list of strings."
        return "has no tokenizer, so it can't read or write text."
    for key, kinds in ((TYPES_KEY, (VALUE_INT32,)), (SCORES_KEY, (VALUE_INT32, VALUE_FLOAT32))):
        value = header.metadata.get(key)
        if value is not None and not (
            isinstance(value, Array) and value.kind in kinds and value.count >= tokenizer.size
        ):
            return f"is damaged: {key} doesn't match its {words.number(tokenizer.size)} tokens."
    merges = header.metadata.get("tokenizer.ggml.merges")
    if (
        tokenizer.kind == "BPE"
        and merges is not None
        and not (isinstance(merges, Array) and merges.kind == VALUE_STRING)
    ):
        return "is damaged: its tokenizer's merges are not a list of strings."
    if not tokenizer.tokens:
        return "is damaged: its vocabulary is empty."
    # llama.cpp aborts the whole process if a token occurs twice.
    if len(set(_as_llama_cpp_spells(tokenizer.tokens))) != tokenizer.size:
        return "is damaged: its vocabulary contains the same token twice."
    return None


def _as_llama_cpp_spells(tokens: tuple[bytes, ...]) -> Iterable[bytes]:
    """The tokens as llama.cpp reads them: cut at a zero byte, and empty ones get a name."""
    if all(tokens) and b"\0" not in b"".join(tokens):
        return tokens
    cut = (token.partition(b"\0")[0] for token in tokens)
    return (token or b"[EMPTY_%d]" % index for index, token in enumerate(cut))


# Models cut into pieces for sites with a size limit: ``X.gguf.part1of2``, ``X.gguf-split-a``. Unlike the parts of a
# split model, a piece isn't a GGUF file; pieces have to be joined.

_NAME = re.compile(
    r"(?P<whole>.+\.gguf)(?:\.(?P<number>\d{2,3})|"
    r"[-._]?(?:part|split|chunk)[-._]?(?P<place>\d{1,4}|[a-z]{1,2})(?:[-._]?of[-._]?(?P<count>\d{1,4}))?)",
    re.IGNORECASE,
)


class Piece(NamedTuple):
    """What the name of a piece tells."""

    whole: str
    """The name of the whole file."""
    place: int
    """Counted from 0 or from 1."""
    pieces: int
    """The number of pieces; 0 if the name doesn't tell."""


def piece_of(name: str) -> Piece | None:
    """``None`` for the names of other files."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    place = (found["place"] or found["number"]).lower()
    number = int(place) if place.isdecimal() else sum((ord(one) - 97) * 26**at for at, one in enumerate(place[::-1]))
    return Piece(found["whole"], number, int(found["count"] or 0))


def problem_of(paths: Sequence[Path]) -> str:
    """Why the model with these pieces, in order, can't be loaded as it is."""
    pieces = [piece for path in paths if (piece := piece_of(path.name)) is not None]
    places, count = [one.place for one in pieces], max(one.pieces for one in pieces) or len(pieces)
    name = printable(pieces[0].whole)
    if count < 2 or places[0] > 1 or places != list(range(places[0], places[0] + count)):
        return f"{name} is in pieces, and not all of them are here. Download the others, too."
    return f"{name} is in {count} pieces. They must be joined before it can be used."


def join(paths: Sequence[Path], progress: Callable[[int, int], None], is_canceled: Callable[[], bool]) -> Path:
    """Join these pieces, in order, and delete them; returns the path of the complete model.

    Raises `Canceled`, and `KnownError`, also if the result isn't a complete model; the pieces are kept then.
    """
    piece = piece_of(paths[0].name)
    assert piece is not None
    whole, new = paths[0].with_name(piece.whole), paths[0].with_name(".joining")  # names can be too long for an ending
    try:
        total, free = sum(path.stat().st_size for path in paths), shutil.disk_usage(whole.parent).free
        if whole.exists():
            raise KnownError(f"{printable(whole.name)} already exists.")
        if total > free:
            raise KnownError(f"Joining needs {words.size(total)} of disk space, but only {words.size(free)} is free.")
        told = Progress(total, progress)

        def content() -> Iterator[bytes]:
            for path in paths:
                with path.open("rb", buffering=0) as file:
                    while chunk := file.read(CHUNK):
                        if is_canceled():
                            raise Canceled
                        told.add(len(chunk))
                        yield chunk

        try:
            write_whole(new, content(), mode=0o666)
            check_loadable(read_header(new))
            new.rename(whole)
        finally:
            new.unlink(missing_ok=True)
        for path in paths:
            path.unlink()
    except OSError as error:
        raise KnownError(f"{printable(whole.name)} couldn't be joined: {error.strerror or error}.") from error
    return whole
