"""Images on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import run
from tests.support.vision_models import make_image, make_projector, make_seeing_model


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_seeing_model(tmp_path / "tiny-vl.gguf", "qwen2vl")


def generate(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    options = ["--prompt", "What is this?", "--max-tokens", "5", "--temperature", "0", "--json", "--no-draft"]
    status = run(["generate", *options, *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_projector_beside_the_target_is_used(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = make_image(tmp_path / "a.png", 160, 96).path
    projector = str(make_projector(tmp_path / "mmproj-tiny-vl.gguf", "qwen2vl"))
    texts = []
    for words in (["--image", image], ["--image", image, "--mmproj", projector], []):
        status, out, _ = generate(capsys, "--target", str(target), *words)
        assert status == 0
        result = json.loads(out)
        texts.append((result["prompt_tokens"] > 80, result["text"]))
    assert texts[0] == texts[1] and texts[0][0] and not texts[2][0]


def test_what_cannot_be_seen(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = make_image(tmp_path / "a.png").path
    status, _, error = generate(capsys, "--target", str(target), "--image", image)
    assert status == 1 and "tiny-vl.gguf can't see images without its projector" in error
    for name, message in ((target, "is not an image"), (tmp_path / "missing.png", "can't be read: No such file")):
        status, _, error = generate(capsys, "--target", str(target), "--image", str(name))
        assert status == 1 and message in error


def test_inspect_tells_what_a_model_sees_with(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    projector = make_projector(tmp_path / "mmproj-tiny-vl.gguf", "qwen2vl")
    assert run(["inspect", str(target)]) == 0
    assert "Sees with:    mmproj-tiny-vl.gguf" in capsys.readouterr().out
    assert run(["inspect", str(projector)]) == 0
    assert "Projector:    for models of width 64" in capsys.readouterr().out
