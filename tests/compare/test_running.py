"""Sets of prompts on a real engine: what is run, in which order, and what a real difference looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from app.compare.prompts import Prompt, bundled
from app.compare.results import Comparison, Skipped, summarize
from app.compare.steps import compare
from app.engine.decoding.accept_rules import gumbel
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Message
from app.protocol.events import GenerationStarted, PairLoaded
from app.protocol.options import Sampling
from app.system import Canceled
from tests.support.comparing import compare_one
from tests.support.direct import direct_logits
from tests.support.generation import GREEDY, ROUNDING, ask, run

Loader = Callable[..., PairLoaded]
Pair = tuple[Path, Path]
HOT = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)


def prompt(text: str, kind: str = "own") -> Prompt:
    return Prompt(kind=kind, messages=[Message(role="user", content=text)])


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | str, int | None]]:
    """What the engine is asked from now on: text, draft length, seed."""
    asked: list[tuple[str, int | str, int | None]] = []
    generate = engine.generate

    def watching(command: Generate) -> object:
        asked.append((command.messages[-1].content, command.draft_length, command.seed))
        return generate(command)

    monkeypatch.setattr(engine, "generate", watching)
    return asked


def test_order_and_seeds(engine: Engine, load: Loader, random_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    load(*random_pair)
    asked = watched(engine, monkeypatch)
    found = list(compare(engine, [prompt("a"), prompt("b")], ask("", max_tokens=5, draft_length=3, seed=7), 2))
    assert asked[:2] == [("a", 0, 7), ("a", 3, 7)], "warm-up"
    assert asked[2:] == [
        *[("a", 0, 7), ("a", 3, 7), ("b", 3, 7), ("b", 0, 7)],
        *[("a", 3, 8), ("a", 0, 8), ("b", 0, 8), ("b", 3, 8)],
    ]
    assert [c.seed for c in found if isinstance(c, Comparison)] == [7, 7, 8, 8]
    total = summarize([c for c in found if isinstance(c, Comparison)]).total
    assert (total.runs, total.same) == (4, 4)


def test_runs_are_what_the_engine_said(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(*random_pair)
    command = ask("Tell me", sampling=HOT, max_tokens=40, seed=3)
    found = compare_one(engine, prompt("Tell me"), command, 3)
    answer = run(engine, command)
    assert (found.drafted.text, found.drafted.token_ids) == (answer.text, answer.token_ids)
    assert found.drafted.finish_reason == answer.finished.finish_reason
    assert found.plain.figures.draft.tested == 0 < found.drafted.figures.draft.tested
    assert found.same and found.difference is None and found.speed_up is not None


def test_a_real_difference_is_found_and_looked_at(engine: Engine, load: Loader, random_pair: Pair) -> None:
    """Rejection sampling draws otherwise than plain decoding, so the texts part, and no rounding is to blame."""
    length = load(*random_pair, threads=1).context_length
    command = ask("", sampling=HOT, accept="rejection", max_tokens=40)
    found = compare_one(engine, prompt("Tell me"), command, 3)
    difference = found.difference
    assert not found.same and difference is not None and difference.token is not None
    index = difference.token
    assert found.plain.token_ids[:index] == found.drafted.token_ids[:index]
    assert difference.near_tie is False and difference.score_gap is not None and difference.rounding is not None
    assert difference.score_gap > 2 * difference.rounding / HOT.temperature
    logits, position = direct_logits(
        random_pair[0], found.prompt.messages, found.plain.token_ids[:index], length=length
    )
    both = np.array([found.plain.token_ids[index], found.drafted.token_ids[index]])
    assert [difference.plain_id, difference.drafted_id] == both.tolist()
    assert [difference.plain_logit, difference.drafted_logit] == pytest.approx(logits[both], abs=ROUNDING)
    noise = gumbel(3, [position], both[None])[0]
    gap = abs(float(np.diff(logits[both] / HOT.temperature + noise)[0]))
    assert difference.score_gap == pytest.approx(gap, abs=ROUNDING)


def test_a_prompt_that_does_not_fit_is_told_once(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(*random_pair, context_length=256)
    found = list(compare(engine, [prompt("x " * 600), prompt("b")], ask("", max_tokens=5), 2))
    skipped = [result for result in found if isinstance(result, Skipped)]
    assert len(skipped) == 1 and skipped[0].prompt.title.startswith("x x")
    assert "context only holds 256" in skipped[0].reason
    assert [c.prompt.title for c in found if isinstance(c, Comparison)] == ["b", "b"]


@pytest.mark.parametrize("wanted", [0, 3])
def test_a_stop_ends_it(
    engine: Engine, load: Loader, random_pair: Pair, monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    load(*random_pair)
    started = 0
    generate = engine.generate

    def stopping(command: Generate) -> object:
        nonlocal started
        for event in generate(command):
            if isinstance(event, GenerationStarted):
                started += 1
                if started == 2 * wanted + 3:  # two runs of warm-up
                    engine.cancel()
            yield event

    monkeypatch.setattr(engine, "generate", stopping)
    found = []
    with pytest.raises(Canceled):
        for result in compare(engine, [prompt("a"), prompt("b")], ask("", max_tokens=5), 3):
            found.append(result)
    assert len(found) == wanted


@pytest.mark.matrix
def test_the_bundled_prompts_run_with_the_guide(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(*guide_pair)
    command = msgspec.structs.replace(ask("", sampling=GREEDY, max_tokens=12), draft_length="auto", drafter="auto")
    found = list(compare(engine, bundled(), command))
    comparisons = [result for result in found if isinstance(result, Comparison)]
    assert len(comparisons) == len(found) == 21
    assert all(c.same or (c.difference and c.difference.near_tie) for c in comparisons)
