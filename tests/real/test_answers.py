"""Answers of real models: stopped and written again, continued, by a schema, beyond the context; chats that go on, come
back, and outlive the engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import Load, Message, Quit
from app.protocol.events import GenerationFinished, GenerationStarted, PairLoaded, RoundsReceived
from app.protocol.options import AnswerFormat, LoadSettings
from tests.real.loaded import N_GRAMS, PLAIN, WARM, Loaded, load
from tests.support.engine_process import EngineProcess
from tests.support.generation import GREEDY, Answer, ask, assert_sums_close

TOKENS = 200
"""Of the text that a test asks about."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "about": {"type": "string", "maxLength": 40},
        "kind": {"enum": ["program", "animal", "plant"]},
        "pages": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["about", "kind", "pages"],
    "additionalProperties": False,
}


class Chat:
    """One that grows by a question and an answer at a time."""

    def __init__(self, loaded: Loaded, first: str) -> None:
        self.loaded = loaded
        self.messages: list[Message] = []
        self.first = self.ask(first)

    def ask(self, text: str, **options: Any) -> Answer:
        self.messages.append(Message(role="user", content=text))
        answer = self.loaded.answer("", messages=list(self.messages), **{**N_GRAMS, "max_tokens": 16, **options})
        self.messages.append(Message(role="assistant", content=answer.text))
        return answer


def test_stop_and_regenerate_gives_the_same_text(real: Loaded) -> None:
    question = real.question(TOKENS)
    whole = real.answer(question, max_tokens=40, **N_GRAMS)
    real.engine.forget()
    stopped = real.answer(question, max_tokens=40, stop_after=8, **N_GRAMS)
    assert stopped.finished.finish_reason == "cancelled"
    assert 8 <= len(stopped.token_ids) < 40
    again = real.answer(question, max_tokens=40, **N_GRAMS)
    assert again.started.cached_tokens == again.started.prompt_tokens - 1
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids)]
    assert again.token_ids == whole.token_ids and again.text == whole.text


def test_an_answer_that_was_cut_goes_on_as_if_it_had_not_been(real: Loaded) -> None:
    question = real.question(TOKENS)
    whole = real.answer(question, max_tokens=36, **N_GRAMS)
    for cut in (1, 17):
        first = real.answer(question, max_tokens=cut, **N_GRAMS)
        assert first.token_ids == whole.token_ids[:cut]
        rest = real.answer(question, max_tokens=36 - cut, continued=first.token_ids, **N_GRAMS)
        assert rest.token_ids == whole.token_ids[cut:]
        assert first.text + rest.text == whole.text


@pytest.mark.parametrize("drafter", ["grammar", "auto"])
def test_a_structured_answer_is_what_the_schema_wants(real: Loaded, drafter: str) -> None:
    wanted = AnswerFormat(kind="json_schema", source=json.dumps(SCHEMA))
    length = "auto" if drafter == "auto" else 4
    options: dict[str, Any] = {"sampling": GREEDY, "format": wanted, "max_tokens": 120}
    question = real.question(TOKENS)
    answer = real.answer(question, drafter=drafter, draft_length=length, **options)
    assert answer.finished.finish_reason == "end"
    jsonschema.validate(json.loads(answer.answer), SCHEMA)
    assert_sums_close(answer)
    assert answer.token_ids == real.answer(question, **PLAIN, **options).token_ids


# ---------------------------------------------------------------- chats


def test_later_turns_of_a_chat_come_from_the_cache(real: Loaded) -> None:
    chat = Chat(real, real.question(TOKENS))
    for question in ("Which of that matters most?", "Why?"):
        before = chat.loaded.engine._sequence.tokens
        answer = chat.ask(question)
        assert answer.started.cached_tokens >= TOKENS
        assert answer.started.prompt_tokens - answer.started.cached_tokens < 100
        assert real.context.tokens[: answer.started.cached_tokens] == before[: answer.started.cached_tokens]
        assert answer.started.template == ("model" if real.target.model.chat_template() else "chatml")
        assert_sums_close(answer)


def test_going_back_to_a_chat_brings_it_back(real: Loaded) -> None:
    """Its KV cache was copied, with all of its windows, and it goes on as if there had been no other chat."""
    tokens = 600 if real.context.checkpoints.window else 150
    question, more = real.question(tokens), "What else does it say?"
    expected = Chat(real, question).ask(more)
    real.engine.forget()
    chat = Chat(real, question)
    other = Chat(real, real.text(tokens, skipped=tokens))
    assert other.first.started.cached_tokens < 100
    again = chat.ask(more)
    assert again.started.cached_tokens >= tokens
    assert again.token_ids == expected.token_ids


def test_a_chat_comes_back_after_the_next_start(smollm2_file: Path, smollm2: Loaded) -> None:
    """Its KV cache was written to a file when the engine ended, and another process reads it."""
    question = smollm2.question(500)
    load = Load(request=1, target=str(smollm2_file), settings=LoadSettings(context_length=2048))
    told: list[tuple[GenerationStarted, str]] = []
    for _ in range(2):
        with EngineProcess() as process:
            process.send(load)
            assert process.until(PairLoaded).template == "model"
            process.send(ask(question, sampling=WARM, max_tokens=30, **N_GRAMS))
            started, text = process.until(GenerationStarted), ""
            while not isinstance(event := process.next(), GenerationFinished):
                if isinstance(event, RoundsReceived):
                    text += "".join(piece.text for one in event.rounds for piece in one.pieces)
            told.append((started, text))
            process.send(Quit())
            assert process.wait() == 0
    (first, text), (second, again) = told
    assert first.cached_tokens == 0 and second.cached_tokens == second.prompt_tokens - 1
    assert again == text and text


# ---------------------------------------------------------------- contexts that are too small


@pytest.mark.parametrize(("file", "context"), [("smollm2_file", 512), ("gemma_file", 1024)])
def test_the_oldest_messages_leave_a_full_context(
    engine: Engine, file: str, context: int, request: pytest.FixtureRequest
) -> None:
    """Gemma's windows of 512 tokens have to move along as well."""
    small = load(engine, request.getfixturevalue(file), context_length=context)
    messages: list[Message] = []
    dropped = 0
    for turn in range(4):
        messages.append(Message(role="user", content=small.text(context // 4, skipped=200 * turn)))
        drafted = small.answer("", messages=list(messages), max_tokens=16, overflow="drop_oldest", **N_GRAMS)
        plain = small.answer("", messages=list(messages), max_tokens=16, overflow="drop_oldest", **PLAIN)
        assert drafted.token_ids == plain.token_ids, f"turn {turn}"
        assert drafted.started.prompt_tokens < context
        assert drafted.started.dropped_messages >= dropped
        dropped = drafted.started.dropped_messages
        messages.append(Message(role="assistant", content=drafted.text))
    assert dropped >= 2


def test_an_answer_ends_where_the_context_does(engine: Engine, gemma_file: Path) -> None:
    small = load(engine, gemma_file, context_length=512)
    never = dict.fromkeys((token for token in range(500) if small.target.model.is_end(token)), -100.0)
    answer = small.answer(small.text(460), max_tokens=None, raw=True, logit_bias=never, **N_GRAMS)
    assert answer.finished.finish_reason == "context"
    assert answer.started.prompt_tokens + len(answer.token_ids) == small.context.length + 1
    assert_sums_close(answer)
