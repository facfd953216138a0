"""What is shown of Markdown has the structure that GitHub shows, and says so for each place in it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from PySide6.QtGui import QFont, QTextDocument
from PySide6.QtWidgets import QApplication

from app.markdown.dialect import environment
from app.ui.chat.markdown import inline_writer
from app.ui.chat.markdown.formats import Formats
from app.ui.chat.markdown.rendering import Rendering
from app.ui.widgets import theme
from tests.ui.chat.markdown.structure import shape_of, shape_of_page

DATA = Path(__file__).parents[3] / "data"
ELSEWHERE = {
    **dict.fromkeys((207, 208, 210, 317, 545), "a definition that no link uses is shown"),
    216: "a definition below which a line of = stands: that line is a paragraph of its own",
    **dict.fromkeys((602, 608, 611, 612), "addresses in the text are links, as on GitHub"),
}
"""CommonMark's examples that are shown otherwise, and why; benchmarks/notes/chat.md lists them."""


@pytest.fixture(autouse=True)
def any_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples' links lead nowhere, and so would not be shown as links."""
    monkeypatch.setattr(inline_writer, "checked_link", lambda target: target)


def has_html(markdown: str) -> bool:
    tokens = MarkdownIt("commonmark").parse(markdown)
    return any("html" in token.type for one in tokens for token in (one, *(one.children or ())))


def test_the_examples_of_commonmark(qapp: QApplication) -> None:
    examples = json.loads((DATA / "commonmark" / "examples.json").read_text("utf-8"))
    plain = [(number, text, page) for number, _, text, page in examples if not has_html(text)]
    assert len(plain) > 550
    otherwise = {number for number, text, page in plain if shape_of(text) != shape_of_page(page)}
    assert otherwise == set(ELSEWHERE)


def test_the_examples_in_the_manner_of_github(qapp: QApplication) -> None:
    for section, text, page in json.loads((DATA / "github" / "examples.json").read_text("utf-8")):
        assert shape_of(text) == shape_of_page(page), (section, text)


def test_every_part_knows_where_it_stands_in_the_source(qapp: QApplication) -> None:
    """Of all examples: what is noted is in order, and says the same there, but for line breaks and entities."""
    for example in json.loads((DATA / "commonmark" / "examples.json").read_text("utf-8")):
        text, document = example[2], QTextDocument()
        rendering = Rendering(document, Formats(theme.LIGHT, QFont()))
        rendering.writer.environment = environment(text)
        rendering.feed(text)
        rendering.finish()
        while rendering.draw(1.0):
            pass
        for unit in rendering.units:
            at = unit.source_start
            for run in unit.runs:
                assert at <= run.source < run.source_end <= unit.source_end, (example, run)
                at = run.source_end
                shown = "".join(document.characterAt(place) for place in range(run.start, run.end))
                if run.is_linear and not run.is_one:
                    assert shown.split() == text[run.source : run.source_end].split(), example


def _drawn(pieces: list[str]) -> tuple[QTextDocument, Rendering]:
    """What is shown of a text so far, each piece drawn as it comes."""
    document = QTextDocument()
    rendering = Rendering(document, Formats(theme.LIGHT, QFont()))
    for piece in pieces:
        rendering.feed(piece)
        while rendering.draw(1.0):
            pass
    return document, rendering


def test_a_growing_text_looks_at_each_time_as_if_it_had_come_at_once(qapp: QApplication) -> None:
    examples = [text for _, text, _ in json.loads((DATA / "github" / "examples.json").read_text("utf-8"))]
    examples += [part[2] for part in json.loads((DATA / "commonmark" / "examples.json").read_text("utf-8"))[::13]]
    examples.append(
        "**Bold words** and `code here`, then plain words that go on\n\n- item one goes\n- two [a](b) words"
    )
    chance = random.Random(5)
    for text in examples:
        at, pieces = 0, list[str]()
        while at < len(text):
            pieces.append(text[at : at + chance.randint(1, 6)])
            at += len(pieces[-1])
        for count in range(1, len(pieces) + 1, 3):
            grown, growing = _drawn(pieces[:count])
            whole, rendering = _drawn(["".join(pieces[:count])])
            assert grown.toHtml() == whole.toHtml(), (text, pieces[:count])
            assert [unit.runs for unit in growing.units] == [unit.runs for unit in rendering.units], pieces[:count]
