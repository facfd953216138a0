"""Drafting for, and with, models whose memory is not an ordinary KV cache: the text must not know of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.host.engine import Engine
from app.engine.host.loading import NO_ROLL_BACK
from app.engine.llama.checkpoints import Memory
from app.protocol.commands import Generate, Load, Message
from app.protocol.options import MAX_DRAFT_LENGTH, DraftLength, LoadSettings, Sampling
from tests.support.architectures import POSITIONS, Architecture, make
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, longest, run
from tests.support.made import Made
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Loader
from tests.support.scripted_drafter import ScriptedDrafter

Pairs = dict[Architecture, tuple[Path, Path]]
HERE: tuple[Architecture, ...] = ("qwen35", "mamba", "gemma3")
"""A hybrid, a running state alone, and sliding windows."""
OTHERS: tuple[Architecture, ...] = ("lfm2", "granitehybrid", "deepseek2")
SMALL = {"context_length": 1024, "micro_batch_size": 32, "threads": 1}
SMALL_SETTINGS = LoadSettings(context_length=1024, micro_batch_size=32, threads=1)
"""A window's cache holds window + micro batch, rounded up to 256: an answer soon outgrows it."""


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """A target of each architecture, and a draft of the same that agrees with it now and then."""
    folder = tmp_path_factory.mktemp("pairs")
    return Made(
        lambda name: (make(folder / f"{name}.gguf", name), make(folder / f"{name}-draft.gguf", name, noise=0.05))
    )


def fresh(target: Path, command: Generate) -> Answer:
    """The plain answer of an engine that never did anything else."""
    engine = Engine()
    engine.load(Load(request=1, target=str(target), settings=SMALL_SETTINGS), lambda _: None)
    answer = run(engine, ask("", **{**_fields(command), "draft_length": 0}))
    engine.unload()
    return answer


def _fields(command: Generate) -> dict[str, object]:
    return {name: getattr(command, name) for name in command.__struct_fields__ if name != "request"}


@pytest.mark.parametrize("sampling", [WARM, *in_proof([GREEDY])])
@pytest.mark.parametrize("architecture", [*HERE, *in_proof(OTHERS)])
def test_the_text_is_the_same_with_and_without_a_draft(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture, sampling: Sampling
) -> None:
    pair = load(*pairs[architecture], **SMALL)
    assert pair.drafting_off is None and pair.draft_refused is None
    plain = run(engine, ask("Tell me", sampling=sampling, draft_length=0, max_tokens=80))
    accepted = 0
    lengths: list[DraftLength] = [1, 4, MAX_DRAFT_LENGTH, "auto"]
    for length in lengths:
        command = ask("Tell me", sampling=sampling, draft_length=length, max_tokens=80)
        drafted = run(engine, command)
        assert_same(engine, command, drafted, plain)
        assert_sums_close(drafted)
        accepted += drafted.finished.figures.draft.accepted
    assert accepted > 10


@pytest.mark.parametrize("length", [9, *in_proof([1, 3, MAX_DRAFT_LENGTH])])
@pytest.mark.parametrize("architecture", [*HERE, *in_proof(OTHERS)])
def test_whatever_of_a_draft_is_rejected(
    engine: Engine,
    load: Loader,
    pairs: Pairs,
    monkeypatch: pytest.MonkeyPatch,
    architecture: Architecture,
    length: int,
) -> None:
    load(pairs[architecture][0], **SMALL)
    plain = run(engine, ask("Tell me", sampling=WARM, draft_length=0, max_tokens=160))
    scripted = ScriptedDrafter(engine._sequence.tokens)
    monkeypatch.setattr(engine, "_drafters", [scripted])
    command = ask("Tell me", sampling=WARM, draft_length=length, drafter="ngram", max_tokens=160)
    drafted = run(engine, command)
    assert_same(engine, command, drafted, plain)
    assert_sums_close(drafted)
    length = longest(engine, length)
    seen = {r.accepted for r in drafted.rounds if r.tested == length}
    assert seen >= set(range(min(length, 9) + 1)), "the last ones may be cut short by the end of the answer"


@pytest.mark.parametrize("architecture", [*HERE, *in_proof(OTHERS)])
def test_a_stop_in_the_middle_then_another_turn(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    load(*pairs[architecture], **SMALL)
    stopped = run(engine, ask("Tell me", sampling=WARM, max_tokens=200), cancel_after=7)
    assert stopped.finished.finish_reason == "cancelled"
    assert_sums_close(stopped)
    chat = [
        Message(role="user", content="Tell me"),
        Message(role="assistant", content=stopped.text),
        Message(role="user", content="Go on"),
    ]
    command = ask("", messages=chat, sampling=WARM, max_tokens=60)
    after = run(engine, command)
    assert_same(engine, command, after, fresh(pairs[architecture][0], command))
    assert after.started.cached_tokens >= stopped.started.prompt_tokens - 1


@pytest.mark.parametrize("architecture", [*HERE, *in_proof(OTHERS)])
def test_stop_strings_leave_a_memory_that_is_right(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    load(*pairs[architecture], **SMALL)
    whole = run(engine, ask("Tell me", sampling=WARM, max_tokens=80))
    start = len(whole.text) // 2
    cut = run(engine, ask("Tell me", sampling=WARM, max_tokens=80, stop=[whole.text[start : start + 9]]))
    assert cut.finished.finish_reason == "stop_string" and whole.text.startswith(cut.text)
    cached = engine._target.context.tokens  # type: ignore[union-attr]
    assert cut.started.prompt_tokens - 1 <= len(cached) < cut.started.prompt_tokens + len(whole.token_ids)
    command = ask("Tell me", sampling=WARM, max_tokens=80)
    assert_same(engine, command, run(engine, command), whole)


@pytest.mark.parametrize("architecture", [*HERE, "cogvlm", *in_proof(OTHERS)])
def test_an_answer_is_made_anew_from_the_end_of_its_prompt(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    load(*pairs[architecture], **SMALL)
    window = architecture == "gemma3"
    command = ask("word " * 80, sampling=WARM, max_tokens=400 if window else 60)
    first = run(engine, command)
    assert not window or engine._target.context._memory.oldest() > first.started.prompt_tokens  # type: ignore[union-attr]
    again = run(engine, command)
    assert again.started.cached_tokens == again.started.prompt_tokens - 1
    plain = fresh(pairs[architecture][0], command)
    assert_same(engine, command, first, plain)
    assert_same(engine, command, again, plain)
    other = ask("word " * 70 + "end", sampling=WARM, max_tokens=40)
    assert_same(engine, other, run(engine, other), fresh(pairs[architecture][0], other))


@pytest.mark.parametrize("architecture", ["qwen35", *in_proof(["lfm2", "granitehybrid", "mamba"])])
def test_a_running_state_may_draft_for_an_ordinary_target(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    target, draft = pairs["llama"][0], pairs[architecture][0]
    assert load(target, draft, **SMALL).draft is not None
    for prompt in ("Tell me", "Go on"):
        plain = run(engine, ask(prompt, sampling=WARM, draft_length=0, max_tokens=60))
        command = ask(prompt, sampling=WARM, draft_length=4, max_tokens=60)
        drafted = run(engine, command)
        assert_same(engine, command, drafted, plain)
        assert drafted.finished.figures.draft.tested > 100


@pytest.mark.parametrize("architecture", ["mamba", *in_proof(["granitehybrid"])])
def test_where_nothing_can_be_taken_back_drafting_is_off_with_the_reason(
    engine: Engine, load: Loader, pairs: Pairs, monkeypatch: pytest.MonkeyPatch, architecture: Architecture
) -> None:
    target, draft = pairs[architecture]
    monkeypatch.setattr(Memory, "copy_back", lambda *_: False)
    pair = load(target, draft, **SMALL)
    assert pair.drafting_off == NO_ROLL_BACK == pair.draft_refused
    command = ask("Tell me", sampling=WARM, draft_length=4, drafter="chain", max_tokens=30)
    answer = run(engine, command)
    assert answer.finished.figures.draft.tested == 0
    again = run(engine, command)
    assert again.started.cached_tokens == 0
    assert_same(engine, command, again, answer)
    assert_same(engine, command, again, fresh(target, command))


def test_a_draft_that_cannot_take_anything_back_is_refused_and_n_grams_stay(
    engine: Engine, load: Loader, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "copy_back", lambda *_: False)
    pair = load(pairs["llama"][0], pairs["qwen35"][0], **SMALL)
    assert pair.drafting_off is None and pair.draft is None
    assert pair.draft_refused is not None and "can't undo rejected tokens" in pair.draft_refused


@pytest.mark.parametrize("is_target", [True, False])
def test_no_token_behind_the_last_position_that_was_learned(
    tmp_path: Path, engine: Engine, load: Loader, pairs: Pairs, is_target: bool
) -> None:
    """llama.cpp would end the process."""
    learned = make(tmp_path / "gpt2.gguf", "gpt2", context_length=POSITIONS)
    if is_target:
        assert load(learned, **SMALL).context_length == POSITIONS
    else:
        assert load(pairs["llama"][0], learned, **SMALL).draft is not None
    answer = run(engine, ask("word " * 30, draft_length=4, max_tokens=500, drafter="chain"))
    assert answer.finished.finish_reason == ("context" if is_target else "length")
    assert answer.started.prompt_tokens + len(answer.token_ids) > POSITIONS - 2


@pytest.mark.parametrize("architecture", ["qwen35", *in_proof(["lfm2", "granitehybrid", "mamba"])])
def test_n_grams_draft_for_a_running_state(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    load(pairs[architecture][0], **SMALL)
    for repeated in range(5, 9):
        question = ask("a b c d e f g " * repeated, raw=True, sampling=WARM, drafter="ngram", max_tokens=60)
        drafted = run(engine, question)
        assert_same(engine, question, drafted, fresh(pairs[architecture][0], question))


@pytest.mark.parametrize("architecture", [*HERE, *in_proof(OTHERS)])
def test_a_stop_while_the_prompt_is_processed(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    load(*pairs[architecture], **SMALL, batch_size=32)
    for event in engine.generate(ask("word " * 60, max_tokens=5)):
        if type(event).__name__ == "PromptProgressed":
            engine.cancel()
    command = ask("word " * 60, sampling=WARM, max_tokens=40)
    assert_same(engine, command, run(engine, command), fresh(pairs[architecture][0], command))


@pytest.mark.parametrize("architecture", [*HERE, *in_proof(OTHERS)])
def test_a_target_as_its_own_draft_accepts_everything(
    engine: Engine, load: Loader, pairs: Pairs, architecture: Architecture
) -> None:
    """A draft whose own memory is wrong after a roll-back would guess wrong."""
    target = pairs[architecture][0]
    load(target, target, **SMALL)
    run(engine, ask("Tell me", sampling=WARM, max_tokens=30), cancel_after=3)
    for prompt in ("Tell me", "word " * 40):
        answer = run(engine, ask(prompt, sampling=WARM, max_tokens=100, draft_length=5))
        drafted = [r for r in answer.rounds[1:-1] if r.drafter]  # not those in which the draft model caught up
        assert len(drafted) > 10 and all(r.accepted == r.tested == longest(engine, 5) for r in drafted)
