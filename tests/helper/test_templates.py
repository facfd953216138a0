"""Chats as other programs send them, for templates that want more order."""

from __future__ import annotations

from typing import Any

import pytest

from app.helper.messages import Message, Rendered, RenderTemplate, TemplateFailed
from app.helper.templates import answer

ANY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
NEEDS_A_USER = (
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}"
    "{% endif %}{% endfor %}{% if not ns.found %}{{ raise_exception('no user') }}{% endif %}"
) + SYSTEM_FIRST
TURNS = (
    "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns!') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
TURNS_AND_CALLS = (
    "{% set ns = namespace(at=0) %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'assistant' and not "
    "m.tool_calls) %}{% if (m.role == 'user') != (ns.at % 2 == 0) %}{{ raise_exception('turns!') }}{% endif %}"
    "{% set ns.at = ns.at + 1 %}{% endif %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function | tojson }}]{% endfor %}{% endfor %}"
)
CALL = {"id": "aaaaaaaaa", "type": "function", "function": {"name": "look", "arguments": {"at": "tea"}}}


def rendered(source: str, *chat: tuple[str, str] | Message) -> str:
    messages = [one if isinstance(one, Message) else Message(*one) for one in chat]
    found = answer(RenderTemplate(source, "", "", messages, "2026-01-01T00:00:00", {}, []))
    assert isinstance(found, Rendered), found
    return found.text


LATER: Any = [
    *(("system", "Be kind."), ("user", "Tea or coffee?"), ("assistant", "Tea.")),
    *(("system", "One sentence each."), ("user", "Which cup?")),
]
INTO_THE_NEXT = "<system>Be kind.<user>Tea or coffee?<assistant>Tea.<user>One sentence each.\n\nWhich cup?"


def test_what_a_template_takes_stays_as_it_is() -> None:
    as_it_is = "<system>Be kind.<user>Tea or coffee?<assistant>Tea.<system>One sentence each.<user>Which cup?"
    assert rendered(ANY, *LATER) == as_it_is
    assert rendered(ANY, ("user", "Tea or"), ("user", "coffee?")) == "<user>Tea or<user>coffee?"


@pytest.mark.parametrize("source", [SYSTEM_FIRST, TURNS, NEEDS_A_USER])
def test_a_later_system_message_goes_into_the_next_of_the_user(source: str) -> None:
    assert rendered(source, *LATER) == INTO_THE_NEXT


def test_what_comes_before_a_later_system_message_stays_the_same() -> None:
    """Or the whole chat would be processed again."""
    before = rendered(SYSTEM_FIRST, *LATER[:2])
    assert rendered(SYSTEM_FIRST, *LATER).startswith(before)
    assert rendered(SYSTEM_FIRST, *LATER[:4]).startswith(before)


@pytest.mark.parametrize("source", [SYSTEM_FIRST, NEEDS_A_USER, TURNS])
def test_a_system_message_alone(source: str) -> None:
    assert rendered(source, ("system", "Write a title for a chat about tea.")).endswith("about tea.")
    assert rendered(source, ("system", "Be kind."), ("system", "One word.")).endswith("Be kind.\n\nOne word.")


def test_messages_of_one_role_are_joined() -> None:
    assert rendered(TURNS, ("user", "Translate:"), ("user", "[[ Tea ]]")) == "<user>Translate:\n\n[[ Tea ]]"
    chat = (("user", "Tea?"), ("assistant", "Yes."), ("assistant", "Or coffee."), ("user", ""), ("user", "Which?"))
    assert rendered(TURNS, *chat) == "<user>Tea?<assistant>Yes.\n\nOr coffee.<user>Which?"


def test_a_greeting_comes_first() -> None:
    greeting = (("system", "You are a pirate."), ("assistant", "Ahoy!"), ("user", "Where to?"))
    assert rendered(TURNS, *greeting) == "<system>You are a pirate.<user><assistant>Ahoy!<user>Where to?"
    assert rendered(TURNS, *greeting[1:]) == "<user><assistant>Ahoy!<user>Where to?"


def test_calls_keep_their_form_where_it_goes() -> None:
    result = Message("tool", "Green.", tool_call_id="aaaaaaaaa", name="look")
    calling = Message("assistant", "", tool_calls=[CALL])
    text = rendered(TURNS_AND_CALLS, ("user", "Colour?"), calling, result)
    assert text == '<user>Colour?<assistant>[{"name": "look", "arguments": {"at": "tea"}}]<tool>Green.'


def test_calls_become_text_where_a_turn_was_interrupted() -> None:
    """Mistral's templates don't count calls and their results as turns, so two messages of the user follow."""
    result = Message("tool", "Green.", tool_call_id="aaaaaaaaa", name="look")
    calling = Message("assistant", "I look.", tool_calls=[CALL])
    text = rendered(TURNS_AND_CALLS, ("user", "Colour?"), calling, result, ("user", "Stop. Which tea?"))
    assert text == (
        '<user>Colour?<assistant>I look.\n{"name": "look", "arguments": {"at": "tea"}}'
        "<user>Result of look:\nGreen.\n\nStop. Which tea?"
    )


def test_what_no_form_helps_is_refused() -> None:
    found = answer(RenderTemplate("x", "", "", [Message("user", "Hello there")], "2026-01-01T00:00:00", {}, []))
    assert isinstance(found, TemplateFailed) and found.reason == "loses"
    never = "{{ raise_exception('never') }}"
    found = answer(RenderTemplate(never, "", "", [Message("user", "Hello")], "2026-01-01T00:00:00", {}, []))
    assert isinstance(found, TemplateFailed) and "never" in found.detail
