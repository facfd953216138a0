"""Models that think in the ways of ten families: what is told of their answers, with and without a draft."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.engine.decoding.text import TokenTexts
from app.engine.host.engine import Engine
from app.protocol.commands import CheckText, Generate, Message
from app.protocol.events import Round
from app.protocol.options import Sampling
from app.system import KnownError
from tests.support.generation import GREEDY, Answer, ask, assert_sums_close, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.made import Made
from tests.support.matrix import in_proof
from tests.support.pairs import Loader
from tests.support.thinking_models import ENDLESS, FAMILIES, Family, make_thinking_model

Pairs = dict[str, tuple[Path, Path]]
FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.001)
"""Whatever the table of the model allows, and nothing else."""
BRIEF = Sampling(temperature=1.0, top_k=40, top_p=0.95)
SEEDS = dict.fromkeys(FAMILIES, (2,)) | {"gpt-oss": (0, 1), "kimi-k3": (0, 1), "smollm3": (0,), "granite": (0,)}
"""Of answers that think, and come to an end when the thinking is ended."""
HERE = ("gpt-oss", "qwen3.5")
"""Channels, and tags that the template opens."""
OTHERS = [name for name in FAMILIES if name not in HERE]
LENGTH = 30
"""Of an answer at most, in tokens."""


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    folder = tmp_path_factory.mktemp("thinking")
    return Made(
        lambda name: (
            make_thinking_model(folder / f"{name}.gguf", name),
            make_thinking_model(folder / f"{name}-draft.gguf", name, noise=0.8),
        )
    )


def marks_in_drafts(answer: Answer) -> int:
    """Accepted tokens of a draft that are part of a mark."""
    return sum(piece.drafter is not None and not piece.text for piece in answer.pieces)


def told(answer: Answer) -> list[tuple[int, str, bool]]:
    return [(piece.id, piece.text, piece.thinking) for piece in answer.pieces]


def stopped_thinking(engine: Engine, command: Generate, after: int) -> tuple[Answer, int]:
    """An answer that was told to stop thinking after so many rounds, and how many tokens it had then."""
    told_at = 0

    def told(rounds: Sequence[Round]) -> None:
        nonlocal told_at
        if len(rounds) == after:
            told_at = sum(round_.tokens for round_ in rounds)
            engine.stop_thinking()

    return run(engine, command, watch=told), told_at


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_three_turns(engine: Engine, load: Loader, pairs: Pairs, name: str) -> None:
    load(*pairs[name], threads=1)
    seen = {"thinking": 0, "answer": 0, "accepted": 0, "marks": 0}
    for seed in range(3):
        chat: list[Message] = []
        for turn in range(3):
            chat.append(Message(role="user", content="Well?"))
            options: dict[str, Any] = {"messages": list(chat), "sampling": FREE, "seed": 10 * seed + turn}
            plain = run(engine, ask("", draft_length=0, max_tokens=40, **options))
            drafted = run(engine, ask("", draft_length=5, max_tokens=40, **options))
            assert_sums_close(drafted)
            assert told(drafted) == told(plain)
            figures = drafted.finished.figures
            assert figures.thinking_tokens == sum(piece.thinking for piece in drafted.pieces)
            chat.append(Message(role="assistant", content=plain.answer or "x", thinking=plain.thinking))
            seen["thinking"] += bool(plain.thinking)
            seen["answer"] += bool(plain.answer)
            seen["accepted"] += figures.draft.accepted
            seen["marks"] += marks_in_drafts(drafted)
    assert seen["thinking"] >= 3 and seen["answer"] >= 2 and seen["accepted"], seen


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_a_budget_at_every_place(engine: Engine, load: Loader, pairs: Pairs, name: str) -> None:
    load(*pairs[name], threads=1)
    closed, inside = 0, 0
    for seed in SEEDS[name]:
        options: dict[str, Any] = {"sampling": FREE, "seed": seed, "max_tokens": LENGTH}
        whole = run(engine, ask("Well?", draft_length=0, **options))
        # A longer budget than all the thinking, with its marks, ends nothing.
        for budget in range(whole.finished.figures.thinking_tokens + 2):
            plain = run(engine, ask("Well?", draft_length=0, thinking_budget=budget, **options))
            drafted = run(engine, ask("Well?", draft_length=12, thinking_budget=budget, **options))
            assert told(drafted) == told(plain)
            assert_sums_close(drafted)
            forced = sum(round_.forced for round_ in plain.rounds)
            assert forced == sum(round_.forced for round_ in drafted.rounds)
            if not forced:
                assert plain.token_ids == whole.token_ids
            elif plain.finished.finish_reason == "end":
                closed += 1
            inside += sum(
                one.accepted == one.tokens > 0 and bool(after.forced) for one, after in pairwise(drafted.rounds)
            )
    assert closed >= 1
    if name == "gpt-oss":  # the others' thinking begins where a draft begins, which then ends with the budget
        assert inside >= 1


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_cut_or_stopped_anywhere_it_goes_on_as_if_it_had_not_been(
    engine: Engine, load: Loader, pairs: Pairs, name: str
) -> None:
    load(*pairs[name], threads=1)
    in_thinking = 0
    for seed, budget, length in ((1, None, 12), (2, 5, 16)):
        options: dict[str, Any] = {"sampling": FREE, "seed": seed, "draft_length": 4, "thinking_budget": budget}
        whole = run(engine, ask("Well?", max_tokens=length, **options))
        cuts = [run(engine, ask("Well?", max_tokens=cut, **options)) for cut in range(1, len(whole.token_ids) - 1)]
        for place, first in enumerate(cuts, 1):
            assert first.token_ids == whole.token_ids[:place]
        stops = [run(engine, ask("Well?", max_tokens=length, **options), stop) for stop in range(1, len(whole.rounds))]
        assert all(stop.finished.finish_reason in ("cancelled", whole.finished.finish_reason) for stop in stops)
        for first in (*cuts, *(stop for stop in stops if stop.finished.finish_reason == "cancelled")):
            cut = len(first.token_ids)
            rest = run(engine, ask("Well?", max_tokens=length - cut, continued=first.token_ids, **options))
            assert first.token_ids + rest.token_ids == whole.token_ids, (budget, cut)
            assert first.thinking + rest.thinking == whole.thinking
            assert first.answer + rest.answer == whole.answer
            in_thinking += bool(rest.thinking)
    assert in_thinking > 5


@pytest.mark.parametrize(("prompt", "text"), [("<think>", "<"), ("", "<"), ("", "<0x0A>")])
def test_text_that_could_begin_a_mark_is_not_lost_when_the_answer_goes_on_and_ends_at_once(
    engine: Engine, load: Loader, tmp_path: Path, prompt: str, text: str
) -> None:
    template = "{% for one in messages %}{{ one.content }}{% endfor %}" + prompt
    family = Family(begins={text: 1}, ends={}, rows={text: {"</s>": 1}}, template=template)
    load(make_thinking_model(tmp_path / "brief.gguf", family), None)
    options: dict[str, Any] = {"sampling": FREE, "seed": 1}
    whole = run(engine, ask("Well?", **options))
    first = run(engine, ask("Well?", max_tokens=1, **options))
    assert not first.text and whole.text
    rest = run(engine, ask("Well?", continued=first.token_ids, **options))
    assert (rest.thinking, rest.answer, rest.token_ids) == (whole.thinking, whole.answer, whole.token_ids[1:])


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_thinking_is_stopped_at_any_place(engine: Engine, load: Loader, pairs: Pairs, name: str) -> None:
    """The text is that of an answer without a draft that is told at the same token."""
    load(*pairs[name], threads=1)
    answered = 0
    for seed in SEEDS[name]:
        options: dict[str, Any] = {"sampling": FREE, "seed": seed, "max_tokens": LENGTH}
        whole = run(engine, ask("Well?", draft_length=0, **options))
        for after in range(1, len(whole.rounds)):
            drafted, place = stopped_thinking(engine, ask("Well?", draft_length=3, **options), after)
            if not place:
                break
            plain, plain_place = stopped_thinking(engine, ask("Well?", draft_length=0, **options), place)
            assert plain_place == place
            assert told(drafted) == told(plain)
            if not any(round_.forced for round_ in plain.rounds):
                assert plain.token_ids == whole.token_ids
            elif plain.finished.finish_reason == "end":
                answered += bool(plain.answer)
    assert answered >= 1


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_an_answer_without_stored_tokens_goes_on_from_its_text(
    engine: Engine, load: Loader, pairs: Pairs, name: str
) -> None:
    levels = ["", *load(*pairs[name], threads=1).thinking]
    assert engine._target is not None
    target = engine._target
    for level in levels:
        variables = target.thinking.variables(ask("Well?", thinking=level))
        prompt = target.prompts.chat([Message(role="user", content="Well?")], variables=variables).tokens
        for thought, text in (("so then", ""), ("so\n\nthen.", "yes, <b>no"), ("", "yes, <b>no"), ("", "  so")):
            found = engine.check_text(CheckText(request=1, text=text, thought=thought, thinking=level))
            assert found.tokens, (level, thought, text)
            texts = TokenTexts(target.model.piece, target.thinking.marks, prompt)
            assert texts.replay(found.tokens) == text
            assert texts.splitter.thinking == (text == "")
            options = {"sampling": FREE, "thinking": level, "max_tokens": 12}
            rest = run(engine, ask("Well?", continued=found.tokens, **options))
            if name != "gpt-oss" and text:  # whose answer may be followed by more thinking
                assert not rest.thinking


def test_thinking_ends_though_the_vocabulary_has_another_token_for_the_text_around_its_mark(
    engine: Engine, load: Loader, tmp_path: Path
) -> None:
    closing = "\n</think>"
    family = replace(
        ENDLESS, user_defined=(*ENDLESS.user_defined, closing), rows={**ENDLESS.rows, closing: {"▁yes": 1}}
    )
    load(make_thinking_model(tmp_path / "target.gguf", family), None)
    answer = run(engine, ask("Well?", sampling=GREEDY, thinking_budget=5, max_tokens=60))
    assert answer.finished.finish_reason == "end"
    assert answer.answer.strip() == "yes no."
    assert answer.thinking.removesuffix(closing).split() == ["so", "then", "so", "then", "so"]
    assert sum(bool(round_.forced) for round_ in answer.rounds) == 1


def test_what_each_template_accepts(engine: Engine, load: Loader, pairs: Pairs) -> None:
    accepted = {name: load(pairs[name][0], threads=1).thinking for name in ("gpt-oss", "qwen3.5", "gemma4", "glm")}
    assert accepted == {
        "gpt-oss": ["low", "medium", "high"],
        "qwen3.5": ["off", "on"],
        "gemma4": ["off", "on"],
        "glm": [],
    }
    load(pairs["qwen3.5"][0], threads=1)
    off = run(engine, ask("Well?", sampling=FREE, thinking="off", max_tokens=30))
    assert not off.thinking and off.answer
    with pytest.raises(KnownError, match="It can be off, on"):
        run(engine, ask("Well?", thinking="low"))


THINKS = CHATML_TEMPLATE.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")


@pytest.mark.usefixtures("one_by_one")
def test_at_random_budgets_a_draft_changes_nothing(engine: Engine, load: Loader, tmp_path: Path) -> None:
    """A model with random weights, which never ends its thinking by itself. ``SLIPSTREAM_SEQUENCES``: how many."""
    assert THINKS != CHATML_TEMPLATE
    target = make_model(tmp_path / "target.gguf", chat_template=THINKS, weights="F32")
    load(target, make_model(tmp_path / "draft.gguf", chat_template=THINKS, weights="F32", noise=0.05), threads=1)
    rng, accepted, forced = random.Random(2), 0, 0
    count = int(os.environ.get("SLIPSTREAM_SEQUENCES", "12"))
    for seed in range(count):
        budget = rng.randint(0, 40)
        options: dict[str, Any] = {
            "sampling": BRIEF,
            "seed": seed,
            "max_tokens": rng.randint(budget + 10, 70),
            "thinking_budget": budget,
        }
        plain = run(engine, ask("Well?", draft_length=0, **options))
        drafted = run(engine, ask("Well?", draft_length=rng.choice([1, 3, 8, "auto"]), **options))
        assert drafted.token_ids == plain.token_ids
        assert (drafted.thinking, drafted.answer) == (plain.thinking, plain.answer)
        assert_sums_close(drafted)
        forced += any(round_.forced for round_ in drafted.rounds) and bool(plain.answer)
        accepted += drafted.finished.figures.draft.accepted
    assert accepted > 5 * count and forced > count // 2


def test_whether_a_model_may_think(load: Loader, pairs: Pairs, tmp_path: Path) -> None:
    """By its levels, by the marks in its template, or by the tokens of its channels."""
    told = make_model(tmp_path / "told.gguf", chat_template="{% if '</think>' in '' %}{% endif %}" + CHATML_TEMPLATE)
    assert not load(told).thinking and load(told).may_think
    assert load(pairs["qwen3.5"][0]).may_think and load(pairs["gpt-oss"][0]).may_think
    assert not load(make_model(tmp_path / "never.gguf", chat_template=CHATML_TEMPLATE)).may_think
