"""The pickers of the rows that name files: models of the library, and drafts that fit the target or say why not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QAction
from pytestqt.qtbot import QtBot

from app.models.measurements import FileKey, StoredTrial, Trial
from app.settings import Settings
from app.ui.models.fields import MOST_GRAY, FileRow, ModelPicker, PairPicks, Pick
from app.ui.models.library_service import LibraryService
from tests.support.library_parts import small_model
from tests.ui.models.windows import MACHINE

WAIT_MS = 20_000


class Pickers:
    """Both, over a library."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot = qtbot
        self.folder = folder
        values = Settings()
        values.models_folder = str(folder)
        self.library = LibraryService(values, lambda: MACHINE)
        self.targets, self.drafts = ModelPicker("Library", "Target"), ModelPicker("Drafts", "Draft")
        for picker in (self.targets, self.drafts):
            qtbot.addWidget(picker)
        with qtbot.waitSignal(self.library.scanned, timeout=WAIT_MS):
            self.picks = PairPicks(self.targets, self.drafts, self.library)

    def set_target(self, path: Path | str) -> None:
        """Ask for drafts and wait for them."""
        self.drafts.show_picks([], "asked")
        self.picks.set_target(str(path))
        self.qtbot.waitUntil(lambda: entries(self.drafts)[0].text() != "asked", timeout=WAIT_MS)

    def close(self) -> None:
        self.library.close()
        self.picks.deleteLater()
        self.library.deleteLater()


def entries(picker: ModelPicker) -> list[QAction]:
    return [action for action in picker.menu().actions() if not action.isSeparator()]


def said(picker: ModelPicker) -> list[tuple[str, bool]]:
    """What the menu has, and whether it can be chosen."""
    return [(action.text(), action.isEnabled()) for action in entries(picker)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    small_model(models / "target.gguf", feed_forward=8192)
    small_model(models / "draft.gguf")
    small_model(models / "other & more.gguf", vocab_size=700)
    (models / "broken<b>.gguf").write_bytes(b"not a model")
    return models


@pytest.fixture
def pickers(qtbot: QtBot, folder: Path) -> Iterator[Pickers]:
    pickers = Pickers(qtbot, folder)
    yield pickers
    pickers.close()


def test_targets_are_all_models(pickers: Pickers, qtbot: QtBot) -> None:
    texts = said(pickers.targets)
    assert [text.split(" · ")[0] for text, enabled in texts if enabled] == ["draft", "other && more", "target"]
    assert texts[-1] == ("broken<b> · 11 bytes: broken<b>.gguf is not a GGUF model file.", False)
    assert "broken&lt;b&gt;" in entries(pickers.targets)[-1].toolTip()
    with qtbot.waitSignal(pickers.targets.chosen) as chosen:
        entries(pickers.targets)[2].trigger()
    assert chosen.args == [str(pickers.folder / "target.gguf")]


def test_drafts_that_do_not_fit_are_gray_and_say_why(pickers: Pickers) -> None:
    assert said(pickers.drafts) == [("Choose a target model first.", False)]
    pickers.set_target(pickers.folder / "target.gguf")
    first, *others = said(pickers.drafts)
    assert first[0].startswith("draft · F16 · ")
    assert first[1]
    assert not any(enabled for _, enabled in others)
    assert any("700 in the draft. At most 128 tokens of difference are allowed." in text for text, _ in others)
    assert any("is not a GGUF model file." in text for text, _ in others)
    pickers.picks.set_target("")
    assert said(pickers.drafts) == [("Choose a target model first.", False)]
    pickers.set_target(pickers.folder / "gone.gguf")
    ((text, enabled),) = said(pickers.drafts)
    assert "gone.gguf" in text
    assert not enabled
    pickers.set_target(small_model(pickers.folder.parent / "elsewhere" / "far.gguf"))
    assert sum(enabled for _, enabled in said(pickers.drafts)) == 2  # for a target from anywhere


def test_what_was_measured_stands_with_the_draft(pickers: Pickers) -> None:
    target, draft = [FileKey.of(pickers.folder / f"{name}.gguf") for name in ("target", "draft")]
    trial = Trial(acceptance_rate=0.68, plain_speed=40.0, drafted_speed=72.0, tokens=64, measured_at=int(time.time()))
    pickers.library.trials.add(StoredTrial(target, draft, trial))
    pickers.set_target(pickers.folder / "target.gguf")
    assert said(pickers.drafts)[0][0].replace("\u00a0", " ").endswith(" · 68% accepted, 1.8× faster here")


def test_not_too_many_that_cannot_be_chosen(qtbot: QtBot) -> None:
    picker = ModelPicker("Drafts", "Draft")
    qtbot.addWidget(picker)
    picks = [Pick(f"/{number}", f"m{number}", number < 2, "Too large.") for number in range(MOST_GRAY + 5)]
    picker.show_picks(picks, "")
    assert len(entries(picker)) == 2 + MOST_GRAY + 1
    assert said(picker)[-1] == ("3 more that don't fit", False)


@pytest.mark.parametrize("form", ["{path}", " '{path}' ", '"{path}"', "file://{path}", "~/m x.gguf"])
def test_a_path_is_understood_as_it_is_pasted(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    row = FileRow("Target model", "", can_be_empty=False)
    qtbot.addWidget(row)
    row.set_path(form.format(path=tmp_path / "m x.gguf"))
    assert row.path() == str(tmp_path / "m x.gguf")
