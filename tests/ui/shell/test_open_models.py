"""The Open models dialog, and files that are opened from outside, in the whole window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import system
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.models.opening import Opening
from tests.support.gguf_files import make_model
from tests.ui.shell.running import WAIT_MS, Running


@pytest.fixture
def opening(running: Running) -> Iterator[Opening]:
    """The dialog that is open at the end of a test is closed."""
    opening = running.app.opening
    yield opening
    if opening._dialog is not None:
        opening._dialog.reject()


@pytest.fixture
def fits() -> Path:
    """A draft in the models folder that fits, beside one that doesn't. To be there before the window opens."""
    system.models_dir().mkdir(parents=True, exist_ok=True)
    make_model(system.models_dir() / "other.gguf", vocab_size=700)
    return make_model(system.models_dir() / "fits.gguf", layers=1)


def dialog_of(opening: Opening) -> OpenModelsDialog:
    assert opening._dialog is not None
    return opening._dialog


def test_a_file_named_from_outside_is_shown_with_the_draft_that_suits_it_unless_one_is_chosen(
    qtbot: QtBot, fits: Path, opening: Opening, tmp_path: Path
) -> None:
    target = make_model(tmp_path / "target.gguf", layers=20)
    for _ in range(2):  # without a dialog, then with one that shows something else
        opening.open_file(target.as_uri())
        qtbot.waitUntil(lambda: bool(opening._dialog and opening._dialog.files().draft), timeout=WAIT_MS)
        assert dialog_of(opening).files().target == str(target)
        assert dialog_of(opening).files().draft == str(fits)
        opening.open_pair(str(tmp_path / "else.gguf"))
    chosen, dialog = make_model(tmp_path / "chosen.gguf", layers=1), dialog_of(opening)
    assert dialog._picks is not None
    with qtbot.waitSignal(dialog._picks.ranked, check_params_cb=bool, timeout=WAIT_MS):
        dialog.show_files(str(target), str(chosen))
    assert dialog.files().draft == str(chosen)


def test_a_file_from_outside_that_is_no_model_is_a_notice(
    qtbot: QtBot, running: Running, opening: Opening, tmp_path: Path
) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    notice_list = running.ctx.notices
    for name, sentence in (
        ("gone.gguf", "gone.gguf no longer exists"),
        ("notes.txt", "is not a GGUF model"),
        ("broken.gguf", "not a GGUF model file"),
    ):
        opening.open_file(str(tmp_path / name))
        qtbot.waitUntil(
            lambda part=sentence: "file" in notice_list.notices() and part in notice_list.notices()["file"].text,  # type: ignore[misc]
            timeout=WAIT_MS,
        )
    opening.open_file(str(make_model(tmp_path / "target.gguf")))
    qtbot.waitUntil(lambda: opening._dialog is not None, timeout=WAIT_MS)
    assert "file" not in notice_list.notices()
