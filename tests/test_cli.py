"""The command line as a user types it: its output, its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.client.process import EngineProcess
from app.commands import session
from tests.support.command_line import ROOT, called, slipstream
from tests.support.gguf_files import Weights, make_model
from tests.support.matrix import in_proof
from tests.support.medusa_files import make_medusa
from tests.support.mtp_models import make_table_model
from tests.support.thinking_models import ENDLESS, make_thinking_model

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("models")
    full: Weights = "F32"  # so that a near-tie that rounding decides is seldom met
    return make_model(folder / "target.gguf", weights=full), make_model(folder / "draft.gguf", weights=full, noise=0.05)


def models(pair: Pair) -> list[str | Path]:
    return ["--target", pair[0], "--draft", pair[1]]


def test_generate_answers_with_the_guide_in_a_process_of_its_own() -> None:
    result = slipstream("generate", "--prompt", "What is speculative decoding?", "--temperature", "0")
    assert result.returncode == 0
    assert "draft" in result.stdout
    assert result.stderr == ""


def test_generate_json(pair: Pair) -> None:
    options = ["--prompt", "-", "--seed", "5", "--max-tokens", "25", "--json", "--system", "Be brief."]
    # a fixed length: this draft model is as large as its target, so that Auto would leave it alone
    result = called("generate", *models(pair), "--draft-length", "3", *options, typed="Hello\n")
    answer = json.loads(result.stdout)
    assert (answer["completion_tokens"], answer["finish_reason"], answer["seed"]) == (25, "length", 5)
    assert len(answer["token_ids"]) == 25 and answer["prompt_tokens"] > 5
    assert answer["time_to_first_token_s"] > 0 and answer["decode_tokens_per_second"] > 0
    draft = answer["draft"]
    assert draft["acceptance_rate"] == draft["accepted"] / draft["tested"]
    assert sum(draft["accepted_per_position"]) == draft["accepted"]
    assert {"acceptance_rate_thinking", "acceptance_rate_answer", "acceptance_by_position", "drafters"} <= set(draft)
    assert {"drafted", "verify_passes", "mean_acceptance_length", "source", "estimated_passes"} <= set(draft)
    plain = called("generate", "--target", pair[0], "--no-draft", *options, typed="Hello\n")
    assert json.loads(plain.stdout)["text"] == answer["text"]


def test_generate_gives_out_what_was_only_thought(tmp_path: Path) -> None:
    family = replace(ENDLESS, rows={**ENDLESS.rows, "▁then": {"</s>": 1.0}})
    options: list[str | Path] = ["--target", make_thinking_model(tmp_path / "target.gguf", family), "--prompt", "Well?"]
    answer = json.loads(called("generate", *options, "--json").stdout)
    assert (answer["text"], answer["thinking"], answer["finish_reason"]) == ("so then", "", "end")
    assert called("generate", *options).stdout == "so then\n"


def test_a_model_whose_template_is_broken_answers_and_says_so(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target.gguf", chat_template="{{ if .System }}{{ .System }}{{ end }}{{ .Prompt }}")
    options: list[str | Path] = ["--target", target, "--prompt", "Well?", "--max-tokens", "2", "--json"]
    answer = called("generate", *options)
    assert json.loads(answer.stdout)["template"] == "chatml"
    assert "slipstream: The model's own chat template is broken (" in answer.stderr
    chosen = called("generate", *options, "--chat-template", "gemma")
    assert json.loads(chosen.stdout)["template"] == "gemma" and "broken" not in chosen.stderr


def test_generate_tells_thinking_from_the_answer(tmp_path: Path) -> None:
    target = make_thinking_model(tmp_path / "target.gguf", "qwen3.5")
    options: list[str | Path] = ["--target", target, "--prompt", "Well?", "--seed", "1", "--max-tokens", "40"]
    answer = json.loads(called("generate", *options, "--thinking", "6", "--json").stdout)
    assert answer["thinking"] and answer["text"] and answer["thinking_tokens"] > 6
    assert "</think>" not in answer["thinking"]
    assert called("generate", *options, "--thinking", "6").stdout.rstrip("\n") == answer["text"].rstrip("\n")
    off = json.loads(called("generate", *options, "--thinking", "off", "--json").stdout)
    assert off["thinking"] == "" and off["text"]
    for words, problem in {
        ("huge",): "slipstream: --thinking huge: this model has no such level. It can be off, on, or a number of",
        ("-1",): "-1 must be from 0 to",
        ("99999999999999999999",): "99999999999999999999 must be from 0 to",
        ("8", "--raw"): "--thinking needs a chat template",
    }.items():
        refused = called("generate", *options, "--thinking", *words)
        assert refused.returncode == 2 and refused.stdout == "" and problem in refused.stderr


def test_the_models_own_head_drafts_if_asked_for(pair: Pair, tmp_path: Path) -> None:
    target = make_table_model(tmp_path / "target.gguf", "qwen35")
    options: list[str | Path] = ["--prompt", "x", "--temperature", "0", "--max-tokens", "8", "--json"]
    answer = called("generate", "--target", target, "--drafter", "mtp", "--draft-length", "3", *options)
    told = json.loads(answer.stdout)
    assert [drafter["name"] for drafter in told["draft"]["drafters"]] == ["mtp"]
    assert told["draft"]["acceptance_rate"] == 1.0
    refused = called("generate", "--target", pair[0], "--drafter", "mtp", *options)
    assert refused.returncode == 1 and "target.gguf has no MTP head." in refused.stderr


def test_drafts_with_branches_if_asked_for(tmp_path: Path) -> None:
    target, heads = make_table_model(tmp_path / "target.gguf", "glm4moe"), make_medusa(tmp_path / "heads")
    hybrid = make_table_model(tmp_path / "hybrid.gguf", "qwen35")
    options: list[str | Path] = ["--prompt", "x", "--temperature", "0", "--max-tokens", "24", "--json", "--head", "off"]
    texts, given = set(), dict[str, list[str | Path]](none=[], lookahead=[], medusa=["--medusa", heads])
    for drafter, more in given.items():
        answer = called("generate", "--target", target, "--drafter", drafter, *more, *options)
        told = json.loads(answer.stdout)
        assert [each["name"] for each in told["draft"]["drafters"]] == [drafter] * (drafter != "none")
        texts.add(told["text"])
    assert len(texts) == 1 and told["draft"]["acceptance_rate"] > 0
    for file, drafter, problem in (
        (hybrid, "lookahead", "Draft trees aren't possible with this model"),
        (target, "tree", "A draft tree needs a draft model or head."),
        (target, "medusa", "There are no Medusa heads."),
    ):
        refused = called("generate", "--target", file, "--drafter", drafter, *options)
        assert refused.returncode == 1 and problem in refused.stderr
    refused = called("generate", "--target", target, "--drafter", "medusa", "--medusa", target, *options)
    assert refused.returncode == 1 and "is not a safetensors file" in refused.stderr
    told = called("generate", "--target", target, "--medusa", tmp_path, *options)
    assert told.returncode == 0 and "The Medusa heads are not used. medusa_lm_head.safetensors couldn't" in told.stderr


def test_files_are_those_of_the_folder_one_is_in(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pair[0].parent)
    words = ["--target", pair[0].name, "--draft", pair[1].name, "--prompt", "Hello", "--max-tokens", "4", "--json"]
    result = called("generate", *words)
    assert (result.returncode, json.loads(result.stdout)["draft_refused"]) == (0, None), result.stderr


@pytest.mark.parametrize("accept", ["rejection", *in_proof(["block", "coupled", "exact"])])
def test_every_model_option_is_taken(pair: Pair, accept: str) -> None:
    options = "--raw --temperature 1.1 --top-k 0 --top-p 0.9 --min-p 0.1 --seed 1 --max-tokens 6 --draft-length 2 "
    options += f"--accept {accept} --threads 1 --context 256 --gpu-layers 0 --json "
    options += "--batch-threads 1 --n-cpu-moe 1 --split-mode layer --draft-context 128 --draft-kv-type f16 "
    options += "--flash-attention on --batch-size 64 --micro-batch-size 32"
    result = called("generate", *models(pair), "--prompt", "x", *options.split())
    assert json.loads(result.stdout)["completion_tokens"] <= 6


@pytest.mark.parametrize(
    ("command", "name", "status"),
    [
        (["generate", "--prompt", "x"], "SIGINT", 130),
        (["bench"], "SIGINT", 130),
        (["bench"], "SIGTERM", 143),
        pytest.param(
            *(["bench"], "SIGHUP", 129), marks=pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
        ),
    ],
)
def test_ctrl_c_and_its_like_while_loading_end_in_order(
    pair: Pair,
    command: list[str],
    name: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "show_load_progress", lambda _: signal.raise_signal(signal.Signals[name]))
    assert cli.run([*command, *map(str, models(pair))]) == status
    assert "Exception ignored" not in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_engine_ends_by_itself_and_leaves_no_chat_on_the_disk(
    pair: Pair, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, that is: Metal aborts at the end of a process that still holds something."""
    statuses: list[int | None] = []
    leave = EngineProcess.__exit__

    def watched(engine: EngineProcess, *raised: Any) -> None:
        leave(engine, *raised)
        process = engine._engine._process
        statuses.append(process.returncode if process else None)

    monkeypatch.setattr(EngineProcess, "__exit__", watched)
    assert cli.run(["generate", "--prompt", "x", "--max-tokens", "2", *map(str, models(pair))]) == 0
    assert statuses == [0]
    assert not (home / "cache" / "kept").exists() and not list(home.rglob("*.kept"))


def test_text_in_other_encodings(pair: Pair) -> None:
    options = ["--seed", "1", "--max-tokens", "40", "--temperature", "5", "--top-k", "0", "--min-p", "0", "--raw"]
    result = subprocess.run(
        [sys.executable, "-m", "app", "generate", *map(str, models(pair)), "--prompt", "-", *options],
        input=b"caf\xe9",
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        timeout=100,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert not result.stdout.decode("utf-8").isascii()


def test_bench_is_short_for_compare(pair: Pair, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n\ntwo\n", encoding="utf-8")
    options: list[str | Path] = ["--prompts", prompts, "--repeat", "2", "--max-tokens", "12"]
    report = json.loads(called("bench", *models(pair), *options, "--json").stdout)
    total = report["summary"]["total"]
    assert (report["format"], total["runs"], total["same"]) == ("slipstream-compare", 4, 4)
    assert total["tested"] >= total["accepted"] and total["speed_up"] > 0
    assert "speed-up" in called("bench", *models(pair), "--prompts", prompts, "--max-tokens", "2").stdout


def test_a_refused_draft_is_said_and_the_target_answers(pair: Pair, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other.gguf", vocab_size=370)
    result = called("generate", "--target", pair[0], "--draft", other, "--prompt", "x", "--max-tokens", "3")
    assert result.returncode == 0
    assert "The draft model is not used" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "generate --target gone.gguf --prompt x",
        "generate --target README.md --prompt x",
        "inspect .",
        "bench --prompts x",
    ],
)
def test_known_errors_are_one_sentence_without_a_traceback(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = called(*command.split())
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("slipstream: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "nonsense",
        "target.gguf draft.gguf",
        "generate",
        "generate --prompt x --draft-length 17",
        "generate --prompt x --temperature -1",
        "generate --prompt x --top-p two",
        "generate --prompt x --draft a --no-draft",
        "generate --prompt x --draft a.gguf",
        "bench --repeat 0",
    ],
)
def test_wrong_usage(command: str) -> None:
    result = called(*command.split())
    assert result.returncode == 2
    assert result.stdout == "" and "Traceback" not in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="asks for a display only on Linux")
def test_without_a_display_the_window_names_the_command_line() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    result = subprocess.run(
        [sys.executable, "-m", "app"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "slipstream generate" in result.stderr and result.stderr.count("\n") == 1
