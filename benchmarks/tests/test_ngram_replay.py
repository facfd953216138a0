"""What replaying known texts counts; the figures of real texts are never asserted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.engine.policy.costs import Costs
from benchmarks.ngram_replay import COSTS, MapK, Mod, Ours, Simple, Tally, Text, Way, main, replay, seconds_of, ways

STEADY = {1: 10.0, 17: 10.0}
"""Wide passes cost nothing."""
NEW = list(range(1000, 1200))


def taken(way: Way, prompt: list[int], answer: list[int], costs: dict[int, float] = STEADY) -> Tally:
    tally = Tally()
    replay(Text("", "", prompt, answer), way, costs, tally)
    return tally


@pytest.mark.parametrize("make", ways(STEADY).values(), ids=ways(STEADY))
def test_every_way_copies_and_yields_each_token_once(make: Callable[[], Way]) -> None:
    prompt = [*range(300), *NEW]
    tally = taken(make(), prompt, list(range(20, 200)))
    assert tally.tokens == 179
    assert tally.passes + tally.accepted == tally.tokens
    assert tally.accepted > 100
    assert tally.seconds == pytest.approx(tally.passes * 0.01)


@pytest.mark.parametrize("make", ways(STEADY).values(), ids=ways(STEADY))
def test_new_text_is_written_token_by_token(make: Callable[[], Way]) -> None:
    tally = taken(make(), list(range(300)), NEW)
    assert (tally.passes, tally.tested) == (len(NEW) - 1, 0)


def test_llama_cpps_rules() -> None:
    """Lengths of matches and drafts as in its source: the last token isn't in the history yet."""
    begin, rest = list(range(100)), list(range(200, 300))
    context = [*begin, *rest, *begin[20:32]]
    simple, keyed, table = Simple(), MapK(), Mod()
    for way in (simple, keyed, table):
        way.begin(context)
    assert simple.draft(context, 99) == [*begin[32:80]]
    assert simple.draft(context, 5) == begin[32:37]
    assert simple.draft(context[:-1], 99) == []  # eleven tokens
    assert keyed.draft(context, 99) == begin[32:80]
    keyed.judged(begin[32:80], [*begin[32:35], 7])
    assert keyed.draft(context, 99) == begin[32:35]
    assert table.draft(context, 99) == []  # it needs 24
    longer = [*begin, *rest, *begin[20:44]]
    table = Mod()
    table.begin(longer)
    assert table.draft(longer, 99) == [*begin[44:], *rest[:8]]
    another = [*range(500, 600), *begin[20:44]]
    assert table.draft(another, 99)[:56] == begin[44:], "it remembers other answers"
    for _ in range(5):
        table.judged([1] * 64, [2])
    assert table.draft(another, 99) == [], "after five bad drafts it has forgotten them"


def test_a_pass_takes_what_was_measured() -> None:
    costs = COSTS["f16"]
    assert seconds_of(1, costs) == pytest.approx(0.033)
    assert seconds_of(7, costs) == pytest.approx((0.0543 + 0.078) / 2)
    assert seconds_of(65, costs) > seconds_of(17, costs) > seconds_of(16, costs)


def test_what_was_learned_is_known_in_the_next_answer() -> None:
    way = Ours(Costs({1: 0.01, 17: 0.1}, {}))
    prompt, answer = list(range(300)), list(range(20, 200))
    taken(way, prompt, answer, {1: 10.0, 17: 100.0})
    assert way._learned and "ngram" in way._learned
    assert sum(count for count, _ in way.bins.values()) > 0


def test_it_prints_figures_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [
        {"kind": kind, "about": f"{kind} {i}", "prompt": list(range(i, i + 200)), "answer": list(range(i + 20, i + 90))}
        for kind in ("copies", "more copies")
        for i in range(6)
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, texts)), "utf-8")

    result = main([str(path), "--costs", "smollm2"])
    assert list(result) == ["copies", "more copies"]
    assert result["copies"]["ours"]["tokens"] == 6 * 69
    assert result["copies"]["ours"]["to_plain"] > 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result

    assert main([str(path), "--max-tokens", "11", "--kinds", "copies"])["copies"]["ours"]["tokens"] == 60
    shares = main([str(path), "--calibration"])["copies"]
    assert all(0 <= share <= 1 for share in shares.values())
    drafter = tmp_path / "other.py"
    drafter.write_text("from app.engine.drafters.ngram import NgramDrafter", "utf-8")
    assert main([str(path), "--costs", "smollm2", "--drafter", str(drafter)]) == result
    others = main([str(path), "--others"])
    assert others[""]["asked"] == 3 and others[""]["others"] == 9
    assert {"alone", "with others", "gain"} == set(others["copies"])
