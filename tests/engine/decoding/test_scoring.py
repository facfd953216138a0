"""Choices looked at again: against what the engine really chose, and against sums done by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from app.engine.decoding.accept_rules import gumbel
from app.engine.decoding.sampling import Floats
from app.engine.decoding.scoring import LOOKED_AT, Choice, logits_behind
from app.engine.host.engine import Engine
from app.engine.llama.context import Context
from app.protocol.commands import Generate, Message, ScoreTokens
from app.protocol.options import Overflow, Role, Sampling
from app.system import Canceled, KnownError
from tests.support.direct import direct_logits
from tests.support.generation import GREEDY, ROUNDING, ask, assert_same, run
from tests.support.matrix import in_proof
from tests.support.pairs import PENALIZED, WARM, Loader, Pair
from tests.support.table_cache import TableCache

OPEN = Sampling(temperature=1.3, top_k=0, top_p=1.0, min_p=0.0)
EVERY = list(range(512))


def scoring(command: Generate, answer: list[int], candidates: list[int], seed: int | None = None) -> ScoreTokens:
    return ScoreTokens(
        request=7,
        messages=command.messages,
        answer=answer,
        candidates=candidates,
        sampling=command.sampling,
        overflow=command.overflow,
        seed=command.seed or 0 if seed is None else seed,
    )


@pytest.mark.parametrize("sampling", [GREEDY, OPEN, PENALIZED, *in_proof([WARM])])
@pytest.mark.parametrize("draft_length", [5, *in_proof([0])])
def test_the_engine_had_chosen_the_token_with_the_best_score(
    loaded: Engine, sampling: Sampling, draft_length: int
) -> None:
    command = ask("Tell me", sampling=sampling, draft_length=draft_length, max_tokens=60, seed=3)
    answer = run(loaded, command).token_ids
    for index in (*range(0, len(answer), 17), len(answer) - 1):
        candidates = EVERY if index == len(answer) - 1 else sorted({*EVERY[index::16], answer[index]})
        scored = loaded.score_tokens(scoring(command, answer[:index], candidates))
        assert scored.request == 7
        known = {token: score for token, score in zip(candidates, scored.scores, strict=True) if score is not None}
        could_win = dict(zip(candidates, scored.could_win, strict=True))
        best = max(known, key=known.__getitem__)
        assert best == answer[index] or could_win[best], "another one only at a near-tie"
        assert could_win[answer[index]]
        assert sum(could_win.values()) < 4, "rounding hardly ever leaves a choice between many"
        assert len(known) == {0.0: 1, 1.3: len(candidates)}.get(sampling.temperature, len(known))


@pytest.mark.parametrize("overflow", ["keep_ends", *in_proof(["drop_oldest"])])
def test_scores_are_those_behind_the_prompt_of_the_answer(
    engine: Engine, load: Loader, random_pair: Pair, overflow: Overflow
) -> None:
    load(*random_pair, context_length=512)
    roles: tuple[Role, Role] = ("user", "assistant")
    chat = [Message(role=roles[i % 2], content=f"{i} is a number, and so is {i * i}. " * 3) for i in range(15)]
    command = ask("", messages=chat, overflow=overflow, sampling=OPEN, max_tokens=12, seed=3)
    answer = run(engine, command)
    assert answer.started.dropped_messages > 0
    for index, token in enumerate(answer.token_ids):
        scored = engine.score_tokens(scoring(command, answer.token_ids[:index], EVERY))
        assert scored.could_win[EVERY.index(token)]


def test_logits_and_scores_are_those_of_a_direct_computation(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    """Token by token in a context of its own, then softmax and noise as the textbook has them."""
    length = load(*guide_pair, threads=1).context_length
    command = ask("What is a verify pass?", sampling=OPEN, max_tokens=50, seed=11)
    answer = run(engine, command).token_ids[:37]
    scored = engine.score_tokens(scoring(command, answer, [5, 100, 4000]))

    logits, position = direct_logits(guide_pair[0], command.messages, answer, length=length)
    log_p = logits / 1.3 - np.log(np.exp(logits / 1.3).sum())
    noise = gumbel(11, [position], np.array([[5, 100, 4000]]))[0]
    assert scored.logits == pytest.approx(logits[[5, 100, 4000]], abs=ROUNDING)
    assert scored.scores == pytest.approx(log_p[[5, 100, 4000]] + noise, abs=ROUNDING)


def test_the_chat_keeps_its_cache(loaded: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ask("Tell me something about the sea and its tides.", sampling=WARM, max_tokens=50)
    first = run(loaded, command)
    fed: list[int] = []
    decode = Context.decode

    def watched(context: Context, tokens: Sequence[int], outputs: int) -> Floats:
        fed.append(len(tokens))
        return decode(context, tokens, outputs)

    with monkeypatch.context() as patch:
        patch.setattr(Context, "decode", watched)
        loaded.score_tokens(scoring(command, first.token_ids[:40], [300, 301]))
    assert fed == [16, 16, *[1] * LOOKED_AT], "the rest was in the cache"
    again = run(loaded, command)
    assert again.started.cached_tokens == again.started.prompt_tokens - 1
    assert_same(loaded, command, again, first)


@pytest.mark.parametrize(
    ("answer", "candidates"), [([512], [1]), ([-1], [1]), ([1], [512]), ([1], [-1]), ([1], [2**62])]
)
def test_ids_the_target_does_not_have(loaded: Engine, answer: list[int], candidates: list[int]) -> None:
    with pytest.raises(KnownError, match="no token"):
        loaded.score_tokens(scoring(ask("x"), answer, candidates))


def test_without_a_model_and_beyond_the_context(engine: Engine, load: Loader, random_pair: Pair) -> None:
    with pytest.raises(KnownError, match="No model"):
        engine.score_tokens(scoring(ask("x"), [], [1]))
    load(*random_pair, context_length=256)
    with pytest.raises(KnownError, match="context"):
        engine.score_tokens(scoring(ask("x"), [300] * 250, [1]))
    assert engine.score_tokens(scoring(ask("x"), [300] * 5, [])).logits == []


@pytest.mark.parametrize("length", [5, 200])
def test_it_can_be_stopped(loaded: Engine, length: int) -> None:
    command = ask("Tell me", max_tokens=30)
    before = run(loaded, command)
    loaded.cancel()
    with pytest.raises(Canceled):
        loaded.score_tokens(scoring(command, [300] * length, [1]))
    assert_same(loaded, command, run(loaded, command), before)


# ---------------------------------------------------------------- rounding


class WidthCache(TableCache):
    """A cache over 8 tokens whose logits are off by 0.1 in passes of more than one token; the last never comes."""

    def __init__(self, can_cut: bool) -> None:
        super().__init__(length=1000, branches=0)
        self.can_cut = can_cut

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        self.tokens += tokens
        error = 0.1 if len(tokens) > 1 else 0.0
        ends = self.tokens[len(self.tokens) - outputs :] if outputs else []
        never = [0.0] * 7 + [-np.inf]
        return np.array([[end + i + error + never[i] for i in range(8)] for end in ends], np.float32).reshape(-1, 8)

    def roll_back(self, length: int) -> None:
        if length < len(self.tokens):
            del self.tokens[length if self.can_cut else 0 :]


@pytest.mark.parametrize("can_cut", [True, False])
def test_rounding_is_what_passes_of_other_width_show(can_cut: bool) -> None:
    tokens = [i % 8 for i in range(200)]
    cache = WidthCache(can_cut)
    cache.tokens = tokens[:190]
    logits, rounding = logits_behind(cache, tokens, lambda: False)
    assert rounding == pytest.approx(0.15, abs=1e-5)
    assert logits.tolist() == [*(tokens[-1] + i for i in range(7)), -np.inf], "of a pass of width 1"
    assert cache.tokens == tokens


def choice(logits: Sequence[float], sampling: Sampling, seed: int = 0, history: Sequence[int] = ()) -> Choice:
    return Choice(np.array(logits, np.float32), history, sampling, seed)


def winners(found: Choice, rounding: float) -> set[int]:
    return {token for token in range(len(found.logits)) if found.could_win(token, rounding)}


def test_near_ties_of_the_logits() -> None:
    assert winners(choice([5.0, 4.97, 4.0, 1.0], GREEDY), 0.02) == {0, 1}
    assert winners(choice([5.0, 4.95, 4.0, 1.0], GREEDY), 0.02) == {0}
    assert winners(choice([5.0, 4.95, 4.0, 1.0], GREEDY), 0.6) == {0, 1, 2}
    masked = choice([5.0, 4.97, -np.inf], GREEDY)
    assert winners(masked, 0.02) == {0, 1} and np.isfinite(masked.logit(2))
