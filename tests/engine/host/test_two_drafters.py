"""A pair of a target, its own MTP head and a draft model: who drafts where, and a text that depends on neither.

In a table model it is known after which tokens the head and the draft model are wrong, so what each gets accepted is,
too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.engine.host.chat_cache import ChatCaches
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.engine import Engine
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs, DraftCosts
from app.engine.policy.policy import Decision, Situation
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import PairLoaded
from app.protocol.options import DrafterName, HeadChoice, LoadSettings, Sampling
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, run
from tests.support.made import Made
from tests.support.matrix import in_proof
from tests.support.mtp_models import HeadArchitecture, cycle, make_random_model, make_table_model

WARM, HOT = Sampling(temperature=0.8), Sampling(temperature=1.5, top_k=0, top_p=1.0)
SETTINGS = LoadSettings(context_length=1024, micro_batch_size=32, threads=1)
QUESTION = "a question of so many tokens that they are processed in several chunks, one after the other. " * 2
FLAT = Costs({1: 1.0, 17: 1.1}, {"model": DraftCosts(0.001, 0.0001), "mtp": DraftCosts(0.001, 0.0001)})
"""As on a GPU: how many tokens are tested hardly matters."""
DECODING: tuple[DrafterName, ...] = ("model", "mtp")
HERE = ["qwen35", *in_proof(["glm4moe"])]


class Files(NamedTuple):
    target: Path
    draft: Path

    def load(self, head: HeadChoice = "on", *, with_draft: bool = True) -> Load:
        draft = str(self.draft) if with_draft else None
        return Load(request=1, target=str(self.target), draft=draft, head=head, settings=SETTINGS)


Start = Callable[..., PairLoaded]
Models = dict[HeadArchitecture, Files]


@pytest.fixture
def start(engine: Engine) -> Start:
    return lambda files, head="on", **options: engine.load(files.load(head, **options), lambda _: None)


@pytest.fixture(scope="session")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("random")
    draft = make_random_model(folder / "draft.gguf", "glm4moe", seed=3)
    return Made(lambda name: Files(make_random_model(folder / f"{name}.gguf", name), draft))


@pytest.fixture(scope="session")
def exact_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Of which both drafters are always right."""
    folder = tmp_path_factory.mktemp("exact")
    draft = make_table_model(folder / "draft.gguf", "glm4moe")
    return Made(lambda name: Files(make_table_model(folder / f"{name}.gguf", name), draft))


def asked(*texts: str, **options: Any) -> Generate:
    """What is asked after these messages of user and assistant in turn."""
    messages = [
        Message(role="assistant" if place % 2 else "user", content=text)
        for place, text in enumerate(texts or (QUESTION,))
    ]
    defaults = {"drafter": "auto", "draft_length": "auto", "max_tokens": 60, "sampling": GREEDY}
    return ask("", **{**defaults, "messages": messages, **options})


def assert_always_right(answer: Answer) -> None:
    draft = answer.finished.figures.draft
    assert draft.tested and draft.accepted == draft.tested
    assert_sums_close(answer)


# ---------------------------------------------------------------- who drafts where


@pytest.mark.parametrize("architecture", HERE)
def test_each_drafts_where_it_is_right(
    tmp_path: Path, engine: Engine, start: Start, architecture: HeadArchitecture
) -> None:
    follows = cycle()
    text = run_alone(engine, start, Files(make_table_model(tmp_path / "plain.gguf", architecture), tmp_path))
    text = text[: text.index(text[0], 1)]  # then it goes round, and each token belongs to one half
    half = len(text) // 2
    wrong: dict[str, set[int]] = {"mtp": set(text[half:]), "model": set(text[:half])}
    other = {token: follows[follows[token]] if token in wrong["model"] else follows[token] for token in follows}
    target = make_table_model(tmp_path / "target.gguf", architecture, wrong["mtp"])
    start(Files(target, make_table_model(tmp_path / "draft.gguf", "glm4moe", follows=other)))
    assert engine._costs
    engine._costs.costs = FLAT
    answer = run(engine, asked(max_tokens=len(text)))
    assert answer.token_ids == text
    place = 0
    for round_ in answer.rounds:
        if round_.verify_passes and round_.drafter:
            after = text[place - 1 : place - 1 + round_.tested]
            right = next((n for n, token in enumerate(after) if token in wrong[round_.drafter]), len(after))
            assert round_.accepted == right
        place += round_.tokens
    accepted = {figures.name: figures.accepted for figures in answer.finished.figures.draft.drafters}
    assert min(accepted["mtp"], accepted["model"]) > half / 2
    assert_sums_close(answer)


def run_alone(engine: Engine, start: Start, files: Files) -> list[int]:
    """The text of the target of ``files``."""
    start(files, "off", with_draft=False)
    return run(engine, asked(max_tokens=180, draft_length=0)).token_ids


# ---------------------------------------------------------------- the text


@pytest.mark.parametrize("architecture", HERE)
@pytest.mark.parametrize("sampling", [WARM, *in_proof([GREEDY, HOT])])
def test_coupled_gives_the_text_of_decoding_without_a_draft(
    engine: Engine, start: Start, random_models: Models, architecture: HeadArchitecture, sampling: Sampling
) -> None:
    start(random_models[architecture])
    plain = run(engine, asked(sampling=sampling, draft_length=0, max_tokens=80))
    for drafter, length in (("auto", "auto"), ("auto", 4), ("model", 4), ("mtp", 4)):
        command = asked(sampling=sampling, drafter=drafter, draft_length=length, max_tokens=80)
        answer = run(engine, command)
        assert_same(engine, command, answer, plain)
        assert_sums_close(answer)


@pytest.mark.parametrize("architecture", HERE)
def test_neither_is_out_of_step_after_stop_regenerate_edit_and_the_others_drafts(
    engine: Engine, start: Start, exact_models: Models, architecture: HeadArchitecture
) -> None:
    start(exact_models[architecture])
    for rounds in (1, 5):
        for drafter, other in (DECODING, DECODING[::-1]):
            run(engine, asked(drafter=drafter, draft_length=3), cancel_after=rounds)
            again = run(engine, asked(drafter=other, draft_length=3))
            assert_always_right(again)
            assert_always_right(run(engine, asked(QUESTION, again.text, "And?", drafter=drafter, draft_length=3)))
            assert_always_right(run(engine, asked("another chat", drafter=other, draft_length=3)))


@pytest.mark.parametrize("architecture", HERE)
def test_both_come_back_with_a_chat_in_another_engine(
    tmp_path: Path, exact_models: Models, architecture: HeadArchitecture, every_cache_is_saved: None
) -> None:
    del every_cache_is_saved
    for _ in range(2):
        engine = Engine(ChatCaches(ChatCacheFiles(tmp_path)))
        engine.load(exact_models[architecture].load(), lambda _: None)
        for text in (QUESTION, "another chat"):
            for drafter in DECODING:
                assert_always_right(run(engine, asked(text, drafter=drafter, draft_length=3)))
        engine.unload()


# ---------------------------------------------------------------- loading


def test_beside_a_draft_model_a_head_is_only_used_if_it_is_asked_for(
    engine: Engine, start: Start, random_models: Models
) -> None:
    files = random_models["qwen35"]
    for head, has_head in (("on", True), ("auto", False), ("on", True), ("off", False)):
        pair = start(files, head)
        assert pair.draft is not None and pair.has_head == has_head and pair.head_refused is None
        assert (pair.head_off is None) == has_head
        names = {drafter.name for drafter in engine._drafters}
        assert names == {"ngram", "grammar", "model", *(["mtp"] if has_head else [])}
        assert engine._costs and set(engine._costs.costs.drafts) == names - {"ngram", "grammar"}


def test_forgetting_leaves_nothing_in_either(engine: Engine, start: Start, exact_models: Models) -> None:
    start(exact_models["glm4moe"])
    for drafter in DECODING:
        run(engine, asked(drafter=drafter, draft_length=3))
    engine.forget()
    assert engine._target and engine._target.head and engine._draft
    assert not engine._target.head.cache.tokens and not engine._draft.context.tokens


class _TriesTheHead(AutoPolicy):
    """The draft model drafts three tokens in every round, and the head one besides."""

    def decide(self, situation: Situation) -> Decision:
        self._probe = next(one for one in self._candidates if one.name == "mtp"), 1.0
        return Decision("model", min(3, situation.most), tries="mtp") if situation.most > 0 else Decision()


def test_what_is_only_tried_is_judged_and_changes_neither_text_nor_counters(
    start: Start, exact_models: Models, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(exact_models["qwen35"])
    plain = run(engine, asked(draft_length=0))
    monkeypatch.setattr("app.engine.host.engine.AutoPolicy", _TriesTheHead)
    drafted = run(engine, asked())
    assert drafted.text == plain.text
    assert_sums_close(drafted)
    assert [figures.name for figures in drafted.finished.figures.draft.drafters] == ["model"]
    assert engine._costs
    known = engine._costs.history.priors("coupled")
    assert known["mtp"]["prose"].rates["coupled"].rate > 0.9  # always right, tried once a round
    assert known["mtp"]["prose"].rates["coupled"].weight >= 10
