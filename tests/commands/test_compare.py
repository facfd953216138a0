"""``slipstream compare`` as a user types it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shlex
import signal
from pathlib import Path

import pytest

from app import cli
from app.client.process import EngineProcess
from app.protocol.commands import Generate
from app.storage.files import write_export
from tests.support.command_line import called
from tests.support.gguf_files import Weights, make_model

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("models")
    full: Weights = "F32"  # so that a near-tie that rounding decides is seldom met
    return make_model(folder / "target.gguf", weights=full), make_model(folder / "draft.gguf", weights=full, noise=0.05)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = [{"kind": "code", "prompt": "one"}, {"kind": "prose", "prompt": "two"}, {"kind": "code", "prompt": "three"}]
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def arguments(pair: Pair, prompts: Path, *more: str | Path) -> list[str]:
    always = ["--target", pair[0], "--draft", pair[1], "--prompts", prompts, "--max-tokens", "12"]
    return [str(word) for word in ["compare", *always, *more]]


def test_a_table_and_all_reports(pair: Pair, prompts: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"report.{name}" for name in ("md", "csv", "JSON")]
    more = [word for path in outputs for word in ("--output", path)]
    result = called(*arguments(pair, prompts, "--repeat", "2", "--curve", *more))
    assert (result.returncode, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["code", "4", "of", "4"] in [row[:4] for row in rows] and ["all", "6", "of", "6"] in [
        row[:4] for row in rows
    ]
    assert "draft length" in result.stdout
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (*pair, prompts)]
    for path in outputs:
        text = path.read_text(encoding="utf-8")
        assert all(found in text for found in hashes)
    report = json.loads(outputs[2].read_text(encoding="utf-8"))
    assert len(report["comparisons"]) == report["planned"] == 6
    assert [c["seed"] for c in report["comparisons"]] == [0, 0, 0, 1, 1, 1]
    assert len(list(csv.reader(io.StringIO(outputs[1].read_text(encoding="utf-8"))))) == 7


EVERY = ["ngram", "lookahead", "model", "tree"]


def test_every_drafter_that_fits_is_compared_on_the_same_prompts(pair: Pair, prompts: Path) -> None:
    options = ["--drafters", "all", "--kinds", "code", "--draft-length", "3", "--json", "--curve"]
    first = json.loads(called(*arguments(pair, prompts, *options)).stdout)
    assert first["setup"]["drafters"] == [*EVERY, "auto"]
    assert [one["drafter"] for one in first["comparisons"]] == [*EVERY, "auto"] * 2
    assert [one["drafter"] for one in first["curves"]] == [*EVERY, "auto"]
    assert first["summaries"][2]["total"]["drafters"][0]["name"] == "model"
    assert first["setup"]["drafter_bytes"]["model"] > 0
    words = shlex.split(first["command"])[1:]
    files = {path.name: str(path) for path in (*pair, prompts)}
    table = called(*[files.get(word, word) for word in words], "--drafters", "model,ngram").stdout
    assert max(map(len, table.splitlines())) <= 80
    rows = [line.split()[0] for line in table.splitlines() if line]
    assert [name for name in rows if name in (*EVERY, "auto")] == ["ngram", "model"]


def test_a_drafter_that_the_model_lacks_is_refused_with_what_it_has(pair: Pair, prompts: Path) -> None:
    result = called("compare", "--target", pair[0], "--prompts", prompts, "--drafters", "ngram,model")
    assert result.returncode == 1 and "can't draft for this model. Drafters that can: ngram, auto." in result.stderr


def test_the_command_of_a_report_repeats_it(pair: Pair, prompts: Path) -> None:
    """Same prompts, settings and texts, where the files are, as the report says."""
    options = ["--kinds", "prose", "--temperature", "1.2", "--seed", "9", "--draft-length", "3", "--json"]
    options += ["--repetition-penalty", "1.2", "--kv-type", "q8_0", "--context", "300", "--accept", "rejection"]
    first = json.loads(called(*arguments(pair, prompts, *options)).stdout)
    words = shlex.split(first["command"])[1:]
    files = {path.name: str(path) for path in (*pair, prompts)}
    again = json.loads(called(*[files.get(word, word) for word in words], "--json").stdout)
    del first["setup"]["date"], again["setup"]["date"]
    assert first["setup"] == again["setup"]
    assert first["setup"]["sampling"]["repetition_penalty"] == 1.2
    for name in ("plain", "drafted"):
        ids = [[one[name]["token_ids"] for one in report["comparisons"]] for report in (first, again)]
        assert ids[0] == ids[1]


def test_the_guide_answers_the_bundled_prompts_of_a_kind() -> None:
    result = called("compare", "--kinds", "translation", "--max-tokens", "4", "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, len(report["comparisons"]), report["skipped"]) == (0, 3, [])
    assert report["setup"]["prompt_set"] == "bundled" and report["setup"]["target"]["bundled"]


def test_after_ctrl_c_what_there_is_is_told(
    pair: Pair, prompts: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = 0
    generate = EngineProcess.generate

    def interrupted(engine: EngineProcess, command: Generate) -> object:
        nonlocal asked
        asked += 1
        if asked == 5:  # after the warm-up and the first comparison
            signal.raise_signal(signal.SIGINT)
        return generate(engine, command)

    monkeypatch.setattr(EngineProcess, "generate", interrupted)
    assert cli.run(arguments(pair, prompts, "--json", "--curve")) == 130
    report = json.loads(capfd.readouterr().out)
    assert (len(report["comparisons"]), report["planned"], report["curve"]) == (1, 3, None)


def test_a_report_that_cannot_be_written_leaves_the_others(
    pair: Pair, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".md":
            raise OSError(28, "No space left on device")
        write_export(path, data)

    monkeypatch.setattr("app.commands.compare.write_export", full)
    outputs = [tmp_path / "a.md", tmp_path / "a.csv"]
    assert cli.run(arguments(pair, prompts, "--output", outputs[0], "--output", outputs[1])) == 1
    told = capfd.readouterr()
    assert "code" in told.out and "a.md (No space left on device)" in told.err
    assert (tmp_path / "a.csv").stat().st_size and not (tmp_path / "a.md").exists()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("--output report.pdf", 2),
        ("--kinds poems", 2),
        ("--draft-length 0", 2),
        ("--drafter none", 2),
        ("--drafters models", 2),
        ("--drafters all --drafter ngram", 2),
        ("--drafters all --server http://127.0.0.1:1", 2),
        ("--repeat 0", 2),
        ("--kv-type f12", 2),
        ("--output no/such/folder/report.md", 1),
        ("--prompts gone.jsonl", 1),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_loaded(
    prompts: Path, more: str, status: int, tmp_path: Path
) -> None:
    target = tmp_path / "not-even-looked-at.gguf"
    result = called("compare", "--target", target, "--prompts", prompts, *more.split())
    assert (result.returncode, result.stdout) == (status, "")
    assert "not-even" not in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("slipstream")
