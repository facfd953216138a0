"""The one safe Markdown widget, on screen."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QImage, QPainter, QTextCursor, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox, QPushButton
from pytestqt.qtbot import QtBot

from app.protocol.events import Piece
from app.protocol.options import DRAFTER_WORDS, DrafterName
from app.ui.chat.markdown.code_blocks import CodeHeader
from app.ui.chat.markdown.inline_writer import checked_link
from app.ui.chat.markdown.underlay import explanation
from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme

SAMPLE = """# Title

A **bold** word, `code` and a [link](https://example.org/x).

1. first
2. second

   ```sh
   ls  # inside
   ```

```python
def f():
    return "😀 text"
```

| a | b |
|---|--:|
| one | 2 |

> quoted

last words"""


def show(qtbot: QtBot, view: MarkdownView, text: str, pieces: list[Piece] | None = None) -> str:
    """Show a text and give back what is on screen."""
    view.set_text(text, (lambda: pieces) if pieces else None)
    settle(qtbot, view)
    return view.document().toPlainText()


def settle(qtbot: QtBot, view: MarkdownView) -> None:
    qtbot.waitUntil(lambda: view.is_drawn)


def write(qtbot: QtBot, view: MarkdownView, text: str) -> None:
    """Show more of a text that is being written."""
    view.append_pieces([Piece(text=text)])
    settle(qtbot, view)


def cut(text: str, sizes: random.Random | None = None, drafter: DrafterName = "model") -> list[Piece]:
    """The text in pieces; every other one from the drafter."""
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        size = sizes.randint(1, 7) if sizes else 4
        from_draft = len(pieces) % 2 == 1
        pieces.append(
            Piece(
                text=text[at : at + size],
                round=len(pieces) // 2,
                drafter=drafter if from_draft else None,
                rejected=None if from_draft else "other",
            )
        )
        at += size
    return pieces


def click(button: QPushButton) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def tool_tip(view: MarkdownView, shown: str) -> str:
    """What hovering the middle of this text would say."""
    cursor = view.document().find(shown)
    assert not cursor.isNull(), shown
    position = (cursor.selectionStart() + cursor.selectionEnd()) // 2
    piece = view.piece_at(position)
    return explanation(piece) if piece is not None else ""


# ---------------------------------------------------------------- safety


def test_html_and_definitions_that_nothing_uses_are_shown_as_text(qtbot: QtBot, view: MarkdownView) -> None:
    parts = (
        *("<b>bold</b>", "open <i>tag", "<img src='file:///etc/hostname'>", "<!-- note -->", "end"),
        "[2]: https://example.org/other",
    )
    shown = show(qtbot, view, "See [the paper][1].\n\n" + "\n\n".join(parts) + "\n\n[1]: https://example.org/paper")
    for part in parts:
        assert part in shown
    assert "[1]" not in shown
    assert view.document().find("paper").charFormat().anchorHref() == "https://example.org/paper"


def test_images_are_never_asked_for(qtbot: QtBot, view: MarkdownView, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(MarkdownView, "loadResource", lambda _view, *args: asked.append(args))
    text = "see ![a *cat*](file:///etc/hostname) ![b](https://example.org/a.png) ![d](data:image/png,x)"
    shown = show(qtbot, view, text)
    view.grab()
    assert shown == "see [a cat] [b] [d]"
    assert asked == []


@pytest.mark.parametrize("address", ["file:///etc/hostname", "https://example.org/a.png", "data:image/png;base64,AAAA"])
def test_resources_are_refused(view: MarkdownView, address: str) -> None:
    for kind in (QTextDocument.ResourceType.ImageResource, QTextDocument.ResourceType.HtmlResource):
        assert view.loadResource(kind.value, QUrl(address)) is None
    view.setSource(QUrl(address))
    assert view.document().toPlainText() == ""


def test_only_harmless_links_become_links() -> None:
    for target in ("https://example.org/a", "http://example.org", "mailto:a@example.org"):
        assert checked_link(target)
    for target in (
        *("file:///etc/passwd", "javascript:alert(1)", "smb://host/share", "//host/share", "\\\\host\\share"),
        *("https://user:secret@example.org", "https://", "relative", ""),
    ):
        assert not checked_link(target), target


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[QUrl]:
    """What was opened in a browser."""
    urls: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", urls.append)
    return urls


def test_a_link_opens_after_a_question(qtbot: QtBot, view: MarkdownView, opened: list[QUrl]) -> None:
    address = "https://еxample.org/path"  # the first letter is Cyrillic
    view.append_pieces([Piece(text=f"[here]({address})")])
    view.anchorClicked.emit(QUrl(address))  # while it is written
    show(qtbot, view, f"[here]({address})")
    for other in ("file:///etc/passwd", "javascript:x", "ftp://example.org"):
        view.anchorClicked.emit(QUrl(other))
    assert view.window().findChild(QMessageBox) is None
    for answer in ("Cancel", "Open"):
        view.anchorClicked.emit(QUrl(address))
        box = view.window().findChildren(QMessageBox)[-1]
        assert box.textFormat() is Qt.TextFormat.PlainText
        assert "xn--" in box.text()
        assert opened == []
        click(next(one for one in box.findChildren(QPushButton) if one.text() == answer))
    assert opened == [QUrl(address)]


# ---------------------------------------------------------------- streaming


def test_a_streamed_text_looks_like_a_stored_one(qtbot: QtBot, view: MarkdownView) -> None:
    stored = MarkdownView()
    qtbot.addWidget(stored)
    stored.set_widths(500, 700)
    show(qtbot, stored, SAMPLE)
    generator = random.Random(3)
    for piece in cut(SAMPLE, generator):
        view.append_pieces([piece])
        if generator.random() < 0.5:
            with qtbot.waitSignal(view.drawn):
                pass
    view.finish()
    settle(qtbot, view)
    assert view.content == SAMPLE
    assert view.document().toPlainText() == stored.document().toPlainText()
    assert view.content_height() == stored.content_height()
    assert view.document().toHtml() == stored.document().toHtml()


def test_a_selection_survives_what_comes_after_it(qtbot: QtBot, view: MarkdownView) -> None:
    write(qtbot, view, "first words\n\nsecond")
    view.setTextCursor(view.document().find("first words"))
    write(qtbot, view, " paragraph\n\nthird")
    assert view.textCursor().selectedText() == "first words"


# ---------------------------------------------------------------- code


def headers(view: MarkdownView) -> list[CodeHeader]:
    return [header for header in view.findChildren(CodeHeader) if not header.isHidden()]


def test_each_code_block_has_its_language_and_a_copy_button(qtbot: QtBot, view: MarkdownView) -> None:
    overlong = "a" * 5000 + "\n\nb"
    show(qtbot, view, f"{SAMPLE}\n\n```\n{overlong}\n```")
    names = [name.text() for header in headers(view) for name in header.findChildren(QLabel)]
    assert names[:2] == ["sh", "python"]
    for header, code in zip(headers(view), ("ls  # inside", 'def f():\n    return "😀 text"', overlong), strict=True):
        click(header.copy_button)
        assert QGuiApplication.clipboard().text() == code


def test_a_code_block_has_a_button_while_it_is_written(qtbot: QtBot, view: MarkdownView) -> None:
    write(qtbot, view, "```json\n")
    assert len(headers(view)) == 1
    write(qtbot, view, '{"a": 1}')
    click(headers(view)[0].copy_button)
    assert QGuiApplication.clipboard().text() == '{"a": 1}'


def test_code_keeps_its_ground_in_both_themes(qtbot: QtBot, view: MarkdownView) -> None:
    for chosen in (theme.LIGHT, theme.DARK):
        theme.override(chosen)
        show(qtbot, view, "```\nx\n```\n\nprose")
        image = view.grab().toImage()
        assert image.pixelColor(350, 34) == chosen.code_surface
        cursor = view.document().find("prose")
        assert cursor.charFormat().foreground().color() == chosen.text


def test_a_copy_has_its_formats_without_the_colors_of_the_theme(qtbot: QtBot, view: MarkdownView) -> None:
    theme.override(theme.DARK)
    show(qtbot, view, "**Hot** and $a_1 < b$\n\n<script>x</script>\n\n```\n__init__\n```")
    view.selectAll()
    data = view.createMimeDataFromSelection()
    assert "<strong>Hot</strong>" in data.html() and "<code>$a_1 &lt; b$</code>" in data.html()
    assert not any(word in data.html() for word in ("style", "color", "<script", "<svg", "font"))
    view.setTextCursor(view.document().find("init"))
    assert view.createMimeDataFromSelection().html() == ""  # Markdown would make it bold
    view.setTextCursor(QTextCursor(view.document()))


# ---------------------------------------------------------------- drafted tokens


def test_tints_change_nothing_but_the_ground(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, SAMPLE, cut(SAMPLE))
    plain, markup, height = view.grab().toImage(), view.document().toHtml(), view.content_height()
    view.selectAll()
    copied = view.createMimeDataFromSelection().text()
    view.setTextCursor(QTextCursor(view.document()))
    view.set_show_drafted(True)
    assert view.grab().toImage() != plain
    assert view.document().toHtml() == markup
    assert view.content_height() == height
    view.selectAll()
    assert view.createMimeDataFromSelection().text() == copied
    view.setTextCursor(QTextCursor(view.document()))
    view.set_show_drafted(False)
    assert view.grab().toImage() == plain


def test_private_characters_of_the_model_come_through(qtbot: QtBot, view: MarkdownView) -> None:
    text = "a \ue000\ue001 b **\uf8ff** `\U000f0000`"
    pieces = cut(text)
    view.set_show_drafted(True)
    assert show(qtbot, view, text, pieces) == "a \ue000\ue001 b \uf8ff \U000f0000"
    assert view.content == text


def test_hovering_tells_where_a_token_came_from(qtbot: QtBot, view: MarkdownView) -> None:
    pieces = [
        Piece(text="😀😀 alpha ", round=12, drafter="model"),
        Piece(text="beta ", round=12, rejected="<b>other</b>"),
        Piece(text="gamma ", round=13, drafter="ngram"),
        Piece(text="delta ", round=14),
        Piece(text="\x00", round=15, drafter="mtp"),
        Piece(text="b", round=15),
    ]
    shown = show(qtbot, view, "".join(piece.text for piece in pieces), pieces)
    assert tool_tip(view, "alpha") == "Drafted by the draft model and accepted in round 12"
    assert tool_tip(view, "beta") == "The draft said “<b>other</b>”; the target model chose “beta ”"
    assert tool_tip(view, "gamma") == "Drafted by n-grams and accepted in round 13"
    assert tool_tip(view, "delta") == ""
    end = len(shown) + 2  # an emoji is two characters of the document
    assert [view.piece_at(end - count) for count in (2, 1)] == pieces[-2:]  # what was made visible, too
    show(qtbot, view, "the text", [Piece(text="another", drafter="model")])
    assert view.piece_at(0) is None


def grounds(view: MarkdownView, shown: str) -> set[str]:
    """The colors under and around this text."""
    image = view.grab().toImage()
    cursor = view.document().find(shown)
    cursor.setPosition(cursor.selectionStart() + 3)
    place = view.cursorRect(cursor)
    return {image.pixelColor(place.x(), y).name() for y in range(place.top(), place.bottom())}


@pytest.mark.parametrize("mark", ["", "**", "`", "\n```\n", "\n- ", "\n> "])
def test_tints_lie_under_the_drafted_tokens_only(qtbot: QtBot, view: MarkdownView, mark: str) -> None:
    theme.override(theme.LIGHT)
    end = mark if mark.strip("\n").endswith(("*", "`")) else "\n"
    pieces = [
        Piece(text=f"first{mark}", round=1),
        Piece(text="mmmmmm", round=1, drafter="model"),
        Piece(text=f" wwwwww{end}", round=1),
    ]
    show(qtbot, view, "".join(piece.text for piece in pieces), pieces)
    drafted, own = grounds(view, "mmmmmm"), grounds(view, "wwwwww")
    view.set_show_drafted(True)
    assert grounds(view, "mmmmmm") != drafted
    assert grounds(view, "wwwwww") == own


@pytest.mark.parametrize("chosen", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_each_drafter_has_its_own_tint_also_side_by_side(qtbot: QtBot, view: MarkdownView, chosen: theme.Theme) -> None:
    theme.override(chosen)
    shown: dict[str, DrafterName] = {"mmmmmm": "model", "nnnnnn": "ngram", "hhhhhh": "mtp"}
    pieces = [Piece(text=text, round=1, drafter=drafter) for text, drafter in shown.items()]
    show(qtbot, view, "".join(shown), pieces)
    view.set_show_drafted(True)
    for text, drafter in shown.items():
        own = DRAFTER_WORDS[drafter].tint
        assert {name for name, tint in chosen.tints.items() if tint.name() in grounds(view, text)} == {own}


@pytest.mark.parametrize("drafter", get_args(DrafterName))
def test_the_underline_of_a_drafter_is_drawn(qtbot: QtBot, view: MarkdownView, drafter: DrafterName) -> None:
    show(qtbot, view, "mmmmmm wwwwww", [Piece(text="mmmmmm", round=1, drafter=drafter), Piece(text=" wwwwww", round=1)])
    image = QImage(400, 60, QImage.Format.Format_RGB32)
    image.fill(theme.LIGHT.surface)
    painter = QPainter(image)
    view._known_tints().paint(painter, view._rendering.units, theme.LIGHT)
    painter.end()
    tint = DRAFTER_WORDS[drafter].tint
    ground = theme.LIGHT.tints[tint].lightness()  # the darkest color but for the line
    darker = {x for x in range(400) for y in range(60) if image.pixelColor(x, y).lightness() < ground - 10}
    pen = theme.LIGHT.underline(tint)
    assert bool(darker) == (pen is not None)
    if pen is not None:
        is_solid = len(darker) > max(darker) - min(darker)
        assert is_solid == (pen.style() is Qt.PenStyle.SolidLine)


def test_the_tool_tip_appears_only_with_tints(qtbot: QtBot, view: MarkdownView, qapp: QApplication) -> None:
    show(qtbot, view, "alpha", [Piece(text="alpha", round=1, drafter="model")])
    place = view.cursorRect(QTextCursor(view.document())).center() + QPoint(4, 0)
    assert view.explanation_at(QPointF(place)) == ""
    view.set_show_drafted(True)
    assert "round 1" in view.explanation_at(QPointF(place))
    assert view.explanation_at(QPointF(place.x(), 5000)) == ""


# ---------------------------------------------------------------- hard input

HARD = {
    "much in a line": "word " * 100_000,
    "a word without end": "x" * 200_000,
    "long code": "```python\n" + "x = 1  # one\n" * 10_000 + "```",
    "deep quotes": ">" * 5000 + " x",
    "deep lists": "".join("  " * depth + "- item\n" for depth in range(500)),
    "markers": "- " * 3000 + "x",
    "brackets": "[" * 20_000,
    "emphasis": "*a **b " * 5000,
    "control characters": "".join(map(chr, range(32))) * 200 + "\x7f\u202e\u2066\ufdd0\uffff",
    "half characters": "a \ud800 b \udfff c",
    "a wide table": "|" + "a|" * 2000 + "\n|" + "-|" * 2000 + "\n|" + "b|" * 2000,
    "a long table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 1000,
    "tags": "<div" * 20_000,
    "marks over marks": "a" + "\u0301" * 20_000,
    "empty": "",
    "only newlines": "\n" * 100_000,
}


@pytest.mark.parametrize("name", HARD)
def test_hard_input_is_shown_in_small_steps(qtbot: QtBot, view: MarkdownView, name: str) -> None:
    text = HARD[name]
    view.set_show_drafted(True)
    view.set_text(text, lambda: [Piece(text=text, round=1, drafter="model")])
    qtbot.waitUntil(lambda: view.is_drawn, timeout=60_000)
    view.grab(view.rect().intersected(view.rect().adjusted(0, 0, 0, 600 - view.height())))
    assert view.content == text
    solid = sum(not character.isspace() for character in text)
    shown = sum(not character.isspace() for character in view.document().toPlainText())
    assert shown >= solid * 0.1
