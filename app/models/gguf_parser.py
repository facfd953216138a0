"""The raw content of a GGUF header: key–value pairs, tensors, type numbers, the tokenizer.

The file is untrusted. Every count and length is checked against the file's size and a limit before anything of that
size is allocated; arrays of numbers stay packed, arrays of texts are skipped unless requested. The rules are those of
llama.cpp's own reader or stricter, so that what passes here is safe to load. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3 have the same layout).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from app import words
from app.words import printable

# GGUF's numbers for value types, tensor types and kinds of quantization, as of October 2026.

VALUE_STRING = 8
VALUE_ARRAY = 9
VALUE_INT32 = 5
VALUE_FLOAT32 = 6

SCALAR_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Value type → `struct` format, little-endian."""


class TensorType(NamedTuple):
    name: str
    block: int
    """Elements stored together as one block."""
    size: int
    """Bytes per block."""


TENSOR_TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}

FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
"""``general.file_type`` → the name model pages use."""


MAGIC = b"GGUF"
MAX_HEADER_BYTES = 48_000_000
MAX_PAIRS = 10_000
MAX_TENSORS = 100_000
MAX_KEY_BYTES = 4096
MAX_STRING_BYTES = 16 * 1024 * 1024
MAX_ARRAY_COUNT = 4_000_000
MAX_VOCABULARY = 1_000_000
MAX_TENSOR_NAME_BYTES = 63
MAX_ALIGNMENT = 1024 * 1024
_FIRST_READ = 256 * 1024
_MAX_INT64 = 2**63 - 1

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {kind: struct.Struct("<" + code) for kind, code in SCALAR_FORMATS.items()}
_TENSOR_TAILS = [struct.Struct("<" + "Q" * dimensions + "IQ") for dimensions in range(5)]


class Reader(Protocol):
    """Returns a file's bytes in order: from one to ``size`` at a time, none at the end."""

    def read(self, size: int, /) -> bytes: ...


class HeaderError(Exception):
    """What is wrong with a file, as the rest of a sentence that begins with its name."""


class CutOffError(HeaderError):
    """The file ends before its header does."""


@dataclass(frozen=True)
class Array:
    """An array in the header: packed numbers, or texts (kept only under requested keys)."""

    kind: int
    """Value type of the elements."""
    count: int
    packed: bytes = b""
    """Numbers, little-endian."""
    texts: tuple[bytes, ...] | None = None
    digest: str = ""
    """SHA-256 of the raw texts with their lengths."""

    def numbers(self) -> tuple[int | float, ...]:
        """The elements of a numeric array; empty for texts."""
        if self.kind == VALUE_STRING:
            return ()
        return struct.unpack(f"<{self.count}{SCALAR_FORMATS[self.kind]}", self.packed)


Value = int | float | bool | bytes | Array
"""Texts stay bytes: decoding them all can take four times the memory."""


class Tensor(NamedTuple):
    """A tensor as listed in the header."""

    name: str
    shape: tuple[int, ...]
    """Fastest dimension first, as in the file."""
    type: str
    """For example ``F16`` or ``Q4_K``."""
    offset: int
    """Bytes from the start of the file."""
    size: int
    """Bytes."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class RawHeader(NamedTuple):
    version: int
    values: dict[str, Value]
    tensors: list[Tensor]


@dataclass
class Allowance:
    """How much more may be read of a model. Its parts share the limit, so that a thousand parts don't take a thousand
    times as long.
    """

    header_bytes: int = field(default_factory=lambda: MAX_HEADER_BYTES)
    tensors: int = field(default_factory=lambda: MAX_TENSORS)


def parse(file: Reader, size: int, keep_texts: Container[str] = (), allowance: Allowance | None = None) -> RawHeader:
    """Read the header of a file of ``size`` bytes; raises `HeaderError`.

    Arrays of texts under keys in ``keep_texts`` keep their texts. The bytes read are subtracted from ``allowance``.
    """
    return _Parser(file, size, keep_texts, allowance or Allowance()).parse()


@dataclass
class _Parser:
    file: Reader
    size: int
    keep_texts: Container[str]
    allowance: Allowance
    _data: bytes = b""
    _position: int = 0

    def parse(self) -> RawHeader:
        version = self._check_start()
        self._position = 8
        allowed = self.allowance.tensors
        beside = "" if allowed == MAX_TENSORS else " besides those of the parts before it"
        tensor_count = self._count(f"tensors{beside}", allowed, 24)
        pair_count = self._count("entries", MAX_PAIRS, 13)
        values: dict[str, Value] = {}
        for _ in range(pair_count):
            key = self._key()
            if key in values:
                raise HeaderError(f"is damaged: its header has the entry {printable(key)} twice.")
            values[key] = self._value(key)
        alignment = _alignment(values)
        listed = [self._tensor() for _ in range(tensor_count)]
        self.allowance.header_bytes -= self._position
        self.allowance.tensors -= tensor_count
        data_start = _padded(self._position, alignment)
        tensors = _placed(listed, data_start, alignment)
        if tensors:
            needed = max(tensor.offset + tensor.size for tensor in tensors)
            if needed > self.size:
                there, wanted = _two_sizes(self.size, needed)
                raise CutOffError(
                    f"is incomplete: it is {there} but its header needs {wanted}. Download or copy it again."
                )
        return RawHeader(version, values, tensors)

    # ------------------------------------------------------------ bytes

    def _need(self, end: int) -> bytes:
        """The file's bytes up to at least ``end``."""
        if end <= len(self._data):
            return self._data
        if end > self.size:
            raise CutOffError(f"is incomplete: it ends inside its header, after {words.size(self.size)}.")
        allowed = self.allowance.header_bytes
        if end > allowed:
            with_others = "" if allowed == MAX_HEADER_BYTES else " (with those of the parts before it)"
            raise HeaderError(f"is damaged: its header is larger than {words.size(MAX_HEADER_BYTES)}{with_others}.")
        wanted = min(self.size, allowed, max(end, 2 * len(self._data), _FIRST_READ))
        while len(self._data) < end and (more := self.file.read(wanted - len(self._data))):
            self._data += more
        if len(self._data) < end:
            raise CutOffError("became shorter while it was being read.")
        return self._data

    def _unpack(self, layout: struct.Struct) -> tuple[int | float, ...]:
        start = self._position
        self._position = start + layout.size
        return layout.unpack_from(self._need(self._position), start)

    def _uint32(self) -> int:
        return int(self._unpack(_U32)[0])

    def _uint64(self) -> int:
        return int(self._unpack(_U64)[0])

    def _bytes(self, length: int) -> bytes:
        start = self._position
        self._position = start + length
        return self._need(self._position)[start : self._position]

    def _length(self, limit: int, what: str) -> int:
        length = self._uint64()
        if length > limit:
            raise HeaderError(f"is damaged: its header has {what} of {words.number(length)} bytes.")
        return length

    def _count(self, what: str, limit: int, smallest: int) -> int:
        """Read a count of items that take at least ``smallest`` bytes each."""
        count = self._uint64()
        if count > limit:
            raise HeaderError(f"is damaged: its header claims {words.number(count)} {what}, more than any model has.")
        if count * smallest > self.size - self._position:
            raise CutOffError(
                f"is incomplete or damaged: {words.number(count)} {what} don't fit into its {words.size(self.size)}."
            )
        return count

    # ------------------------------------------------------------ parts of the header

    def _check_start(self) -> int:
        """The version, if this is a GGUF file that llama.cpp reads."""
        if self.size == 0:
            raise HeaderError("is empty.")
        start = self._need(min(self.size, 64))[:64]
        if not start.startswith(MAGIC[: len(start)]):
            raise HeaderError(_mistaken_format(start))
        (version,) = _U32.unpack_from(self._need(24), 4)
        if version & 0xFFFF == 0 and version != 0:
            raise HeaderError("is a big-endian GGUF file, made for a different kind of processor.")
        if version < 2:
            raise HeaderError(f"is GGUF version {version}, which llama.cpp no longer reads. Get a newer file.")
        if version > 3:
            raise HeaderError(
                f"is GGUF version {version}, which is too new for this version of Slipstream (it reads 2 and 3)."
            )
        return int(version)

    def _key(self) -> str:
        raw = self._bytes(self._length(MAX_KEY_BYTES, "a name"))
        if not raw:
            raise HeaderError("is damaged: its header has an entry without a name.")
        return _decoded(raw, "a name")

    def _value(self, key: str) -> Value:
        kind = self._uint32()
        if kind == VALUE_ARRAY:
            return self._array(key)
        if kind == VALUE_STRING:
            return self._bytes(self._length(MAX_STRING_BYTES, "a text"))
        if kind not in _SCALARS:
            raise HeaderError(f"is damaged: its entry {printable(key)} has the unknown type {kind}.")
        return self._unpack(_SCALARS[kind])[0]

    def _array(self, key: str) -> Array:
        kind = self._uint32()
        if kind == VALUE_ARRAY:
            raise HeaderError(f"has lists of lists in its header ({printable(key)}), which llama.cpp doesn't read.")
        if kind == VALUE_STRING:
            return self._text_array(key)
        if kind not in _SCALARS:
            raise HeaderError(f"is damaged: its list {printable(key)} has the unknown type {kind}.")
        width = _SCALARS[kind].size
        count = self._count(f"numbers in {printable(key)}", MAX_ARRAY_COUNT, width)
        return Array(kind, count, self._bytes(count * width))

    def _text_array(self, key: str) -> Array:
        keep = key in self.keep_texts
        count = self._count(f"texts in {printable(key)}", MAX_VOCABULARY if keep else MAX_ARRAY_COUNT, 8)
        if not keep:
            self._texts(count, keep=False)
            return Array(VALUE_STRING, count)
        start = self._position
        texts = tuple(self._texts(count, keep=True))
        digest = hashlib.sha256(memoryview(self._data)[start : self._position]).hexdigest()
        return Array(VALUE_STRING, count, b"", texts, digest)

    def _texts(self, count: int, *, keep: bool) -> list[bytes]:
        # The hot loop: a vocabulary has 150,000 texts.
        data, position, end = self._data, self._position, len(self._data)
        unpack = _U64.unpack_from
        texts: list[bytes] = []
        for _ in range(count):
            start = position + 8
            if start > end:
                data, end = self._more(start)
            position = start + unpack(data, start - 8)[0]
            if position > end:
                data, end = self._more(position, position - start)
            if keep:
                texts.append(data[start:position])
        self._position = position
        return texts

    def _more(self, end: int, length: int = 0) -> tuple[bytes, int]:
        if length > MAX_STRING_BYTES:
            raise HeaderError(f"is damaged: its header has a text of {words.number(length)} bytes.")
        data = self._need(end)
        return data, len(data)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and offset (from the start of the data) of one tensor."""
        name = _decoded(self._bytes(self._length(MAX_TENSOR_NAME_BYTES, "a tensor name")), "a tensor name")
        dimensions = self._uint32()
        if dimensions > 4:
            raise HeaderError(f"is damaged: its tensor {printable(name)} has {words.number(dimensions)} dimensions.")
        *shape, kind, offset = map(int, self._unpack(_TENSOR_TAILS[dimensions]))
        return name, tuple(shape), kind, offset


def text_of(values: Mapping[str, Value], key: str, limit: int | None = None) -> str:
    """The text under ``key``, of at most ``limit`` bytes; empty if there is none."""
    value = values.get(key)
    return value[:limit].decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _alignment(values: dict[str, Value]) -> int:
    alignment = values.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int):
        raise HeaderError("is damaged: the alignment of its data is not a number.")
    if not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise HeaderError(
            f"is damaged: the alignment of its data is {words.number(alignment)}, not a power of two up to 1,048,576."
        )
    return alignment


def _placed(listed: list[tuple[str, tuple[int, ...], int, int]], data_start: int, alignment: int) -> list[Tensor]:
    """The tensors with sizes and file positions; llama.cpp requires them in order, without gaps."""
    tensors = []
    names: set[str] = set()
    expected = 0
    for name, shape, kind, offset in listed:
        if name in names:
            raise HeaderError(f"is damaged: its header has the tensor {printable(name)} twice.")
        names.add(name)
        size = _tensor_size(name, shape, kind)
        if offset != expected:
            raise HeaderError(f"is damaged: its tensor {printable(name)} does not start where the one before it ends.")
        expected = _padded(offset + size, alignment)
        if expected > _MAX_INT64:
            raise HeaderError("is damaged: its tensors together are larger than any file.")
        tensors.append(Tensor(name, shape, TENSOR_TYPES[kind].name, data_start + offset, size))
    return tensors


def _tensor_size(name: str, shape: tuple[int, ...], kind: int) -> int:
    stored = TENSOR_TYPES.get(kind)
    if stored is None:
        raise HeaderError(f"has a tensor of a type this version doesn't know ({printable(name)}, type {kind}).")
    elements = 1
    for length in shape:
        elements *= length
        if length > _MAX_INT64 or elements > _MAX_INT64:
            raise HeaderError(f"is damaged: its tensor {printable(name)} is larger than any file.")
    if (shape[0] if shape else 1) % stored.block:
        raise HeaderError(
            f"is damaged: the rows of its tensor {printable(name)} are not a multiple of {stored.block} numbers, as "
            f"{stored.name} requires."
        )
    return elements // stored.block * stored.size


def _padded(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment


def _decoded(raw: bytes, what: str) -> str:
    """Decode a name; control characters would garble sentences about it, so they are errors."""
    with contextlib.suppress(UnicodeDecodeError):
        if (text := raw.decode("utf-8")).isprintable():
            return text
    raise HeaderError(f"is damaged: {what} in its header is not text.")


def _two_sizes(smaller: int, larger: int) -> tuple[str, str]:
    """Both sizes as text; in bytes if they would look the same."""
    texts = words.size(smaller), words.size(larger)
    return texts if texts[0] != texts[1] else (f"{words.number(smaller)} bytes", f"{words.number(larger)} bytes")


def _mistaken_format(start: bytes) -> str:
    """The sentence about a file that people mistake for a model."""
    if start[:4] in (b"lmgg", b"fmgg", b"tjgg", b"ggml", b"ggmf", b"ggjt"):
        return "is in the older GGML format, which llama.cpp no longer reads. Get a GGUF file."
    if start.startswith(b"version https://git-lfs"):
        return "is only a Git LFS pointer, not the model itself. Fetch it with: git lfs pull"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "is a web page, not a model: the download went wrong."
    if start[8:10] == b'{"':
        return "is a safetensors file, not a GGUF model file. Get the GGUF version of the model."
    return "is not a GGUF model file."


TOKENS_KEY = "tokenizer.ggml.tokens"
TYPES_KEY = "tokenizer.ggml.token_type"
SCORES_KEY = "tokenizer.ggml.scores"
MODEL_KEY = "tokenizer.ggml.model"

_KINDS = {
    "llama": "SPM",
    "gpt2": "BPE",
    "gemma4": "BPE",
    "hybriddna": "BPE",
    "whitespace": "BPE",
    "bert": "WPM",
    "t5": "UGM",
    "rwkv": "RWKV",
    "plamo2": "PLaMo-2",
}
_DEFAULT_BOS = {"llama": 1, "bert": 101, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "plamo2": 1}
_DEFAULT_EOS = {"llama": 2, "t5": 1, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "plamo2": 2}
_PRE_WITHOUT_BOS = ("chatglm-bpe", "glm4", "glm5")
_PRE_THAT_ADD_BOS = (
    "chameleon",
    "falcon-h1",
    "falcon3",
    "gemma4",
    "jina-v5-nano",
    "lfm2",
    "llama-bpe",
    "llama-v3",
    "llama3",
    "midm-2.0",
    "pixtral",
    "tekken",
)


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A tokenizer without its tokens; ids are ``None`` for missing ones."""

    kind: str
    """llama.cpp's type of vocabulary, which several models share: ``SPM``, ``BPE``, …"""
    model: str
    """The file's name for it: ``llama``, ``gpt2``, ``bert``, …"""
    pre: str
    size: int
    """The number of tokens."""
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    fingerprint: str
    """SHA-256 of the token list: equal only for equal lists."""


class Tokenizer(TokenizerFacts, frozen=True, kw_only=True, eq=False):
    """A tokenizer with its tokens."""

    tokens: tuple[bytes, ...]
    eot_id: int | None
    """End of turn, if the file names it; llama.cpp finds more by their text."""

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.size} tokens)"


def read_tokenizer(values: Mapping[str, Value]) -> Tokenizer | None:
    """The tokenizer in a file's metadata, or ``None`` if it has none."""
    tokens = values.get(TOKENS_KEY)
    model = text_of(values, MODEL_KEY)
    if not model or not isinstance(tokens, Array) or tokens.kind != VALUE_STRING or tokens.texts is None:
        return None
    pre = "gemma4" if model == "gemma4" else text_of(values, "tokenizer.ggml.pre")
    is_bpe = _KINDS.get(model) == "BPE"
    bos = None if is_bpe and pre in _PRE_WITHOUT_BOS else _DEFAULT_BOS.get(model)
    adds_bos = model in ("llama", "bert") or (is_bpe and pre in _PRE_THAT_ADD_BOS)
    add_bos = _flag(values, "tokenizer.ggml.add_bos_token", adds_bos) or pre == "gemma4"
    return Tokenizer(
        kind=_KINDS.get(model, model),
        model=model,
        pre=pre,
        size=len(tokens.texts),
        tokens=tokens.texts,
        bos_id=_special(values, "bos", bos, tokens.count),
        eos_id=_special(values, "eos", _DEFAULT_EOS.get(model), tokens.count),
        eot_id=_special(values, "eot", None, tokens.count),
        add_bos=add_bos,
        add_eos=_flag(values, "tokenizer.ggml.add_eos_token", model == "t5"),
        fingerprint=tokens.digest,
    )


def _flag(values: Mapping[str, Value], key: str, default: bool) -> bool:
    value = values.get(key)
    return value if isinstance(value, bool) else default


def _special(values: Mapping[str, Value], name: str, default: int | None, count: int) -> int | None:
    """A special token's id; llama.cpp ignores ids outside the vocabulary and uses its default."""
    value = values.get(f"tokenizer.ggml.{name}_token_id")
    for candidate in (value, default):
        if isinstance(candidate, int) and not isinstance(candidate, bool) and 0 <= candidate < count:
            return candidate
    return None
