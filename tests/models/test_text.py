from __future__ import annotations

import json

import pytest

from app.models.names import count_text, printable, size_text, visible, visible_json


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ▁▁ ö", "plain ▁▁ ö"),
        ("\n\t\r", "\\n\\t\\r"),
        ("\x1b[31m\x00\u200b\u2028", "\\x1b[31m\\x00\\u200b\\u2028"),
        (b"caf\xc3\xa9 \xff", "café \\xff"),
        ("\U000e0001", "\\U000e0001"),
        ("x" * 100, "x" * 80 + "…"),
    ],
)
def test_printable(raw: str | bytes, shown: str) -> None:
    assert printable(raw) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (12_345, "12.3 KB"),
        (999_499, "999 KB"),
        (999_500, "1 MB"),
        (12_000_000, "12 MB"),
        (4_368_000_000, "4.4 GB"),
        (10**13, "10 TB"),
    ],
)
def test_sizes(size: int, shown: str) -> None:
    assert size_text(size) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (512, "512"),
        (950_000, "950K"),
        (15_700_000, "15.7M"),
        (1_540_000_000, "1.5B"),
        (70 * 10**9, "70B"),
    ],
)
def test_counts(count: int, shown: str) -> None:
    assert count_text(count) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("one line\nand\tanother\u00a0one, ▁ ö", "one line\nand\tanother\u00a0one, ▁ ö"),
        ("\x1b]0;title\x07\x9b2J\r", "\\x1b]0;title\\x07\\x9b2J\\r"),
        ("gpj\u202egnp.\u2066x\u2069", "gpj\\u202egnp.\\u2066x\\u2069"),
        ("zero\u200bwidth\u2060\ufeff", "zero\\u200bwidth\\u2060\\ufeff"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\U0001f469\u200d\U0001f4bb and می\u200cخواهم", "\U0001f469\u200d\U0001f4bb and می\u200cخواهم"),
        ("pay\u200dpal", "pay\\u200dpal"),
        ("\U0001fae8", "\U0001fae8"),
        ("\ud800", "\\ud800"),
    ],
)
def test_visible(raw: str, shown: str) -> None:
    assert visible(raw) == shown


def test_json_says_the_same_and_a_terminal_obeys_nothing_in_it() -> None:
    value = {"name": "\x1b[31m \x9b \u202e \U000e0001 ö ▁", "line": "a\nb"}
    shown = visible_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(shown) == value
    assert "ö ▁" in shown
    assert not any(one in shown for one in "\x1b\x9b\u202e\U000e0001")
