"""The vocabularies of llama.cpp's tree: what we read of them, and which fit, is what llama.cpp itself says.

They are too large to be kept here. With SLIPSTREAM_VOCABULARIES naming a folder that has them (see
`tests.support.vocabularies`) they are read and compared with llama.cpp; what came of it is in ``tests/data``, from
which the verdicts are made again without them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.models.gguf import ModelFacts
from app.models.gguf_parser import TokenizerFacts
from app.models.pairing import Difference, judge
from tests.support import vocabularies

DATA = Path(__file__).parent.parent / "data" / "vocabularies.json"
FOLDER = os.environ.get("SLIPSTREAM_VOCABULARIES", "")
NEEDS_FILES = pytest.mark.skipif(not FOLDER, reason="SLIPSTREAM_VOCABULARIES names no folder with vocabularies")


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(DATA.read_bytes())
    return content


def with_tokenizer(facts: dict[str, Any]) -> ModelFacts:
    """A model of which only the tokenizer is known."""
    texts = dict.fromkeys(("name", "architecture", "quantization"), "")
    others = set(ModelFacts.__struct_fields__) - {*texts, "running_state", "tokenizer"}
    tokenizer = TokenizerFacts(model="", pre="", **facts)
    return ModelFacts(**texts, **dict.fromkeys(others, 0), running_state=None, tokenizer=tokenizer)  # type: ignore[arg-type]


def test_the_verdicts_follow_from_what_is_known(known: dict[str, Any]) -> None:
    summaries = {name: with_tokenizer(facts) for name, facts in known["vocabularies"].items()}
    assert len(summaries) >= 15
    fitting = 0
    for pair, expected in known["verdicts"].items():
        target, draft = pair.split(" ")
        first = expected["first_difference"]
        different = None if first is None else Difference(first, "one", "other")
        verdict = judge(summaries[target], summaries[draft], lambda different=different: different)  # type: ignore[misc]
        assert (verdict.fits, verdict.first_difference) == (expected["fits"], first), pair
        fitting += verdict.fits
    assert len(summaries) <= fitting < len(summaries) ** 2 / 2


@NEEDS_FILES
def test_they_are_read_as_they_were(known: dict[str, Any]) -> None:
    read = vocabularies.headers(Path(FOLDER))
    found = {
        name: vocabularies.facts(one) | {"fingerprint": vocabularies.fingerprint(one)} for name, one in read.items()
    }
    assert found == known["vocabularies"]
    assert vocabularies.verdicts(read) == known["verdicts"]


@NEEDS_FILES
def test_llama_cpp_says_the_same() -> None:
    read = vocabularies.headers(Path(FOLDER))
    loaded = {name: vocabularies.load(header.path) for name, header in read.items()}
    assert {name: vocabularies.facts(one) for name, one in read.items()} == {
        name: one.facts for name, one in loaded.items()
    }
    ours = {pair: verdict["fits"] for pair, verdict in vocabularies.verdicts(read).items()}
    theirs = {f"{one} {two}": vocabularies.llama_fits(loaded[one], loaded[two]) for one in loaded for two in loaded}
    assert ours == theirs
