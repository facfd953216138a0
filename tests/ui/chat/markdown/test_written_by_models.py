"""Markdown as models write it, and as other apps were reported to show it wrongly (benchmarks/notes/cases.md)."""

from __future__ import annotations

import random
from textwrap import indent

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.protocol.events import Piece
from app.ui.chat.markdown.formats import BEGINS
from app.ui.chat.markdown.plain_text import plain_text
from app.ui.chat.markdown.view import MarkdownView
from tests.ui.chat.markdown.structure import Shape, shape_of
from tests.ui.chat.markdown.test_view import settle, show, tool_tip


def words(markdown: str) -> list[tuple[str, str]]:
    """The text that is shown and its marks, without its place in lists."""
    return [one for part in shape_of(markdown) if part[0] not in ("code", "row", "rule") for one in part[-1]]


def marked(markdown: str, mark: str) -> str:
    return "".join(text for text, marks in words(markdown) if mark in marks.split(" ", maxsplit=1)[0])


def links(markdown: str) -> list[tuple[str, str]]:
    return [(text, marks.split(" ", 1)[1]) for text, marks in words(markdown) if " " in marks]


def rows(markdown: str) -> list[list[str]]:
    found = [part[1:] for part in shape_of(markdown) if part[0] == "row"]
    return [["".join(text for text, _ in cell) for _, cell in row] for row in found]


def items(markdown: str) -> list[tuple[int, str, str]]:
    return [(part[2], part[3], "".join(text for text, _ in part[4])) for part in _lines(shape_of(markdown))]


def _lines(shape: Shape) -> Shape:
    return [part for part in shape if part[0] not in ("code", "row", "rule")]


@pytest.mark.parametrize(
    ("markdown", "mark", "text"),
    [
        ("This is _important_.", "i", "important"),
        ("This is __important__.", "b", "important"),
        ("snake_case_name and file_name_2", "i", ""),
        ("**注意：**先烧水", "b", "注意："),
        ("这是**“重要”**的", "b", "“重要”"),
        ("**「重要」**です。これは**太字。**次", "b", "「重要」太字。"),
        ("**중요(필수)**입니다", "b", "중요(필수)"),
        ("`code`**（粗体）**后", "b", "（粗体）"),
        ("about ~12 and ~510", "s", ""),
        ("5~7U 100~200倍", "s", ""),
        ("(~2000 lines) and (~5000 lines)", "s", ""),
        ("喵呜~♡这就~", "s", ""),
        ("~/.config and ~/.cache", "s", ""),
        ("~~gone~~ and ~~~not~~~", "s", "gone"),
    ],
)
def test_emphasis(qapp: QApplication, markdown: str, mark: str, text: str) -> None:
    assert marked(markdown, mark) == text
    assert "*" not in plain_text(markdown)


@pytest.mark.parametrize(
    "text",
    [
        "pay **$1.50** for kale, her **Marginal Revenue (MR)**, and makes $1.50.",
        "月成本 **$148+ → $19**（省 **87%**，年省 ~$1,550）；后续可再降到 $15.4/月",
        "$/PR is down but $/session is up",
        "the $2k cohort and the $25-50k tier, $7 front end, $10k whales",
        "It costs $5 and $10",
    ],
)
def test_prices_are_no_formulas(qapp: QApplication, text: str) -> None:
    assert plain_text(text) == text.replace("**", "")
    assert marked(text, "c") == ""


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("访问 https://example.com/docs（中文说明）了解更多", "https://example.com/docs"),
        ("见 https://example.com/guide，详见", "https://example.com/guide"),
        ("见 https://example.com。", "https://example.com"),
        ("中文https://example.com英文", "https://example.com"),
        ("**https://example.com/pull/1**。做", "https://example.com/pull/1"),
        ("https://example.com/wiki/Tea_(drink)_and_more.", "https://example.com/wiki/Tea_(drink)_and_more"),
        ("(https://example.com/a_b_c)", "https://example.com/a_b_c"),
        ("“https://example.com/x”", "https://example.com/x"),
        ("https://example.com/安装包（正式版）", "https://example.com/安装包"),
        ("www.example.com/a, then", "www.example.com/a"),
        ("<https://example.com/a>.", "https://example.com/a"),
    ],
)
def test_an_address_ends_where_one_would_say(qapp: QApplication, markdown: str, text: str) -> None:
    [(shown, target)] = links(markdown)
    assert shown == text
    assert target.startswith("http") and "%EF" not in target and "*" not in target


@pytest.mark.parametrize("text", ["ftp://example.org/a", "a@b", "http://", "www."])
def test_what_is_no_address_to_open_stays_text(qapp: QApplication, text: str) -> None:
    assert links(text) == []
    assert plain_text(text) == text


def test_an_image_in_a_link_can_be_followed(qapp: QApplication) -> None:
    assert links("[![build](https://a.b/c.svg)](https://example.org/)") == [("[build]", "https://example.org/")]
    assert plain_text("![](https://a.b/c.png)") == "[image]"


def test_a_line_break_in_an_item_makes_no_new_one(qapp: QApplication) -> None:
    for mark in ("-", "1."):
        for end in ("  \n", "\\\n", "<br>", "<br/>", "<BR>"):
            indent = " " * (len(mark) + 1) if end.endswith("\n") else ""
            found = items(f"{mark} Address:{end}{indent}Mill Lane\n{mark} Phone\n")
            assert [text for _, _, text in found] == ["Address:\u2028Mill Lane", "Phone"]
    assert plain_text("roses  \nare\\\nred") == "roses\nare\nred"


def test_numbers_go_on_behind_code(qapp: QApplication) -> None:
    numbers = [bullet for _, bullet, _ in items("1. one\n\n```\ncode\n```\n\n2. two\n\n3. three\n")]
    assert numbers == ["1.", "2.", "3."]
    nested = "1. one\n\n   ```sh\n   ls\n   ```\n1. two\n   - inner\n     ```py\n     x\n     ```\n1. three\n"
    assert [bullet for _, bullet, _ in items(nested)] == ["1.", "2.", "-", "3."]
    code = [part for part in shape_of(nested) if part[0] == "code"]
    assert [part[2:] for part in code] == [("sh", "ls"), ("py", "x")]
    assert code[0][1] < code[1][1]


def test_lists_of_four_spaces_and_directly_below_a_line(qapp: QApplication) -> None:
    found = items("Text:\n- one\n    - two\n        - three\n    1. four\n* five\n")
    assert [(depth, bullet) for depth, bullet, _ in found[1:]] == [(1, "-"), (2, "-"), (3, "-"), (2, "1."), (1, "-")]


def test_tasks(qapp: QApplication) -> None:
    assert plain_text("- [ ] one\n  - [x] two\n- [X] three\n") == "- [ ] one\n  - [x] two\n- [x] three"


def test_cells_keep_their_columns(qapp: QApplication) -> None:
    table = "| day | plan | note |\n|---|---|---|\n| **Monday** | | |\n| 9:00 | tea |\n| 10:00 | a | b | c |\n"
    assert rows(table) == [["day", "plan", "note"], ["Monday", "", ""], ["9:00", "tea", ""], ["10:00", "a", "b"]]
    assert plain_text(table).splitlines()[1] == "Monday\t\t"


def test_line_breaks_bars_and_formulas_in_cells(qapp: QApplication) -> None:
    table = "| a | b |\n|---|---|\n| one<br>two<br />three | `x \\| y` |\n| $|x|$ | p \\| q |\n"
    assert rows(table)[1:] == [["one\u2028two\u2028three", "x | y"], ["$|x|$", "p | q"]]
    assert plain_text(table) == "a\tb\none two three\tx | y\n$|x|$\tp | q"


def test_a_table_below_a_line_or_an_item(qapp: QApplication) -> None:
    for before in ("The figures:\n", "- The figures:\n  "):
        text = before + "| a | b |\n" + "  " * before.startswith("-") + "|---|---|\n" + "  " * before.startswith("-")
        assert rows(text + "| 1 | 2 |\n") == [["a", "b"], ["1", "2"]]


def test_a_table_below_an_item_without_its_indentation(qapp: QApplication) -> None:
    text = "1. **Sizes**:\n| a | b |\n|---|---|\n| 1 | 2 |\n\n2. Next\n   - inner\n| c |\n|---|\n| 3 |\n"
    assert plain_text(text) == "1. Sizes:\n\na\tb\n1\t2\n\n2. Next\n  - inner\n\nc\n3"


def test_tables_and_code_stand_in_as_far_as_the_text_they_belong_to(qtbot: QtBot, view: MarkdownView) -> None:
    table = "| a |\n|---|\n| 1 |\n"
    view.set_text(f"- x\n\n{indent(table, '  ')}\n> y\n\n{indent(table, '> ')}\n{table}\n- x\n  ```\n  z\n  ```\n")
    settle(qtbot, view)
    runs, document = view._rendering.writer.table_runs, view.document()
    boxes = [document.documentLayout().frameBoundingRect(document.frameAt(run.start)).left() for run in runs]
    item, quote, alone = boxes
    assert item > quote > alone
    assert item - alone == view._rendering.code_runs[0].left


def test_quotes_that_are_not_one_are_apart(qtbot: QtBot, view: MarkdownView) -> None:
    view.set_text("> a\n>\n> b\n\n> > c\n\n> [!NOTE]\n> d")
    settle(qtbot, view)
    block, begins = view.document().begin(), ""
    while block.isValid():
        begins += block.text() if block.blockFormat().boolProperty(BEGINS) else ""
        block = block.next()
    assert begins == "acNote"


def test_bars_in_code_are_no_cells_where_they_would_be_too_many(qapp: QApplication) -> None:
    table = "| command | what |\n|---|---|\n| `ls | wc` | counts |\n| `a` | `b` | c |\n| `d | e` |\n"
    assert rows(table)[1:] == [["ls | wc", "counts"], ["a", "b"], ["`d", "e`"]]
    assert rows("> | `x || y` | b |\n> |---|---|\n")[0] == ["x || y", "b"]
    assert plain_text(f"```\n{table}```") == table.rstrip()


def test_a_table_below_a_line_is_no_text_while_it_comes(qtbot: QtBot, view: MarkdownView) -> None:
    for piece in ("The figures:\n", "| a | b |", "\n", "|--"):
        view.append_pieces([Piece(text=piece)])
        settle(qtbot, view)
        assert "|" not in view.document().toPlainText()
    view.append_pieces([Piece(text="-|---|\n| 1 | 2 |\n")])
    view.finish()
    settle(qtbot, view)
    assert view._rendering.writer.table_runs


def test_the_tags_that_models_write(qapp: QApplication) -> None:
    text = "H<sub>2</sub>O, x<sup>2</sup>, <kbd>Ctrl</kbd>+<kbd>C</kbd>, one<br>two, <sub>open and </sup> closed"
    assert plain_text(text) == "H2O, x2, Ctrl+C, one\ntwo, <sub>open and </sup> closed"
    assert (marked(text, "_"), marked(text, "^")) == ("2", "2")
    details = "<details>\n<summary>More</summary>\n\nHidden **text**.\n\n</details>\n\nafter"
    assert plain_text(details) == "More\n\nHidden text.\n\nafter"
    assert marked(details, "b") == "Moretext"
    inline = "<details open><summary>More</summary>\nHidden\n</details>"
    assert [line.strip() for line in plain_text(inline).splitlines()] == ["More", "Hidden"]
    assert plain_text('<details class="x" open="">\n<summary>A</summary>\n\nb\n</details>').split() == ["A", "b"]
    assert plain_text("one</br>two<br />") == "one\ntwo"
    html = "<div>a</div> <b>c</b> <script>alert(1)</script> <!-- d --> <img src=x onerror=y> <br onclick=z>"
    assert plain_text(html) == html
    assert plain_text("`<br>` and `<sub>`") == "<br> and <sub>"


def test_entities(qapp: QApplication) -> None:
    assert plain_text("&lt;b&gt; &amp;amp; &copy; &#35; &nbsp;x &unknown;") == "<b> &amp; © # \xa0x &unknown;"
    assert plain_text("a&#10;b&#x202e;c&#xfffc;d&#0;e") == "a b\ufffdc\ufffdd\ufffde"


def test_footnotes(qtbot: QtBot, view: MarkdownView) -> None:
    text = "One[^1] and two[^note], [^missing], regex [^abc].\n\n[^1]: First.\n\n    More.\n\n[^note]: Second.\n"
    shown = "One[1] and two[note], [^missing], regex [^abc].\n\n[1] First.\n\nMore.\n\n[note] Second."
    assert plain_text(text) == shown
    assert marked(text, "^") == "[1][note][1][note]"
    view.append_pieces([Piece(text=text)])  # they are known with the end
    view.finish()
    settle(qtbot, view)
    assert view.document().toPlainText().startswith("One[1] and two[note]")


def test_links_that_are_defined_elsewhere(qtbot: QtBot, view: MarkdownView) -> None:
    text = (
        "See [the paper][1], [Home] and [other].\n\n[1]: https://example.org/1 'Title'\n[home]: <https://example.org>\n"
    )
    assert links(text) == [("the paper", "https://example.org/1"), ("Home", "https://example.org")]
    assert plain_text(text) == "See the paper, Home and [other]."
    unused = "Text.\n\n[2]: https://example.org/2"
    assert plain_text(unused) == unused
    assert links(unused) == [("https://example.org/2", "https://example.org/2")]
    chance = random.Random(3)
    at = 0
    while at < len(text):
        size = chance.randint(1, 9)
        view.append_pieces([Piece(text=text[at : at + size], drafter="model" if chance.random() < 0.5 else None)])
        at += size
        settle(qtbot, view)
    view.finish()
    settle(qtbot, view)
    assert view.document().toPlainText() == "See the paper, Home and [other]."
    assert tool_tip(view, "other") in ("", "Drafted by the draft model and accepted in round 0")


def test_fences(qapp: QApplication) -> None:
    found = [part[2:] for part in shape_of("~~~py\na\n~~~\n\n````md\n```js\nb\n```\n````\n\n- c\n\n  ```\n  d\n ```\n")]
    assert [part for part in found if len(part) == 2 and isinstance(part[1], str)][:2] == [
        ("py", "a"),
        ("md", "```js\nb\n```"),
    ]
    assert plain_text("#NoSpace") == "#NoSpace"


def test_tokens_and_matches_are_where_they_are_shown(qtbot: QtBot, view: MarkdownView) -> None:
    text = "| h | i |\n|---|---|\n| one<br>two | `x \\| y` |\n\n😀 &amp; **bold** [link](https://a.b/c) word"
    pieces = [Piece(text=part, round=at, drafter="model") for at, part in enumerate(text.split(" "))]
    pieces = [Piece(text=piece.text + " ", round=piece.round, drafter="model") for piece in pieces]
    pieces[-1] = Piece(text="word", round=len(pieces) - 1, drafter="model")
    show(qtbot, view, text, pieces)
    for shown in ("two", "y", "bold", "link", "word", "&", "😀"):
        cursor = view.document().find(shown)
        piece = view.piece_at(cursor.selectionStart())
        assert piece is not None and shown in piece.text.replace("&amp;", "&"), shown
    for query in ("two", "y", "bold", "link", "word"):
        assert view.set_find(query) >= 1, query
        box = view.show_find(0)
        cursor = view.document().find(query)
        place = view.cursorRect(cursor)
        assert box is not None and abs(box.right() - place.left()) < 8 and box.top() < place.center().y() < box.bottom()
