"""A server with a key that says all that it can; the last test kills it, so this file is the last of the folder."""

from __future__ import annotations

import pytest

from app.protocol.events import LoadFailed, RoundsReceived
from tests.live.test_answers import COUNT, ENDLESS, GREEDY, WARM, assert_same_figures, gained
from tests.support.live_servers import DRAFT_LENGTH, KEY, LiveServer
from tests.support.remote_engine import RemoteEngine


@pytest.mark.parametrize(("key", "told"), [("", "needs a key."), ("wrong-" + KEY, "refused the key.")])
def test_keys(engine: RemoteEngine, keyed: LiveServer, key: str, told: str) -> None:
    failed = engine.try_to_connect(keyed.url, key=key)
    assert isinstance(failed, LoadFailed) and failed.cause == "key"
    assert told in failed.message and KEY not in failed.message
    engine.connect(keyed.url, key=KEY)
    assert engine.answer(COUNT, **GREEDY, max_tokens=4).finished.figures.completion_tokens == 4


def test_figures_of_each_answer(engine: RemoteEngine, keyed: LiveServer) -> None:
    engine.connect(keyed.url, key=KEY)
    engine.answer(COUNT, **GREEDY, max_tokens=1)
    before = keyed.metrics()
    answered = engine.answer(COUNT, **GREEDY, max_tokens=40)
    draft = answered.finished.figures.draft
    assert_same_figures(answered, gained(keyed, before), keyed)
    if keyed.product.kind == "vllm":
        assert draft.source == "reply" and sum(draft.passes_per_accepted) == draft.verify_passes
        assert len(draft.passes_per_accepted) == DRAFT_LENGTH + 1


def test_thinking_arrives_as_such(engine: RemoteEngine, keyed: LiveServer) -> None:
    """Where nobody asked for an answer without, vLLM's parser takes what SmolLM2 says for thinking."""
    if keyed.product.kind != "vllm":
        pytest.skip("llama-server has no parser that SmolLM2's template would call for")
    engine.connect(keyed.url, key=KEY)
    thought = engine.answer(COUNT, **GREEDY, max_tokens=12)
    said = engine.answer(COUNT, **GREEDY, max_tokens=12, thinking="off")
    assert thought.text(thinking=True) and not thought.text()
    assert said.text() and not said.text(thinking=True)
    assert 0 < thought.finished.figures.thinking_tokens <= thought.finished.figures.completion_tokens  # as it counts


def test_killed_in_the_middle_of_an_answer(engine: RemoteEngine, keyed: LiveServer) -> None:
    """The last test: what came is kept, and nothing answers any more."""
    engine.connect(keyed.url, key=KEY)
    engine.ask(ENDLESS, **WARM, thinking="off" if keyed.product.kind == "vllm" else "")
    received = [engine.until(RoundsReceived) for _ in range(3)]
    keyed.kill()
    ended = engine.end()
    kept = sum(one.tokens for event in received for one in event.rounds) + sum(one.tokens for one in ended.rounds)
    failed = ended.failed
    assert failed.cause == "cut" and failed.message.endswith("The part that had arrived was kept.")
    assert failed.figures is not None and failed.figures.completion_tokens == kept >= 3
    again = engine.answer(COUNT, **GREEDY).failed
    assert again.cause == "unreachable" and "Nothing answers at" in again.message
