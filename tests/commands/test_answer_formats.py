"""``generate`` with a format for the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import slipstream


def test_generate_follows_a_schema_in_a_file(tmp_path: Path, guide_pair: tuple[Path, Path]) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": [["yes"], ["no"]]}', "utf-8")
    result = slipstream("generate", "--prompt", "Is it?", "--json-schema", schema, "--max-tokens", "40")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) in (["yes"], ["no"])


@pytest.mark.parametrize(
    ("name", "content", "option", "problem"),
    [
        ("a.json", b'{"type":\n "objekt"}', "--json-schema", "can't be used: at the top level: Invalid type: objekt."),
        ("a.json", b'{"type":\n }', "--json-schema", "line 2, column 2"),
        ("a.json", b"\xff\xfe", "--json-schema", "a.json is no text in UTF-8."),
        ("a.txt", b"x", "--grammar", "must end in .lark or .gbnf."),
        ("a.gbnf", b"root ::= [a", "--grammar", "The grammar can't be used"),
    ],
)
def test_a_bad_file_is_told_in_a_sentence(tmp_path: Path, name: str, content: bytes, option: str, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    result = slipstream("generate", "--prompt", "x", option, tmp_path / name)
    assert result.returncode == 1
    assert problem in result.stderr and result.stderr.count("\n") == 1


def test_a_missing_file_and_two_formats(tmp_path: Path) -> None:
    missing = slipstream("generate", "--prompt", "x", "--json-schema", tmp_path / "none.json")
    assert missing.returncode == 1 and "none.json can't be read" in missing.stderr
    both = slipstream("generate", "--prompt", "x", "--json-object", "--regex", "a")
    assert both.returncode == 2 and "not allowed with" in both.stderr
