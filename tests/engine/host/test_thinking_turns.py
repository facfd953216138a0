"""Turns behind one that began with thinking, which their prompt leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import Load, Message
from app.protocol.options import LoadSettings
from tests.support.architectures import Architecture, make
from tests.support.generation import ask, assert_same, run
from tests.support.gguf_files import CHATML_TEMPLATE
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Loader

THINKS = CHATML_TEMPLATE.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
SMALL = {"context_length": 2048, "micro_batch_size": 32, "threads": 1}


@pytest.mark.parametrize("architecture", ["qwen35", "gemma3", *in_proof(["lfm2", "granitehybrid", "mamba"])])
def test_a_second_turn_processes_only_what_is_new(
    engine: Engine, load: Loader, tmp_path: Path, architecture: Architecture
) -> None:
    assert THINKS != CHATML_TEMPLATE
    options = {"chat_template": THINKS, "context_length": 2048}
    target = make(tmp_path / "target.gguf", architecture, **options)
    load(target, make(tmp_path / "draft.gguf", architecture, noise=0.05, **options), **SMALL)
    chat = [Message(role="user", content="Tell me about " + "words and " * 40)]
    longest = 0
    for turn in range(3):
        command = ask("", messages=list(chat), sampling=WARM, thinking_budget=30, max_tokens=50, seed=turn)
        answer = run(engine, command)
        started = answer.started
        assert answer.thinking and answer.answer
        if turn:
            assert started.prompt_tokens - started.cached_tokens <= longest, "the answer and the question, no more"
        fresh = Engine()
        fresh.load(Load(request=1, target=str(target), settings=LoadSettings(**SMALL)), lambda _: None)  # type: ignore[arg-type]
        assert_same(engine, command, answer, run(fresh, ask("", **{**fields(command), "draft_length": 0})))
        fresh.unload()
        again = run(engine, command)
        assert again.started.prompt_tokens - again.started.cached_tokens <= 20
        chat += [Message(role="assistant", content=answer.answer, thinking=answer.thinking)]
        chat += [Message(role="user", content="Go on")]
        assert engine._target is not None
        tokenizer = engine._target.prompts.tokenizer
        longest = len(tokenizer.plain(answer.answer)) + 80


def fields(command: object) -> dict[str, object]:
    names = command.__struct_fields__  # type: ignore[attr-defined]
    return {name: getattr(command, name) for name in names if name != "request"}
