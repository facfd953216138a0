"""Options of the command line for loading, and what they mean to the engine."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from app.commands.options import add_model_options, add_sampling_options
from app.commands.session import head_choice, load_command, load_settings
from app.protocol.options import SPECIAL_OPTIONS, LoadSettings, chosen_options


def chosen(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_options(parser)
    add_sampling_options(parser, seed="", max_tokens=1)
    return parser.parse_args(words)


def parsed(*words: str) -> LoadSettings:
    return load_settings(chosen(*words))


@pytest.mark.parametrize(("words", "expected"), [("--exact", True), ("--accept exact", True), ("", False)])
def test_the_target_is_loaded_for_the_rule(words: str, expected: bool) -> None:
    options = chosen(*words.split())
    assert (load_settings(options).exact, options.accept == "exact") == (expected, expected)


def test_every_option_can_be_set() -> None:
    assert parsed() == LoadSettings()
    words = "--batch-threads 3 --split-mode none --main-gpu CUDA1 --tensor-split 3,1.5 --draft-device CUDA0 "
    words += "--expert-layers-on-cpu 12 --flash-attention off --draft-context 2048 --draft-kv-type q8_0 --branches 3"
    found = chosen_options(parsed(*words.split()))
    assert tuple(found) == tuple(name for name in SPECIAL_OPTIONS if name != "exact")
    assert found == {
        "batch_threads": 3,
        "main_gpu": "CUDA1",
        "split_mode": "none",
        "tensor_split": (3.0, 1.5),
        "draft_device": "CUDA0",
        "expert_layers_on_cpu": 12,
        "flash_attention": "off",
        "draft_context_length": 2048,
        "draft_kv_type": "q8_0",
        "branches": 3,
    }
    words = "--n-cpu-moe 2 --flash-attn on --batch-size 128 --micro-batch-size 64"
    assert parsed(*words.split()) == LoadSettings(
        expert_layers_on_cpu=2, flash_attention="on", batch_size=128, micro_batch_size=64
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--main-gpu", "CUDA1"], "--main-gpu needs --split-mode none"),
        (["--tensor-split", "3,x"], "invalid list of shares value: '3,x'"),
        (["--tensor-split", "3,-1"], "-1 must be from 0 to 1e+06"),
        (["--expert-layers-on-cpu", "-1"], "-1 must be from 0 to 512"),
        (["--batch-size", "8"], "8 must be from 32"),
        (["--split-mode", "column"], "invalid choice: 'column'"),
    ],
)
def test_wrong_values_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "head"),
    [
        ("", "auto"),
        ("--drafter mtp", "on"),
        ("--drafter model", "off"),
        ("--no-draft", "off"),
        ("--target t.gguf --draft d.gguf --head on", "on"),
        ("--drafter model --head on", "on"),
        ("--head off", "off"),
    ],
)
def test_whether_the_head_is_loaded(words: str, head: str) -> None:
    assert head_choice(chosen(*words.split())) == head


def test_another_chat_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages[0].content }}")
    for words, found in (
        ([], ""),
        (["--chat-template", "chatml"], "chatml"),
        (["--chat-template", str(path)], str(path)),
    ):
        options = argparse.Namespace(**{"head": "auto", **vars(chosen("--target", "m.gguf", "--no-draft", *words))})
        assert load_command(options).chat_template == found
    with pytest.raises(SystemExit):
        load_command(chosen("--chat-template", str(tmp_path / "none.jinja")))
    assert "neither a file nor one of chatml, gemma" in capsys.readouterr().err
