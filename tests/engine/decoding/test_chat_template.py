"""What templates are given, and what becomes of those that do not take it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from app.engine.decoding.chat_template import CHATML, ChatTemplate, TemplateInputs
from app.helper import Helper
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables
from app.system import KnownError
from tests.support.matrix import in_proof

HI = Message(role="user", content="Hi")
CHAT = [Message(role="system", content="Be brief."), HI]
NOW = datetime(2026, 2, 3, 23, 59)


def answered(content: str, thinking: str = "") -> list[Message]:
    """A chat of two turns."""
    return [HI, Message(role="assistant", content=content, thinking=thinking), Message(role="user", content="And?")]


def test_chatml() -> None:
    assert ChatTemplate(CHATML).render(CHAT) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_sees_what_all_are_given() -> None:
    source = "{{ bos_token }}{{ messages[-1].content }}{{ eos_token }}{{ strftime_now('%d %b %Y') }}"
    assert ChatTemplate(source, "<s>", "</s>").render([HI], TemplateInputs(NOW)) == "<s>Hi</s>03 Feb 2026"
    assert str(datetime.now().year) in ChatTemplate(source).render([HI])
    source = "{{ messages[0].content }} on {{ date_string }} or {{ datetime }}"
    assert ChatTemplate(source).render([HI], TemplateInputs(NOW)) == "Hi on 03 Feb 2026 or Feb 03 2026"


SWITCH = (
    "{{ messages[0].content }}{% if enable_thinking is not defined %}?{% elif enable_thinking %}<think>"
    "{% else %}<think></think>{% endif %}"
)


@pytest.mark.parametrize(
    ("variables", "written"),
    [({}, "Hi?"), ({"enable_thinking": False}, "Hi<think></think>"), ({"enable_thinking": True}, "Hi<think>")],
)
def test_a_request_may_set_what_the_template_declares(variables: dict[str, bool], written: str) -> None:
    assert ChatTemplate(SWITCH).render([HI], TemplateInputs(NOW, dict(variables))) == written


def test_what_a_template_declares() -> None:
    """What it reads and never sets, or sets only where it is not there; not what it is given, nor its own names."""
    source = (
        "{{ bos_token }}{% for m in messages %}{% set content = m.content %}{{ content }}{% endfor %}"
        "{% if content is string %}{% endif %}{{ strftime_now('%d') }}{{ tools }}{{ builtin_tools }}"
        "{% if not effort is defined %}{% set effort = 'low' %}{% endif %}{{ effort }}"
        "{% set budget = budget | default(3) %}{{ budget }}{{ thinking }}{% set ns = namespace(a=1) %}{{ ns.a }}"
    )
    template = ChatTemplate(source)
    assert template.variables == {"effort", "budget", "thinking"}
    values: TemplateVariables = {"effort": "high", "budget": 7, "thinking": 0.5}
    assert ChatTemplate(source).render([HI], TemplateInputs(NOW, values)) == "Hi03Nonehigh70.51"


@pytest.mark.parametrize(
    "name",
    [
        *("messages", "tools", "bos_token", "eos_token", "add_generation_prompt", "strftime_now", "date_string"),
        *("functions", "documents", "custom_tools", "raise_exception", "other"),
    ],
)
def test_a_request_may_set_nothing_else(name: str) -> None:
    read = "" if name == "other" else f"{{{{ {name} }}}}"
    template = ChatTemplate("{{ messages[0].content }}" + read)
    with pytest.raises(KnownError, match=f"has no variable “{name}” that can be set"):
        template.render([HI], TemplateInputs(NOW, {name: "x"}))


def test_marks_for_trainers_change_nothing() -> None:
    source = (
        "{% for m in messages %}{% generation %}{% set x = m.content %}{{ x }};{% endgeneration %}{{ x }}{% endfor %}"
    )
    assert ChatTemplate(source).render(CHAT) == "Be brief.;Hi;"


def test_json_is_written_as_templates_expect_it() -> None:
    source = "{{ {'b': m, 'a': '<é>'}|tojson(ensure_ascii=False, indent=1, sort_keys=True) }}"
    source = "{% set m = messages[-1].content %}" + source + "{{ m|tojson }}"
    assert ChatTemplate(source).render([HI]) == '{\n "a": "<é>",\n "b": "Hi"\n}"Hi"'


def test_a_template_that_leaves_out_plain_text_gets_typed_parts() -> None:
    source = "{% for m in messages %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endfor %}"
    assert ChatTemplate(source).render(CHAT) == "<Be brief.><Hi>"
    source = "{% for m in messages %}<{{ m.content[0]['text'] }}>{% endfor %}"
    assert ChatTemplate(source).render(CHAT) == "<Be brief.><Hi>"

    source = "{% for m in messages %}{% for part in m.content if part.text %}<{{ part.text }}>{% endfor %}{% endfor %}"
    assert ChatTemplate(source).render([Message(role="user", content="?! 👍")]) == "<?! 👍>"


@pytest.mark.parametrize(
    "source",
    ["{{ messages|length }}", "{{ messages[0].content }}", "{{ messages[-1].content.split()[0] }}", "{{ 'and' }}"],
)
def test_a_template_that_leaves_out_words_of_the_user_is_refused(source: str) -> None:
    with pytest.raises(KnownError, match="leaves out what you wrote"):
        ChatTemplate(source).render([*answered("Yes.")[:2], Message(role="user", content="And now?")])


def test_a_template_without_tools() -> None:
    words = "{{ messages[0].content }}"
    assert ChatTemplate("{% for tool in tools %}{{ tool }}{% endfor %}" + words).render([HI]) == "Hi"
    assert ChatTemplate("{% if tools is none %}no tools, {% endif %}" + words).render([HI]) == "no tools, Hi"
    assert ChatTemplate("{{ 'Functions:' + functions + '.' }}" + words).render([HI]) == "Functions:.Hi"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking", "thought"])
def test_a_template_gets_the_thinking_by_the_name_it_uses(name: str) -> None:
    source = "{% for m in messages %}{% if m.NAME %}({{ m.NAME }}){% endif %}{{ m.content }};{% endfor %}"
    source = source.replace("NAME", name)
    assert ChatTemplate(source).render(answered("Yes.", "Hm.")) == "Hi;(Hm.)Yes.;And?;"
    assert ChatTemplate(source).render(answered("Yes.")) == "Hi;Yes.;And?;"


def test_a_template_gets_the_thinking_as_a_part() -> None:
    source = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for block in m.content %}"
        "{% if block['type'] == 'thinking' %}[THINK]{{ block['thinking'] }}[/THINK]{% else %}{{ block['text'] }}"
        "{% endif %}{% endfor %}{% endif %};{% endfor %}"
    )
    assert ChatTemplate(source).render(answered("Yes.", "Hm.")) == "Hi;[THINK]Hm.[/THINK]Yes.;And?;"


HARMONY = (
    "{% for m in messages %}{% if '<|channel|>' in m.content %}{{ raise_exception('split it') }}{% endif %}"
    "{{ m.content }};{% endfor %}"
)


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ("<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Yes.", "Hi;Yes.;And?;"),
        ("<|channel|>analysis<|message|>Hm, and th", "Hi;;And?;"),
        ("<|channel|>final<|message|>Yes.", "Hi;Yes.;And?;"),
    ],
)
def test_of_an_answer_in_harmony_channels_only_the_final_one_goes_on(answer: str, written: str) -> None:
    assert ChatTemplate(HARMONY).render(answered(answer)) == written


def test_a_template_that_refuses_system_messages_gets_them_in_the_users() -> None:
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    assert ChatTemplate(source).render(CHAT) == "[user]Be brief.\n\nHi"
    empty = Message(role="system", content="")
    assert ChatTemplate(source).render([empty, HI]) == "[user]Hi"


def test_a_template_that_leaves_out_system_messages_gets_them_in_the_users() -> None:
    source = "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
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


def test_a_template_that_runs_on_is_stopped(quick: Helper) -> None:
    source = "{% set x = messages[0].content|length %}{{ x ** (x ** x) }}"
    with pytest.raises(KnownError, match=r"didn't finish within 2 seconds\. Choose another"):
        ChatTemplate(source, process=quick).render(CHAT)
    quick.seconds = 100
    assert ChatTemplate("{{ messages[-1].content }}", process=quick).render([HI]) == "Hi"


def test_a_template_that_runs_on_while_it_is_compiled_is_stopped(quick: Helper) -> None:
    with pytest.raises(KnownError, match="didn't finish"):
        ChatTemplate("{{ 9 ** (9 ** 9) }}", process=quick)


def test_a_template_that_writes_without_end_is_stopped() -> None:
    with pytest.raises(KnownError, match="endless text"):
        ChatTemplate("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}").render(CHAT)


MUCH_MEMORY = {
    "constant": "{{ '%*d' % (3000000000, 1) }}",
    "bytes": "{{ messages[-1].content.encode() * 900000000 }}",
    "doubling": "{% set x = namespace(a='x') %}{% for i in range(60) %}{% set x.a = x.a ~ x.a %}{% endfor %}{{ x.a }}",
    "format": "{{ '%*d' % (3000000000, n) }}",
    "width": "{{ ('%' ~ n ~ '000000000d') % 1 }}",
    "ljust": "{{ 'a'.ljust(n * 900000000) }}",
    "center": "{{ 'a'|center(n * 900000000) }}",
    "indent": "{{ 'a'|indent(n * 900000000) }}",
    "list": "{{ [n] * 900000000 }}",
}


@pytest.mark.parametrize("kind", ["constant", "bytes", "doubling", *in_proof([*MUCH_MEMORY][3:])])
def test_a_template_that_takes_memory_is_stopped(kind: str, patient: Helper) -> None:
    template = ChatTemplate("{% set n = messages|length %}" + MUCH_MEMORY[kind], process=patient)
    with pytest.raises(KnownError, match=r"needs more than 512 MB of memory\. Choose another"):
        template.render(CHAT)
    assert ChatTemplate("{{ messages[-1].content }}", process=patient).render([HI]) == "Hi"


def test_a_helper_that_cannot_be_started_is_a_known_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.system.own_command", lambda *_: ["/no/such/program"])
    with pytest.raises(KnownError, match=r"couldn't be started \(.*No such file.*\)\. Close other programs"):
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
    with pytest.raises(KnownError, match="chat template failed"):
        ChatTemplate(source).render(CHAT)
