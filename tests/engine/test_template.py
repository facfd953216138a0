from __future__ import annotations

import pytest

from app.engine import template
from app.engine.protocol import Message
from app.engine.template import CHATML, ChatTemplate
from app.errors import KnownError

CHAT = [Message(role="system", content="Be brief."), Message(role="user", content="Hi")]


def test_chatml() -> None:
    assert ChatTemplate(CHATML).render(CHAT) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_sees_its_variables() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ strftime_now('%Y')|length }}"
    assert ChatTemplate(source, "<s>", "</s>").render(CHAT) == "<s>Be brief.</s>4"


def test_a_template_that_refuses_system_messages_gets_them_in_the_users() -> None:
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    assert ChatTemplate(source).render(CHAT) == "[user]Be brief.\n\nHi"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = namespace(a=i) %}"
        "{% for j in range(99999) %}{% set x.a = j %}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_that_loops_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "TIME_LIMIT_SECONDS", 0.2)
    with pytest.raises(KnownError, match="did not finish"):
        ChatTemplate(source).render(CHAT)


def test_a_template_that_writes_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "SIZE_LIMIT", 100_000)
    with pytest.raises(KnownError, match="without end"):
        ChatTemplate("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}").render(CHAT)


@pytest.mark.parametrize("source", ["{% for %}", "{{ 'unclosed", "{% endif %}"])
def test_a_broken_template_is_a_known_error(source: str) -> None:
    with pytest.raises(KnownError, match="broken"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('not today') }}",
        "{{ messages[99].content }}",
        "{{ 1 / 0 }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'abcdefgh' * 10 ** 3 * 10 ** 3 * 10 ** 3 * 10 ** 3 }}",
        "{{ [0] * 999999999999 }}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_a_known_error(source: str) -> None:
    with pytest.raises(KnownError, match="template of this model failed"):
        ChatTemplate(source).render(CHAT)
