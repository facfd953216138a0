"""What chat templates accept, found by rendering them."""

from __future__ import annotations

import pytest

from app.engine.decoding.chat_template import ChatTemplate
from app.engine.decoding.thinking import Levels, between, levels

TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
THOUGHT = (
    "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (TURNS, {}),
        (
            TURNS + "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
            {"off": {"enable_thinking": False}, "on": {"enable_thinking": True}},
        ),
        ("{% set thinking = true %}" + TURNS + "{{ '<think>' if thinking }}", {}),
        (
            "Reasoning: {{ reasoning_effort or 'medium' }}" + TURNS,
            {level: {"reasoning_effort": level} for level in ("low", "medium", "high")},
        ),
        (
            TURNS
            + "{% if thinking and effort is defined %}{% endif %}{% if thinking %}<think>{% if reasoning_effort is "
            "defined and reasoning_effort == 'max' %}Much.{% endif %}{% endif %}",
            {
                "off": {"thinking": False},
                "on": {"thinking": True},
                "max": {"thinking": True, "reasoning_effort": "max"},
            },
        ),
        (
            "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'no_think' %}"
            "{% elif reasoning_effort not in ['high', 'low', 'no_think'] %}{{ raise_exception('no') }}{% endif %}"
            + TURNS
            + "{{ reasoning_effort }}",
            {
                "off": {"reasoning_effort": "no_think"},
                "low": {"reasoning_effort": "low"},
                "high": {"reasoning_effort": "high"},
            },
        ),
        (
            TURNS + "{% if thinking_mode is defined and thinking_mode == 'enabled' %}<think>{% endif %}",
            {"off": {"thinking_mode": "disabled"}, "on": {"thinking_mode": "enabled"}},
        ),
    ],
)
def test_levels(source: str, expected: Levels) -> None:
    found = levels(ChatTemplate(source))
    assert found == expected and list(found) == list(expected)


def test_what_stands_between_thinking_and_answer() -> None:
    assert between(ChatTemplate(THOUGHT), {}) == "\n</think>\n\n"
    assert between(ChatTemplate(TURNS), {}) == ""
    only_questions = "{% for m in messages %}{{ m.content if m.role == 'user' else raise_exception('no') }}{% endfor %}"
    assert between(ChatTemplate(only_questions), {}) == ""
