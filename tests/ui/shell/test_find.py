"""Find in a chat in the whole window: very long messages, and very many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.chats.store import ChatStore
from app.ui.chat.markdown.fold_button import SHOW_LESS_TEXT, folded_length
from app.ui.chat.messages import MessageWidget
from tests.support.chats import add_question, begin_answer
from tests.ui.shell.running import WAIT_MS
from tests.ui.shell.test_messages import Chatting

MESSAGES, RARE = 1500, 600


@pytest.fixture
def running(qtbot: QtBot) -> Iterator[Chatting]:
    window = Chatting(qtbot)
    window.begin()
    yield window
    window.close()


def make_chat(running: Chatting, texts: list[tuple[str, str]]) -> str:
    """A stored chat of these questions and answers."""

    def make(store: ChatStore) -> str:
        chat, parent = store.create_chat("Long"), None
        for question, text in texts:
            parent = add_question(store, chat.id, parent, question).id
            answer = begin_answer(store, chat.id, parent)
            store.finish_answer(replace(answer, text=text, status="complete"))
            parent = answer.id
        return chat.id

    return running.worker.submit(make).result(timeout=WAIT_MS / 1000)


def look_for(running: Chatting, query: str, count: int) -> int:
    """Write into the field and wait until all messages are looked through; gives back the number of the match."""
    running.choose("find_in_chat")
    bar = running.window.find_bar
    bar.field.clear()
    QTest.keyClicks(bar.field, query)
    running.qtbot.waitUntil(lambda: bar.count_text().endswith(f" of {count:,}"), timeout=WAIT_MS)
    return int(bar.count_text().split()[0].replace(",", ""))


def match_is_seen(running: Chatting, place: int) -> bool:
    """Whether the match that stands out is in this message and on the screen."""
    column = running.window.transcript.column
    widget = next((one.widget for one in column.entries if one.key == running.model.messages[place].id), None)
    box = widget.view.find_box() if isinstance(widget, MessageWidget) else None
    if not isinstance(widget, MessageWidget) or box is None:
        return False
    top = widget.view.mapTo(column.viewport(), box.toAlignedRect().topLeft()).y()
    return 0 <= top <= column.viewport().height() - box.height()


def test_a_match_in_the_folded_part_of_a_message_unfolds_it(running: Chatting) -> None:
    paragraph = "Some words that are in every paragraph of this text.\n\n"
    text = paragraph * 300 + "Here is the **nee**dle.\n\n" + paragraph * 20
    question = "line\n" * 300 + "Needle at the end of a question"
    running.chats.open(make_chat(running, [("Short", "A needle"), (question, text), ("Last", "Nothing")]))
    running.settle()
    assert folded_length(text) is not None and folded_length(question) is not None
    running.window.transcript.column.verticalScrollBar().setValue(0)
    assert look_for(running, "needle", 3) == 1
    bar = running.window.find_bar
    for number, place in ((2, 2), (3, 3)):
        QTest.keyClick(bar.field, Qt.Key.Key_Return)
        assert bar.count_text() == f"{number} of 3"
        running.qtbot.waitUntil(lambda place=place: match_is_seen(running, place), timeout=WAIT_MS)  # type: ignore[misc]
        buttons = [one.text() for one in running.widget(place).view.findChildren(QPushButton) if one.isVisible()]
        assert buttons == [SHOW_LESS_TEXT]
    QTest.keyClick(bar.field, Qt.Key.Key_Escape)
    assert running.widget(3).view.find_box() is None


def test_nothing_is_missed_in_very_many_messages(running: Chatting) -> None:
    words = "Some **words** of an answer, `code` and a [link](https://example.org/needle).\n\n" * 3
    texts = [(f"needle {number}?", f"Answer {number}: a **nee**dle.\n\n{words}") for number in range(MESSAGES // 2)]
    texts[RARE // 2] = ("A rare question", words)
    running.chats.open(make_chat(running, texts))
    running.settle()
    assert len(running.model.messages) == MESSAGES
    bar, count = running.window.find_bar, MESSAGES - 2

    def is_at(number: int) -> None:
        """Each message has one match, but for the two around the rare question."""
        assert bar.count_text() == f"{number:,} of {count:,}"
        place = number - 1 if number <= RARE else number + 1
        running.qtbot.waitUntil(lambda: match_is_seen(running, place), timeout=WAIT_MS)

    assert look_for(running, "rare", 1) == 1
    running.qtbot.waitUntil(lambda: match_is_seen(running, RARE), timeout=WAIT_MS)
    number = look_for(running, "needle", count)
    assert RARE - 10 < number <= RARE + 1
    is_at(number)
    while number < RARE + 3:
        QTest.keyClick(bar.field, Qt.Key.Key_Return)
        number += 1
        is_at(number)
    assert look_for(running, f"answer {MESSAGES // 2 - 1}", 1) == 1
    running.qtbot.waitUntil(lambda: match_is_seen(running, MESSAGES - 1), timeout=WAIT_MS)
    number = look_for(running, "needle", count)
    assert number > count - 10
    for _step in range(number, count + 1):
        running.choose("find_next")
    is_at(1)
    QTest.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    is_at(count)
    bar.field.setText("https")
    running.qtbot.waitUntil(lambda: bar.count_text() == "No matches", timeout=WAIT_MS)
