"""How likely the target found its tokens: the same however they were drafted and sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import ScoreTokens
from app.protocol.options import AcceptRule, AnswerFormat, DrafterChoice, Sampling
from app.system import KnownError
from tests.support.generation import GREEDY, ROUNDING, Answer, ask, run
from tests.support.pairs import Loader, Pair
from tests.support.thinking_models import ENDLESS, make_thinking_model


def values(answer: Answer) -> list[list[tuple[int, float]]]:
    return [[(one.id, one.logprob) for one in piece.logprobs] for piece in answer.pieces]


@pytest.mark.usefixtures("one_by_one")
def test_with_and_without_a_draft_they_are_the_same(loaded: Engine) -> None:
    drafters: tuple[DrafterChoice, ...] = ("model", "ngram", "auto")
    for sampling in (GREEDY, Sampling(), Sampling(temperature=1.2, top_k=0, presence_penalty=1.0)):
        options: dict[str, Any] = {"sampling": sampling, "max_tokens": 60, "logprobs": 3}
        plain = run(loaded, ask("Tell me", draft_length=0, **options))
        answered = plain.pieces[:-1] if plain.finished.finish_reason == "end" else plain.pieces
        assert all(piece.logprobs[0].id == piece.id and len(piece.logprobs) == 4 for piece in answered)
        for drafter in drafters:
            drafted = run(loaded, ask("Tell me", drafter=drafter, **options))
            assert drafted.token_ids == plain.token_ids
            for ours, theirs in zip(values(drafted), values(plain), strict=True):
                assert [one[0] for one in ours] == [one[0] for one in theirs]
                assert [one[1] for one in ours] == pytest.approx([one[1] for one in theirs], abs=1e-4)


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_under_every_rule_each_token_has_its_own(loaded: Engine, rule: AcceptRule) -> None:
    answer = run(loaded, ask("Tell me", accept=rule, max_tokens=40, logprobs=0))
    ids = answer.token_ids[:-1] if answer.finished.finish_reason == "end" else answer.token_ids
    assert [piece.logprobs[0].id for piece in answer.pieces[: len(ids)]] == ids


def test_they_are_those_of_the_logits_before_sampling(loaded: Engine) -> None:
    sampling = Sampling(temperature=2.0, top_k=5, frequency_penalty=2.0)
    format = AnswerFormat(kind="regex", source="[a-z]{4,40}")
    command = ask("Tell me", sampling=sampling, format=format, max_tokens=6, logprobs=2)
    answer = run(loaded, command)
    for place, piece in enumerate(answer.pieces):
        if not piece.logprobs:
            continue
        candidates = [one.id for one in piece.logprobs]
        scored = loaded.score_tokens(
            ScoreTokens(request=1, messages=command.messages, answer=answer.token_ids[:place], candidates=candidates)
        )
        told = [one.logprob - piece.logprobs[1].logprob for one in piece.logprobs]
        assert told == pytest.approx([logit - scored.logits[1] for logit in scored.logits], abs=ROUNDING)


def test_what_ends_an_answer_has_none(engine: Engine, load: Loader, tmp_path: Path) -> None:
    load(make_thinking_model(tmp_path / "endless.gguf", ENDLESS))
    off: dict[str, Any] = {"sampling": GREEDY, "thinking": "off", "logprobs": 1, "max_tokens": 20}
    answer = run(engine, ask("Well?", **off))
    assert [piece.text for piece in answer.pieces] == [" yes", " no", ".", ""]
    assert [piece.logprobs[0].text if piece.logprobs else None for piece in answer.pieces] == [
        b" yes",
        b" no",
        b".",
        None,
    ]
    stopped = run(engine, ask("Well?", stop=["no."], **off))
    assert [(piece.text, bool(piece.logprobs)) for piece in stopped.pieces] == [
        (" yes", True),
        (" ", True),
        ("", False),
    ]


@pytest.mark.usefixtures("one_by_one")
def test_a_bias_changes_the_target_alike_with_and_without_a_draft(loaded: Engine) -> None:
    free = run(loaded, ask("Tell me", draft_length=0, max_tokens=30))
    banned, wanted = free.token_ids[3], free.token_ids[7]
    options: dict[str, Any] = {"max_tokens": 60, "logit_bias": {banned: -100.0, wanted: 6.0}}
    plain = run(loaded, ask("Tell me", draft_length=0, **options))
    assert banned not in plain.token_ids and plain.token_ids.count(wanted) > 1
    for drafter in ("model", "ngram"):
        assert run(loaded, ask("Tell me", drafter=drafter, **options)).token_ids == plain.token_ids
    forced = run(loaded, ask("Tell me", max_tokens=5, logit_bias={wanted: 100.0}))
    assert forced.token_ids == [wanted] * 5


def test_a_bias_for_a_token_that_there_is_not(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(random_pair[0])
    with pytest.raises(KnownError, match="no token 1000000"):
        run(engine, ask("Tell me", logit_bias={1_000_000: 1.0}))
