from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from app.engine.decoding.template import CHATML, ChatTemplate
from app.errors import KnownError
from app.helper import Helper
from app.protocol.messages import Message

CHAT = [Message(role="system", content="Be brief."), Message(role="user", content="Hi")]


def test_chatml() -> None:
    assert ChatTemplate(CHATML).render(CHAT) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_sees_its_variables() -> None:
    source = "{{ bos_token }}{{ messages[-1].content }}{{ eos_token }}{{ strftime_now('%d %b %Y') }}"
    now = datetime(2026, 2, 3, 23, 59)
    assert ChatTemplate(source, "<s>", "</s>").render(CHAT, now) == "<s>Hi</s>03 Feb 2026"
    assert str(datetime.now().year) in ChatTemplate(source).render(CHAT)


def test_marks_for_trainers_change_nothing() -> None:
    source = (
        "{% for m in messages %}{% generation %}{% set x = m.content %}{{ x }};{% endgeneration %}{{ x }}{% endfor %}"
    )
    assert ChatTemplate(source).render(CHAT) == "Be brief.;Hi;"


def test_json_is_written_as_templates_expect_it() -> None:
    source = "{{ {'b': m, 'a': '<é>'}|tojson(ensure_ascii=False, indent=1, sort_keys=True) }}"
    source = "{% set m = messages[-1].content %}" + source + "{{ m|tojson }}"
    assert ChatTemplate(source).render(CHAT) == '{\n "a": "<é>",\n "b": "Hi"\n}"Hi"'


def test_a_template_that_leaves_out_plain_text_gets_typed_parts() -> None:
    source = "{% for m in messages %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endfor %}"
    assert ChatTemplate(source).render(CHAT) == "<Be brief.><Hi>"
    source = "{% for m in messages %}<{{ m.content[0]['text'] }}>{% endfor %}"
    assert ChatTemplate(source).render(CHAT) == "<Be brief.><Hi>"


def test_a_template_that_leaves_out_the_last_message_is_refused() -> None:
    with pytest.raises(KnownError, match="leaves out what you write"):
        ChatTemplate("{{ messages|length }}").render(CHAT)


def test_a_template_may_change_spaces_and_signs() -> None:
    message = Message(role="user", content='  "A very  long"\n question?  ')
    source = "{{ messages[0].content.split()|join('_')|tojson }}"
    assert ChatTemplate(source).render([message]) == '"\\"A_very_long\\"_question?"'
    assert ChatTemplate("{{ messages[0].content|trim }}").render([Message(role="user", content=" ?! ")]) == "?!"


def test_a_template_that_refuses_system_messages_gets_them_in_the_users() -> None:
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    assert ChatTemplate(source).render(CHAT) == "[user]Be brief.\n\nHi"


@pytest.fixture
def quick() -> Iterator[Helper]:
    """A helper that gives up soon, for what would never end."""
    process = Helper(seconds=0.2)
    yield process
    process.stop()


@pytest.fixture
def patient() -> Iterator[Helper]:
    """A helper that has the time to find out that memory is at its limit, also beside much else."""
    process = Helper(seconds=100)
    yield process
    process.stop()


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = namespace(a=i) %}"
        "{% for j in range(99999) %}{% set x.a = j %}{% endfor %}{% endfor %}",
        "{% set x = messages[0].content|length %}{{ x ** (x ** x) }}",
    ],
    ids=["loop", "names", "number"],
)
def test_a_template_that_runs_on_is_stopped(source: str, quick: Helper) -> None:
    with pytest.raises(KnownError, match=r"did not finish within 2 seconds, so it cannot be used\. Try another"):
        ChatTemplate(source, process=quick).render(CHAT)
    quick.seconds = 100
    assert ChatTemplate("{{ messages[-1].content }}", process=quick).render(CHAT) == "Hi"


def test_a_template_that_runs_on_while_it_is_compiled_is_stopped(quick: Helper) -> None:
    with pytest.raises(KnownError, match="did not finish"):
        ChatTemplate("{{ 9 ** (9 ** 9) }}", process=quick)


def test_a_template_that_writes_without_end_is_stopped() -> None:
    with pytest.raises(KnownError, match="without end"):
        ChatTemplate("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}").render(CHAT)


MUCH_MEMORY = {
    "format": "{{ '%*d' % (3000000000, n) }}",
    "constant": "{{ '%*d' % (3000000000, 1) }}",
    "width": "{{ ('%' ~ n ~ '000000000d') % 1 }}",
    "ljust": "{{ 'a'.ljust(n * 900000000) }}",
    "center": "{{ 'a'|center(n * 900000000) }}",
    "indent": "{{ 'a'|indent(n * 900000000) }}",
    "bytes": "{{ messages[-1].content.encode() * 900000000 }}",
    "list": "{{ [n] * 900000000 }}",
    "doubling": "{% set x = namespace(a='x') %}{% for i in range(60) %}{% set x.a = x.a ~ x.a %}{% endfor %}{{ x.a }}",
}


@pytest.mark.parametrize("source", MUCH_MEMORY.values(), ids=MUCH_MEMORY)
def test_a_template_that_takes_memory_is_stopped(source: str, patient: Helper) -> None:
    template = ChatTemplate("{% set n = messages|length %}" + source, process=patient)
    with pytest.raises(KnownError, match=r"needs more than 512 MB of memory, so it cannot be used\. Try another"):
        template.render(CHAT)
    assert ChatTemplate("{{ messages[-1].content }}", process=patient).render(CHAT) == "Hi"


def test_a_helper_that_cannot_be_started_is_a_known_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.program.own_command", lambda *_: ["/no/such/program"])
    with pytest.raises(KnownError, match=r"could not be started \(.*No such file.*\)\. Close other programs"):
        ChatTemplate(CHATML, process=Helper())


@pytest.mark.parametrize(
    "source",
    [
        *("{% for %}", "{{ 'unclosed", "{% endif %}", "{% break %}", "{% generation %}"),
        *("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 3000 + "{% endif %}" * 3000),
    ],
    ids=["for", "string", "end", "break", "mark", "brackets", "blocks"],
)
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
        "{{ messages[0].content.format.__globals__.x }}",
        "{{ range(1000000)|list }}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_a_known_error(source: str) -> None:
    with pytest.raises(KnownError, match="template of this model failed"):
        ChatTemplate(source).render(CHAT)
