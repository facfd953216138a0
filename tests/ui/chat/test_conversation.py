"""What the engine is asked, from what is stored."""

from __future__ import annotations

from dataclasses import replace

from app.chats.model import Attachment, Role, StoredMessage
from app.protocol.commands import Image
from app.ui.chat.conversation import EXAMPLE, conversation, question_to_measure


def branch(*messages: tuple[Role, str]) -> list[StoredMessage]:
    return [
        StoredMessage(str(place), "chat", None, role, text, "complete", 0.0)
        for place, (role, text) in enumerate(messages)
    ]


def turns(messages: list[StoredMessage], system: str = "") -> list[tuple[str, str]]:
    return [(one.role, one.content) for one in conversation(messages, system).messages]


def test_system_prompt_comes_first_and_blank_ones_do_not_count() -> None:
    stored = branch(("user", "a"))
    assert turns(stored, "Be brief.") == [("system", "Be brief."), ("user", "a")]
    assert turns(stored, " \n") == [("user", "a")]


def test_the_engine_is_told_when_a_chat_began() -> None:
    began = StoredMessage("0", "chat", None, "user", "a", "complete", 1000.5)
    again = StoredMessage("1", "chat", "0", "user", "b", "complete", 2000.5)
    first, *_ = conversation([began, again], "").messages
    assert first.sent_at == 1000.5


def test_questions_around_an_answer_that_never_came_are_joined() -> None:
    stored = branch(("user", "a"), ("assistant", " "), ("user", "b"))
    made = conversation(stored, "")
    assert turns(stored) == [("user", "a\n\nb")]
    assert [one.id for one in made.sources] == ["0"]


def test_first_kept_message_is_found_without_counting_the_system_prompt() -> None:
    made = conversation(branch(("user", "a"), ("assistant", "b"), ("user", "c")), "Be brief.")
    assert made.first_in_context(0, 0) is None
    assert made.first_in_context(1, 2) == "2"
    assert made.first_in_context(1, 3) is None


def test_measuring_uses_the_chat_up_to_its_last_question() -> None:
    stored = branch(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    assert [one.content for one in question_to_measure(stored, "")] == ["a", "b", "c"]
    assert [one.content for one in question_to_measure([], "x")] == [EXAMPLE]


def test_thinking_goes_along_apart_from_the_answer() -> None:
    question, answer = branch(("user", "a"), ("assistant", "Yes."))
    thought = replace(answer, thinking="Hm.")
    made = conversation([question, thought, answer], "").messages
    assert [(one.content, one.thinking) for one in made] == [("a", ""), ("Yes.\n\nYes.", "Hm.")]
    only = replace(answer, text="", thinking="Hm.")
    assert len(conversation([question, only], "").messages) == 1


def test_files_and_images_go_before_the_question() -> None:
    text = Attachment("a" * 64, "text", "notes.md", 5, text="80 °C")
    image = Attachment("b" * 64, "image", "tea.png", 9, path="/tea.png")
    gone = Attachment("c" * 64, "image", "old.png", 9, is_missing=True)
    first, second = branch(("user", "Look."), ("user", "Why?"))
    stored = [replace(first, attachments=(image,)), replace(second, attachments=(text, gone, image))]
    (message,) = conversation(stored).messages
    assert message.content == "Look.\n\n`notes.md`\n\n```\n80 °C\n```\n\nWhy?"
    assert message.images == (Image("b" * 64, "/tea.png", "tea.png"),) * 2
