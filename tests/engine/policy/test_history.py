from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.engine.host.engine import Engine
from app.engine.policy.acceptance import AcceptancePrior, PairHistory, Priors, RatePrior, history_file
from app.protocol.commands import MeasurePlain, Message
from app.protocol.events import KindFigures
from tests.support.generation import GREEDY, ask, run
from tests.support.pairs import Loader, Pair

PRIORS: Priors = {
    "model": {"code": AcceptancePrior({"coupled": RatePrior(0.9, 300.0, ((0.5, 8.0), (0.75, 4.0)))}, 0.125)},
    "mtp": {"prose": AcceptancePrior({"greedy": RatePrior(0.5, 30.0)})},
}


def code(tokens: int = 100, seconds: float = 2.0, tested: int = 90, accepted: int = 60) -> KindFigures:
    return KindFigures(
        kind="code", tokens=tokens, seconds=seconds, tested=tested, accepted=accepted, verify_passes=tokens - accepted
    )


def a_history(path: Path | None, key: str = "pair") -> PairHistory:
    return PairHistory(history_file(path), key)


def test_answers_add_up_and_are_there_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    history = a_history(path)
    assert (history.figures(), history.priors("coupled")) == ([], {})
    history.add([code()], "coupled", PRIORS)
    history.add([code(), KindFigures(kind="prose", tokens=5, seconds=0.5)], "rejection", {})
    history.save()
    again = a_history(path)
    assert again.figures() == history.figures()
    assert again.figures() == [code(200, 4.0, 180, 120), KindFigures(kind="prose", tokens=5, seconds=0.5)]
    assert again.priors("coupled") == PRIORS
    assert a_history(path, "another pair").figures() == []


def test_private_answers_are_neither_counted_nor_stored(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    history = a_history(path)
    history.add([code()], "coupled", PRIORS, private=True)
    history.save()
    assert (history.figures(), history.priors("coupled"), path.exists()) == ([], {}, False)
    assert history.priors("coupled", private=True) == PRIORS
    assert history.priors("rejection", private=True) == {}


def test_it_is_written_down_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    history = a_history(path)
    history.save_now_and_then()
    assert not path.exists()  # nothing to keep
    history.add([code()], "coupled", PRIORS)
    history.save_now_and_then()
    history.add([code()], "coupled", PRIORS)
    history.save_now_and_then()  # too soon
    assert a_history(path).figures() == [code()]
    history.save()
    assert a_history(path).figures() == [code(200, 4.0, 180, 120)]


def of_code(prior: object) -> object:
    return {"priors": {"coupled": {"code": prior}}}


BROKEN = [
    {"kinds": [{"kind": "code", "tested": 3, "accepted": 4}]},
    {"kinds": [{"kind": "code", "tokens": -3}]},
    {"kinds": [{"kind": "code"}, {"kind": "code"}]},
    {"kinds": [{"kind": "poem"}]},
    of_code({"rates": {"coupled": {"rate": 5.0, "weight": 9.0}}}),
    of_code({"rates": {"coupled": {"rate": 0.5, "weight": 0.0}}}),
    of_code({"rates": {"coupled": {"rate": 0.5, "weight": 9.0, "calibration": [[2.0, 1.0]]}}}),
    of_code({"rates": {}, "greedy_advantage": 7.0}),
    of_code({"rates": {}, "greedy_advantage_weight": -1.0}),
    {"priors": {"magic": {}}},
    {"priors": {"coupled": {"code": 3}}},
    {"priors": {"coupled": 3}},
    {"priors": 3},
    {"kinds": 3},
    3,
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("content", BROKEN)
def test_what_makes_no_sense_is_not_used(tmp_path: Path, content: object, version: int) -> None:
    path = tmp_path / "history.json"
    path.write_bytes(msgspec.json.encode({"version": version, "entries": {"pair": content}}))
    history = a_history(path)
    assert history.figures() == []
    assert history.priors("coupled") == {}
    history.add([code()], "coupled", PRIORS)
    history.save()
    assert a_history(path).figures() == [code()]


# ------------------------------------------------------------ of a real pair


def test_a_pair_remembers_what_drafting_brought(engine: Engine, load: Loader, random_pair: Pair) -> None:
    assert load(*random_pair).history == []
    answers = [run(engine, ask("x", draft_length=length, sampling=GREEDY, max_tokens=60)) for length in ("auto", 4)]
    figures = [answer.finished.figures for answer in answers]
    engine.unload()
    loaded = load(*random_pair, context_length=512)  # another context length is no other pair
    (kept,) = loaded.history
    assert kept.kind == "prose"
    assert kept.tokens == sum(one.completion_tokens - 1 for one in figures)
    assert (kept.tested, kept.accepted) == (
        sum(one.draft.tested for one in figures),
        sum(one.draft.accepted for one in figures),
    )
    assert kept.tested > 0
    assert engine._costs and engine._costs.history.priors("coupled")["model"]["prose"].rates["coupled"].weight > 20
    assert load(random_pair[0]).history == []  # without the draft it is another


def test_what_is_not_drafted_does_not_count(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(*random_pair)
    plain = run(engine, ask("x", draft_length=0, max_tokens=20)).finished
    none = run(engine, ask("x", drafter="none", max_tokens=20)).finished
    engine.measure_plain(MeasurePlain(request=3, messages=[Message(role="user", content="x")], max_tokens=20))
    assert plain.figures.kinds and plain.curve == none.curve == []
    engine.unload()
    assert load(*random_pair).history == []
