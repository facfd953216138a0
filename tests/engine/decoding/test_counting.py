from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.engine.decoding.chat_template import ChatTemplate, TemplateInputs
from app.engine.decoding.counting import TokenCounter
from app.engine.decoding.prompt import PromptBuilder, tokens_of
from app.engine.decoding.thinking import Marks
from app.engine.llama.model import Model
from app.protocol.commands import CountTokens, Message
from app.protocol.events import TokensCounted
from app.protocol.options import Overflow
from app.protocol.tools import Tool, ToolCall, ToolUse
from app.system import KnownError
from tests.engine.decoding.test_prompt import SHORT, SpacedWords, Words, chat, text_of, user
from tests.support.gguf_files import CHATML_TEMPLATE, Vocabulary, bpe_vocabulary, make_model, spm_vocabulary

STRICT = (
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role }}\n{{ m.content | trim }}</s>{% endfor %}"
)
TWICE = "{% for m in messages %}{{ m.content }}</s>{% endfor %}{{ messages[-1].content }}"
TOOLS = (
    "{% if tools %}[{{ tools | tojson }}]{% endif %}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}"
    "</s>{% endfor %}"
)
SYSTEM = Message(role="system", content="Be brief.")
ANSWER = Message(role="assistant", content="It is </s> so.")


def counter(vocabulary: Words, length: int = 1000) -> tuple[PromptBuilder, TokenCounter]:
    prompts = PromptBuilder(vocabulary, length)
    return prompts, TokenCounter(prompts)


def counted(
    own: TokenCounter, messages: Sequence[Message], text: str = "", overflow: Overflow = "drop_oldest"
) -> TokensCounted:
    return own.count(CountTokens(request=1, messages=list(messages), text=text, overflow=overflow), {})


def checked(prompts: PromptBuilder, text: str) -> list[int] | None:
    answer = Message(role="assistant", content=text)
    return tokens_of(answer, prompts, {}, Marks(prompts.tokenizer.vocabulary, ""), "")


@pytest.mark.parametrize("vocabulary", [Words(SHORT), SpacedWords(SHORT), Words(), Words(TWICE), Words(STRICT)])
@pytest.mark.parametrize("before", [[], [SYSTEM], [user("a\n"), ANSWER], [SYSTEM, user("a </s>"), ANSWER]])
@pytest.mark.parametrize("text", ["b", " What\nis </s>it? "])
def test_the_sum_is_what_the_prompt_would_take(vocabulary: Words, before: list[Message], text: str) -> None:
    prompts, own = counter(vocabulary)
    told = counted(own, before, text)
    asked = prompts.chat([*before, user(text.strip())])
    assert told.system + told.messages + told.text == len(asked.tokens)
    assert (told.system > 0) == (SYSTEM in before) and (told.messages > 0) == (ANSWER in before)
    assert counted(own, before, text) == told


@pytest.mark.parametrize("template", [TOOLS, SHORT])  # a form of its own, and the general one
@pytest.mark.parametrize("system", [[], [SYSTEM]])
@pytest.mark.parametrize("has_calls", [False, True])
def test_tools_calls_and_results_are_in_the_sum(template: str, system: list[Message], has_calls: bool) -> None:
    prompts, own = counter(Words(template), 10_000)
    calls = [
        Message(role="assistant", content="", tool_calls=(ToolCall("abcdefghi", "look", '{"at": "sky"}'),)),
        Message(role="tool", content="blue", tool_call_id="abcdefghi", tool_name="look"),
        Message(role="assistant", content="It is blue."),
    ]
    before = [*system, user("Which color?"), *calls] if has_calls else system
    use = ToolUse(tools=[Tool(name="look", description="Looks at something.")])
    told = own.count(CountTokens(request=1, messages=before, text="b", tools=use), {})
    asked = prompts.chat([*before, user("b")], tools=use.tools)
    assert told.system + told.messages + told.text + told.tools == len(asked.tokens)
    assert told.tools > len("Looks at something.")
    more = ToolUse(tools=[Tool(name="look", description="Looks at something far away.")])
    longer = own.count(CountTokens(request=2, messages=before, text="b", tools=more), {})
    assert longer.tools - told.tools == len(" far away")
    assert (longer.system, longer.messages, longer.text) == (told.system, told.messages, told.text)
    without = counted(own, before, "b")
    assert without.tools == 0 and without.text == told.text


def test_a_call_takes_the_tokens_that_it_was_written_in() -> None:
    prompts, own = counter(Words(TOOLS))
    written = tuple(map(ord, '<tool_call>\n{"name": "look", "arguments": {"at":"the sky"}}\n</tool_call>'))
    counts = []
    for tokens in ((), written):
        call = ToolCall("abcdefghi", "look", '{"at": "the sky"}')
        answer = Message(role="assistant", content="", tool_calls=(call,), tokens=tokens)
        before = [user("a"), answer, Message(role="tool", content="blue", tool_call_id=call.id, tool_name="look")]
        told = counted(own, before, "b")
        asked = prompts.chat([*before, Message(role="assistant", content=""), user("b")])
        assert told.messages + told.text == len(asked.tokens)
        counts.append(told.messages)
    assert counts[0] != counts[1]


def test_a_call_with_other_arguments_is_another_prompt() -> None:
    prompts, own = counter(Words(TOOLS))
    for arguments in ("{}", '{"at": "sky"}'):
        call = Message(role="assistant", content="", tool_calls=(ToolCall("abcdefghi", "look", arguments),))
        before = [user("a"), call, Message(role="tool", content="blue", tool_call_id="abcdefghi", tool_name="look")]
        told = counted(own, before, "b")
        asked = prompts.chat([*before, Message(role="assistant", content=""), user("b")])
        assert told.messages + told.text == len(asked.tokens)


@pytest.mark.parametrize("overflow", ["drop_oldest", "keep_ends", "stop"])
def test_what_would_be_left_out_is_what_is_left_out(overflow: Overflow) -> None:
    prompts, own = counter(Words(SHORT), 400)
    seen = []
    for turns in range(1, 24):
        before = chat(turns)[:-1]
        told = counted(own, before, "x" * (turns % 5 + 1), overflow)
        if overflow == "stop" and told.system + told.messages + told.text > 384:
            assert told.dropped == 0
            break
        asked = prompts.chat([*before, user("x" * (turns % 5 + 1))], overflow)
        assert (told.dropped, told.first_dropped) == (asked.dropped_messages, asked.first_dropped)
        assert told.system + told.messages + told.text == len(asked.tokens)
        seen.append(told.first_dropped)
    assert seen[-1] == {"drop_oldest": 1, "keep_ends": 3, "stop": 0}[overflow]


def test_typing_into_a_long_chat_renders_and_tokenizes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Words(SHORT)
    _, own = counter(vocabulary, 1_000_000)
    before = chat(500)
    counted(own, before, "a")
    rendered, tokenized = [], []
    tokenize = Words.tokenize

    def watched(self: Words, text: str, *, special: bool, bos: bool) -> list[int]:
        tokenized.append(len(text))
        return tokenize(self, text, special=special, bos=bos)

    def render(_self: ChatTemplate, messages: Sequence[Message], _inputs: TemplateInputs) -> str:
        rendered.append(messages)
        return ""

    monkeypatch.setattr(Words, "tokenize", watched)
    monkeypatch.setattr(ChatTemplate, "render", render)
    for length in range(2, 20):
        counted(own, before, "a" * length)
    assert not rendered and max(tokenized) < 40


def test_once_the_model_is_closed_nothing_touches_it(tmp_path: Path) -> None:
    path = make_model(tmp_path / "model.gguf", vocabulary=bpe_vocabulary(), chat_template=SHORT)
    model = Model(path, 0, lambda _: True)
    prompts = PromptBuilder(model, 4000)
    own = TokenCounter(prompts)
    assert counted(own, [], "a").text
    model.close()
    with pytest.raises(KnownError, match="no longer loaded"):
        counted(own, [], "b")
    with pytest.raises(KnownError, match="no longer loaded"):
        checked(prompts, "a")


def test_a_model_is_freed_once_nobody_reads_its_vocabulary(tmp_path: Path) -> None:
    model = Model(make_model(tmp_path / "model.gguf", vocabulary=bpe_vocabulary()), 0, lambda _: True)
    has_begun, ended = threading.Event(), list[str]()

    def read() -> None:
        try:
            while True:
                model.tokenize("a text " * 1000, special=True, bos=False)
                has_begun.set()
        except KnownError as error:
            ended.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    assert has_begun.wait(60)
    model.close()
    thread.join(60)
    assert ended == ["The model is no longer loaded."]


def test_the_first_turn_stays_where_both_ends_are_kept() -> None:
    prompts, _ = counter(Words(SHORT), 400)
    prompt = prompts.chat(chat(20), "keep_ends")
    text = text_of(prompt.tokens)
    assert text.startswith("\x01s:SSSSSSSSSS</s>u:00000000000000000000</s>a:aaaaaaaaaaaaaaaaaaaa</s>u:8")
    assert text.endswith("u:now</s>") and len(prompt.tokens) <= 200
    assert (prompt.first_dropped, prompt.dropped_messages) == (3, 34)


def test_a_chat_that_is_to_stop_is_refused_with_both_numbers() -> None:
    prompts, _ = counter(Words(SHORT), 400)
    whole = prompts.chat(chat(7), "stop")
    assert whole.dropped_messages == 0 and len(whole.tokens) > 300
    with pytest.raises(KnownError, match=r"This chat has 434 tokens, but the context only holds 400\. Choose a longer"):
        prompts.chat(chat(9), "stop")


@pytest.mark.parametrize("template", [None, CHATML_TEMPLATE, SHORT, STRICT], ids=["none", "chatml", "short", "strict"])
@pytest.mark.parametrize("vocabulary", [spm_vocabulary(), bpe_vocabulary()], ids=["spm", "bpe"])
def test_the_sum_with_llama_cpps_own_tokens(vocabulary: Vocabulary, template: str | None, tmp_path: Path) -> None:
    written = replace(vocabulary, bos=1, add_bos=True)
    model = Model(make_model(tmp_path / "model.gguf", vocabulary=written, chat_template=template), 0, lambda _: True)
    try:
        prompts = PromptBuilder(model, 4000)
        own = TokenCounter(prompts)
        before = [user("Hello, what is this?\n"), Message(role="assistant", content="It is\n\n* a list 🙂")]
        for text in ("x", "What is\n\nit?", "  so </s> much", "naïve 🙂", "1 2 3" * 20):
            told = counted(own, before, text)
            assert told.system + told.messages + told.text == len(prompts.chat([*before, user(text.strip())]).tokens)
            assert checked(prompts, text) is not None
    finally:
        model.close()
