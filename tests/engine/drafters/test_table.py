"""The table of drafters, and what they say of themselves."""

from __future__ import annotations

from typing import get_args

from app.engine.drafters import Proposal
from app.engine.drafters.table import DRAFTERS, drafters_of
from app.engine.host.engine import Engine
from app.protocol.options import DrafterName


def test_every_drafter_in_the_table_has_its_name_in_the_protocol() -> None:
    assert set(DRAFTERS) <= set(get_args(DrafterName))


def test_without_a_draft_model_those_are_left_that_decode_nothing() -> None:
    found = drafters_of(lambda _: False, {})
    assert {"grammar", "ngram"} <= {drafter.name for drafter in found}
    assert all(drafter.cache is None for drafter in found)


def test_a_drafter_with_a_cache_is_not_free_and_its_cost_is_measured(loaded: Engine) -> None:
    decoding = {drafter.name for drafter in loaded._drafters if drafter.cache}
    assert decoding == {"model"} == {drafter.name for drafter in loaded._drafters if not drafter.is_free}
    assert loaded._costs and set(loaded._costs.costs.drafts) == decoding


def test_a_shorter_proposal_keeps_what_belongs_to_its_tokens() -> None:
    tree = Proposal([5, 6, 7], confidences=[3.0, 2.0, 1.0], parents=[-1, 0, 0])
    assert tree.first(2) == Proposal([5, 6], confidences=[3.0, 2.0], parents=[-1, 0])
    chain = Proposal([5, 6, 7, 8], confidences=[1.0] * 4, continued=2)
    assert [chain.first(count).continued for count in (4, 3, 2, 1)] == [2, 1, 0, 0]
