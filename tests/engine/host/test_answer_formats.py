"""Answers that follow a schema or a grammar: with and without a draft the same, exact, and whole where they end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import jsonschema
import numpy as np
import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import ScoreTokens
from app.protocol.options import AcceptRule, AnswerFormat, DrafterChoice, Sampling
from app.system import KnownError
from tests.support.generation import GREEDY, Answer, ask, assert_sums_close, run
from tests.support.matrix import in_proof
from tests.support.pairs import HOT, Loader, Pair
from tests.support.schemas import random_schema
from tests.support.thinking_models import FAMILIES, make_thinking_model

FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.001)
OTHERS = [family for family in FAMILIES if family not in ("gpt-oss", "qwen3.5")]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["animal", "plant", "mineral"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 3},
    },
    "required": ["description", "kind", "sizes"],
    "additionalProperties": False,
}
BY_SCHEMA = AnswerFormat(kind="json_schema", source=json.dumps(SCHEMA))
FORMATS = {
    "schema": BY_SCHEMA,
    "object": AnswerFormat(kind="json_object"),
    "regex": AnswerFormat(kind="regex", source="(yes|no), [a-z]{3,12}(, [a-z]{3,12}){0,4}\\."),
    "lark": AnswerFormat(kind="lark", source='start: "[" word ("," word)* "]"\nword: /[a-z]{1,4}/'),
    "gbnf": AnswerFormat(kind="gbnf", source='root ::= item+ "end"\nitem ::= "- " [A-Z] [a-z]{0,6} "\\n"'),
}


def assert_follows(answer: Answer, wanted: AnswerFormat) -> None:
    if answer.finished.finish_reason != "end":
        return
    match wanted.kind:
        case "json_schema":
            jsonschema.validate(json.loads(answer.answer), json.loads(wanted.source))
        case "json_object":
            assert isinstance(json.loads(answer.answer), dict)
        case "regex":
            assert re.fullmatch(wanted.source, answer.answer)
        case "lark":
            assert re.fullmatch(r"\[[a-z]{1,4}(,[a-z]{1,4})*\]", answer.answer)
        case "gbnf":
            assert re.fullmatch(r"(- [A-Z][a-z]{0,6}\n)+end", answer.answer)


@pytest.mark.parametrize("sampling", [Sampling(), *in_proof([GREEDY, HOT])])
@pytest.mark.parametrize("wanted", FORMATS.values(), ids=FORMATS)
@pytest.mark.usefixtures("one_by_one")
def test_with_and_without_a_draft_they_are_the_same_and_follow_the_format(
    loaded: Engine, sampling: Sampling, wanted: AnswerFormat
) -> None:
    drafters: tuple[DrafterChoice, ...] = ("model", "ngram", "grammar", "auto")
    for seed in range(2):
        options: dict[str, Any] = {"seed": seed, "sampling": sampling, "format": wanted, "max_tokens": 80}
        plain = run(loaded, ask("Tell me", draft_length=0, **options))
        assert_follows(plain, wanted)
        for drafter in drafters:
            length = "auto" if drafter == "auto" else 5
            drafted = run(loaded, ask("Tell me", drafter=drafter, draft_length=length, **options))
            assert drafted.token_ids == plain.token_ids, drafter
            assert drafted.finished.finish_reason == plain.finished.finish_reason
            assert_sums_close(drafted)


@pytest.mark.parametrize("accept", get_args(AcceptRule))
@pytest.mark.usefixtures("one_by_one")
def test_a_target_as_its_own_draft_accepts_everything(
    engine: Engine, load: Loader, random_pair: Pair, accept: AcceptRule
) -> None:
    load(random_pair[0], random_pair[0])
    answer = run(engine, ask("Tell me", accept=accept, sampling=HOT, format=BY_SCHEMA, max_tokens=80))
    assert_follows(answer, BY_SCHEMA)
    draft = answer.finished.figures.draft
    ended = draft.tested - draft.accepted if answer.finished.finish_reason == "length" else 0
    assert draft.tested > 5 and draft.accepted + ended == draft.tested


@pytest.mark.parametrize("rules", [("block",), *in_proof([(("rejection", "coupled", "exact"),)])])
def test_each_rule_keeps_the_distribution_that_is_left(loaded: Engine, rules: tuple[AcceptRule, ...]) -> None:
    """Two letters of four each: with a draft the sixteen answers are as frequent as without one."""
    wanted = AnswerFormat(kind="regex", source="[abcd][abcd]")

    def counted(first: int, **options: Any) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        counts = np.zeros(16)
        for seed in range(first, first + 400):
            answer = run(loaded, ask("Go", seed=seed, sampling=HOT, format=wanted, max_tokens=5, **options))
            counts["abcd".index(answer.answer[0]) * 4 + "abcd".index(answer.answer[1])] += 1
        return counts

    expected = (counted(0, draft_length=0) + 1.0) * 400 / 416
    frequent = expected > 10
    assert frequent.sum() > 3
    for number, rule in enumerate(rules, 1):
        counts = counted(1000 * number, draft_length=3, accept=rule)
        distance = float((((counts - expected) ** 2) / (2 * expected))[frequent].sum())
        assert distance < 3 * frequent.sum() + 10, (rule, counts, expected)


def test_what_a_grammar_forces_is_drafted_and_counted_apart(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(random_pair[0])
    wanted = AnswerFormat(kind="regex", source="The quick brown fox (jumps|sleeps)")
    answer = run(engine, ask("Tell me", format=wanted, drafter="auto", draft_length=8, sampling=GREEDY))
    (figures,) = answer.finished.figures.draft.drafters
    assert figures.name == "grammar" and figures.accepted > 0
    assert {piece.drafter for piece in answer.pieces} == {"grammar", None}
    assert_follows(answer, wanted)


def test_an_answer_that_was_cut_goes_on_in_its_grammar(loaded: Engine) -> None:
    options: dict[str, Any] = {"format": BY_SCHEMA, "sampling": Sampling(), "draft_length": 0, "seed": 3}
    whole = run(loaded, ask("Tell me", max_tokens=80, **options))
    part = run(loaded, ask("Tell me", max_tokens=7, **options))
    rest = run(loaded, ask("Tell me", max_tokens=73, continued=part.token_ids, **options))
    assert_follows(whole, BY_SCHEMA)
    text = part.answer + rest.answer
    if rest.finished.finish_reason == "end":
        jsonschema.validate(json.loads(text), SCHEMA)
    other = AnswerFormat(kind="regex", source="[0-9]+")
    with pytest.raises(KnownError, match="doesn't follow the chosen format"):
        run(loaded, ask("Tell me", continued=part.token_ids, format=other))


def test_a_bad_schema_is_refused_before_anything_is_computed(loaded: Engine) -> None:
    bad = AnswerFormat(kind="json_schema", source='{"type": "objekt"}')
    with pytest.raises(KnownError, match="at the top level: Invalid type: objekt"):
        run(loaded, ask("Tell me", format=bad))


@pytest.mark.parametrize("family", ["gpt-oss", "qwen3.5", *in_proof(OTHERS)])
def test_it_begins_after_the_thinking(engine: Engine, load: Loader, family: str, tmp_path: Path) -> None:
    """The models' words are “ so”, “ then”, “ yes”, “ no”, “.” and line breaks, in any order."""
    load(
        make_thinking_model(tmp_path / "target.gguf", family),
        make_thinking_model(tmp_path / "draft.gguf", family, noise=0.8),
    )
    wanted = AnswerFormat(kind="regex", source=r"( (yes|no)){2}\.")
    has_thought = 0
    for seed in range(8):
        options: dict[str, Any] = {"seed": seed, "format": wanted, "sampling": FREE, "max_tokens": 200}
        plain = run(engine, ask("Well?", draft_length=0, **options))
        drafted = run(engine, ask("Well?", drafter="auto", draft_length=5, **options))
        assert drafted.token_ids == plain.token_ids
        if plain.answer and plain.finished.finish_reason == "end":  # these may end while they think
            assert re.fullmatch(wanted.source, plain.answer), (plain.thinking, plain.answer)
            has_thought += bool(plain.thinking)
    if family in ("gpt-oss", "qwen3.5", "deepseek-v4", "glm", "kimi-k2", "lfm2.5"):
        assert has_thought


@pytest.mark.usefixtures("one_by_one")
def test_a_choice_is_scored_as_it_was_made(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(random_pair[0])
    wanted = AnswerFormat(kind="regex", source="[a-f]{4}")
    command = ask("Go", sampling=HOT, format=wanted, draft_length=0)
    tokens = run(engine, command).token_ids
    assert engine._target
    (refused,) = engine._target.model.tokenize("z", special=False, bos=False)[-1:]
    for place in range(3):
        question = ScoreTokens(
            request=1,
            messages=command.messages,
            answer=tokens[:place],
            candidates=[tokens[place], refused],
            sampling=HOT,
            seed=1,
            format=wanted,
        )
        scored = engine.score_tokens(question)
        assert scored.scores[0] is not None and scored.scores[1] is None
        assert scored.could_win == [True, False]


def test_random_schemas_are_followed_at_a_high_temperature(loaded: Engine) -> None:
    ended = 0
    for number in range(25):
        schema = random_schema(number)
        wanted = AnswerFormat(kind="json_schema", source=json.dumps(schema))
        plain = run(loaded, ask("Go", sampling=HOT, seed=number, format=wanted, max_tokens=400, draft_length=0))
        if plain.finished.finish_reason == "end":
            jsonschema.validate(json.loads(plain.answer), schema)
            ended += 1
    assert ended >= 15


def test_an_engine_starts_without_llguidance() -> None:
    code = "import sys; import app.engine.host.worker; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "app.engine.decoding.grammar" in result.stdout.split()
    assert "llguidance" not in result.stdout.split()


def test_what_cannot_be_forced_is_said_and_the_finished_answer_checked(loaded: Engine) -> None:
    schema: dict[str, Any] = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 3}
    found = set()
    for seed in range(8):
        for more in ({}, {"uniqueItems": True}):
            wanted = AnswerFormat(kind="json_schema", source=json.dumps({**schema, **more}), strict=True)
            answer = run(loaded, ask("Tell me", format=wanted, seed=seed, sampling=FREE, max_tokens=80))
            value = json.loads(answer.answer)
            assert answer.finished.valid == (len(set(value)) == len(value) if more else None)
            assert answer.started.notes == (["Left to the model: “uniqueItems” at the top level."] if more else [])
            found.add(answer.finished.valid)
    assert found == {None, True, False}


def test_strict_is_refused_where_nobody_can_check(loaded: Engine) -> None:
    wanted = AnswerFormat(kind="json_schema", source='{"$ref": "https://example.com/a.json"}', strict=True)
    with pytest.raises(
        KnownError, match=r"The JSON schema can't be used with “strict”: “\$ref” at the top level isn't"
    ):
        run(loaded, ask("Tell me", format=wanted))
