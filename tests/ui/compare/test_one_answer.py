"""The tab with two answers side by side."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QBoxLayout
from pytestqt.qtbot import QtBot

from app.compare.results import Run, first_difference
from app.compare.steps import task_of
from app.protocol.commands import Generate
from app.protocol.events import Piece, Round
from app.ui.chat.answer import ThinkingPart
from app.ui.compare import wording
from app.ui.compare.one_answer import OneAnswer, is_in_thinking, marked
from app.ui.compare.runner import End
from app.ui.compare.tab import AnswerPane
from tests.ui.compare.samples import WORDS, compared, comparison, prompt, run
from tests.ui.parts import WAIT_MS

ASKED = task_of(prompt(), Generate(request=0, messages=[]), 4)


@pytest.fixture
def tab(qtbot: QtBot) -> Iterator[OneAnswer]:
    made = OneAnswer()
    qtbot.addWidget(made)
    made.resize(960, 680)
    made.show()
    qtbot.waitExposed(made)
    yield made


def rounds(words: tuple[str, ...] = WORDS, each: float = 0.1) -> list[Round]:
    return [
        Round(index=number, verify_passes=1, pieces=[Piece(text=word, id=number)], tokens=1, time=number * each)
        for number, word in enumerate(words)
    ]


def figures(pane: AnswerPane) -> tuple[str, str]:
    speed, clock = (one.text().replace("\u00a0", " ") for one in pane._figures.values())
    return speed, clock


def note(pane: AnswerPane) -> str:
    progress = pane._text().progress
    return "" if progress.isHidden() else progress.text()


def test_from_the_beginning_to_the_verdict(tab: OneAnswer) -> None:
    one = comparison()
    tab.begin(ASKED)
    assert tab.footer.stop_button.isVisible()
    assert not tab.footer.run_button.isVisible()
    assert note(tab.plain) == "Processing the prompt…"
    tab.set_waiting("Starts when the pair is loaded.")
    assert note(tab.plain) == "Starts when the pair is loaded."
    tab.set_prompt_progress(40, 100)
    assert note(tab.plain).replace("\u00a0", " ") == "Processing the prompt · 40%"
    assert note(tab.drafted) == wording.WAITS_FOR_OTHER_RUN
    tab.begin_run(0, False)
    assert note(tab.plain) == ""
    tab.add_rounds(rounds())
    tab._on_tick()
    assert figures(tab.plain)[0] == "10 tok/s"
    assert figures(tab.plain)[1].endswith(" s")
    tab.end_run(one.plain)
    assert figures(tab.plain) == ("40 tok/s", "0.5 s")
    tab.set_waiting("")  # as the engine's state goes to and fro between the runs
    tab.set_prompt_progress(1, 2)
    assert note(tab.plain) == ""
    tab.begin_run(0, True)
    tab.add_rounds(rounds())
    tab.end_run(one.drafted)
    tab.show_result(compared(one))
    tab.end(End("done"))
    assert tab.verdict.text().startswith("✓ Same text, 8 tokens, same seed")
    assert (tab.plain._text().view.content, tab.drafted._text().view.content) == ("".join(WORDS), "".join(WORDS))
    assert tab.footer.run_button.isEnabled()
    assert tab.footer.export_button.isEnabled()
    assert not tab._timer.isActive()


def test_both_sides_go_to_the_first_different_token(qtbot: QtBot, tab: OneAnswer) -> None:
    many = tuple(f"Paragraph {number}.\n\n" for number in range(80))
    other = (*many[:60], "Something else.\n\n", *many[61:])
    one = comparison(other=other)
    plain, drafted = (
        Run(pieces=[Piece(text=text, id=hash(text) % 1000) for text in texts], figures=one.plain.figures)
        for texts in (many, other)
    )
    one = replace(one, plain=plain, drafted=drafted, difference=first_difference(plain, drafted))
    tab.show_compared(compared(one))
    for pane in (tab.plain, tab.drafted):
        qtbot.waitUntil(lambda pane=pane: _marked_y(pane) is not None, timeout=WAIT_MS)  # type: ignore[misc]
        y = _marked_y(pane)
        assert y is not None
        assert 0 <= y < pane.column.viewport().height()
        assert pane.column.verticalScrollBar().value() > 200
    assert tab.verdict.text().startswith("Different starting at token 61")


def _marked_y(pane: AnswerPane) -> int | None:
    view = pane._text().view
    box = view.mark_box()
    return None if box is None else view.mapTo(pane.column.viewport(), QPoint(0, round(box.top()))).y()


def test_a_narrow_window_the_tints_of_drafted_tokens_and_nothing_left(qtbot: QtBot, tab: OneAnswer) -> None:
    tab.show_compared(compared(comparison()))
    assert tab._panes.direction() is QBoxLayout.Direction.LeftToRight
    tab.resize(700, 680)
    assert tab._panes.direction() is QBoxLayout.Direction.TopToBottom
    qtbot.waitUntil(lambda: tab.drafted.y() > tab.plain.y() + 50)
    assert tab.plain.width() == tab.drafted.width() == 700
    view = tab.drafted._text().view
    qtbot.waitUntil(lambda: view.is_drawn)
    plain = view.grab().toImage()
    tab.set_show_drafted(True)
    assert view.grab().toImage() != plain
    tab.set_show_drafted(False)
    assert view.grab().toImage() == plain
    tab.show_nothing(wording.CHAT_DELETED)
    assert tab.plain._text().view.content == tab.drafted._text().view.content == ""
    assert not tab.footer.export_button.isEnabled()
    assert tab._pages.currentIndex() == 0


def test_why_nothing_can_run_is_told(tab: OneAnswer) -> None:
    task = task_of(prompt(text="<b>bold</b> <img src=x>"), Generate(request=0, messages=[]), 4)
    tab.prepare(task, ("A <i>note</i>",))
    assert tab._title.text() == "<b>bold</b> <img src=x>"
    assert tab._title.textFormat() is tab._notes.textFormat() is Qt.TextFormat.PlainText
    assert tab.footer.run_button.isEnabled()
    tab.set_blocked("No model is loaded.")
    assert not tab.footer.run_button.isEnabled()
    assert tab.footer.run_button.toolTip() == tab.footer._status.text() == "No model is loaded."
    tab.footer.set_status("Exported to x.md.")
    assert tab.footer._status.text() == "Exported to x.md."
    tab.footer.set_status("")
    tab.set_blocked("")
    assert tab.footer._status.text() == ""


def has_mark(part: ThinkingPart) -> bool:
    return part.view is not None and part.view.mark_box() is not None


def test_thinking_is_folded_in_both_answers_and_opened_for_a_difference(qtbot: QtBot, tab: OneAnswer) -> None:
    def run_of_words(words: tuple[str, ...]) -> Run:
        made = run(words)
        pieces = [replace(piece, thinking=place < 3) for place, piece in enumerate(made.pieces)]
        return replace(made, pieces=pieces, figures=replace(made.figures, thinking_seconds=2.0, thinking_tokens=3))

    same = comparison()
    thought = replace(same, plain=run_of_words(WORDS), drafted=run_of_words(WORDS), difference=None)
    assert thought.same
    tab.show_compared(compared(thought))
    for pane in (tab.plain, tab.drafted):
        part = pane._text().thinking
        assert part.isVisible() and not part.is_open
        assert part.button.text().replace("\u00a0", " ") == "Thought for 2 s"
        assert pane._text().view.content == " and a large target."

    other = run_of_words((*WORDS[:2], " big", *WORDS[3:]))
    found = first_difference(thought.plain, other)
    assert found is not None and (found.token, found.in_thinking) == (2, True)
    differs = replace(thought, drafted=other, difference=found)
    assert not differs.same  # although the answers are the same
    tab.show_compared(compared(differs))
    assert "token 3 (while thinking)" in tab.verdict.text()
    for pane in (tab.plain, tab.drafted):
        qtbot.waitUntil(partial(has_mark, pane._text().thinking), timeout=WAIT_MS)
    views = [pane._text().thinking.view for pane in (tab.plain, tab.drafted)]
    names = [view.accessibleName() for view in views if view is not None]
    assert names == ["Without a draft: thinking", "With a draft: thinking"]
    assert marked(other, found, in_thinking=True) == (9, 13)
    late = run_of_words((*WORDS[:4], " the", *WORDS[5:]))
    behind = first_difference(thought.plain, late)
    assert behind is not None and not is_in_thinking(late, behind)
    assert marked(late, behind) == (4, 8)
