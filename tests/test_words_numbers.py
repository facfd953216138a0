"""How figures are written."""

from __future__ import annotations

import json

import pytest

from app import words
from app.words import printable, visible, visible_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (words.speed(None), "–"),
        (words.speed(0.0), "0.0 tok/s"),
        (words.speed(7.26), "7.3 tok/s"),
        (words.speed(9.96), "10 tok/s"),
        (words.speed(74.4), "74 tok/s"),
        (words.speed(1234.4), "1,234 tok/s"),
        (words.share(None), "–"),
        (words.share(0.684), "68%"),
        (words.share(1.0), "100%"),
        (words.milliseconds(None), "–"),
        (words.milliseconds(0.00812), "8.1 ms"),
        (words.milliseconds(1.2), "1,200 ms"),
        (words.speed_up(1.84), "1.8× faster"),
        (words.speed_up(1.04), "same speed"),
        (words.speed_up(0.74), "0.7× as fast"),
        (words.draft_tokens(1), "1 draft token"),
        (words.draft_tokens(1214), "1,214 draft tokens"),
        (words.accepted(0.684), "68% accepted"),
        (words.tokens_per_pass(2.89), "2.9 tokens per pass"),
        (words.tokens(1), "1 token"),
        (words.tokens(1214), "1,214 tokens"),
        (words.seconds(0.124), "0.12 s"),
        (words.seconds(3.44), "3.4 s"),
        (words.seconds(128.2), "128 s"),
    ],
)
def test_figures_carry_their_units(text: str, expected: str) -> None:
    assert text.replace("\u00a0", " ") == expected


def test_a_duration_is_short_to_read() -> None:
    times = [0.0, 0.42, 0.96, 12.4, 59.6, 65.0, 3600.0]
    expected = ["0.1 s", "0.4 s", "1 s", "12 s", "1 min 0 s", "1 min 5 s", "60 min 0 s"]
    assert [words.duration(one).replace(words.NO_BREAK, " ") for one in times] == expected


@pytest.mark.parametrize(("amount", "shown"), [(0, "0 chats"), (1, "1 chat"), (2, "2 chats"), (1204, "1,204 chats")])
def test_counts_with_their_noun(amount: int, shown: str) -> None:
    assert words.count(amount, "chat") == shown
    assert words.count(amount, "is", "are").endswith("is" if amount == 1 else "are")


@pytest.mark.parametrize(
    ("parts", "shown"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_lists(parts: str, shown: str) -> None:
    assert words.listed(parts) == shown


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
    assert words.size(size) == shown


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
    assert words.compact(count) == shown


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
