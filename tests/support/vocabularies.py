"""What the real vocabularies of llama.cpp's tree are, and which fit each other: by our reader and by llama.cpp.

    python -m tests.support.vocabularies FOLDER > tests/data/vocabularies.json

FOLDER holds ``ggml-vocab-*.gguf``; they are in ``vendor/llama.cpp/models`` of llama-cpp-python's source distribution.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp

from app.models.gguf import GgufHeader, read_header
from app.models.pairing import FIRST_COMPARED_ID, MAX_SIZE_DIFFERENCE, compare

_KINDS = {1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLaMo-2"}
Facts = dict[str, Any]
Verdicts = dict[str, bool]
"""By the two names with a space between, the target's first."""


def headers(folder: Path) -> dict[str, GgufHeader]:
    """By the name between ``ggml-vocab-`` and ``.gguf``."""
    return {
        path.stem.removeprefix("ggml-vocab-"): read_header(path) for path in sorted(folder.glob("ggml-vocab-*.gguf"))
    }


def facts(header: GgufHeader) -> Facts:
    """What llama.cpp could say too."""
    tokenizer = header.tokenizer
    assert tokenizer is not None
    return {
        "kind": tokenizer.kind,
        "size": tokenizer.size,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "add_bos": tokenizer.add_bos,
        "add_eos": tokenizer.add_eos,
    }


def verdicts(read: Mapping[str, GgufHeader]) -> dict[str, dict[str, Any]]:
    """Ours, of all with all."""
    found = {}
    for target in read:
        for draft in read:
            verdict = compare(read[target], read[draft])
            found[f"{target} {draft}"] = {"fits": verdict.fits, "first_difference": verdict.first_difference}
    return found


# ---------------------------------------------------------------- llama.cpp


@dataclass(frozen=True)
class LlamaVocabulary:
    """A vocabulary as llama.cpp has loaded it."""

    facts: Facts
    tokens: list[bytes]


def load(path: Path) -> LlamaVocabulary:
    """Read a vocabulary with llama.cpp."""
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise ValueError(f"llama.cpp does not load {path.name}")
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    size = llama_cpp.llama_vocab_n_tokens(vocabulary)
    found = {
        "kind": _KINDS[llama_cpp.llama_vocab_type(vocabulary)],
        "size": size,
        "bos_id": _id(llama_cpp.llama_vocab_bos(vocabulary)),
        "eos_id": _id(llama_cpp.llama_vocab_eos(vocabulary)),
        "add_bos": bool(llama_cpp.llama_vocab_get_add_bos(vocabulary)),
        "add_eos": bool(llama_cpp.llama_vocab_get_add_eos(vocabulary)),
    }
    tokens = [llama_cpp.llama_vocab_get_text(vocabulary, token) for token in range(size)]
    llama_cpp.llama_model_free(model)
    return LlamaVocabulary(found, tokens)


def llama_fits(target: LlamaVocabulary, draft: LlamaVocabulary) -> bool:
    """The rules of ``common_speculative_are_compatible``, on what llama.cpp has loaded."""
    ours, theirs = target.facts, draft.facts
    same_rules = all(
        ours[add] == theirs[add] and (not ours[add] or ours[token] == theirs[token])
        for add, token in (("add_bos", "bos_id"), ("add_eos", "eos_id"))
    )
    near = abs(ours["size"] - theirs["size"]) <= MAX_SIZE_DIFFERENCE
    common = slice(FIRST_COMPARED_ID, min(ours["size"], theirs["size"]))
    return ours["kind"] == theirs["kind"] and same_rules and near and target.tokens[common] == draft.tokens[common]


def _id(token: int) -> int | None:
    return None if token < 0 else token


def main() -> None:
    read = headers(Path(sys.argv[1]))
    known = {name: {**facts(header), "fingerprint": fingerprint(header)} for name, header in read.items()}
    json.dump({"vocabularies": known, "verdicts": verdicts(read)}, sys.stdout, indent=1)
    sys.stdout.write("\n")


def fingerprint(header: GgufHeader) -> str:
    assert header.tokenizer is not None
    return header.tokenizer.fingerprint


if __name__ == "__main__":
    main()
