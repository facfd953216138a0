"""Formulas in the Markdown view: drawn by the helper process, each one character of the document."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QAccessible, QColor, QImage, QTextCursor
from pytestqt.qtbot import QtBot

from app.helper import Died
from app.helper.client import Helper
from app.helper.messages import FormulaAnswer, RenderFormula
from app.protocol.events import Piece
from app.ui.chat.markdown import formulas
from app.ui.chat.markdown.formulas import OBJECT, FormulaService, formula_service
from app.ui.chat.markdown.plain_text import plain_text
from app.ui.chat.markdown.underlay import block_rect
from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme
from tests.ui.chat.markdown.test_view import write

_numbers = count(1000)
"""Formulas with a new number were not drawn before."""


@pytest.fixture(scope="module", autouse=True)
def service() -> Iterator[FormulaService]:
    """One that waits for a slow machine, in place of that of the process."""
    service = FormulaService(Helper(seconds=60.0))
    with pytest.MonkeyPatch.context() as patch:
        for module in (formulas, formulas, formulas):
            patch.setattr(module, "formula_service", lambda: service)
        yield service
    service.close()


def settle(qtbot: QtBot, view: MarkdownView) -> None:
    """Wait until all formulas are drawn, or known to be none."""
    qtbot.waitUntil(lambda: view.is_drawn and view._places._service.is_idle, timeout=60_000)
    qtbot.waitUntil(lambda: view.is_drawn, timeout=60_000)


def show(qtbot: QtBot, view: MarkdownView, text: str) -> str:
    """Show a text, and give back what the document has then."""
    view.set_text(text)
    settle(qtbot, view)
    return view.document().toPlainText()


def copied(view: MarkdownView, start: int = 0, end: int | None = None) -> str:
    cursor = QTextCursor(view.document())
    cursor.setPosition(start)
    cursor.setPosition(view.document().characterCount() - 1 if end is None else end, QTextCursor.MoveMode.KeepAnchor)
    view.setTextCursor(cursor)
    return view.createMimeDataFromSelection().text()


def box_of(view: MarkdownView, position: int) -> QRectF:
    """Where a character of the document is drawn."""
    document = view.document()
    block = document.findBlock(position)
    line = block.layout().lineForTextPosition(position - block.position())
    left, right = (float(line.cursorToX(position - block.position() + step)[0]) for step in (0, 1))  # type: ignore[index]
    return QRectF(left, line.y(), right - left, line.height()).translated(block_rect(document, block).topLeft())


def picture_of(view: MarkdownView) -> QImage:
    result = QImage(view.size(), QImage.Format.Format_RGB32)
    result.fill(theme.current().surface)
    view.render(result)
    return result


@pytest.mark.parametrize(
    "formula",
    [
        "$x_{1} + y^1$",
        r"\(\frac{a}{2}\)",
        r"$$\sum_{i=3}^n \sqrt{i}$$",
        r"\[\begin{pmatrix} 4 & b \\ c & d \end{pmatrix}\]",
        r"$$\begin{cases} x & 5 \\ y & \text{else} \end{cases}$$",
        "\\begin{align}\na &= 6 \\\\\n&= c\n\\end{align}",
    ],
)
def test_every_kind_of_formula(qtbot: QtBot, view: MarkdownView, formula: str) -> None:
    shown = show(qtbot, view, f"Before\n\n{formula}\n\nafter.")
    assert shown == f"Before\n{OBJECT}\nafter."


def test_a_formula_in_what_is_drawn_again_is_put_in_place_once(qtbot: QtBot, view: MarkdownView) -> None:
    """As long as a line isn't finished, what stands before it is drawn again with it."""
    for character in f"1. $$\n   x_{{{next(_numbers)}}}\n   $$\n2. two\n\n> $y_{{{next(_numbers)}}}$\n\nend":
        view.append_pieces([Piece(text=character)])
        view._draw()
    view.finish()
    settle(qtbot, view)
    assert view.document().toPlainText() == f"{OBJECT}\ntwo\n{OBJECT}\nend"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Heading $x$", f"Heading {OBJECT}"),
        ("**bold $x$ and** *slanted $y$*", f"bold {OBJECT} and slanted {OBJECT}"),
        ("- one $x$\n- two \\(y\\)", f"one {OBJECT}\ntwo {OBJECT}"),
        ("> quote $x$", f"quote {OBJECT}"),
        ("[link $x$](https://a.b)", f"link {OBJECT}"),
        ("before $$x$$ after", f"before\n{OBJECT}\nafter"),
        ("before\n\\[x = 1\\], after", f"before\n{OBJECT},\nafter"),
        ("1. item\n   $$x$$\n   more", f"item\n{OBJECT}\nmore"),
        ("$$x$$\n$$y$$", f"{OBJECT}\n{OBJECT}"),
        ("$$\nx\n$$.", f"{OBJECT}."),
        ("costs $5 and $10, `$x$`", "costs $5 and $10, $x$"),
        ("```\n$x$\n```", "$x$"),
        ("- list\n\n      $x$ in code", "list\n$x$ in code"),
        ("![picture $x$](https://a.b/c.png)", "[picture $x$]"),
    ],
)
def test_formulas_among_other_marks(qtbot: QtBot, view: MarkdownView, text: str, shown: str) -> None:
    assert show(qtbot, view, text) == shown


def test_formulas_in_a_table(qtbot: QtBot, view: MarkdownView) -> None:
    text = "| a | $b$ |\n|---|---|\n| $|x|$ | $\\frac{1}{2}$ |\n| c | $x^{$ |"
    show(qtbot, view, text)
    assert copied(view) == "a\t$b$\n$|x|$\t$\\frac{1}{2}$\nc\t$x^{$"
    (table,) = view._rendering.writer.table_runs
    narrow = table.width
    long = " + ".join(["x"] * 30)
    show(qtbot, view, text.replace("$b$", f"${long}$"))
    (table,) = view._rendering.writer.table_runs
    assert table.width > narrow


@pytest.mark.parametrize("formula", [r"$\unknown{x}$", "$x^{$", r"$$\left( x$$", "$" + "{" * 20 + "x" + "}" * 20 + "$"])
def test_what_can_not_be_drawn_stays_source(qtbot: QtBot, view: MarkdownView, formula: str) -> None:
    show(qtbot, view, f"before {formula} after")
    assert OBJECT not in view.document().toPlainText()
    assert formula in copied(view)


def test_a_helper_that_dies_leaves_the_source(
    qtbot: QtBot, view: MarkdownView, service: FormulaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_request: RenderFormula) -> FormulaAnswer:
        raise Died("exit status 1")

    text = f"an $x_{{{next(_numbers)}}}$"
    monkeypatch.setattr(service._helper, "ask", die)
    assert show(qtbot, view, text) == text


def test_the_letters_stand_on_the_baseline_in_the_color_of_the_text(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, r"text $\rule{2em}{1em}$ text")
    box = box_of(view, 5)
    line = view.document().begin().layout().lineAt(0)
    baseline = block_rect(view.document(), view.document().begin()).top() + line.y() + line.ascent()
    for current in (theme.LIGHT, theme.DARK):
        theme.override(current)
        settle(qtbot, view)
        picture = picture_of(view)
        x = round(box.center().x())
        assert QColor(picture.pixel(x, round(baseline) - 4)).rgb() == current.text.rgb()
        assert QColor(picture.pixel(x, round(baseline) + 2)).rgb() == QColor(picture.pixel(400, round(baseline))).rgb()


def test_a_wide_formula_is_scrolled_and_stands_in_the_middle_where_it_fits(qtbot: QtBot, view: MarkdownView) -> None:
    long = " + ".join(f"x_{{{number}}}" for number in range(20))
    show(qtbot, view, f"text\n\n$${long}$$\n\nmore $a$")
    view.set_widths(200, 250)
    assert [part.name for part in view.wide.parts] == ["formula"]
    view.set_widths(2000, 2100)
    assert view.wide.parts == []
    place = view.document().toPlainText().index(OBJECT)
    box = box_of(view, place)
    assert box.center().x() == pytest.approx(1000, abs=2)
    view.set_widths(500, 700)
    show(qtbot, view, f"- text ${long}$ more")  # in a line it is made smaller
    assert box_of(view, 5).width() <= 500
    view.set_widths(200, 250)
    assert box_of(view, 5).width() <= 200


def test_a_growing_text_shows_the_source_until_its_block_is_finished(qtbot: QtBot, view: MarkdownView) -> None:
    number = next(_numbers)
    text = f"First $a_{{{number}}}$ here.\n\nThen \\(b_{{{number}}}\\) and\n\\[\nc_{{{number}}}\n- 1\n\\]\nthe end."
    for at in range(0, len(text), 3):
        view.append_pieces([Piece(text=text[at : at + 3], round=1)])
        qtbot.waitUntil(lambda: view.is_drawn)
        shown = view.document().toPlainText()
        unfinished = text[: at + 3].rsplit("\n\n", 1)[-1]
        if unfinished.endswith(f"$a_{{{number}}}$ here."):
            assert f"$a_{{{number}}}$" in shown
    view.finish()
    settle(qtbot, view)
    assert view.document().toPlainText() == f"First {OBJECT} here.\nThen {OBJECT} and\n{OBJECT}\nthe end."
    assert copied(view).replace("\n\n", "\n") == text.replace("\n\n", "\n")


def test_an_unfinished_formula_is_not_taken_for_other_marks(qtbot: QtBot, view: MarkdownView) -> None:
    write(qtbot, view, "Let \\(a*b* + c_1 \\cdot _d_ and")
    assert view.document().toPlainText() == "Let \\(a*b* + c_1 \\cdot _d_ and"
    view.append_pieces([Piece(text="\n\n\\[\nx = 1\n- item")])
    view.finish()  # without its end it is text
    settle(qtbot, view)
    assert OBJECT not in view.document().toPlainText()
    assert "item" in view.document().toPlainText()


TEXT = "Where $x_1$ is \\(\\frac{a}{b}\\), so\n\n$$\nx = 1\n$$\n\nholds for **all $n$** here."


def test_copying_gives_the_source(qtbot: QtBot, view: MarkdownView) -> None:
    shown = show(qtbot, view, TEXT)
    assert shown.count(OBJECT) == 4
    assert copied(view) == TEXT.replace("**", "")
    at = shown.index(OBJECT)
    assert copied(view, at, at + 1) == "$x_1$"
    assert copied(view, at - 2, at + 4) == "e $x_1$ is"
    assert plain_text(TEXT) == TEXT.replace("**", "")
    show(qtbot, view, "> said\n> \\[\n> x = 1\n> \\]")  # without the marks of the quote
    assert copied(view).replace("\n\n", "\n") == "said\n\\[\nx = 1\n\\]"


def test_a_selected_formula_looks_selected(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, r"text $\rule{2em}{1em}$ text")
    before = picture_of(view)
    copied(view)
    box = box_of(view, 5)
    x, y = round(box.center().x()), round(box.bottom()) - 2
    assert before.pixel(x, y) != picture_of(view).pixel(x, y)


def test_find_finds_the_source(qtbot: QtBot, view: MarkdownView) -> None:
    shown = show(qtbot, view, TEXT)
    assert view.set_find("frac") == 1
    box = view.show_find(0)
    assert box is not None
    second = [place for place, character in enumerate(shown) if character == OBJECT][1]
    assert box_of(view, second).adjusted(-1, -1, 1, 1).contains(box)
    for text, found in (("x_1$ is", 1), ("x", 2), ("all $n$ here", 1), ("here.", 1)):
        assert view.set_find(text) == found
        box = view.show_find(0)
        assert box is not None
    assert box.left() > box_of(view, shown.rindex(OBJECT)).right()
    picture_of(view)
    view.set_mark((TEXT.index("frac"), TEXT.index("frac") + 2))
    box = view.mark_box()
    assert box is not None
    assert box.width() > 3


def test_screen_readers_are_told_the_sources(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, TEXT)
    spoken = QAccessible.queryAccessibleInterface(view).text(QAccessible.Text.Description)
    assert spoken == "Formulas: $x_1$; \\(\\frac{a}{b}\\); $$\nx = 1\n$$; $n$"
    show(qtbot, view, "no formula")
    assert QAccessible.queryAccessibleInterface(view).text(QAccessible.Text.Description) == ""


def test_the_raw_text_and_plain_text_show_the_source(qtbot: QtBot, view: MarkdownView) -> None:
    show(qtbot, view, "a $x$")
    view.set_raw(True)
    settle(qtbot, view)
    assert view.document().toPlainText() == "a $x$"
    view.set_raw(False)
    settle(qtbot, view)
    assert view.document().toPlainText() == f"a {OBJECT}"
    plain = MarkdownView(plain=True, parent=view.parentWidget())
    plain.set_widths(500, 700)
    assert show(qtbot, plain, "a $x$") == "a $x$"


def test_a_text_can_not_pretend_to_have_formulas(qtbot: QtBot, view: MarkdownView) -> None:
    shown = show(qtbot, view, "a \ufffc and \ufdd2\ue000 and $x$")
    assert shown == f"a \ufffd and \ufffd\ue000 and {OBJECT}"
    assert formula_service() is formula_service() is not formulas.formula_service()
