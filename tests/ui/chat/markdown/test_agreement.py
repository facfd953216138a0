"""Cut into blocks, Markdown reads as Qt reads it in one piece."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from PySide6.QtGui import QTextBlock, QTextCursor, QTextDocument, QTextFormat, QTextList
from PySide6.QtWidgets import QApplication

from app.ui.chat.markdown.block_splitter import BlockSplitter
from app.ui.chat.markdown.block_writer import FEATURES
from app.ui.chat.markdown.blocks import Block, Kind, visible

Shape = list[tuple[object, ...]]
_Property = QTextFormat.Property
ELSEWHERE = (
    "| one |\n|---|\n| two |\n# three",  # Qt goes on with a table where GitHub does not
    "| one |\n|---|\n| two |\n```\nthree\n```",
)
"""What is shown otherwise, on purpose."""
EXAMPLES = Path(__file__).parents[3] / "data" / "commonmark" / "examples.json"
EXAMPLES_ELSEWHERE = {96, 216, 281, 282, 283, 300, 315}
"""Of CommonMark's examples: front matter (96), a rule below a definition (216), and items without text, which Qt leaves
out, or a heading in an item at the very beginning, around which it forgets the item."""
DEFINITION = re.compile(r"^[ >]{0,3}\[.+?\]:", re.MULTILINE | re.DOTALL)
"""Of a link's target, which is known in its own block only: in others the text stands with its brackets."""
EMPTY = re.compile(r"^\s*([-*+]|\d+[.)])\s*$", re.MULTILINE)
"""After an item without text Qt takes what follows for one."""
OTHERS = (
    "- [ ] one\n- [x] two\n- three",
    "one\r\ntwo\r\n\r\n- three\r\n- four\r\n\r\n```\r\nfive\r\n```\r\n",
    "> | a | b |\n> |---|---|\n> | 1 | 2 |",
    "> - one\n>   - two\n>\n>   three\n>\n> four",
    "-1. not ok\n\n1234567890. not ok",
    "1. one\n   - two\n     1. three\n2. four\n   ```py\n   - five\n   ```\n3. six",
    "- one\n# Two\n- three\n```\nfour\n```\n- five\n> six",
    "- one\n  ```\n  two\nthree\n",
    "-  one\n\n\ttwo\n\n\tthree",
)
"""What CommonMark has no example of."""
TABLES = (
    "| one | two |\n| --- | --- |\n| three | four |",
    "| one | two |\n:-: | -----------:\nthree | four",
    "| f\\|oo  |\n| ------ |\n| b `\\|` az |\n| b **\\|** im |",
    "| one | two |\n| --- | --- |\n| three | four |\n> five",
    "| one | two |\n| --- | --- |\n| three | four |\nfive\n\nsix",
    "| one | two |\n| --- |\n| three |",
    "| one | two |\n| --- | --- |\n| three |\n| four | five | six |",
    "| one | two |\n| --- | --- |",
    "words\n| one | two |\n| --- | --- |\n| three | four |",
    "one | two\n--- | ---\nthree | four\n\nfive",
    "| one |\n|---|\n| two |\n# three",
    "| one |\n|---|\n| two |\n- three",
    "| one |\n|---|\n| two |\n***\nthree",
    "| one |\n|---|\n| two |\n```\nthree\n```",
    "| one |\n|---|\n| two |\n    three",
    "- | one | two |\n  |---|---|\n  | three | four |\n- five",
    "| one | two\n|---|---\n| three | four\n",
    "one | two\n---|---",
    "  | one | two |\n  |:--|--:|\n  | three | four |",
    "| one |\n| two |\n|---|\n| three |",
)


def _part(block: QTextBlock) -> tuple[object, ...] | None:
    form = block.blockFormat()
    items: QTextList | None = block.textList()  # PySide's stubs deny the None
    if form.hasProperty(_Property.BlockCodeLanguage.value) or form.hasProperty(_Property.BlockCodeFence.value):
        return ("code", block.text()) if block.text().strip() else None
    if form.hasProperty(_Property.BlockTrailingHorizontalRulerWidth.value):
        return ("rule",)
    if not block.text() and items is None:
        return None
    place = (items.format().style(), items.format().indent()) if items is not None else form.indent()
    return block.text(), form.headingLevel(), form.intProperty(_Property.BlockQuoteLevel.value), place, form.marker()


def shape(source: str) -> Shape:
    """What Qt's parser makes of a text."""
    document = QTextDocument()
    document.setMarkdown(source, FEATURES)
    found: Shape = []
    block, table_end = document.begin(), -1
    while block.isValid():
        table = QTextCursor(block).currentTable()
        if table is not None and block.position() > table_end:
            table_end = table.lastPosition()
            cells = [table.cellAt(row, column) for row in range(table.rows()) for column in range(table.columns())]
            found += [("cell", cell.firstCursorPosition().block().text()) for cell in cells]
        elif block.position() > table_end and (part := _part(block)) is not None:
            found.append(part)
        block = block.next()
    return found


def shape_of_blocks(source: str) -> Shape:
    """The same of its blocks, each on its own."""
    splitter = BlockSplitter()
    splitter.feed(source)
    splitter.finish()
    found: Shape = []
    for item in splitter.ready:
        if not isinstance(item, Block):
            found += [("code", line.text) for line in item.lines if line.text.strip()]
        elif item.kind is Kind.RULE:
            found.append(("rule",))
        else:
            found += shape(item.text)
    return found


def test_tables_and_others(qapp: QApplication) -> None:
    for source in (*TABLES, *OTHERS):
        text = visible(source)
        assert (shape_of_blocks(text) == shape(text)) == (source not in ELSEWHERE), source


def test_one_after_the_other(qapp: QApplication) -> None:
    chance = random.Random(11)
    examples = [(number, text) for number, _, text in json.loads(EXAMPLES.read_text("utf-8"))]
    texts = [text for number, text in examples if number not in EXAMPLES_ELSEWHERE and not DEFINITION.search(text)]
    texts = [text for text in (*texts, *TABLES) if text not in ELSEWHERE and not EMPTY.search(text)]
    for _ in range(300):
        pair = "\n\n\nbetween\n\n".join(visible(text) for text in chance.sample(texts, 2))
        assert shape_of_blocks(pair) == shape(pair), pair


def test_the_examples_of_commonmark(qapp: QApplication) -> None:
    otherwise = set()
    for number, _, markdown in json.loads(EXAMPLES.read_text("utf-8")):
        text = visible(markdown)
        cut, whole = shape_of_blocks(text), shape(text)
        if DEFINITION.search(text):
            cut, whole = ([part[1:] for part in parts] for parts in (cut, whole))
        if cut != whole:
            otherwise.add(number)
    assert otherwise == EXAMPLES_ELSEWHERE
