"""Finding the shown text in its source."""

from __future__ import annotations

import pytest

from app.ui.chat.markdown.alignment import Run, Span, align, spans, utf16_offsets


def places(shown: str, source: str) -> list[int | None]:
    """For each shown character its place in the source."""
    result: list[int | None] = [None] * len(shown)
    for run in align(shown, source)[0]:
        for offset in range(run.end - run.start):
            result[run.start + offset] = run.source + offset
    return result


@pytest.mark.parametrize(
    ("shown", "source"),
    [
        ("plain words", "plain words"),
        ("bold and code", "**bold** and `code`"),
        ("a link here", "a [link](https://example.org/a_link?x=1) here"),
        ("one two", "one\n   two"),
        ("List<String> x", "`List<String>` x"),
        ("item text", "12. item text"),
        ("unbelievable", "un**believ**able"),
        ("firstsecond", "first`second`"),
        ("[cat] sits", "![cat](http://x.y/z.png) sits"),
        ("snake_case *", "snake\\_case \\*"),
    ],
)
def test_every_character_is_found(shown: str, source: str) -> None:
    for character, place in zip(shown, places(shown, source), strict=True):
        assert place is not None
        assert source[place] == character or (character == " " and source[place].isspace())


def test_places_never_run_ahead() -> None:
    found = places("a b a b", "**a** b a **b**")
    assert found == [2, 5, 6, 7, 8, 9, 12]


def test_entities_are_one_character() -> None:
    assert places("a < b & c", "a &lt; b &amp; c") == [0, 1, 2, 6, 7, 8, 9, 14, 15]


def test_what_the_renderer_added_is_left_out() -> None:
    runs, end = align("☐ task", "task")
    assert [(run.start, run.source) for run in runs] == [(2, 0)]
    assert end == 4


def test_spans_follow_the_pieces() -> None:
    # "**bold** x" in the pieces "**bo", "ld", "** x"
    runs, _ = align("bold x", "**bold** x")
    assert spans(runs, [0, 4, 6], 0) == [Span(0, 2, 0), Span(2, 4, 1), Span(4, 6, 2)]


def test_spans_of_a_later_block() -> None:
    assert spans([Run(0, 3, 0)], [0, 10, 12], 10) == [Span(0, 2, 1), Span(2, 3, 2)]
    assert spans([Run(0, 3, 0)], [], 10) == []


def test_positions_beyond_the_basic_plane() -> None:
    assert utf16_offsets("aé") is None
    assert utf16_offsets("a😀b") == [0, 1, 3, 4]
