"""Words found in Markdown without drawing it."""

from __future__ import annotations

import pytest

from app.markdown.find import count_matches, find_matches, shown_text
from app.ui.chat.markdown.plain_text import plain_text
from tests.ui.chat.markdown.test_view import SAMPLE


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("plain words", "plain words"),
        ("**bold** and *slanted* and ~~struck~~", "bold and slanted and struck"),
        ("un**frigging**believable", "unfriggingbelievable"),
        ("2 * 3 * 4, snake_case_name, a * b", "2 * 3 * 4, snake_case_name, a * b"),
        ("*never closed", "*never closed"),
        ("`a*b*` and ``c`d``", "a*b* and c`d"),
        ("[the **link**](https://example.org/a_(b)) ends", "the link ends"),
        ("![a cat](cat.png)", "a cat"),
        ("<https://example.org/x>", "https://example.org/x"),
        ("a \\*star\\* &amp; &lt;tag&gt;", "a *star* & <tag>"),
        ("one\ntwo", "one two"),
        ("# Title\n\nwords", "Title\nwords"),
        ("- one\n- two\n  3. three", "one\ntwo\nthree"),
        ("- [x] done\n- [ ] open", "done\nopen"),
        ("> said\n> she", "said\nshe"),
        ("这是**强调**。", "这是强调。"),
        ("H<sub>2</sub>O", "H2O"),
        ("one<br>two", "one two"),
        ("<KBD>Ctrl</KBD> <details class='x'>", "Ctrl "),
        ("about ~12 to ~20, ~~no~~", "about ~12 to ~20, no"),
        ("1. one\n\n   - two\n\n   > three", "one\ntwo\nthree"),
        ("> $$\n> a\n> b\n> $$", "$$ a b $$"),
        ("| a |\n|---|\n| `x \\| y` |", "\na \n\n\n\nx | y \n"),
    ],
)
def test_marks_are_not_shown(markdown: str, shown: str) -> None:
    found = shown_text(markdown)
    assert found.text == shown
    for index, character in enumerate(found.text):
        if not character.isspace() and "&" not in markdown:
            assert markdown[found.source_place(index)] == character


def test_code_is_shown_as_it_is() -> None:
    text = "before\n\n```python\nx = a * b * c  # **not bold**\n```\n\nafter *all*"
    assert "x = a * b * c  # **not bold**" in shown_text(text).text
    assert count_matches(text, "**not bold**") == 1
    assert count_matches(text, "python") == 0
    assert count_matches(text, "after all") == 1


@pytest.mark.parametrize(
    ("text", "query", "count"),
    [
        ("One one ONE", "one", 3),
        ("**bo**ld", "bold", 1),
        ("bo[ld](https://example.org)er", "bolder", 1),
        ("see [here](https://example.org/one)", "one", 0),
        ("two\nwords", "two  words", 1),
        ("a\n\nb", "a b", 0),
        ("| a | b |\n|---|---|\n| one | two |", "one", 1),
        ("| a | b |\n|---|---|\n| one | two |", "|", 0),
        ("if a || b", "||", 1),
        ("aaaa", "aa", 2),
        ("Straße İstanbul ΣΑΣ", "straße i̇stanbul", 0),
        ("Straße", "STRASSE", 0),
        ("ÄÖÜ", "äöü", 1),
        ("日本語の文章と日本", "日本", 2),
        ("שלום עולם", "עולם", 1),
        ("Tom &amp; Jerry", "m & j", 1),
        ("H<sub>2</sub>O and tea<br>and", "h2o and tea and", 1),
        ("words", "", 0),
        ("words", "  ", 0),
    ],
)
def test_matches_are_counted_and_have_a_place(text: str, query: str, count: int) -> None:
    assert count_matches(text, query) == count
    found = find_matches(text, query)
    assert len(found) == count
    places = [place for match in found for place in match]
    assert places == sorted(places)
    assert all(start < end for start, end in found)


def test_what_is_no_markdown_is_searched_as_it_is() -> None:
    assert count_matches("**a** *a*", "**a", plain=True) == 1
    assert find_matches("**a** *a*", "a*", plain=True) == [(2, 4), (7, 9)]


@pytest.mark.parametrize("word", ["title", "bold word", "code", "first", "inside", "return", "text", "one", "quoted"])
def test_it_counts_what_is_shown(qapp: object, word: str) -> None:
    assert count_matches(SAMPLE, word) == plain_text(SAMPLE).lower().count(word)


@pytest.mark.parametrize("hard", ["*" * 20_000, "[" * 20_000, "`" * 20_001, "- " * 5000, "*a **b " * 3000, "|" * 9000])
def test_hard_input_ends(hard: str) -> None:
    assert count_matches("x " + hard + " needle", "needle") == 1
