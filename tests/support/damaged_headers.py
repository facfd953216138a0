"""GGUF files of several kinds to be damaged, and what has to hold for whatever becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from app.models.gguf import GgufHeader, ModelFileError, check_loadable, read_header
from app.models.gguf_parser import parse
from app.models.library.index import summary_of
from tests.support.gguf_files import make_model, make_vocabulary_file


def plain(folder: Path) -> Path:
    return make_model(folder / "plain.gguf", vocab_size=360, layers=1, width=32, heads=2)


def byte_level(folder: Path) -> Path:
    return make_model(
        folder / "bytes.gguf", tokenizer="gpt2", layers=1, width=32, weights="Q8_0", chat_template="x" * 99
    )


def hybrid(folder: Path) -> Path:
    def edit(writer: Any) -> None:
        writer.add_rope_dimension_sections([4, 4, 4, 4])
        writer.add_ssm_state_size(16)
        writer.add_sliding_window(64)
        writer.add_expert_count(8)
        writer.add_nextn_predict_layers(1)

    return make_model(folder / "hybrid.gguf", architecture="lfm2", vocab_size=360, width=32, edit=edit)


def first_part(folder: Path) -> Path:
    return make_model(folder / "split.gguf", vocab_size=360, layers=2, width=32, max_tensors_per_file=6)


def later_part(folder: Path) -> Path:
    return sorted(first_part(folder).parent.glob("split-*"))[1]


def large_vocabulary(folder: Path) -> Path:
    return make_vocabulary_file(folder / "large.gguf", tokenizer="gpt2", vocab_size=40_000)


SHARES: dict[Callable[[Path], Path], float] = {
    plain: 0.30,
    byte_level: 0.20,
    hybrid: 0.20,
    first_part: 0.18,
    later_part: 0.10,
    large_vocabulary: 0.02,
}
"""What makes a file to be damaged, and how many of all damaged files are of that kind."""


def header_size(path: Path) -> int:
    """Bytes before the weights."""
    with path.open("rb") as opened:
        header = parse(opened, path.stat().st_size)
    return min((tensor.offset for tensor in header.tensors), default=path.stat().st_size)


def reads(path: Path) -> bool:
    """Whether a file can be read; there is a sentence about one that can't."""
    try:
        read = read_header(path)
    except ModelFileError as error:
        assert str(error).isprintable()
        return False
    _check_promises(read)
    return True


def _check_promises(read: GgufHeader) -> None:
    """A header that was read holds what it promises."""
    assert all(0 <= tensor.offset <= tensor.offset + tensor.size <= read.file_size for tensor in read.tensors)
    msgspec.json.encode(summary_of(read))
    if read.tokenizer is not None:
        for id_ in (read.tokenizer.bos_id, read.tokenizer.eos_id, read.tokenizer.eot_id):
            assert id_ is None or read.tokenizer.tokens[id_] is not None
    try:
        check_loadable(read)
    except ModelFileError as error:
        assert str(error).isprintable()
