"""What is said about two files, with real model files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.ui.engine.load_planner import Headers
from app.ui.models import fit
from app.ui.models.fit import PairCheck, PairChecker, judge
from tests.support.gguf_files import make_model
from tests.support.vision_models import make_projector, make_seeing_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "target.gguf", layers=8, name="A target")
    make_model(folder / "draft.gguf", layers=1, name="A draft")
    make_model(folder / "other.gguf", vocab_size=700)
    (folder / "broken.gguf").write_bytes(b"not a model")
    return folder


def judged(folder: Path, target: str, draft: str | None = None) -> PairCheck:
    return judge(target and str(folder / target), draft and str(folder / draft), Headers())


def test_large_draft_is_a_warning(folder: Path) -> None:
    check = judged(folder, "target.gguf", "target.gguf")
    assert check.mood == "warning"
    assert "100%" in check.verdict


def test_no_target(folder: Path) -> None:
    assert judged(folder, "", "draft.gguf") is fit.NO_TARGET
    assert not fit.NO_TARGET.can_load


@pytest.mark.parametrize("name", ["broken.gguf", "gone.gguf", ".", "nul\0byte.gguf"])
def test_unusable_target_cannot_be_loaded(folder: Path, name: str) -> None:
    check = judged(folder, name)
    assert check.mood == "bad"
    assert not check.can_load
    assert check.verdict


def test_unusable_draft_leaves_the_target(folder: Path) -> None:
    check = judged(folder, "target.gguf", "broken.gguf")
    assert (check.mood, check.can_load, check.draft) == ("warning", True, "")
    assert "broken.gguf" in check.verdict
    assert check.target


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    headers, path = Headers(), tmp_path / "model.gguf"
    make_model(path, name="Before")
    assert judge(str(path), None, headers).target.startswith("Before")
    make_model(path, name="Afterwards")
    assert judge(str(path), None, headers).target.startswith("Afterwards")
    path.unlink()
    assert judge(str(path), None, headers).mood == "bad"


def test_only_the_last_question_is_answered(folder: Path, qtbot: QtBot) -> None:
    checker = PairChecker()
    heard: list[PairCheck] = []
    checker.checked.connect(heard.append)
    with qtbot.waitSignal(checker.checked):
        checker.check(str(folder / "other.gguf"), None)
        checker.check(str(folder / "broken.gguf"), None)
        checker.check(str(folder / "target.gguf"), str(folder / "draft.gguf"))
    assert [check.mood for check in heard] == ["good"]
    checker.check(str(folder / "other.gguf"), None)
    checker.stop()
    with qtbot.assertNotEmitted(checker.checked, wait=100):
        pass


def test_a_target_with_a_projector(tmp_path: Path) -> None:
    make_seeing_model(tmp_path / "seeing.gguf", "llava")
    assert judged(tmp_path, "seeing.gguf").projector_bytes == 0
    make_projector(tmp_path / "mmproj-F16.gguf", "llava")
    check = judged(tmp_path, "seeing.gguf")
    assert check.target.endswith(" · sees images with mmproj-F16.gguf") and check.projector_bytes > 100_000
