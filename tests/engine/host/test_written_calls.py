"""The tokens of a call are in the next prompt as the model wrote them, and in the KV cache still."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.engine.host.engine import Engine
from app.protocol.calls import CallReader
from app.protocol.commands import Message
from app.protocol.tools import FORMATS, ToolCall, ToolFormatName, ToolUse
from tests.support.generation import Answer, ask, run
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Loader
from tests.support.tool_models import LIGHT, WEATHER, make_tool_model

BOTH = ToolUse(tools=[WEATHER, LIGHT])
QUESTION = Message(role="user", content="Well?")
NAMES: list[ToolFormatName] = ["hermes", "general"]


def load_model(load: Loader, folder: Path, name: ToolFormatName) -> None:
    load(make_tool_model(folder / "model.gguf", name, calls=1e9, in_line=True))


def spelled(engine: Engine, text: str) -> list[int]:
    """``text`` in the tokens of its bytes, where there are such."""
    assert engine._target
    model = engine._target.model
    by_text = {model.piece(token): token for token in range(model.vocabulary_size)}
    return [by_text[letter.encode()] for letter in text]


def next_turn(answer: Answer, tokens: list[int], name: ToolFormatName, thought: str = "") -> list[Message]:
    """The chat when the calls of ``answer`` have results."""
    _, calls = CallReader(FORMATS[name], BOTH.tools).read(thought)
    results = [Message(role="tool", content="Done.", tool_call_id=one.id, tool_name=one.name) for one in calls]
    return [QUESTION, Message(role="assistant", content="", tool_calls=tuple(calls), tokens=tuple(tokens)), *results]


def raw(engine: Engine, tokens: list[int]) -> str:
    assert engine._target
    model = engine._target.model
    return "".join(model.mark(token) or model.piece(token).decode() for token in tokens if not model.is_end(token))


@pytest.mark.parametrize("name", NAMES)
def test_a_call_in_other_tokens_than_the_tokenizers_stays_in_the_cache(
    engine: Engine, load: Loader, tmp_path: Path, name: ToolFormatName
) -> None:
    load_model(load, tmp_path, name)
    assert engine._target
    begun = engine._target.model.tokenize("<tool_call>", special=True, bos=False)[-1:]
    begun += spelled(engine, '\n{"name": "get_weather", "arg')
    first = run(engine, ask("Well?", tools=BOTH, continued=begun, sampling=WARM, max_tokens=300))
    assert first.finished.finish_reason == "end"
    written = [*begun, *first.token_ids]
    text = raw(engine, written)
    assert written[:-1] != engine._target.model.tokenize(text, special=True, bos=False)
    chat = next_turn(first, written, name, text)
    assert len(chat[1].tool_calls) == 1
    second = run(engine, ask("", messages=chat, tools=BOTH, sampling=WARM, max_tokens=1))
    # Nothing but the mark of the end is read again.
    assert second.started.cached_tokens == first.started.prompt_tokens + len(first.token_ids) - 1
    again = run(engine, ask("", messages=without_tokens(chat), tools=BOTH, sampling=WARM, max_tokens=1))
    assert again.started.cached_tokens < second.started.cached_tokens, "it is written anew without them"


@pytest.mark.parametrize("name", ["hermes", "general", *in_proof([one for one in FORMATS if one not in NAMES])])
def test_whatever_the_form_of_calls_they_stay_in_the_cache(
    engine: Engine, load: Loader, tmp_path: Path, name: ToolFormatName
) -> None:
    load_model(load, tmp_path, name)
    first = run(engine, ask("Well?", tools=BOTH, sampling=WARM, max_tokens=900))
    assert first.finished.finish_reason == "end"
    chat = next_turn(first, first.token_ids, name, raw(engine, first.token_ids))
    second = run(engine, ask("", messages=chat, tools=BOTH, sampling=WARM, max_tokens=1))
    assert second.started.cached_tokens == first.started.prompt_tokens + len(first.token_ids) - 1


def without_tokens(chat: list[Message]) -> list[Message]:
    return [msgspec.structs.replace(one, tokens=()) for one in chat]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_that_are_not_of_the_call_are_ignored(
    engine: Engine, load: Loader, tmp_path: Path, name: ToolFormatName
) -> None:
    load_model(load, tmp_path, name)
    call = ToolCall("abcdefghi", "get_weather", '{"place": "Rome", "days": 1}')
    result = Message(role="tool", content="Sunny.", tool_call_id=call.id, tool_name=call.name)

    def prompt(tokens: tuple[int, ...]) -> list[int]:
        answer = Message(role="assistant", content="Let me look.", tool_calls=(call,), tokens=tokens)
        run(engine, ask("", messages=[QUESTION, answer, result], tools=BOTH, max_tokens=1))
        return engine._sequence.tokens[: engine._sequence.prompt_length]

    known = prompt(())
    assert "Rome" in raw(engine, known)
    for tokens in ((5, 6, 7), (2**31 - 1,), (-5, 3), tuple(spelled(engine, "get_weather"))):
        assert prompt(tokens) == known


def test_text_before_a_call_that_the_template_changes_is_written_by_the_template(
    engine: Engine, load: Loader, tmp_path: Path
) -> None:
    load_model(load, tmp_path, "hermes")
    assert engine._target
    mark = engine._target.model.tokenize("<tool_call>", special=True, bos=False)[-1:]
    own = [*mark, *spelled(engine, '\n{"name": "get_weather", "arguments": {}}\n')]
    call = ToolCall("abcdefghi", "get_weather", '{"place": "Rome", "days": 1}')
    answer = Message(role="assistant", content="Other.", tool_calls=(call,), tokens=(*spelled(engine, "This."), *own))
    result = Message(role="tool", content="Sunny.", tool_call_id=call.id, tool_name=call.name)
    run(engine, ask("", messages=[QUESTION, answer, result], tools=BOTH, max_tokens=1))
    prompt = raw(engine, engine._sequence.tokens[: engine._sequence.prompt_length])
    assert 'assistant:Other.<tool_call>\n{"name": "get_weather", "arguments": {}}\n' in prompt
    assert "This." not in prompt


def test_tools_that_are_only_shown_are_not_called_and_the_cache_stays(
    engine: Engine, load: Loader, tmp_path: Path
) -> None:
    load_model(load, tmp_path, "hermes")
    first = run(engine, ask("Well?", tools=BOTH, sampling=WARM, max_tokens=300))
    chat = next_turn(first, first.token_ids, "hermes", raw(engine, first.token_ids))
    shown = msgspec.structs.replace(BOTH, none=True)
    second = run(engine, ask("", messages=chat, tools=shown, sampling=WARM, max_tokens=300))
    assert second.started.cached_tokens == first.started.prompt_tokens + len(first.token_ids) - 1
    assert '"name"' not in second.text
