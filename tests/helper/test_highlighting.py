"""Finding what to color in code, in this process and in the helper's."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from app.helper import Helper, HelperError, TookTooLong, shared
from app.helper.highlighting import highlight, lexer
from app.helper.messages import ROLES, Highlight, Highlighted
from tests.support.matrix import in_proof

LANGUAGES = ["toml", "graphql", "tsx", "racket", "webidl", "bash", "c", "yaml", "markdown", "perl"]
"""Among them those whose lexers looped when their stack was cut."""


def roles(language: str, code: str) -> list[list[tuple[str, str]]]:
    found = highlight(lexer(language), code).lines
    lines = code.split("\n")
    return [
        [(line[at : at + length], ROLES[role]) for at, length, role in zip(*[iter(parts)] * 3, strict=True)]
        for line, parts in zip(lines, found, strict=True)
    ]


def test_a_string_goes_on_over_lines() -> None:
    lines = roles("python", 'def f():\n    """Say\n    for\n    """\n    return 1')
    assert ("def", "keyword") in lines[0]
    assert lines[2] == [("    for", "string")]
    assert ("return", "keyword") in lines[4]


@pytest.mark.parametrize(("language", "begin", "end"), [("javascript", "/*", "*/"), ("html", "<!--", "-->")])
def test_a_comment_goes_on_over_lines(language: str, begin: str, end: str) -> None:
    assert roles(language, f"{begin} one\nreturn\n{end}") == [
        [(f"{begin} one", "comment")],
        [("return", "comment")],
        [(end, "comment")],
    ]


def test_places_are_counted_as_qt_counts() -> None:
    assert highlight(lexer("python"), "'😀' if a").lines == [[0, 4, 2, 5, 2, 1]]


@pytest.mark.parametrize("language", ["", "no-such-language", "../x"])
def test_an_unknown_language_stays_plain(language: str) -> None:
    assert highlight(lexer(language), "return 1") == Highlighted([])


def test_an_overlong_line_stays_plain_and_the_others_do_not() -> None:
    assert highlight(lexer("python"), "return\n" + "return " * 100 + "\nreturn").lines == [[0, 6, 1], [], [0, 6, 1]]


@pytest.fixture
def hasty() -> Iterator[Helper]:
    process = Helper(seconds=0.3)
    yield process
    process.stop()


def hostile(chance: random.Random) -> list[str]:
    """Nested, repeated, random and long."""
    signs = "".join(chr(chance.choice([*range(32, 127), 10, 10, 0xE9, 0x1F600])) for _ in range(800))
    return [
        "[" * 63,
        "[{(<" * 200,
        "a = " + "[" * 2000,
        "/*" * 500,
        '"' * 999,
        "\\" * 999,
        "<a " * 300,
        signs,
        "x" * 5000,
    ]


@pytest.mark.parametrize("language", ["python", "jsx", "html", *in_proof(LANGUAGES)])
def test_hostile_code_ends_with_colors_or_without(language: str, hasty: Helper) -> None:
    for code in hostile(random.Random(language)):
        try:
            lines = hasty.ask(Highlight(language, code)).lines
        except HelperError:
            continue
        assert len(lines) in (0, code.count("\n") + 1)
    assert shared().ask(Highlight("python", "return")) == Highlighted([[0, 6, 1]])


def test_what_takes_too_long_is_stopped(hasty: Helper) -> None:
    with pytest.raises(TookTooLong):
        hasty.ask(Highlight("python", "a=1;" * 2_000_000))  # many seconds anywhere
    assert hasty.ask(Highlight("python", "return")) == Highlighted([[0, 6, 1]])
