"""``slipstream self-draft``: the file it leaves, the figures and the sentence it says."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from app import cli
from app.commands import session
from app.commands.self_draft import Trial
from app.compare.results import Row, summarize
from app.models.gguf import read_header
from tests.support.gguf_files import CHATML_TEMPLATE, make_model

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_model(tmp_path / "six.gguf", layers=6, chat_template=CHATML_TEMPLATE)


@pytest.fixture
def short(tmp_path: Path) -> list[str]:
    """Options that make measuring quick."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo\n", encoding="utf-8")
    return ["--prompts", str(prompts), "--max-tokens", "12", "--threads", "1"]


def models(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".txt" and path.name != "slipstream-home")


def call(target: Path, *options: str | Path) -> int:
    return cli.run(["self-draft", str(target), *map(str, options)])


def test_it_writes_a_draft_beside_the_target_and_says_what_it_brings(
    target: Path, short: list[str], capsys: Shown
) -> None:
    assert call(target, "--layers", "2", *short) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("experimental:")
    assert printed[2].split()[:3] == ["2", "of", "6"]
    assert "With this draft the target is" in printed[-1] and "on this computer" in printed[-1]
    assert models(target.parent) == ["six-first-2-layers.gguf", "six.gguf"]
    assert read_header(target.with_name("six-first-2-layers.gguf")).layers == 2
    with pytest.raises(SystemExit):
        cli.run(["self-draft", "--help"])
    assert "\nexperimental: " in capsys.readouterr().out


def test_auto_tries_several_and_keeps_the_best(target: Path, short: list[str], capsys: Shown) -> None:
    output = target.parent / "draft.gguf"
    assert call(target, "--output", output, "--quantize", "q8_0", "--json", *short) == 0
    result = json.loads(capsys.readouterr().out)
    assert [trial["layers"] for trial in result["tried"]] == [1, 2]
    speed = {t["layers"]: max(t["fixed"]["speed_up"], t["auto"]["speed_up"]) for t in result["tried"]}
    assert result["layers"] == max(speed, key=speed.__getitem__)
    assert result["experimental"] is True and result["draft"] == str(output)
    assert all(t["fixed"]["runs"] == t["fixed"]["same"] == 2 for t in result["tried"])
    assert all(t["fixed"]["tested"] > 0 for t in result["tried"])
    assert models(target.parent) == ["draft.gguf", "six.gguf"]
    header = read_header(output)
    assert (header.layers, header.quantization) == (result["layers"], "Q8_0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", "6"], "six.gguf has 6 layers, so a draft can have from 1 to 5 of them, not 6."),
        (["--output", "six.gguf"], "already exists"),
        (["--output", "gone/draft.gguf"], "doesn't exist"),
        (["--prompts", "gone.txt"], "gone.txt"),
    ],
)
def test_known_errors_are_one_sentence_and_leave_nothing_behind(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown, options: Sequence[str], message: str
) -> None:
    monkeypatch.chdir(target.parent)
    before = target.read_bytes()
    assert call(target, *options) == 1
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and not told.out
    assert models(target.parent) == ["six.gguf"] and target.read_bytes() == before


def test_ctrl_c_leaves_nothing_behind(
    target: Path, short: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    monkeypatch.setattr(session, "show_load_progress", lambda _: signal.raise_signal(signal.SIGINT))
    assert call(target, *short) == 130
    assert models(target.parent) == ["six.gguf"]


@pytest.mark.parametrize(
    ("fixed", "auto", "verdict"),
    [
        (
            0.7,
            0.99,
            "is 0.7× as fast: it doesn't help on this computer (draft length auto notices that and reaches 1.0×).",
        ),
        (1.0, 1.01, "doesn't help"),
        (0.9, 1.3, "is 1.3× as fast: it helps on this computer."),
        (2.0, 1.9, "is 2.0× as fast: it helps on this computer."),
        (0.0, 0.0, "too short"),
    ],
)
def test_the_verdict_is_honest(fixed: float, auto: float, verdict: str) -> None:
    def row(speed_up: float) -> Row:
        return msgspec.structs.replace(summarize([]).total, speed_up=speed_up)

    assert verdict in Trial(1, 4, 100, 400, row(fixed), row(auto)).verdict()
