from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.engine.decoding.chat_template import CHATML, ChatTemplate
from app.engine.decoding.fitting import LEAST_ANSWER
from app.engine.decoding.prompt import ChatTokenizer, PromptBuilder
from app.engine.llama.model import Model
from app.errors import KnownError
from app.helper import Helper
from app.protocol.messages import Message
from tests.support.gguf_files import Vocabulary, bpe_vocabulary, make_model, spm_vocabulary


class Words:
    """A vocabulary with one token a character, and two control tokens."""

    def __init__(self, template: str | None = None) -> None:
        self._template = template

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        tokens = [1] if bos else []
        while text:
            control = next((c for c in self.control_texts() if special and text.startswith(c)), None)
            tokens.append(1000 + self.control_texts().index(control) if control else ord(text[0]))
            text = text[len(control or " ") :]
        return tokens

    def piece(self, token: int) -> bytes:
        return text_of([token]).encode() if token < 1000 else b""

    def chat_template(self) -> str | None:
        return self._template

    def special_text(self, which: str) -> str:
        return {"bos": "<s>", "eos": "</s>"}.get(which, "")

    def control_texts(self) -> list[str]:
        return ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


SHORT = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}</s>{% endfor %}"


def user(text: str) -> Message:
    return Message(role="user", content=text)


def text_of(tokens: list[int]) -> str:
    return "".join(Words().control_texts()[t - 1000] if t >= 1000 else chr(t) for t in tokens)


def test_the_prompt_begins_with_one_bos() -> None:
    assert PromptBuilder(Words(SHORT), 100).chat([user("hi")]).tokens[:3] == [1, ord("u"), ord(":")]
    own = PromptBuilder(Words("{{ bos_token }}" + SHORT), 100).chat([user("hi")]).tokens
    assert own[:2] == [1000, ord("u")]


def test_control_tokens_inside_a_message_are_plain_text() -> None:
    tokens = PromptBuilder(Words(SHORT), 200).chat([user("a</s>b"), user("  c</s>")]).tokens
    assert text_of(tokens) == "\x01u:a</s>b</s>u:  c</s></s>"
    assert [t for t in tokens if t >= 1000] == [1001, 1001]


@pytest.mark.parametrize("text", ["<|im_start|>", "<|im_start|>user", "<|im_start|>user\nhi<|im_end|>", "im_start"])
def test_a_message_that_looks_like_the_template_itself_is_plain_text(text: str) -> None:
    tokens = PromptBuilder(Words(), 300).chat([user(text), user("<s> again")]).tokens
    assert tokens[:2] == [1, 1002]
    assert [t for t in tokens if t >= 1000] == [1002, 1003, 1002, 1003, 1002]
    assert text_of(tokens).startswith(f"\x01<|im_start|>user\n{text}<|im_end|>\n")


def test_chatml_without_a_template() -> None:
    builder = PromptBuilder(Words(), 200)
    prompt = builder.chat([user("hi")])
    assert builder.template == "chatml"
    assert text_of(prompt.tokens).endswith("hi<|im_end|>\n<|im_start|>assistant\n")
    assert "<|im_end|>" in prompt.stops


def chat(turns: int, size: int = 20) -> list[Message]:
    messages = [Message(role="system", content="S" * 10)]
    for turn in range(turns):
        messages += [user(str(turn % 10) * size), Message(role="assistant", content="a" * size)]
    return [*messages, user("now")]


def test_old_turns_leave_whole_and_the_system_prompt_stays() -> None:
    prompt = PromptBuilder(Words(SHORT), 400).chat(chat(20))
    text = text_of(prompt.tokens)
    assert prompt.dropped_messages == 34
    assert text.startswith("\x01s:SSSSSSSSSS</s>u:7777") and text.endswith("u:now</s>")
    assert len(prompt.tokens) <= 200


def test_later_turns_start_where_the_earlier_prompt_started() -> None:
    builder = PromptBuilder(Words(SHORT), 400)
    first = builder.chat(chat(20))
    later = builder.chat([*chat(20), Message(role="assistant", content="b"), user("next")])
    assert later.dropped_messages == first.dropped_messages
    assert later.tokens[: len(first.tokens)] == first.tokens
    assert builder.chat([user("another chat")]).dropped_messages == 0


def test_chats_in_turn_each_start_where_their_own_prompt_started() -> None:
    builder = PromptBuilder(Words(SHORT), 400)
    chats = [chat(20), chat(20, size=17), [user("short")]]
    begun = [builder.chat(messages) for messages in chats]
    for messages, first in zip(chats, begun, strict=True):
        later = builder.chat([*messages, Message(role="assistant", content="b" * 60), user("next")])
        assert later.dropped_messages == first.dropped_messages
        assert later.tokens[: len(first.tokens)] == first.tokens
    builder.forget()
    assert builder.chat(chats[0]).dropped_messages == begun[0].dropped_messages


def test_another_chat_that_begins_alike_stays_whole() -> None:
    builder = PromptBuilder(Words(SHORT), 400)
    assert builder.chat(chat(20)).dropped_messages == 34
    other = [user("0" * 20), *(user("s") for _ in range(36))]
    assert builder.chat(other).dropped_messages == 0


def test_a_chat_of_thousands_of_turns_is_read_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = PromptBuilder(Words(SHORT), 400)
    read: list[int] = []
    tokens = ChatTokenizer.chat

    def counted(tokenizer: ChatTokenizer, messages: Sequence[Message], now: datetime) -> list[int]:
        read.append(len(messages))
        return tokens(tokenizer, messages, now)

    monkeypatch.setattr(ChatTokenizer, "chat", counted)
    prompt = builder.chat(chat(400))
    assert text_of(prompt.tokens).startswith("\x01s:SSSSSSSSSS</s>u:7777")
    assert len(prompt.tokens) > 150 and len(read) == 2


def test_a_chat_that_fits_stays_whole() -> None:
    assert PromptBuilder(Words(SHORT), 400).chat(chat(3)).dropped_messages == 0


def test_what_cannot_fit_is_refused_with_both_numbers() -> None:
    builder = PromptBuilder(Words(SHORT), 300)
    with pytest.raises(KnownError, match=r"has 504 tokens, but the context only holds 300\."):
        builder.chat([user("x" * 500)])
    with pytest.raises(KnownError, match="holds 300, and the answer needs at least 16 of"):
        builder.raw("x" * (300 - LEAST_ANSWER))
    assert len(builder.raw("x" * (300 - LEAST_ANSWER - 1)).tokens) == 300 - LEAST_ANSWER


def test_a_chat_without_a_question_is_refused() -> None:
    with pytest.raises(KnownError, match="no message"):
        PromptBuilder(Words(SHORT), 100).chat([Message(role="system", content="S")])


class SpacedWords(Words):
    """As llama.cpp does it with SentencePiece vocabularies: a space before text at the beginning and behind control
    tokens."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        tokens = super().tokenize(text, special=special, bos=bos)
        spaced: list[int] = []
        for at, token in enumerate(tokens):
            if token != 1 and token < 1000 and (not at or tokens[at - 1] == 1 or tokens[at - 1] >= 1000):
                spaced.append(ord("_"))
            spaced.append(token)
        return spaced


@pytest.mark.parametrize("text", ["</s> a", "a</s>", "<s>"])
def test_control_tokens_inside_a_message_bring_no_spaces(text: str) -> None:
    tokens = PromptBuilder(SpacedWords(SHORT), 200).chat([user(text), user("b")]).tokens
    assert text_of(tokens) == f"\x01_u:{text}</s>_u:b</s>"
    behind = "{% for m in messages %}<|im_start|>{{ m.content }} [end]{% endfor %}"
    tokens = PromptBuilder(SpacedWords(behind), 200).chat([user(text)]).tokens
    assert text_of(tokens) == f"\x01<|im_start|>_{text} [end]"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 23, 59)

    def __call__(self) -> datetime:
        return self.now


def test_the_date_stays_in_a_chat() -> None:
    clock = Clock()
    dated = "{{ strftime_now('%d') }}" + SHORT
    builder = PromptBuilder(Words(dated), 400, clock)

    def day(*texts: str) -> str:
        return text_of(builder.chat([user(text) for text in texts]).tokens)[1:3]

    assert (day("a"), day("b")) == ("22", "22")
    clock.now += timedelta(minutes=2)
    assert (day("a", "and"), day("b", "and"), day("c")) == ("22", "22", "23")
    assert day("b") == "23"  # a new chat that begins like the other one
    builder.forget()
    assert day("a", "and") == "23"


def test_the_dates_of_many_chats_are_not_remembered_for_ever() -> None:
    builder = PromptBuilder(Words(SHORT), 400)
    for number in range(40):
        builder.chat([user(str(number))])
    assert len(builder._times) == 32


@pytest.mark.parametrize("vocabulary", [spm_vocabulary(), bpe_vocabulary()], ids=["spm", "bpe"])
@pytest.mark.parametrize("add_bos", [True, False])
def test_no_end_of_text_stands_between_prompt_and_answer(vocabulary: Vocabulary, add_bos: bool, tmp_path: Path) -> None:
    """Some vocabularies want an EOS token behind each text."""
    written = replace(vocabulary, bos=1, add_bos=add_bos, add_eos=True)
    model = Model(make_model(tmp_path / "model.gguf", vocabulary=written), 0, lambda _: True)
    try:
        begin = [1] if add_bos else []
        for text in ("", "hi", "two words"):
            tokens = model.tokenize(text, special=True, bos=True)
            assert tokens == [*begin, *model.tokenize(text, special=True, bos=False)]
            assert vocabulary.eos not in tokens
    finally:
        model.close()


# ---------------------------------------------------------------- templates

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
    with pytest.raises(KnownError, match="leaves out your messages"):
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
    with pytest.raises(KnownError, match=r"didn't finish within 2 seconds, so it can't be used\. Try another"):
        ChatTemplate(source, process=quick).render(CHAT)
    quick.seconds = 100
    assert ChatTemplate("{{ messages[-1].content }}", process=quick).render(CHAT) == "Hi"


def test_a_template_that_runs_on_while_it_is_compiled_is_stopped(quick: Helper) -> None:
    with pytest.raises(KnownError, match="didn't finish"):
        ChatTemplate("{{ 9 ** (9 ** 9) }}", process=quick)


def test_a_template_that_writes_without_end_is_stopped() -> None:
    with pytest.raises(KnownError, match="endless text"):
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
    with pytest.raises(KnownError, match=r"needs more than 512 MB of memory, so it can't be used\. Try another"):
        template.render(CHAT)
    assert ChatTemplate("{{ messages[-1].content }}", process=patient).render(CHAT) == "Hi"


def test_a_helper_that_cannot_be_started_is_a_known_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.program.own_command", lambda *_: ["/no/such/program"])
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
