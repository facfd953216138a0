"""Results, arguments, names and descriptions that are made to do harm are plain text in a card."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QTextFragment
from PySide6.QtWidgets import QLabel, QTextBrowser
from pytestqt.qtbot import QtBot

from app.ui.chat.markdown.view import MarkdownView
from app.ui.chat.tool_cards import About
from app.ui.chat.transcript import Transcript
from tests.support.hostile_results import LONG, SHORT
from tests.support.matrix import in_proof
from tests.ui.chat.stored import click, settle, show
from tests.ui.chat.test_tool_cards import INTRO, answer, call, knows, question, with_calls

COUNT = 13
TEXTS = [text.encode("utf-8", "replace").decode() for text in SHORT.values() if text.strip()]
HERE = [0, 5, *in_proof(one for one in range(COUNT) if one not in (0, 5))]
"""Each has some of every kind."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened or loaded."""
    found: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: found.append(url.toString()))
    monkeypatch.setattr(QTextBrowser, "loadResource", lambda _self, _kind, name: found.append(QUrl(name).toString()))
    return found


def fragments(view: MarkdownView) -> Iterator[QTextFragment]:
    block = view.document().begin()
    while block.isValid():
        each = block.begin()
        while not each.atEnd():
            yield each.fragment()
            each += 1
        block = block.next()


def check_plain(view: MarkdownView) -> None:
    for fragment in fragments(view):
        kind = fragment.charFormat()
        assert not kind.isAnchor() and not kind.isImageFormat(), fragment.text()
    shown = view.document().toPlainText()
    assert not set(shown) & set("\u202e\u202d\u2066\u2067\u200b\x1b\x9b\0\b\r\U000e0041"), shown


@pytest.mark.parametrize("first", HERE)
def test_results_are_plain_text(qtbot: QtBot, transcript: Transcript, opened: list[str], first: int) -> None:
    texts = TEXTS[first::COUNT]
    made = [call(f"tool{number}", result=text, id=str(number)) for number, text in enumerate(texts)]
    show(qtbot, transcript, with_calls(INTRO, *made))
    for card, text in zip(answer(transcript).cards, texts, strict=True):
        click(card.button)
        settle(qtbot, transcript)
        _, result = card.views()
        check_plain(result)
        if text.isprintable() and max(text) < "\U000e0000":
            assert text[:500].strip() in result.document().toPlainText()
        for fragment in fragments(result):
            assert fragment.charFormat().anchorHref() == ""
        click(card.button)
    assert opened == []


@pytest.mark.parametrize("first", HERE)
def test_what_waits_is_plain_text(qtbot: QtBot, transcript: Transcript, opened: list[str], first: int) -> None:
    """Names and descriptions by a server, and arguments by a model that a page has told what to do."""
    texts = TEXTS[first::COUNT]
    names = {f"t{number}{text[:100]}": About(description=text) for number, text in enumerate(texts)}
    knows(transcript, **names)
    made = [
        call(name, "asked", id=str(number), arguments=json.dumps({"a": text, text: [text]}), server=text[:60] or "x")
        for number, (name, text) in enumerate(zip(names, texts, strict=True))
    ]
    show(qtbot, transcript, with_calls(INTRO, *made))
    for card, text in zip(answer(transcript).cards, texts, strict=True):
        asked = question(card)
        check_plain(asked.arguments)
        for one in asked.findChildren(QLabel):
            assert one.textFormat() == Qt.TextFormat.PlainText
            assert not one.openExternalLinks()
            assert not set(one.text()) & set("\u202e\u2066\x1b\0"), text
        names_told = asked.accessibleName() + asked.accessibleDescription()
        assert not set(names_told) & set("\u202e\u2066\x1b\0")
    assert opened == []


@pytest.mark.parametrize("name", LONG)
def test_long_results_are_shown(qtbot: QtBot, transcript: Transcript, name: str) -> None:
    show(qtbot, transcript, with_calls(INTRO, call(result=LONG[name])))
    (card,) = answer(transcript).cards
    click(card.button)
    settle(qtbot, transcript)
    check_plain(card.views()[-1])
