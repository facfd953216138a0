"""MTP heads in the Open models dialog: the row to turn one on or off, and which drafts and heads are proposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from app.protocol.options import HeadChoice
from app.settings import Settings
from app.ui.engine.pair_names import PairFiles
from app.ui.models.fields import FileRow
from app.ui.models.library_service import LibraryService
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.widgets.controls import HeadControl
from tests.support.eagle3_models import make_table_pair
from tests.support.gemma4_models import make_assistant, make_gemma4
from tests.support.gguf_files import make_model, spm_vocabulary
from tests.support.mtp_models import SIZE, make_head_file, make_table_model
from tests.ui.models.windows import MACHINE, WAIT_MS, texts

SMALL = "Models with fewer than 3 billion parameters usually answer faster without it."
INSIDE = "MTP head inside: this model can draft without a second one."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Targets with a head inside, with one beside it, and with one that can't be used; and a draft model."""
    folder = tmp_path_factory.mktemp("models")
    make_table_model(folder / "inside.gguf", "glm4moe")
    make_table_model(folder / "without.gguf", "qwen35", without=("blk.2.",))
    make_head_file(folder / "mtp-without.gguf", "qwen35")
    make_gemma4(folder / "gemma.gguf")
    make_assistant(folder / "mtp-gemma.gguf")
    make_table_pair(folder)
    make_table_model(
        folder / "images.gguf",
        "glm4moe",
        edit=lambda writer: writer.add_array("glm4moe.rope.dimension_sections", [8, 12, 12, 0]),
    )
    make_model(folder / "draft.gguf", vocabulary=spm_vocabulary(SIZE), width=16, heads=1, layers=1)
    return folder


class Dialogs:
    """Opens the dialog over a library of these files."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot = qtbot
        self.folder = folder
        values = Settings()
        values.models_folder = str(folder)
        self.library = LibraryService(values, lambda: MACHINE)
        with qtbot.waitSignal(self.library.scanned, timeout=WAIT_MS):
            self.library.scan()

    def open(
        self, target: str = "", draft: str = "", *, heads: Mapping[str, HeadChoice] | None = None
    ) -> OpenModelsDialog:
        current = PairFiles(
            target=str(self.folder / target) if target else "", draft=str(self.folder / draft) if draft else None
        )
        self.dialog = OpenModelsDialog(current, Settings(model_heads=dict(heads or {})), library=self.library)
        self.qtbot.addWidget(self.dialog)
        self.dialog.show()
        self.settle()
        return self.dialog

    def set_target(self, name: str) -> None:
        self.dialog.findChildren(FileRow)[0].set_path(str(self.folder / name))
        self.settle()

    def set_draft(self, name: str) -> None:
        self.dialog.findChildren(FileRow)[1].set_path(str(self.folder / name) if name else "")
        self.settle()

    def settle(self) -> None:
        """Wait until the files are judged and the library has ranked what fits them; one may lead to the other."""
        for _ in range(3):
            done: list[bool] = []
            self.library.compute(lambda: True, done.append)
            self.qtbot.waitUntil(lambda done=done: bool(done), timeout=WAIT_MS)  # type: ignore[misc]
            self.qtbot.waitUntil(self.dialog._checker._lane.is_idle, timeout=WAIT_MS)

    @property
    def verdict(self) -> str:
        return self.dialog._verdict.text()

    @property
    def draft(self) -> str:
        """The name of the file in the draft's row."""
        return Path(self.dialog.files().draft or "").name

    @property
    def head(self) -> HeadControl:
        head = self.dialog.findChild(HeadControl)
        assert isinstance(head, HeadControl)
        return head

    def box(self) -> QComboBox:
        box = self.head.findChild(QComboBox)
        assert isinstance(box, QComboBox)
        return box


@pytest.fixture
def dialogs(qtbot: QtBot, folder: Path) -> Iterator[Dialogs]:
    dialogs = Dialogs(qtbot, folder)
    yield dialogs
    dialogs.library.close()
    dialogs.library.deleteLater()


def test_the_row_is_there_for_a_head_inside_and_says_why_it_is_off(dialogs: Dialogs) -> None:
    dialog = dialogs.open("inside.gguf")
    assert dialogs.head.isVisible() and dialogs.verdict == INSIDE
    assert f"Not in use. {SMALL}" in texts(dialogs.head)
    box = dialogs.box()
    assert [box.itemText(place) for place in range(box.count())] == ["Automatic", "On", "Off"]
    assert box.accessibleName() == "MTP head" and box.accessibleDescription() == SMALL
    assert dialog.files().head == "auto" and dialog._load.text() == "Apply"
    box.setFocus()
    QTest.keyClick(box, Qt.Key.Key_Down)
    assert dialog.files().head == "on" and dialog._load.text() == "Load"
    assert not [text for text in texts(dialogs.head) if text.startswith("Not in use")]
    QTest.keyClick(box, Qt.Key.Key_Down)
    assert dialog.files().head == "off"
    assert "Not in use. It is turned off for this model." in texts(dialogs.head)


def test_without_a_head_that_can_be_used_there_is_no_row(dialogs: Dialogs) -> None:
    dialog = dialogs.open("gemma.gguf", heads={str(dialogs.folder / "inside.gguf"): "on"})
    assert not dialogs.head.isVisible()
    dialogs.set_target("inside.gguf")  # each target has its own choice
    assert dialog.files().head == "on" and dialogs.box().currentText() == "On"
    dialogs.set_target("draft.gguf")
    assert dialog.files().head == "auto" and not dialogs.head.isVisible()
    dialogs.open("images.gguf")
    assert not dialogs.head.isVisible()
    assert dialogs.verdict == (
        "The MTP head in images.gguf isn't used, because llama.cpp can't compute heads of models for images. Draft "
        "tokens are taken from the chat itself (n-grams)."
    )
    assert dialogs.dialog._load.isEnabled()


def test_a_target_that_is_chosen_gets_the_head_beside_it(dialogs: Dialogs) -> None:
    for target, head in (("without.gguf", "mtp-without.gguf"), ("gemma.gguf", "mtp-gemma.gguf")):
        dialogs.open()
        dialogs.set_target(target)
        assert dialogs.draft == head
        assert dialogs.verdict == "✓ Compatible: the MTP head in this file belongs to the target."
        dialogs.set_draft("")
        dialogs.library.judge_again()
        dialogs.settle()
        assert dialogs.draft == ""  # whoever takes it away doesn't get it again
    dialogs.open()
    dialogs.set_target("llama.gguf")
    assert dialogs.draft == "eagle3-llama.gguf"
    assert dialogs.verdict == "✓ Compatible: the EAGLE-3 head in this file belongs to the target."
    dialogs.open("without.gguf", "mtp-gemma.gguf")
    assert dialogs.verdict.startswith("The MTP head in mtp-gemma.gguf belongs to another model.")
    assert dialogs.dialog._check.mood == "warning" and dialogs.dialog._load.isEnabled()
