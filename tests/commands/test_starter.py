"""``--starter``, and how its makers say that it is used."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from app import cli
from app.commands import selftest
from app.commands.session import generate_command, load_command
from app.models import starter
from app.models.starter import STARTER_NAME
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import Sampling
from tests.commands.test_load_options import chosen

COMMANDS = ["generate --prompt Hello", "bench", "compare", "serve --port 0"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the starter model is looked for; there is none."""
    file = tmp_path / "starter" / f"{STARTER_NAME}.Q4_1.gguf"
    monkeypatch.setattr(starter, "_places", lambda: [file])
    file.parent.mkdir()
    return file


def test_it_is_the_target_and_may_have_a_draft(file: Path) -> None:
    file.touch()
    command = load_command(chosen("--starter"))
    assert (command.target, command.draft) == (str(file), None)
    command = load_command(chosen("--starter", "--draft", str(file.parent / "draft.gguf")))
    assert (command.target, command.draft) == (str(file), str(file.parent / "draft.gguf"))
    assert load_command(chosen()).target != str(file)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("command", COMMANDS)
def test_where_it_is_not_installed_a_sentence_says_what_to_do(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command.split(), "--starter"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "slipstream-starter" in said and "make run" in said and "--target" in said


def pair(path: str, name: str) -> PairLoaded:
    return PairLoaded(request=1, target=ModelInfo(path=path, name=name))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"/m/{STARTER_NAME}.Q4_1.gguf", "Smollm2 135M 8k Lc100K Mix1 Ep2"),
        (f"/m/{STARTER_NAME.lower()}-q8_0.gguf", ""),
        ("/blobs/sha256-0f", "Smollm2 135M 8k Lc100K Mix1 Ep2"),
    ],
)
def test_it_samples_as_its_makers_advise_in_any_quantization(path: str, name: str) -> None:
    loaded = pair(path, name)
    assert generate_command(chosen(), loaded).sampling == Sampling(temperature=0.2, top_p=0.9)
    own = generate_command(chosen("--temperature", "1"), loaded).sampling
    assert (own.temperature, own.top_p) == (1.0, 0.9)


def test_the_selftest_checks_the_file_where_there_is_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = {"starter": selftest.CHECKS["starter"]}
    assert selftest.report(checks) == 0
    assert "not installed" in capsys.readouterr().out
    file.write_bytes(b"GGUF")
    assert selftest.report(checks) == 1
    assert "damaged" in capsys.readouterr().out
    monkeypatch.setattr(selftest, "STARTER_SHA256", hashlib.sha256(b"GGUF").hexdigest())
    assert selftest.report(checks) == 0
    assert f"{STARTER_NAME} in {file.parent}" in capsys.readouterr().out
