"""Sets of prompts: the bundled one, and what users may hand over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.compare import prompts
from app.compare.prompts import OWN, Prompt, bundled, read
from app.protocol.commands import Message
from app.system import KnownError

KINDS = ("code", "json", "prose", "story", "summary", "translation", "conversation")


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def texts(found: list[Prompt]) -> list[str]:
    return [prompt.messages[-1].content for prompt in found]


def test_the_bundled_prompts() -> None:
    found = bundled()
    kinds = [prompt.kind for prompt in found]
    assert tuple(dict.fromkeys(kinds)) == KINDS
    assert all(kinds.count(kind) == 3 for kind in KINDS)
    assert len({prompt.title for prompt in found}) == 21
    for prompt in found:
        turns = len(prompt.messages)
        assert (turns >= 5) == (prompt.kind == "conversation")
        assert [message.role for message in prompt.messages] == (["user", "assistant"] * turns)[:turns]
        assert (len(prompt.messages[-1].content) > 600) == (
            prompt.kind in ("summary", "translation") or "Repeat this code with one change" in prompt.title
        )


def test_a_prompt_a_line(tmp_path: Path) -> None:
    found = read(file(tmp_path, "my.txt", "\ufeffFirst one \r\n\r\n  second\u2028still second\n"))
    assert texts(found) == ["First one", "second\u2028still second"]
    assert {prompt.kind for prompt in found} == {OWN}


def test_objects(tmp_path: Path) -> None:
    lines = [
        {"prompt": "one\ntwo"},
        {"kind": "code", "prompt": "three"},
        {"kind": "chat", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "four"}]},
    ]
    found = read(file(tmp_path, "my.JSONL", "\n".join(map(json.dumps, lines)) + "\n\n"))
    assert texts(found) == ["one\ntwo", "three", "four"]
    assert [prompt.kind for prompt in found] == [OWN, "code", "chat"]
    assert found[2].messages[0] == Message(role="system", content="s")


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[1]",
        "{}",
        '{"prompt": 3}',
        '{"prompt": " "}',
        '{"prompt": "x", "other": 1}',
        '{"prompt": "x", "kind": ""}',
        '{"prompt": "x", "kind": "a\\nb"}',
        '{"prompt": "x", "kind": "' + "k" * 50 + '"}',
        '{"prompt": "x", "messages": [{"role": "user", "content": "y"}]}',
        '{"messages": []}',
        '{"messages": [{"role": "assistant", "content": "y"}]}',
        '{"messages": [{"role": "robot", "content": "y"}]}',
        '{"messages": [{"role": "user", "content": "y"}, {"role": "system", "content": "y"}]}',
        '{"prompt": "' + "x" * (prompts.MAX_PROMPT_CHARACTERS + 1) + '"}',
        "[" * 100_000,
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(KnownError, match=r"^Line 3 of my.jsonl can't be used: [^\n]*\.$"):
        read(file(tmp_path, "my.jsonl", f'{{"prompt": "fine"}}\n\n{line}\n'))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", "\n \n", "no prompts"),
        ("empty.jsonl", "", "no prompts"),
        ("binary.txt", b"\xff\xfe\x00x", "not UTF-8"),
        ("many.txt", "x\n" * (prompts.MAX_PROMPTS + 1), "more than 1,000"),
        ("large.txt", b"x" * (prompts.MAX_FILE_BYTES + 1), "larger than 16 MiB"),
        ("other.json", '{"a": 1}', "not a comparison report"),
        ("none.json", '{"comparisons": []}', "0 prompts"),
        ("bad.json", '{"comparisons": [{"prompt": {"kind": "x", "messages": []}}]}', "not a comparison report"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(KnownError, match=said):
        read(file(tmp_path, name, content))
    for path in (tmp_path / "gone.txt", tmp_path):
        with pytest.raises(KnownError, match="can't be read"):
            read(path)
        with pytest.raises(KnownError, match="can't be read"):
            prompts.sha256(path)
