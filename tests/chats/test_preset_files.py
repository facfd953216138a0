"""Presets in files of others: all that is understood is taken, nothing is followed, the rest is named."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.chats.presets import MAX_FILE_BYTES, PresetFile, preset_as_file, read_preset
from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.system import KnownError

ALL = ChatSettings(
    system_prompt="Be brief. “äöü” \N{GRINNING FACE}",
    sampling=SamplingChoice(
        temperature=0.0,
        top_k=20,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        frequency_penalty=-0.5,
        presence_penalty=1.5,
        penalty_window=128,
    ),
    seed=7,
    max_tokens=100,
    stop=["\n\n", "END"],
    overflow="keep_ends",
    drafter="ngram",
)


def lm_studio(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    named = [{"key": f"llm.prediction.{key}", "value": value} for key, value in fields]
    return {"identifier": "@local:x", "name": "X", "operation": {"fields": named}, "load": {"fields": []}, **more}


def written(folder: Path, content: object) -> Path:
    path = folder / "Some thing.preset.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def read(folder: Path, content: object) -> PresetFile:
    return read_preset(written(folder, content))


@pytest.mark.parametrize("given", [ALL, ChatSettings(), ChatSettings(sampling=SamplingChoice(top_p=1.0, min_p=0.0))])
def test_our_own_file_says_everything(tmp_path: Path, given: ChatSettings) -> None:
    path = tmp_path / "a.json"
    for mark in (b"\xef\xbb\xbf", b""):  # of the order of bytes
        path.write_bytes(mark + preset_as_file("Ours", given))
        assert read_preset(path) == PresetFile(name="Ours", settings=given)
    content = json.loads(path.read_bytes())
    assert (content["format"], content["version"]) == ("slipstream-preset", 1)
    assert "preset" not in content["settings"]


def test_a_preset_of_lm_studio(tmp_path: Path) -> None:
    content = lm_studio(
        ("systemPrompt", "Think."),
        ("temperature", 1),
        ("topKSampling", 20),
        ("minPSampling", {"checked": True, "value": 0}),
        ("topPSampling", {"checked": True, "value": 0.95}),
        ("repeatPenalty", {"checked": False, "value": 1.1}),
        ("llama.presencePenalty", {"checked": True, "value": 1.5}),
        ("maxPredictedTokens", {"checked": True, "value": 300}),
        ("stopStrings", ["</s>"]),
        ("contextOverflowPolicy", "truncateMiddle"),
        ("llama.cpuThreads", 14),
        ("promptTemplate", {"type": "jinja", "path": "/etc/passwd"}),
        load={"fields": [{"key": "llm.load.contextLength", "value": 16384}]},
    )
    found = read(tmp_path, content)
    assert found.name == "X"
    assert found.settings == ChatSettings(
        system_prompt="Think.",
        sampling=SamplingChoice(
            temperature=1.0, top_k=20, min_p=0.0, top_p=0.95, repetition_penalty=1.0, presence_penalty=1.5
        ),
        max_tokens=300,
        stop=["</s>"],
        overflow="keep_ends",
    )
    assert found.ignored == [
        "llm.prediction.llama.cpuThreads",
        "llm.prediction.promptTemplate",
        "llm.load.contextLength",
    ]
    assert found.remark().startswith("Slipstream has no setting for these: llm.prediction.llama.cpuThreads, ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -1),
        ("temperature", True),
        ("topPSampling", {"checked": True}),
        ("topPSampling", {"checked": True, "value": 0}),
        ("topKSampling", 1.5),
        ("stopStrings", "END"),
        ("stopStrings", [1]),
        ("systemPrompt", None),
        ("contextOverflowPolicy", "sideways"),
        ("contextOverflowPolicy", []),
        ("maxPredictedTokens", {"checked": True, "value": 0}),
        ("seed", {"checked": True, "value": 2**63}),
    ],
)
def test_a_value_that_makes_no_sense_costs_only_itself(tmp_path: Path, key: str, value: object) -> None:
    found = read(tmp_path, lm_studio((key, value), ("minPSampling", 0.25)))
    assert found.settings == ChatSettings(sampling=SamplingChoice(min_p=0.25))
    assert found.remark() == f"Some values aren't valid and were left out: llm.prediction.{key}."


def test_names_of_others_are_harmless(tmp_path: Path) -> None:
    found = read(
        tmp_path, lm_studio(("\x1b[2J", 1), *((f"k{n}", 1) for n in range(9)), name=f"a\n\x1b[31mb{'x' * 500}")
    )
    assert found.name.startswith("a [31mb") and found.name.isprintable() and len(found.name) <= 60
    assert found.remark().isprintable() and found.remark().endswith("and 2 more.")


def test_texts_have_a_limit(tmp_path: Path) -> None:
    found = read(tmp_path, lm_studio(("systemPrompt", "x" * 200_001), ("stopStrings", ["", *map(str, range(70))])))
    assert found.settings == ChatSettings(stop=[str(number) for number in range(64)])
    assert found.unusable == ["system_prompt", "stop"]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(KnownError, match="it isn't a file"):
        read_preset(tmp_path / "x.json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"fields": 1}',
        b'{"name": "x", "settings": {}}',
        b'{"format": "slipstream-preset", "settings": []}',
        b'{"fields": [], "name": "\\ud800"}',
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
)
def test_what_is_no_preset(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(KnownError, match=r"^x\.json isn't a Slipstream or LM Studio preset\.$"):
        read_preset(path)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for place in (path, tmp_path):
        with pytest.raises(KnownError, match="it isn't a file"):
            read_preset(place)
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(KnownError, match="too large"):
        read_preset(path)
    path.write_bytes(b'{"format": "slipstream-preset", "version": 2, "settings": {}}')
    with pytest.raises(KnownError, match="newer version of Slipstream"):
        read_preset(path)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["checked", "value", "key"]), inner),
    max_leaves=6,
)
_KEYS = st.sampled_from(["temperature", "topKSampling", "topPSampling", "seed", "stopStrings", "contextOverflowPolicy"])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.lists(st.tuples(_KEYS, _JSON), max_size=6))
def test_whatever_the_values_what_is_read_can_be_written(tmp_path: Path, fields: list[tuple[str, Any]]) -> None:
    found = read(tmp_path, lm_studio(*fields))
    path = tmp_path / "again.json"
    path.write_bytes(preset_as_file(found.name, found.settings))
    assert read_preset(path).settings == found.settings
