from __future__ import annotations

import pytest

from app.models.text import count_text, printable, size_text


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
        (950_000, "950 K"),
        (15_700_000, "15.7 M"),
        (1_540_000_000, "1.5 B"),
        (70 * 10**9, "70 B"),
    ],
)
def test_counts(count: int, shown: str) -> None:
    assert count_text(count) == shown
