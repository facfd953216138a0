"""The benchmark of accept rules counts and times what it says it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.protocol.options import MAX_DRAFT_LENGTH, Sampling
from benchmarks import accept_rules, worlds
from benchmarks.contenders import (
    BLOCK,
    CHOICE,
    CONTENDERS,
    GREEDY,
    MATCH,
    REJECTION,
    SAME_NOISE,
    Contender,
    Counts,
)
from benchmarks.worlds import Divergence, MadeUpPair, RealPair, chats
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.simulator import curves

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
FLAT = curves()["flat"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> MadeUpPair:
    monkeypatch.setattr(worlds, "VOCABULARY", 64)
    monkeypatch.setattr(worlds, "CONTEXTS", 256)
    return MadeUpPair(Divergence("fair", 0.3), "flat", FLAT, runs=2, tokens=1200)


def kept(pair: MadeUpPair, contender: Contender) -> float:
    """Mean acceptance length over all answers."""
    counts = [pair.answer(contender, OPEN, 4, number) for number in range(pair.runs)]
    return Counts.total(counts).length


def test_rules_accept_in_the_order_theory_says(small: MadeUpPair) -> None:
    lengths = {contender: kept(small, contender) for contender in CONTENDERS}
    assert lengths[MATCH] == pytest.approx(lengths[GREEDY], rel=0.05)  # the same distribution, other noise
    assert lengths[GREEDY] < lengths[SAME_NOISE] < lengths[REJECTION] < lengths[BLOCK]
    assert lengths[CHOICE] > 0.98 * lengths[SAME_NOISE]


def test_a_made_up_machine_takes_what_its_curve_says(small: MadeUpPair) -> None:
    plain = small.answer(None, OPEN, 0, 0)
    assert plain.speed == pytest.approx(1 / FLAT.verify[1])
    drafted = small.answer(SAME_NOISE, OPEN, 4, 0)
    token = FLAT.drafts["model"].token
    least = FLAT.verify[5] + 4 * token
    assert least <= drafted.seconds / drafted.passes <= least + 0.2 * token + 1e-9
    assert drafted.drafted == drafted.tested >= 4 * (drafted.passes - 4)  # the last tokens leave less to draft
    assert drafted.tokens == drafted.accepted + drafted.passes


def test_a_real_pair_on_a_made_up_machine(tmp_path: Path, home: Path) -> None:
    files = [
        make_model(tmp_path / f"{noise}.gguf", noise=noise, chat_template=CHATML_TEMPLATE, name=str(noise))
        for noise in (0.0, 0.02)
    ]
    pair = RealPair("tiny", files, chats(["one", "two"], 40), threads=1, costs=FLAT)
    table = accept_rules.measure(pair, "no truncation", MAX_DRAFT_LENGTH // 2)
    pair.close()
    assert set(table.cells) == {contender.name for contender in CONTENDERS}
    assert all(len(cells) == len(accept_rules.TEMPERATURES) for cells in table.cells.values())
    assert all(cell.counts.tokens > 0 for cells in table.cells.values() for cell in cells)
    assert table.cells[SAME_NOISE.name][1].to_plain > 1.2
    assert "coupled, same noise" in accept_rules.shown(table)
    assert not (home / "cache" / "history.json").exists()


def test_without_a_folder_of_models_that_pair_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert accept_rules.main(["--pair", "models", "--costs", "flat"]) == []
    assert "left out" in capsys.readouterr().err
