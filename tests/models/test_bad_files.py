"""Files that are cut off, that lie, or that are no files: one clear sentence each, in bounded time and memory."""

from __future__ import annotations

import itertools
import os
import struct
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from app.models import gguf_parser
from app.models.gguf import ModelFileError, read_header
from app.models.library.index import summary_of
from app.system import KnownError
from tests.support import damaged_headers
from tests.support.gguf_files import make_model
from tests.support.header_probe import peak_memory, probe
from tests.support.permissions import without_rights
from tests.support.raw_gguf import ARRAY, STRING, U8, U32, U64, array, header, mutations, pair, string, tensor, uint32

MEGABYTE = 1_000_000


def problem(path: Path) -> str:
    """The sentence about a file that cannot be read; ends with a full stop and is one line."""
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert isinstance(caught.value, KnownError)
    text = str(caught.value)
    assert text.isprintable()
    return text


def problem_of(data: bytes, path: Path) -> str:
    path.write_bytes(data)
    return problem(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


# ---------------------------------------------------------------- no model at all


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "model.gguf is empty."),
        (b"Dear diary,\n" * 100, "model.gguf is not a GGUF model file."),
        (b"\x00" * 100, "model.gguf is not a GGUF model file."),
        (
            b"tjgg" + b"\x00" * 100,
            "model.gguf is in the older GGML format, which llama.cpp no longer reads. Get a GGUF file.",
        ),
        (b"<!DOCTYPE html><html>", "model.gguf is a web page, not a model: the download went wrong."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
            "model.gguf is only a Git LFS pointer, not the model itself. Fetch it with: git lfs pull",
        ),
        (
            struct.pack("<Q", 100) + b'{"__metadata__":{}}',
            "model.gguf is a safetensors file, not a GGUF model file. Get the GGUF version of the model.",
        ),
        (header(version=1), "model.gguf is GGUF version 1, which llama.cpp no longer reads. Get a newer file."),
        (
            header(version=4),
            "model.gguf is GGUF version 4, which is too new for this version of Slipstream (it reads 2 and 3).",
        ),
        (header(order=">"), "model.gguf is a big-endian GGUF file, made for a different kind of processor."),
    ],
    ids=itertools.count(),
)
def test_says_what_the_file_is_instead(file: Path, data: bytes, text: str) -> None:
    assert problem_of(data, file) == text


def test_what_is_no_file(tmp_path: Path) -> None:
    assert problem(tmp_path / "gone.gguf").startswith("gone.gguf no longer exists")
    (tmp_path / "plain").write_bytes(b"")
    assert problem(tmp_path / "plain" / "below.gguf") == "below.gguf doesn't exist: a part of its path is not a folder."
    assert "can't be read" in problem(tmp_path / "nul\0.gguf")
    assert "can't be read" in problem(tmp_path / ("x" * 5000))
    (tmp_path / "folder.gguf").mkdir()
    assert problem(tmp_path / "folder.gguf") == "folder.gguf is a folder, not a model file."


def test_a_file_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    assert problem_of(b"no", tmp_path / "a\x1b[31m\nb.gguf") == "a\\x1b[31m\\nb.gguf is not a GGUF model file."


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_without_waiting_for_a_writer_and_a_device_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert problem(tmp_path / "pipe.gguf") == "pipe.gguf is not a regular file."
    assert problem(Path("/dev/zero")) == "zero is not a regular file."


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_a_file_without_permission(file: Path) -> None:
    make_model(file)
    with without_rights(file):
        text = problem(file)
    assert (
        text
        == "model.gguf can't be read because you don't have permission. Change the permissions or choose another file."
    )


# ---------------------------------------------------------------- cut off


def test_a_file_cut_off_in_its_weights_gives_both_sizes(file: Path) -> None:
    make_model(file, weights="F32", width=128, vocab_size=4096)
    size = max(tensor.offset + tensor.size for tensor in read_header(file).tensors)
    os.truncate(file, size - 1)
    assert f"it is {size - 1:,} bytes but its header needs {size:,} bytes" in problem(file)
    os.truncate(file, size // 2)
    assert problem(file) == (
        f"model.gguf is incomplete: it is {size // 2 / MEGABYTE:.1f} MB but its header needs {size / MEGABYTE:.1f} MB. "
        "Download or copy it again."
    )


def test_a_file_cut_off_anywhere_is_noticed(file: Path, tmp_path: Path) -> None:
    data = make_model(file, vocab_size=360, layers=1).read_bytes()
    end = max(tensor.offset + tensor.size for tensor in read_header(file).tensors)
    header_end = min(tensor.offset for tensor in read_header(file).tensors)
    cut = tmp_path / "cut.gguf"
    for length in [*range(1, header_end, 37), *range(header_end, end, 5003)]:
        text = problem_of(data[:length], cut)
        assert "incomplete" in text, length


# ---------------------------------------------------------------- lies


LLAMA = string("general.architecture", "llama")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (header(tensor_count=2**64 - 1), "claims 18,446,744,073,709,551,615 tensors"),
        (header(pair_count=2**63), "claims 9,223,372,036,854,775,808 entries"),
        (header(pair_count=9_000), "9,000 entries don't fit"),
        (header(tensor_count=90_000), "90,000 tensors don't fit"),
        (header([struct.pack("<Q", 2**62) + bytes(8)]), "has a name of 4,611,686,018,427,387,904 bytes"),
        (header([pair("", U32, bytes(4))]), "an entry without a name"),
        (header([pair(b"\xff\xfe", U32, bytes(4))]), "a name in its header is not text"),
        (header([pair("a\0b", U32, bytes(4))]), "a name in its header is not text"),
        (header(tensors=[tensor("t\n", [1], 0, 0)]), "a tensor name in its header is not text"),
        (header([LLAMA, LLAMA]), "has the entry general.architecture twice"),
        (header([pair("key", 77, bytes(4))]), "its entry key has the unknown type 77"),
        (header([pair("key", STRING, struct.pack("<Q", 2**63))]), "a text of 9,223,372,036,854,775,808 bytes"),
        (
            header([pair("key", STRING, struct.pack("<Q", 10**6))]),
            "incomplete: it ends inside its header, after 47 bytes",
        ),
        (header([array("key", U8, 2**60, b"")]), "claims 1,152,921,504,606,846,976 numbers in key"),
        (header([array("key", U64, 10**6, bytes(64))]), "1,000,000 numbers in key don't fit"),
        (header([array("key", STRING, 2**60, b"")]), "claims 1,152,921,504,606,846,976 texts in key"),
        (header([array("key", STRING, 2, struct.pack("<Q", 2**64 - 9) + bytes(64))]), "has a text of"),
        (header([array("key", 77, 1, bytes(8))]), "its list key has the unknown type 77"),
        (header([array("key", ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 1000)]), "has lists of lists"),
        (header([uint32("general.alignment", 0)]), "alignment of its data is 0"),
        (header([uint32("general.alignment", 48)]), "alignment of its data is 48"),
        (header([uint32("general.alignment", 2**31)]), "alignment of its data is 2,147,483,648"),
        (header([string("general.alignment", "32")]), "alignment of its data is not a number"),
        (header(tensors=[tensor("t", [1, 1, 1, 1, 1], 0, 0)]), "its tensor t has 5 dimensions"),
        (header(tensors=[tensor("t" * 64, [1], 0, 0)]), "a tensor name of 64 bytes"),
        (header(tensors=[tensor("t", [32], 99, 0)]), "has a tensor of a type this version doesn't know (t, type 99)"),
        (header(tensors=[tensor("t", [33], 8, 0)]), "the rows of its tensor t are not a multiple of 32 numbers"),
        (header(tensors=[tensor("t", [2**63], 0, 0)]), "its tensor t is larger than any file"),
        (header(tensors=[tensor("t", [2**40, 2**40, 2**40], 0, 0)]), "its tensor t is larger than any file"),
        (header(tensors=[tensor("t", [2**61], 0, 0)]), "its tensors together are larger than any file"),
        (header(tensors=[tensor("t", [8], 0, 32)]), "its tensor t does not start where the one before it ends"),
        (header(tensors=[tensor("t", [8], 0, 2**64 - 32)]), "its tensor t does not start where the one before it ends"),
        (header(tensors=[tensor("t", [8], 0, 0)] * 2) + bytes(64), "has the tensor t twice"),
        (header(tensors=[tensor("t", [2**50], 0, 0)]), "but its header needs 4,504 TB"),
        (header([uint32("split.count", 60_000)]), "it is part 1 of 60,000"),
    ],
    ids=itertools.count(),
)
def test_lies_are_noticed(file: Path, data: bytes, part: str) -> None:
    tracemalloc.start()
    try:
        assert part in problem_of(data, file)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTE
    finally:
        tracemalloc.stop()


def sparse(path: Path, pieces: list[tuple[bytes, int]]) -> None:
    """Write pieces, each followed by a hole of so many bytes, into a 20 GB file that takes no disk space."""
    with path.open("wb") as opened:
        for data, hole in pieces:
            opened.write(data)
            opened.seek(hole, os.SEEK_CUR)
    os.truncate(path, 20 * 1024**3)


def test_headers_that_never_end_are_given_up(file: Path) -> None:
    """The claims are honest, the huge (sparse) file really holds that much: only the bounds help."""
    texts = (array("texts", STRING, 3_900_000, b""), 8 * 3_900_000)
    more = [(array(f"texts {index}", STRING, 3_900_000, b""), 8 * 3_900_000) for index in range(3)]
    numbers = [(array(f"numbers {index}", U64, 4_000_000, b""), 32_000_000) for index in range(3)]
    for pieces, problem in (
        ([texts], "has an entry without a name."),
        (more, "is larger than 48 MB."),
        (numbers, "is larger than 48 MB."),
    ):
        sparse(file, [(header(pair_count=5_000), 0), *pieces])
        outcome, grown = probe(file)
        assert outcome == f"model.gguf is damaged: its header {problem}"
        assert grown < 200 * MEGABYTE


def parts(folder: Path, count: int, tensors: int, texts: int = 0) -> Path:
    """The first of ``count`` honest files of one model, each with so many tensors and empty texts."""
    for number in range(count):
        pairs = [LLAMA, uint32("split.no", number), uint32("split.count", count)]
        listed = [tensor(f"{number}.{index}", [0], 0, 0) for index in range(tensors)]
        data = header([*pairs, array("texts", STRING, texts, bytes(8 * texts))], listed) + bytes(32)
        (folder / f"split-{number + 1:05d}-of-{count:05d}.gguf").write_bytes(data)
    return folder / f"split-00001-of-{count:05d}.gguf"


def test_many_parts_may_not_hold_more_than_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_parser, "MAX_TENSORS", 100)
    monkeypatch.setattr(gguf_parser, "MAX_HEADER_BYTES", 100_000)
    assert len(read_header(parts(tmp_path, 10, tensors=10)).tensors) == 100
    assert problem(parts(tmp_path, 10, tensors=11)) == (
        "split-00010-of-00010.gguf is damaged: its header claims 11 tensors besides those of the parts before it, more "
        "than any model has."
    )
    assert len(read_header(parts(tmp_path, 10, tensors=1, texts=1200)).tensors) == 10
    assert problem(parts(tmp_path, 10, tensors=1, texts=1250)) == (
        "split-00010-of-00010.gguf is damaged: its header is larger than 100 KB (with those of the parts before it)."
    )


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may look everywhere")
def test_a_part_that_is_a_link_to_where_nobody_may_look_is_missing(tmp_path: Path) -> None:
    first = parts(tmp_path, 2, tensors=1)
    second = tmp_path / "split-00002-of-00002.gguf"
    (hidden := tmp_path / "hidden").mkdir()
    second.rename(hidden / "part")
    second.symlink_to(hidden / "part")
    hidden.chmod(0)
    try:
        read = read_header(first)
        assert read.split is not None and read.split.missing == (second,)
    finally:
        hidden.chmod(0o700)


def test_a_number_per_layer_of_millions_of_layers_says_nothing(file: Path) -> None:
    """It was looked through for each of the layers, which took minutes."""
    count = 3_900_000
    pairs = [
        string("general.architecture", "llama"),
        uint32("llama.block_count", 512),
        uint32("llama.attention.head_count", 4),
        array("llama.attention.key_length", U8, count, b"\x01" * count),
    ]
    tensors = [tensor(f"blk.{number}.attn_k.weight", (32, 8), 0, 1024 * number) for number in range(512)]
    file.write_bytes(header(pairs, tensors) + bytes(1024 * 513))
    assert summary_of(read_header(file)).shape.key_length == 0


def test_the_largest_vocabulary_allowed_stays_small_in_memory(file: Path) -> None:
    tokens = b"".join(struct.pack("<Q", 3) + b"%03x" % (index % 4096) for index in range(1_000_000))
    file.write_bytes(header([LLAMA, array("tokenizer.ggml.tokens", STRING, 1_000_000, tokens)]))
    outcome, grown = probe(file)
    assert outcome == "read"
    assert grown < 200 * MEGABYTE


@pytest.mark.parametrize("make", damaged_headers.SHARES)
def test_damaged_headers(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Some can be read still. None takes 2 s of computing, none 200 MB, and each gets a sentence or a summary.

    ``make proof`` damages more of them.
    """
    path, count = make(tmp_path), round(1500 * damaged_headers.SHARES[make])
    opened = next(iter(sorted(tmp_path.glob("*.gguf"))))
    data, header_bytes = path.read_bytes(), damaged_headers.header_size(path)
    before, slowest, outcomes = peak_memory(), 0.0, Counter[str]()
    for changed in mutations(data, header_bytes, count, seed=20_261_120):
        path.write_bytes(changed)
        begun = time.process_time()
        outcomes["read" if damaged_headers.reads(opened) else "refused"] += 1
        slowest = max(slowest, time.process_time() - begun)
    assert min(outcomes["refused"], outcomes["read"]) > count / 20
    assert slowest < 2
    assert peak_memory() - before < 100 * MEGABYTE
