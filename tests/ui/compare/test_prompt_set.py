"""The tab with a set of prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QTreeWidgetItem
from pytestqt.qtbot import QtBot

from app.compare import prompts
from app.compare.results import Comparison, Skipped
from app.ui.compare import wording
from app.ui.compare.prompt_set import ALL, COLUMNS, DRAFTER_COLUMNS, PromptSet
from app.ui.compare.runner import End
from tests.ui.compare.samples import WORDS, compared, comparison, prompt

NO_BREAK = "\u00a0"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tab(qtbot: QtBot, clock: Clock) -> Iterator[PromptSet]:
    made = PromptSet(clock)
    qtbot.addWidget(made)
    made.resize(960, 760)
    made.show()
    qtbot.waitExposed(made)
    yield made


def write(path: Path, *kinds: str) -> Path:
    lines = [json.dumps({"kind": kind, "prompt": f"Prompt {number}"}) for number, kind in enumerate(kinds)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def cells(tab: PromptSet, row: int) -> list[str]:
    item = tab.table.topLevelItem(row)
    assert item is not None
    return [item.text(column).replace(NO_BREAK, " ") for column in range(len(COLUMNS))]


def prompt_item(tab: PromptSet, number: int) -> QTreeWidgetItem:
    """A prompt of the first kind."""
    kind = tab.table.topLevelItem(0)
    item = kind.child(number) if kind is not None else None
    assert item is not None
    return item


def test_a_file_of_the_users(tab: PromptSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "mine.jsonl", "mail", "mail", "code")
    for chosen in ("", str(path)):
        assert tab._source.currentText() == "Bundled, 21 prompts" and tab.choice().path == prompts.bundled_file()
        monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_, chosen=chosen: (chosen, ""))
        QTest.mouseClick(tab._choose, Qt.MouseButton.LeftButton)
    choice = tab.choice()
    assert choice.path == path
    assert len(choice.prompts) == 3
    assert tab._source.currentText() == "mine.jsonl, 3 prompts"
    QTest.keyClick(tab._source, Qt.Key.Key_Up)
    assert tab.choice().path == prompts.bundled_file()
    tab.open_file(write(tmp_path / "other.jsonl", "mail"))
    assert (tab._source.count(), tab._source.currentText()) == (2, "other.jsonl, 1 prompts")


def test_a_file_that_cannot_be_used_is_said_and_changes_nothing(tab: PromptSet, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"kind": "a", "prompt": "fine"}\n{"kind": 3}\n', encoding="utf-8")
    tab.open_file(path)
    assert "Line 2 of broken.jsonl" in tab.verdict.text()
    assert tab.choice().path == prompts.bundled_file()
    tab.open_file(tmp_path / "missing.txt")
    assert "missing.txt can't be read" in tab.verdict.text()


def test_the_table_and_the_progress_fill_as_it_goes(tab: PromptSet, clock: Clock) -> None:
    tab.begin(4, tab.choice())
    assert not tab._choice.isEnabled()
    assert tab._progress.text() == "0 of 4 · warming up"
    clock.now += 50
    tab.add_compared(compared(comparison("code")))
    assert tab._progress.text().replace(NO_BREAK, " ") == "1 of 4 · about 2 min left"
    assert cells(tab, 0) == ["code", "1", "40 tok/s", "76 tok/s", "1.9×", "71%", "2.4", "1 of 1"]
    tab.add_compared(compared(comparison("story", speeds=(40.0, 32.0), kept=0.2, other=WORDS[:3])))
    tab.add_compared(compared(comparison("code", speeds=(40.0, 84.0), text="Another", seed=5)))
    tab.add_skipped(Skipped(prompt=prompt(), reason="It is too long."))
    assert [cells(tab, row)[0] for row in range(3)] == ["code", "story", ALL]
    assert cells(tab, 0)[1:5] == ["2", "40 tok/s", "80 tok/s", "2.0×"]
    assert cells(tab, 1)[-1] == "0 of 1"
    assert cells(tab, 2)[1:5] == ["3", "40 tok/s", "76 tok/s", "1.9×"]
    assert [prompt_item(tab, number).text(0) for number in range(2)] == ["Write a loop", "Another"]
    assert [prompt_item(tab, number).text(1) for number in range(2)] == ["seed 4", "seed 5"]
    tab.set_waiting("Starts when the answer in the chat has finished.")
    assert tab._progress.text() == "4 of 4 · Starts when the answer in the chat has finished."
    tab.end(End("done"))
    assert tab.verdict.text() == (
        "Same text in 2 of 3 · 1.9× faster (median) · 54% accepted Differences at a near-tie, which rounding "
        "decides: 0 of 1. 1 prompt was skipped: It is too long."
    )
    assert tab.footer.export_button.isEnabled()
    assert tab._choice.isEnabled()


def by_drafters(tab: PromptSet) -> list[Comparison]:
    """Two kinds of text with two drafters; the table shows them."""
    tab.set_drafters(["ngram", "model"])
    tab._all_drafters.setChecked(True)
    tab.begin(4, tab.choice())
    tab.drafter_bytes = {"model": 14_200_000}
    found = [
        msgspec.structs.replace(compared(comparison(kind, speeds=(40.0, speed))), drafter=drafter)
        for kind in ("code", "story")
        for drafter, speed in (("ngram", 44.0), ("model", 76.0))
    ]
    for one in found:
        tab.add_compared(one)
    return found


def test_a_row_for_each_drafter_with_kinds_and_prompts_below(qtbot: QtBot, tab: PromptSet) -> None:
    found = by_drafters(tab)
    header = tab.table.headerItem()
    assert [header.text(place) for place in range(tab.table.columnCount())] == list(DRAFTER_COLUMNS)
    rows = [tab.table.topLevelItem(row) for row in range(tab.table.topLevelItemCount())]
    texts = [[item.text(place).replace(NO_BREAK, " ") for place in range(9)] for item in rows if item is not None]
    assert [row[0] for row in texts] == ["No draft", "N-grams", "Draft model"]
    assert texts[0][1:3] == ["40 tok/s", ""]
    assert texts[2] == ["Draft model", "76 tok/s", "1.9×", "71%", "2.4", "–", "–", "14.2 MB", "2 of 2"]
    draft_model = rows[2]
    assert draft_model is not None
    kinds = [draft_model.child(number) for number in range(draft_model.childCount())]
    assert [kind.text(0) for kind in kinds if kind is not None] == ["code", "story"]
    tab.table.setCurrentItem(draft_model)
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Right, Qt.Key.Key_Right):
        QTest.keyClick(tab.table, key)
    with qtbot.waitSignal(tab.table.opened) as opened:
        QTest.keyClick(tab.table, Qt.Key.Key_Return)
    assert found[opened.args[0]].drafter == "model" and found[opened.args[0]].prompt.kind == "story"
    assert "Draft model: 71% accepted" in tab.chart.accessibleDescription()
    assert tab.table.accessibleName() == "Results by drafter"


def test_a_kind_may_have_the_name_of_the_total(tab: PromptSet) -> None:
    tab.begin(2, tab.choice())
    tab.add_compared(compared(comparison("code")))
    tab.add_compared(compared(comparison(ALL)))
    assert [cells(tab, row)[:2] for row in range(3)] == [["code", "1"], [ALL, "1"], [ALL, "2"]]


def test_without_the_choice_the_table_is_by_kind_again(tab: PromptSet) -> None:
    by_drafters(tab)
    tab.end(End("done"))
    assert "fastest: Draft model" in tab.verdict.text()
    tab._all_drafters.setChecked(False)
    tab.begin(1, tab.choice())
    tab.add_compared(compared(comparison("code")))
    assert cells(tab, 0) == ["code", "1", "40 tok/s", "76 tok/s", "1.9×", "71%", "2.4", "1 of 1"]
    assert tab.table.columnCount() == len(COLUMNS)


def test_drafters_that_cannot_be_compared_are_not_and_why(tab: PromptSet) -> None:
    tab.set_drafters(["ngram", "model"])
    tab._all_drafters.setChecked(True)
    assert list(tab.choice().drafters) == ["ngram", "model"]
    tab.set_drafters([], wording.SERVER_DRAFTS)
    assert list(tab.choice().drafters) == [] and not tab._all_drafters.isEnabled()
    assert tab._all_drafters.toolTip() == wording.SERVER_DRAFTS


def test_a_row_opens_its_comparison_with_the_keyboard(qtbot: QtBot, tab: PromptSet) -> None:
    tab.begin(2, tab.choice())
    tab.add_compared(compared(comparison("code")))
    tab.add_compared(compared(comparison("code", text="<b>Another</b>")))
    assert prompt_item(tab, 1).text(0) == "<b>Another</b>" and "<b>" not in prompt_item(tab, 1).toolTip(0)
    kind = tab.table.topLevelItem(0)
    assert kind is not None
    tab.table.setCurrentItem(kind)
    QTest.keyClick(tab.table, Qt.Key.Key_Right)
    assert kind.isExpanded()
    tab.table.setCurrentItem(prompt_item(tab, 1))
    with qtbot.waitSignal(tab.table.opened) as opened:
        QTest.keyClick(tab.table, Qt.Key.Key_Return)
    assert opened.args == [1]


def test_a_narrow_window_shows_what_matters_most(qtbot: QtBot, dressed: None, tab: PromptSet) -> None:
    tab.begin(1, tab.choice())
    tab.add_compared(compared(comparison()))
    tab.resize(520, 700)

    def hidden() -> list[str]:
        return [name for column, name in enumerate(COLUMNS) if tab.table.isColumnHidden(column)]

    qtbot.waitUntil(lambda: hidden() == ["Prompts", "Without draft", "With draft", "Tokens per pass"])
    assert not tab.table.horizontalScrollBar().isVisible()
    tab.resize(960, 700)
    qtbot.waitUntil(lambda: hidden() == [])
