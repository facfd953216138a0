"""A notification for an answer that was finished in the background."""

from __future__ import annotations

from dataclasses import replace

from app.chats.model import StoredMessage
from app.ui.shell.announcer import notification_of

ANSWER = StoredMessage("m", "chat", None, "assistant", "First words.\n\n# And more", "complete", 0.0)


def test_it_is_told_with_the_first_words() -> None:
    assert notification_of(ANSWER) == "First words. # And more"


def test_not_what_the_user_stopped() -> None:
    assert notification_of(replace(ANSWER, status="stopped")) == ""


def test_what_went_wrong_is_told_too() -> None:
    for status in ("failed", "interrupted"):
        assert notification_of(replace(ANSWER, status=status)) == "The answer couldn't be finished."
    repeats = replace(ANSWER, status="stopped", finish_reason="repeats")
    assert notification_of(repeats) == "The answer couldn't be finished."


def test_it_is_short_and_plain() -> None:
    text = notification_of(replace(ANSWER, text="\x1b[31m" + "word " * 1000))
    assert len(text) <= 120
    assert "\x1b" not in text
