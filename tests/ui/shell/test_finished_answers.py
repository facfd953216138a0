"""A notification for an answer that was finished in the background."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.chats.model import StoredMessage
from app.settings import Settings
from app.ui.shell.finished_answers import FinishedAnswers
from tests.ui.shell.desktop import Desktop

ANSWER = StoredMessage("m", "chat", None, "assistant", "First words.\n\n# And more", "complete", 0.0)


class Rig:
    def __init__(self) -> None:
        self.desktop = Desktop()
        self.values = Settings()
        self.opened: list[str] = []
        self.titles = {"chat": "Poem about rain"}
        self.answers = FinishedAnswers(
            self.desktop, self.values, lambda chat_id: self.titles.get(chat_id, ""), self.opened.append
        )


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_it_names_the_chat_and_the_first_words_and_a_click_opens_it(rig: Rig) -> None:
    rig.answers.tell(ANSWER)
    assert rig.desktop.told == [("Poem about rain", "First words. # And more")]
    rig.desktop.click()
    assert rig.opened == ["chat"]


def test_not_where_the_settings_say_so_and_not_what_the_user_stopped(rig: Rig) -> None:
    rig.answers.tell(None)
    rig.answers.tell(replace(ANSWER, status="stopped"))
    rig.values.notify_finished = False
    rig.answers.tell(ANSWER)
    assert rig.desktop.told == []


def test_what_went_wrong_is_told_too(rig: Rig) -> None:
    rig.answers.tell(replace(ANSWER, status="failed"))
    rig.answers.tell(replace(ANSWER, status="interrupted"))
    rig.answers.tell(replace(ANSWER, status="stopped", finish_reason="repeats"))
    assert rig.desktop.told == 3 * [("Poem about rain", "The answer couldn't be finished.")]


def test_it_is_short_and_plain(rig: Rig) -> None:
    rig.titles["chat"] = "t" * 500
    rig.answers.tell(replace(ANSWER, text="\x1b[31m" + "word " * 1000))
    title, text = rig.desktop.told[0]
    assert len(title) <= 60
    assert len(text) <= 120
    assert "\x1b" not in text
    rig.titles.clear()
    rig.answers.tell(ANSWER)
    assert rig.desktop.told[1][0] == "New chat"
