"""Cutting Markdown into blocks: the same blocks however the text arrives, and all of the text in them."""

from __future__ import annotations

import random

import pytest

from app.markdown.blocks import (
    MAX_BLOCK_CHARACTERS,
    MAX_LINE_CHARACTERS,
    MAX_TABLE_BARS,
    Block,
    BlockSplitter,
    Kind,
    OpenCode,
    close_inline,
    visible,
)

EVERYTHING = """# Title
A paragraph with **bold** text
over two lines.

- one
- two
  - nested

  still two
- three
1. first
1. second

```python
def f():

    return 1
```
> quoted
lazily

| a | b |
|---|--:|
| 1 | 2 |

Setext
======
***
    indented

~~~
unclosed ``` fence
"""


def split(text: str, sizes: random.Random | None = None) -> list[tuple[Kind, str, int | None]]:
    splitter = BlockSplitter()
    at = 0
    while at < len(text):
        size = sizes.randint(1, 12) if sizes else len(text)
        splitter.feed(text[at : at + size])
        splitter.tail()
        at += size
    splitter.finish()
    result: list[tuple[Kind, str, int | None]] = []
    for item in splitter.ready:
        if isinstance(item, Block):
            result.append((item.kind, item.text, item.number))
        else:
            result.append((Kind.CODE, "\n".join(line.text for line in item.lines), None))
    return result


def kinds(text: str) -> list[Kind]:
    return [kind for kind, _, _ in split(text)]


def test_every_kind_is_told_apart() -> None:
    assert kinds(EVERYTHING) == [
        *(Kind.HEADING, Kind.PARAGRAPH, Kind.ITEM, Kind.ITEM, Kind.ITEM, Kind.ITEM, Kind.ITEM, Kind.CODE),
        *(Kind.QUOTE, Kind.TABLE, Kind.HEADING, Kind.RULE, Kind.INDENTED, Kind.CODE),
    ]


def test_blocks_do_not_depend_on_how_the_text_arrives() -> None:
    whole = split(EVERYTHING)
    generator = random.Random(7)
    for _ in range(100):
        assert split(EVERYTHING, generator) == whole


def test_nothing_is_lost() -> None:
    text = EVERYTHING + "word " * 5000
    splitter = BlockSplitter()
    splitter.feed(text)
    splitter.finish()
    covered = 0
    for item in splitter.ready:
        if isinstance(item, Block):
            assert text[item.start : item.start + len(item.text)] == item.text
            covered += len(item.text.strip())
        else:
            assert all(text[line.start : line.start + len(line.text)] == line.text for line in item.lines)
            covered += len(item.block.text) + sum(len(line.text) for line in item.lines)
    assert covered > len(text.strip()) * 0.98


def test_a_table_of_many_small_cells_goes_on_in_the_next_block() -> None:
    row = "|a" * 20 + "|\n"
    text = row + "|-" * 20 + "|\n" + row * 30
    parts = split(text)
    assert {kind for kind, *_ in parts} == {Kind.TABLE} and len(parts) > 1
    assert "".join(part for _, part, _ in parts) == text
    assert all(part.count("|") <= MAX_TABLE_BARS + row.count("|") for _, part, _ in parts)


def test_code_in_a_fence_is_never_taken_for_markdown() -> None:
    [(kind, text, _)] = split("```md\n# no heading\n- no item\n\n> no quote\n```")
    assert kind is Kind.CODE
    assert text == "# no heading\n- no item\n\n> no quote"


def test_long_text_is_cut() -> None:
    splitter = BlockSplitter()
    splitter.feed("x" * 50_000)
    splitter.feed(" y" * 50_000)
    splitter.finish()
    sizes = [len(item.text) for item in splitter.ready if isinstance(item, Block)]
    assert sum(sizes) == 150_000
    assert max(sizes) <= MAX_BLOCK_CHARACTERS + MAX_LINE_CHARACTERS
    assert all(item.joined for item in list(splitter.ready)[1:] if isinstance(item, Block))


def test_deep_nesting_is_shown_as_written() -> None:
    assert kinds(">" * 100 + " x") == [Kind.PLAIN]
    assert kinds("- " * 100 + "x") == [Kind.PLAIN]
    assert kinds("> > deep enough") == [Kind.QUOTE]


@pytest.mark.parametrize("partial", ["#", "##", "-", "1", "1.", "``", "> ", "| a", "***", "- ["])
def test_an_undecided_line_is_held_back(partial: str) -> None:
    splitter = BlockSplitter()
    splitter.feed("text\n\n" + partial)
    assert splitter.tail() == []


def test_open_code_grows() -> None:
    splitter = BlockSplitter()
    splitter.feed("```py\na = 1\nb")
    [code] = splitter.ready
    assert isinstance(code, OpenCode)
    assert [line.text for line in code.lines] == ["a = 1"]
    partial = splitter.partial_line
    assert partial is not None
    assert partial.text == "b"
    splitter.feed("\n``")
    assert splitter.partial_line is None
    splitter.feed("`\n")
    assert splitter.tail() == []
    splitter.feed("after")
    assert [block.text for block in splitter.tail()] == ["after"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a **b", "a **b**"), ("a `b", "a `b`"), ("2 ** 3", "2 ** 3"), ("a **b*", "a **b**"), ("a **b** c", "a **b** c")],
)
def test_an_open_mark_is_closed_for_now(text: str, shown: str) -> None:
    assert close_inline(text) == shown


def test_control_characters_become_visible_and_keep_their_place() -> None:
    text = "a\x00b\x1b\u202ec\ud800\ufdd0\ue000d\n\té"
    shown = visible(text)
    assert len(shown) == len(text)
    assert shown == "a\u2400b\u241b\ufffdc\ufffd\ufffd\ue000d\n\té"
