"""``generate`` with a format for the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import called


def test_generate_follows_a_schema_in_a_file(tmp_path: Path, guide_pair: tuple[Path, Path]) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": [["yes"], ["no"]]}', "utf-8")
    result = called("generate", "--prompt", "Is it?", "--json-schema", schema, "--max-tokens", "40")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) in (["yes"], ["no"])


def test_what_is_left_to_the_model_is_said(tmp_path: Path, guide_pair: tuple[Path, Path]) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"const": [1, 1], "uniqueItems": true}', "utf-8")
    result = called("generate", "--prompt", "Is it?", "--json-schema", schema, "--max-tokens", "40")
    assert (result.returncode, json.loads(result.stdout)) == (0, [1, 1])
    notes = ["Left to the model: “uniqueItems” at the top level.", "The answer isn't valid by the schema."]
    assert result.stderr.splitlines() == [f"slipstream: {note}" for note in notes]


@pytest.mark.parametrize(
    ("name", "content", "option", "problem"),
    [
        ("a.json", b'{"type":\n "objekt"}', "--json-schema", "can't be used: at the top level: Invalid type: objekt."),
        ("a.json", b"\xff\xfe", "--json-schema", "a.json isn't UTF-8 text."),
        ("a.txt", b"x", "--grammar", "must end in .lark or .gbnf."),
        ("none.lark", None, "--grammar", "none.lark can't be read: No such file"),
        ("a.gbnf", b"x" * 300_000, "--grammar", "a.gbnf is longer than "),
    ],
)
def test_a_bad_file_is_told_in_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, option: str, problem: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = called("generate", "--prompt", "x", option, tmp_path / name)
    assert result.returncode == 1
    assert problem in result.stderr and result.stderr.count("\n") == 1
