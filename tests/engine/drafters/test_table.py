"""The table of drafters, and what a drafter may ask of the target."""

from __future__ import annotations

from typing import get_args

import pytest

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.engine.drafters.table import DRAFTERS, drafters_of
from app.engine.host.engine import Engine
from app.protocol.options import DrafterName, ProposalMethod
from tests.support.generation import ask, run


def test_every_drafter_of_the_protocol_is_in_the_table() -> None:
    assert set(DRAFTERS) == set(get_args(DrafterName))


def test_without_a_draft_model_those_are_left_that_decode_nothing() -> None:
    assert [drafter.name for drafter in drafters_of(lambda _: False, None)] == ["grammar", "ngram"]


def test_the_drafters_of_a_loaded_pair_need_nothing_but_the_tokens(loaded: Engine) -> None:
    assert {drafter.name: drafter.needs for drafter in loaded._drafters} == dict.fromkeys(
        ("grammar", "ngram", "model"), "tokens"
    )


class Head(Drafter):
    """Reads what the target computes."""

    name: DrafterName = "model"

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        raise AssertionError("it must not begin without what it needs")

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        raise AssertionError("it must not be asked without what it needs")

    def accepted(self) -> None:
        pass

    def forget(self) -> None:
        pass


def test_a_need_that_nobody_meets_is_refused_with_its_name(loaded: Engine) -> None:
    head = Head()
    head.needs = "hidden states"
    loaded._drafters.append(head)
    with pytest.raises(NotImplementedError, match="model needs hidden states"):
        run(loaded, ask("x", max_tokens=4))
    assert run(loaded, ask("x", max_tokens=4, drafter="ngram")).token_ids
