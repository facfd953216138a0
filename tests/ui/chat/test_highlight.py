"""Colouring code line by line."""

from __future__ import annotations

import pytest

from app.ui import theme
from app.ui.chat.highlight import ROLES, CodeHighlighter, colour
from app.ui.theme import DARK, LIGHT, Theme, contrast


def roles(language: str, code: str) -> list[list[tuple[str, str]]]:
    highlighter = CodeHighlighter(language)
    return [[(line[c.start : c.end], c.role) for c in highlighter.line(line)] for line in code.split("\n")]


def test_a_string_goes_on_over_lines() -> None:
    lines = roles("python", 'def f():\n    """Say\n    for\n    """\n    return 1')
    assert ("def", "keyword") in lines[0]
    assert lines[2] == [("    for", "string")]
    assert ("return", "keyword") in lines[4]


@pytest.mark.parametrize(("language", "begin", "end"), [("javascript", "/*", "*/"), ("html", "<!--", "-->")])
def test_a_comment_goes_on_over_lines(language: str, begin: str, end: str) -> None:
    lines = roles(language, f"{begin} one\nreturn\n{end}")
    assert [line[0][1] for line in lines] == ["comment"] * 3


def test_a_comment_sign_in_a_string_is_none() -> None:
    lines = roles("javascript", "let s = '/*';\nfunction g() {}")
    assert ("function", "keyword") in lines[1]


def test_an_unfinished_line_leaves_no_trace() -> None:
    highlighter = CodeHighlighter("python")
    highlighter.peek('x = """')
    assert [c.role for c in highlighter.line("return")] == ["keyword"]


@pytest.mark.parametrize("language", ["", "no-such-language", "../x"])
def test_an_unknown_language_stays_plain(language: str) -> None:
    assert CodeHighlighter(language).line("return 1") == []


def test_an_overlong_line_stays_plain() -> None:
    assert CodeHighlighter("python").line("return " * 1000) == []


@pytest.mark.parametrize("language", ["json", "c", "yaml", "bash", "css", "sql", "rust", "diff", "html", "typescript"])
def test_colours_lie_within_the_line(language: str) -> None:
    highlighter = CodeHighlighter(language)
    for line in ['{"a": [1, true]} # x', "", "int main(void) { return 0; } // x", "- a: 'b'", "<p class='x'>"]:
        end = 0
        for part in highlighter.line(line):
            assert end <= part.start < part.end <= len(line)
            end = part.end


@pytest.mark.parametrize("chosen", [LIGHT, DARK], ids=["light", "dark"])
def test_code_is_readable_with_and_without_tints(chosen: Theme) -> None:
    for role in ROLES:
        for surface in (chosen.code_surface, chosen.tint_model, chosen.tint_ngram):
            assert contrast(colour(chosen, role), surface) >= theme.MINIMUM_CONTRAST
        assert colour(chosen, role) != chosen.text
