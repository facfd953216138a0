"""What `auto` asks and concludes, on tiny pairs; the figures themselves are never asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.protocol.options import DraftLength, Sampling
from benchmarks.auto import Contest, Pair, Run, fitting, line, main, pairs_in, summarize
from benchmarks.contestants import Answer
from benchmarks.copying import changed
from benchmarks.inflate import shuffled
from benchmarks.peer import KINDS
from benchmarks.prompt_sets import LENGTHS, Maker, PromptSet
from tests.support.gguf_files import make_model


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    target = make_model(tmp_path / "a-target.gguf", weights="F32")  # near-ties that rounding decides are rare then
    return Pair("tiny", target, make_model(tmp_path / "a-draft.gguf", weights="F32", noise=0.05))


@pytest.fixture
def contest(pair: Pair) -> Iterator[Contest]:
    contest = Contest(pair, 1)
    yield contest
    contest.engine.unload()


def tales(lengths: tuple[int, ...] = (2,)) -> PromptSet:
    made = Maker(2, 12, Sampling(temperature=0), has_template=False).sets()["tale"]()
    return PromptSet(made.name, made.commands, lengths)


def test_every_prompt_is_answered_with_every_length_and_who_begins_changes(contest: Contest) -> None:
    runs = list(contest.runs(tales(), repeat=2))

    lengths: list[DraftLength] = [run.length for run in runs]
    assert lengths == [0, "auto", 2, "auto", 2, 0, 2, 0, "auto", 0, "auto", 2]
    assert [run.index for run in runs] == [i for i in range(4) for _ in range(3)]
    assert len({run.answer.text for run in runs if run.index in (0, 2)}) == 1
    assert all(run.answer.drafted > 0 for run in runs if run.length == 2)
    assert not any(run.answer.drafted for run in runs if run.length == 0)


def test_what_fixed_lengths_teach_is_forgotten(contest: Contest) -> None:
    engine = contest.engine
    assert engine._costs
    costs = engine._costs.costs
    seen, drafted = [], 0
    for run in contest.runs(tales(), repeat=1):
        seen.append((run.length, dict(engine._costs.history.priors("coupled")), engine._costs.costs))
        drafted += run.answer.drafted if run.length == "auto" else 0
    learned = [(priors, costs) for length, priors, costs in seen if length == "auto"]
    assert learned[-1][1] is not costs
    assert learned[-1][0] or not drafted  # where costs looked bad from the start, nothing was drafted and judged
    after_auto = [i for i, (length, _, _) in enumerate(seen) if length == "auto"]
    for i in after_auto:
        following = seen[i + 1] if i + 1 < len(seen) else seen[i]
        assert following[1:] == seen[i][1:]


def test_a_stranger_knows_nothing(contest: Contest, pair: Pair, tmp_path: Path) -> None:
    path = shuffled(pair.draft, tmp_path)
    assert path.stat().st_size == pair.draft.stat().st_size
    assert shuffled(pair.draft, tmp_path) == path

    own = [run.answer for run in contest.runs(tales(), 1) if run.length == 2]
    contest.load(path)
    strange = [contest._answer(command, 2, "model") for command in tales().commands]
    assert sum(a.accepted for a in strange) < 0.2 * sum(a.drafted for a in strange)
    assert sum(a.accepted for a in own) > 0.4 * sum(a.drafted for a in own)


def test_sets_of_prompts_by_kind_of_model() -> None:
    for_chats = Maker(2, 20, Sampling(temperature=0), has_template=True).sets()
    assert list(for_chats) == [*KINDS, "copied line", "copied name", "noise", "foreign", "stranger"]
    for_texts = Maker(2, 20, Sampling(temperature=0), has_template=False).sets()
    assert list(for_texts) == ["tale", "noise", "foreign", "stranger"]

    code, noise, stranger = (for_chats[name]() for name in ("code", "noise", "stranger"))
    assert len({command.messages[0].content for command in code.commands}) == 2
    assert [code.commands[0].raw, noise.commands[0].raw] == [False, True]
    assert noise.commands[0].sampling.temperature == 1.5 and not noise.lengths
    assert stranger.stranger and not code.stranger


def test_a_piece_of_code_is_changed_in_one_line_or_one_name() -> None:
    code = "def add(a_number, other):\n    total = a_number + other\n    return total\n"

    line = changed(code, "line").splitlines()
    assert [old != new for old, new in zip(code.splitlines(), line, strict=True)] == [False, True, False]
    assert changed(code, "name").count("other_a_number") == 2
    assert changed(code, "name").replace("other_a_number", "a_number") == code


def test_a_copy_that_the_model_did_not_write_does_not_count() -> None:
    prompts = PromptSet("copied line", [], answers=("def a(): pass", "def b(): pass"))
    texts = {0: "def a()", 1: "Sorry", 2: "def a(): pass"}
    runs = [Run("copied line", i, length, answer(1.0, text=text)) for i, text in texts.items() for length in (0, 2)]

    assert [(run.index, run.length) for run in fitting(prompts, runs)] == [(0, 0), (0, 2), (2, 0), (2, 2)]
    with pytest.raises(SystemExit, match="No answer"):
        fitting(prompts, [run for run in runs if run.index == 1])


def answer(speed: float | None, drafted: int = 0, accepted: int = 0, text: str = "Because.") -> Answer:
    return Answer(text, 10, speed, drafted, accepted)


def test_ratios_are_medians_of_quotients_and_the_best_length_is_chosen_in_hindsight() -> None:
    speeds: dict[DraftLength, list[float | None]] = {
        0: [10.0, 20.0, 10.0, None],
        "auto": [19.0, 60.0, 20.0, 1.0],
        1: [15.0, 30.0, 15.0, 1.0],
        5: [20.0, 20.0, 20.0, 1.0],
    }
    runs = [
        Run("prose", index, length, answer(speed, 4 * (length == "auto"), 3 * (length == "auto")))
        for length, own in speeds.items()
        for index, speed in enumerate(own)
    ]
    figures = summarize(runs)

    assert figures["to_plain"] == {"0": 1.0, "auto": 2.0, "1": 1.5, "5": 2.0}
    assert figures["best_fixed"] == 5
    assert figures["auto_to_best_fixed"] == 1.0
    assert figures["auto_acceptance_rate"] == 0.75
    # Of the odd runs length 1 is the best; of the even ones it is 15, against 19 and 20 of auto.
    assert figures["held_out"]["best_fixed"] == 1 and figures["held_out"]["runs"] == 2
    assert figures["held_out"]["low"] == pytest.approx(19 / 15) and figures["held_out"]["high"] == pytest.approx(
        20 / 15
    )
    assert line("prose", figures).split()[:5] == ["prose", "10.0", "1.500", "2.000", "2.000"]


def test_pairs_of_a_folder(pair: Pair, tmp_path: Path) -> None:
    assert [(found.target, found.draft) for found in pairs_in(tmp_path)] == [(pair.target, pair.draft)]
    pair.target.unlink()
    with pytest.raises(SystemExit, match="target"):
        pairs_in(tmp_path)


def test_a_set_is_answered_with_its_drafter(contest: Contest) -> None:
    prompts = tales()
    prompts = PromptSet(prompts.name, [msgspec.structs.replace(prompts.commands[0], max_tokens=2)], drafter="none")
    assert not any(run.answer.drafted for run in contest.runs(prompts, 1))


def test_it_prints_a_line_a_set_and_all_figures(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--target", str(pair.target), "--draft", str(pair.draft)]
    small = ["--sets", "tale", "noise", "--questions", "1", "--max-tokens", "8", "--threads", "1"]
    result = main([*files, *small])

    figures = result["pairs"]["a-target"]
    assert list(figures) == ["tale", "noise"]
    assert set(figures["tale"]["to_plain"]) == {"0", "auto", *map(str, LENGTHS)}
    assert set(figures["noise"]["to_plain"]) == {"0", "auto"}
    shown = capsys.readouterr().out.splitlines()
    assert json.loads(shown[-1]) == result
    assert [text.split()[0] for text in shown[3:5]] == ["tale", "noise"]
    assert shown[5].startswith("worst for auto: ")


def test_runs_in_portions_count_together(pair: Pair, tmp_path: Path) -> None:
    files = ["--target", str(pair.target), "--draft", str(pair.draft), "--runs", str(tmp_path / "runs.jsonl")]
    small = ["--sets", "tale", "--questions", "2", "--max-tokens", "8", "--threads", "1", "--lengths", "3", "--cold"]
    figures = [main([*files, *small])["pairs"]["a-target"]["tale"] for _ in range(2)]

    assert [found["answers"] for found in figures] == [2, 4]
    assert figures[0]["held_out"] is None and figures[1]["held_out"]["runs"] == 2
    assert set(figures[1]["to_plain"]) == {"0", "auto", "3"}
