"""What `real_bench` concludes from figures and texts, without real models and without llama.cpp's programs."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.protocol.options import Sampling
from benchmarks import real_bench, real_contestants, real_ours, real_spec_bench
from benchmarks.real_contestants import Contestant, Request, Said, busy, in_turn, prompts_of, vocabulary, whole
from benchmarks.real_figures import (
    Difference,
    Question,
    Ratio,
    as_json,
    by_kind,
    first_difference,
    load_questions,
    ratio_of_medians,
    sample,
    seconds_until_back,
    speeds_over_time,
    texts_for_prompts,
    words_from,
)
from benchmarks.real_spec_bench import ALL, AUTO, NGRAMS, PLAIN, SERVER, Run, measure, summarize, table
from tests.support.gguf_files import CHATML_TEMPLATE, make_model


def said(speed: float | None = 100.0, tokens: Sequence[int] = tuple(range(20)), **counts: int) -> Said:
    return Said("text", len(tokens), speed, 0.1, 5, tokens=list(tokens), **counts)


class Scripted:
    """Says what it is told to, and notes in ``log`` who was asked what."""

    def __init__(self, name: str, answers: Sequence[Said], log: list[tuple[str, Request]]) -> None:
        self._name, self._answers, self._log = name, list(answers), log

    def ask(self, request: Request) -> Said:
        self._log.append((self._name, request))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_contestants, "PAUSE_S", 0.0)
    monkeypatch.setattr(real_spec_bench, "PAUSE_S", 0.0)


# ---------------------------------------------------------------- figures


def test_the_interval_is_around_the_ratio_of_medians() -> None:
    found = ratio_of_medians([110, 112, 108, 111, 109], [100, 101, 99, 100, 102])

    assert found is not None
    assert found.value == pytest.approx(1.1)
    assert 1.05 < found.low <= found.value <= found.high < 1.15
    assert str(found) == f"1.100 ({found.low:.3f} to {found.high:.3f}, 5 pairs)"


def test_pairs_are_drawn_together() -> None:
    """Speeds that rise and fall together say nothing about the ratio."""
    found = ratio_of_medians([20, 40, 60, 80, 100], [10, 20, 30, 40, 50])

    assert found == Ratio(2.0, 2.0, 2.0, 5)


def test_there_is_no_ratio_without_pairs() -> None:
    assert ratio_of_medians([], []) is None
    with pytest.raises(ValueError, match="partners"):
        ratio_of_medians([1.0], [])


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 4, 3], Difference(1, 2, 4)),
        ([1, 2], [1, 2, 3], Difference(2, None, 3)),
        ([1], [], Difference(0, 1, None)),
        ([], [], None),
    ],
)
def test_the_first_difference(first: list[int], second: list[int], difference: Difference | None) -> None:
    assert first_difference(first, second) == difference


def test_a_difference_in_words() -> None:
    assert str(Difference(3, 7, None)) == "token 3 is 7 without and the end with a draft"


UNDISTURBED = [(0.02 * i, 1) for i in range(1, 201)]


def test_speeds_over_time_beside_those_of_the_same_tokens_undisturbed() -> None:
    slow = [(0.04 * i, 1) for i in range(1, 26)]

    found = speeds_over_time(slow, UNDISTURBED, 0.5)
    assert [(begin, speed) for begin, speed, _ in found] == [(0.0, 24.0), (0.5, 26.0)]
    assert [share for *_, share in found] == pytest.approx([0.48, 0.52])
    assert speeds_over_time([], UNDISTURBED, 0.5) == []


def test_seconds_until_the_speed_is_back() -> None:
    slow = [(0.1 * i, 1) for i in range(1, 31)]  # until 3.0 s, of which the last second is quiet already
    quick = [(3.0 + 0.02 * i, 1) for i in range(1, 101)]

    assert seconds_until_back([*slow, *quick], UNDISTURBED, 2.0, 0.95, 0.5) == pytest.approx(1.0, abs=0.11)
    assert seconds_until_back([*slow, *quick], UNDISTURBED, 3.0, 0.95, 0.5) == 0.0
    assert seconds_until_back(slow, UNDISTURBED, 1.0, 0.95, 0.5) is None


def test_later_tokens_may_take_longer_undisturbed_as_well() -> None:
    both = [*((0.01 * i, 1) for i in range(1, 101)), *((1.0 + 0.02 * i, 1) for i in range(1, 101))]

    assert seconds_until_back(both, both, 1.5, 0.95, 0.5) == 0.0


def test_as_json_leaves_out_folders(tmp_path: Path) -> None:
    found = as_json({"file": tmp_path / "a.gguf", "ratio": Ratio(1.0, 0.9, 1.1, 3), "list": [Difference(1, None, 2)]})

    assert json.loads(json.dumps(found)) == {
        "file": "a.gguf",
        "ratio": {"value": 1.0, "low": 0.9, "high": 1.1, "pairs": 3},
        "list": [{"place": 1, "first": None, "second": 2}],
    }


# ---------------------------------------------------------------- questions and prompts


def questions(per_kind: int = 5) -> list[Question]:
    kinds = ("qa", "rag", "math")
    return [
        Question(100 * i + n, kind, (f"{kind} {n}", "And then?"))
        for i, kind in enumerate(kinds)
        for n in range(per_kind)
    ]


def test_a_sample_has_as_many_of_each_kind_and_grows_with_its_size() -> None:
    two, three = sample(questions(), 2, 1), sample(questions(), 3, 1)

    assert [one.kind for one in two] == ["qa", "rag", "math"] * 2
    assert two == three[:6]
    assert sample(questions(), 2, 1) == two != sample(questions(), 2, 2)
    assert {kind: len(own) for kind, own in by_kind(sample(questions(), 9, 1)).items()} == {
        "qa": 5,
        "rag": 5,
        "math": 5,
    }


def question_file(folder: Path) -> Path:
    rows = [
        {"question_id": 1, "category": "qa", "turns": ["Why?", "And how?"]},
        {"question_id": 2, "category": "rag", "turns": ["A long text about tides, and about what follows from them."]},
        {
            "question_id": 3,
            "category": "summarization",
            "turns": ["Summarize: it rained,\n\nand nobody minded at all."],
        },
    ]
    path = folder / "question.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_questions_are_read(tmp_path: Path) -> None:
    found = load_questions(question_file(tmp_path))

    assert [one.number for one in found] == [1, 2, 3]
    assert found[0].text == "Why?"


def test_a_missing_file_of_questions_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^Spec-Bench's questions are not in question\.jsonl; name the file with --q"):
        load_questions(tmp_path / "question.jsonl")


def test_without_the_questions_prompts_are_made_from_the_docs(tmp_path: Path) -> None:
    assert len(texts_for_prompts(question_file(tmp_path))) == 2
    assert any("Slipstream" in text for text in texts_for_prompts(tmp_path / "missing.jsonl"))


def test_prompts_begin_differently_and_are_as_long_as_asked() -> None:
    texts = [f"text {i} with a few words" for i in range(5)]

    assert words_from(texts, 0, 4) == ["text ", "0 ", "with ", "a "]
    assert len({tuple(words_from(texts, number, 20)) for number in range(5)}) == 5
    assert len(words_from(texts, 3, 100)) == 100


def test_prompts_have_the_tokens_that_they_say(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target.gguf", chat_template=CHATML_TEMPLATE)
    found = prompts_of(target, 60, range(2), question_file(tmp_path))

    assert found[0].text[:5] != found[1].text[:5]
    with vocabulary(target) as model:
        for one in found:
            assert model.tokenize(one.text, special=True, bos=True) == one.tokens
            assert 40 < len(one.tokens) <= 60
    assert real_ours._ends(target)


# ---------------------------------------------------------------- turns


def test_contestants_take_turns() -> None:
    log: list[tuple[str, Request]] = []
    sides: dict[str, Contestant] = {name: Scripted(name, [said()], log) for name in "ab"}
    answers = in_turn(sides, [Request("", [1], 20, seed=seed) for seed in range(4)])

    assert "".join(name for name, _ in log) == "abbaabba"
    assert [len(own) for own in answers.values()] == [4, 4]


def test_an_answer_that_ends_early_is_asked_for_again_with_another_seed() -> None:
    log: list[tuple[str, Request]] = []
    short, long = said(tokens=[1, 2]), said()

    assert whole(Scripted("a", [short, short, long], log), Request("", [1], 20, seed=3)) == long
    assert [request.seed for _, request in log] == [3, 1003, 2003]
    assert whole(Scripted("a", [short, long], log), Request("", [1], 20, Sampling(temperature=0))) == short
    assert whole(Scripted("a", [short], log), Request("", [1], 20)) == short


def test_busy_processes_end_with_the_block() -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(subprocess, "Popen", noted)
        with busy(2):
            assert [one.poll() for one in started] == [None, None]
            raise KeyboardInterrupt
    assert all(one.returncode is not None for one in started)


# ---------------------------------------------------------------- Spec-Bench


def runs() -> list[Run]:
    """Two kinds at two temperatures; a draft changes one greedy answer."""
    found = []
    for temperature in (0.0, 1.0):
        for number, kind in enumerate(("qa", "rag")):
            found += [
                Run(PLAIN, number, kind, temperature, said(100.0, passes=19)),
                Run(
                    AUTO,
                    number,
                    kind,
                    temperature,
                    said(80.0 if kind == "qa" else 150.0, tested=10, accepted=4, passes=15),
                ),
                Run(SERVER, number, kind, temperature, said(110.0, passes=19)),
            ]
    found[1] = Run(AUTO, 0, "qa", 0.0, said(80.0, [*range(15), 99, *range(16, 20)], tested=10, accepted=4, passes=15))
    return found


def test_ratios_are_given_by_kind_and_the_worst_is_named() -> None:
    result = summarize(runs())
    auto = result["ratios"][f"{AUTO} ÷ {PLAIN}"]

    assert auto["qa"].value == pytest.approx(0.8)
    assert auto["rag"].value == pytest.approx(1.5)
    assert auto["temperature 0"].pairs == 2
    assert auto[ALL].pairs == 4
    assert result["worst"][f"{AUTO} ÷ {PLAIN}"] == ("qa", pytest.approx(0.8))
    assert f"{NGRAMS} ÷ {PLAIN}" not in result["ratios"]
    assert result["counts"][AUTO] == {
        "answers": 4, "count": 80, "drafted": 0, "tested": 40, "accepted": 16, "passes": 60,
    }  # fmt: skip


def test_the_first_difference_of_texts_is_told() -> None:
    result = summarize(runs())
    found = result["same"][AUTO]

    assert (found["answers"], found["same"]) == (4, 3)
    assert found["others"][0].difference == Difference(15, 15, 99)
    text = table({"target": "t.gguf", "draft": None, "questions": [0, 1], "max_tokens": 20, **result})
    assert "question 0 (qa), temperature 0: token 15 is 15 without and 99 with a draft" in text
    assert "worst kind: qa 0.800" in text


def test_short_answers_have_no_speed() -> None:
    found = [run if run.kind == "rag" else replace(run, said=said(5.0, [1, 2])) for run in runs()]
    result = summarize(found)

    assert result["speeds"]["qa"][PLAIN] is None
    assert result["ratios"][f"{AUTO} ÷ {PLAIN}"]["qa"] is None
    assert result["ratios"][f"{AUTO} ÷ {PLAIN}"][ALL].value == pytest.approx(1.5)
    assert result["worst"][f"{AUTO} ÷ {PLAIN}"][0] == "rag"
    assert "–" in table({"target": "t.gguf", "draft": "d.gguf", "questions": [0, 1], "max_tokens": 20, **result})


def test_ctrl_c_keeps_the_questions_that_are_complete() -> None:
    log: list[tuple[str, Request]] = []

    class Interrupted(Scripted):
        def ask(self, request: Request) -> Said:
            if len(log) == 5:
                raise KeyboardInterrupt
            return super().ask(request)

    sides: dict[str, Contestant] = {name: Interrupted(name, [said()], log) for name in (PLAIN, SERVER)}
    asked = [Request(one.text, [1], 20) for one in questions()]
    found = measure(sides, questions(), asked)

    assert [(run.number, run.contestant) for run in found] == [(0, PLAIN), (0, SERVER), (1, SERVER), (1, PLAIN)]
    assert summarize(found)["ratios"][f"{PLAIN} ÷ {SERVER}"][ALL].pairs == 2


# ---------------------------------------------------------------- ours, and for people


def test_texts_are_shown_around_their_first_difference() -> None:
    plain, drafted = f"{'x' * 100}here", f"{'x' * 100}there"

    assert real_ours._around(plain, drafted) == (f"{'x' * 25}here", f"{'x' * 25}there")
    assert real_ours._around("same", "same, and more") == ("same", "same, and more")


def test_a_plain_result_for_people() -> None:
    options = argparse.Namespace(answers=3, tokens=20, temperature=0.8, busy=1)
    both = {real_bench.OURS: [100.0, 101.0], real_bench.THEIRS: [100.0, 100.0]}
    compared = real_bench._side_by_side(both)
    result = {
        "prompt_tokens": [98, 100],
        "threads": {real_bench.OURS: None, real_bench.THEIRS: 2},
        "decode": compared,
        "first_token": compared,
        "own_seconds": 0.00042,
        "load": {**compared, "first_load": 3.0, "start": None},
        "peak_bytes": {real_bench.OURS: 400_000_000, real_bench.THEIRS: 320_000_000},
        "shorter_answers": {real_bench.OURS: 1, real_bench.THEIRS: 0},
    }
    text = real_bench.plain_table("m.gguf", result, options)

    assert "prompts of 98 to 100 tokens, 3 answers of 20" in text
    assert "threads: Slipstream automatic, llama-server 2" in text
    assert "1.005 (1.000 to 1.010, 2 pairs)" in text
    assert "1.250" in text
    assert "0.42 ms are outside the verify pass" in text
    assert "1 of the answers ended before" in text


def test_the_options_have_the_defaults_of_the_docs() -> None:
    options = real_bench._parser().parse_args(["same"])

    assert (options.seeds, options.prompt_tokens, options.tokens, options.temperature) == (200, 700, 100, 0.8)
    assert real_bench._parser().parse_args(["spec-bench", "--full"]).per_kind == 2
