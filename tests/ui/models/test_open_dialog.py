"""The Open models dialog: gives back what it was given, judges files beside the window, knows what needs a reload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QFileDialog,
    QLabel,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QScrollArea,
    QSpinBox,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.protocol.events import Device
from app.protocol.options import AcceptRule, LoadSettings
from app.settings import Pair, Settings
from app.ui.engine.pair_names import PairFiles, guide_files
from app.ui.models.fields import FileRow, LoadFields
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.widgets.controls import Section
from app.ui.widgets.forms import Whole
from tests.support.expert_models import make_expert_model
from tests.support.gguf_files import make_model

TWO_GPUS = [Device(name="CUDA0", description="Made-up GPU"), Device(name="CUDA1", description="Another")]
ONE_GPU = TWO_GPUS[:1]
Opened = Callable[..., OpenModelsDialog]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "target.gguf", layers=8)
    make_model(folder / "draft.gguf", layers=1)
    make_model(folder / "other.gguf", vocab_size=700)
    (folder / "broken.gguf").write_bytes(b"not a model")
    return folder


@pytest.fixture
def choice(folder: Path) -> PairFiles:
    """Nothing as it is by default."""
    return PairFiles(
        target=str(folder / "target.gguf"),
        draft=str(folder / "draft.gguf"),
        settings=LoadSettings(
            context_length=3000,
            threads=3,
            target_gpu_layers=7,
            draft_gpu_layers=0,
            batch_size=96,
            micro_batch_size=64,
            kv_type="q8_0",
            chat_cache_mib=768,
            batch_threads=5,
            main_gpu="CUDA1",
            split_mode="none",
            tensor_split=(3.0, 1.5),
            draft_device="CUDA0",
            expert_layers_on_cpu=6,
            flash_attention="on",
            draft_context_length=2000,
            draft_kv_type="f16",
        ),
    )


@pytest.fixture
def opened(qtbot: QtBot) -> Opened:
    def open_dialog(
        current: PairFiles,
        recent: tuple[Pair, ...] = (),
        *,
        gpus: Sequence[Device] = (),
        is_loaded: bool = True,
        loads: Mapping[str, LoadSettings] | None = None,
        templates: Mapping[str, str] | None = None,
        accept: AcceptRule = "rejection",
    ) -> OpenModelsDialog:
        values = Settings(
            recent_pairs=list(recent),
            model_loads=dict(loads or {}),
            model_templates=dict(templates or {}),
            accept=accept,
        )
        dialog = OpenModelsDialog(current, values, gpus=gpus, is_loaded=is_loaded)
        qtbot.addWidget(dialog)
        dialog.show()
        return dialog

    return open_dialog


def named(dialog: QWidget, kind: type[QWidget], name: str) -> QWidget:
    return next(found for found in dialog.findChildren(kind) if found.accessibleName() == name)


def button(dialog: QWidget, *texts: str) -> QPushButton:
    return next(found for found in dialog.findChildren(QPushButton) if found.text() in texts)


def spin(dialog: QWidget, name: str) -> QSpinBox:
    field = named(dialog, QSpinBox, name)
    assert isinstance(field, QSpinBox)
    return field


def row(dialog: QWidget, place: int) -> FileRow:
    return dialog.findChildren(FileRow)[place]


def waits_for(qtbot: QtBot, dialog: OpenModelsDialog, part: str) -> None:
    qtbot.waitUntil(lambda: part in dialog._check.verdict)


def test_gives_back_what_it_was_given(opened: Opened, choice: PairFiles) -> None:
    for given in (choice, PairFiles(""), PairFiles(target=choice.target)):
        dialog = opened(given, gpus=TWO_GPUS)
        assert dialog.files() == given
        assert not dialog.needs_reload
    dialog = opened(choice, gpus=ONE_GPU)  # the other one is gone, and not chosen any more
    load = dialog.files().settings
    assert (load.main_gpu, load.draft_device, load.tensor_split, load.split_mode) == ("", "", (), "layer")
    assert load.expert_layers_on_cpu == 6 and dialog.needs_reload
    QTest.mouseClick(button(dialog, "Reset to defaults"), Qt.MouseButton.LeftButton)
    assert dialog.files() == PairFiles(target=choice.target, draft=choice.draft)
    dialog = opened(choice, gpus=TWO_GPUS, is_loaded=False)
    assert dialog.needs_reload
    assert button(dialog, "Load", "Apply").text() == "Load"


def test_verdict_follows_the_files(opened: Opened, folder: Path, choice: PairFiles, qtbot: QtBot) -> None:
    dialog = opened(choice)
    assert dialog._check.verdict == "Reading the files…"  # the window does not wait for that
    waits_for(qtbot, dialog, "Compatible: same vocabulary of 512 tokens.")
    assert all("llama" in row(dialog, place)._info.text() for place in (0, 1))
    assert (
        named(dialog, QSpinBox, "Draft context")
        .whatsThis()
        .endswith(
            "1,000 tokens take 256 KB (f16)."  # 64 keys and 64 values in one layer
        )
    )
    row(dialog, 1).set_path(str(folder / "other.gguf"))
    waits_for(qtbot, dialog, "700 in the draft")
    load = button(dialog, "Load", "Apply")
    assert load.text() == "Load"
    assert load.isEnabled()
    clear = named(dialog, QToolButton, "No draft model")
    QTest.mouseClick(clear, Qt.MouseButton.LeftButton)
    waits_for(qtbot, dialog, "No draft")
    assert dialog.files().draft is None
    assert row(dialog, 1)._info.text() == ""
    row(dialog, 0).set_path(str(folder / "broken.gguf"))
    waits_for(qtbot, dialog, "broken.gguf")
    assert not load.isEnabled()
    row(dialog, 0).set_path("")
    assert dialog._check.verdict == "Choose a target model file."
    assert not load.isEnabled()
    QTest.keyClicks(named(dialog, QLineEdit, "Target model"), f"  {folder / 'target.gguf'}")
    waits_for(qtbot, dialog, "No draft model. Draft tokens are taken from the chat itself (n-grams).")
    assert dialog.files().target == str(folder / "target.gguf")


def test_the_guides_draft_goes_with_the_guide(opened: Opened, folder: Path) -> None:
    guide = guide_files()
    dialog = opened(PairFiles(target=guide.target, draft=guide.draft))
    row(dialog, 0).set_path(str(folder / "other.gguf"))
    assert row(dialog, 1).path() == ""


def test_closing_while_a_file_is_read_is_no_error(choice: PairFiles, qtbot: QtBot, qapp: QApplication) -> None:
    assert qapp is not None
    for _ in range(5):
        dialog = OpenModelsDialog(choice, Settings())
        dialog.show()
        dialog.reject()
        dialog.deleteLater()
    last = OpenModelsDialog(choice, Settings())
    qtbot.addWidget(last)
    waits_for(qtbot, last, "Compatible")


def test_each_target_is_shown_as_it_was_loaded_the_last_time(opened: Opened, folder: Path, choice: PairFiles) -> None:
    other = str(folder / "other.gguf")
    loads = {other: LoadSettings(context_length=2000, kv_type="q4_0"), choice.target: LoadSettings(threads=1)}
    pairs = (Pair(other), Pair(choice.target, choice.draft))
    dialog = opened(choice, pairs, gpus=TWO_GPUS, loads=loads)
    assert dialog.files() == choice
    assert not dialog.needs_reload
    row(dialog, 1).set_path("")
    assert dialog.files().settings == choice.settings  # another draft changes nothing
    recent = button(dialog, "Recent pairs ▾").menu().actions()
    assert [action.text() for action in recent] == ["other", "target  +  draft"]
    recent[0].trigger()
    assert (dialog.files().target, dialog.files().draft, dialog.files().settings) == (other, None, loads[other])
    assert not button(opened(choice), "Recent pairs ▾").isEnabled()
    spin(dialog, "Context length").setValue(2500)
    row(dialog, 1).set_path(str(folder / "draft.gguf"))
    assert dialog.files().settings.context_length == 2500
    row(dialog, 0).set_path(choice.target)
    assert dialog.files().settings == LoadSettings(threads=1)


def test_sections_are_closed_and_say_what_is_in_them(opened: Opened, choice: PairFiles) -> None:
    dialog = opened(
        replace(choice, settings=LoadSettings(context_length=3000, target_gpu_layers=7, kv_type="q8_0")), gpus=ONE_GPU
    )
    sections = dialog.findChildren(Section)
    assert not any(section.button.isChecked() for section in sections)
    assert [section._summary.text() for section in sections] == [
        "context 3,000 · KV cache q8_0 · 7 layers on the GPU",
        "automatic",
        "the model's own",
        "rejection",
    ]
    spin(dialog, "Target on the GPU").setValue(1)
    assert sections[0]._summary.text().endswith(" · 1 layer on the GPU")
    context = spin(dialog, "Context length")
    assert not context.isVisible()
    heading = named(dialog, QToolButton, "Context and memory, closed")
    QTest.mouseClick(heading, Qt.MouseButton.LeftButton)
    assert heading.accessibleName() == "Context and memory, open"
    assert context.isVisible()
    for section in sections[1:]:
        section.button.click()
    nameless = [
        found
        for kind in (QSpinBox, QComboBox, QPushButton, QToolButton, QRadioButton)
        for found in dialog.findChildren(kind)
        if found.isVisible() and not found.accessibleName() and not getattr(found, "text", str)()
    ]
    assert nameless == []
    assert all(label.textFormat() is Qt.TextFormat.PlainText for label in dialog.findChildren(QLabel))


def shown(dialog: OpenModelsDialog) -> set[str]:
    """The names of the options that are shown, with all sections open."""
    for section in dialog.findChildren(Section):
        section.button.setChecked(True)
    forms = dialog.findChildren(LoadFields)
    return {field.accessibleName() for form in forms for field in form._rows if field.isVisible()}


ALWAYS = {"Context length", "KV cache", "Recent chats"}
ALWAYS |= {"Threads", "Batch threads", "Batch size", "Micro-batch size", "Flash attention"}
OF_THE_DRAFT = {"Draft context", "Draft KV cache"}


def test_only_options_that_make_sense_here_are_shown(
    opened: Opened, folder: Path, choice: PairFiles, qtbot: QtBot
) -> None:
    """Without a GPU, without experts and without a draft there is nothing to choose about them."""
    dialog = opened(replace(choice, draft=None), gpus=())
    waits_for(qtbot, dialog, "No draft")
    assert shown(dialog) == ALWAYS
    row(dialog, 1).set_path(choice.draft or "")
    waits_for(qtbot, dialog, "Compatible")
    assert shown(dialog) == ALWAYS | OF_THE_DRAFT
    dialog = opened(choice, gpus=ONE_GPU)
    waits_for(qtbot, dialog, "Compatible")
    assert shown(dialog) == ALWAYS | OF_THE_DRAFT | {"Target on the GPU", "Draft on the GPU"}
    row(dialog, 0).set_path(str(make_expert_model(folder / "experts.gguf")))
    qtbot.waitUntil(lambda: "Experts on the CPU" in shown(dialog), timeout=10_000)
    fields = dialog.findChildren(LoadFields)[0]
    help_text = fields.fields["expert_layers_on_cpu"].whatsThis()
    assert "Those of one layer take 393 KB." in help_text and "n-cpu-moe" in help_text
    experts = named(dialog, QSpinBox, "Experts on the CPU")
    assert isinstance(experts, QSpinBox)
    experts.setFocus()
    for text, layers in (("automatic", -1), ("0", 0), ("1", 1)):
        fields.set_value("expert_layers_on_cpu", layers)
        assert (experts.text(), dialog.files().settings.expert_layers_on_cpu) == (text, layers)
    QTest.keyClick(experts, Qt.Key.Key_Down)
    QTest.keyClick(experts, Qt.Key.Key_Down)
    assert (experts.text(), dialog.files().settings.expert_layers_on_cpu) == ("automatic", -1)
    row(dialog, 0).set_path(choice.target)
    qtbot.waitUntil(lambda: "Experts on the CPU" not in shown(dialog), timeout=10_000)


def test_accept_rule(opened: Opened) -> None:
    dialog = opened(PairFiles(""), accept="coupled")
    coupled, *others = dialog.findChildren(QRadioButton)
    assert coupled.isChecked()
    for button, rule in zip(others, ("exact", "rejection", "block"), strict=True):
        button.setChecked(True)
        assert dialog.accept_rule() == rule
        assert dialog.needs_reload == dialog.files().settings.exact == (rule == "exact")  # with other kernels


def test_choosing_a_file(opened: Opened, folder: Path, qtbot: QtBot) -> None:
    dialog = opened(PairFiles(""), (Pair(str(folder / "other.gguf")),))
    QTest.mouseClick(named(dialog, QPushButton, "Choose target model"), Qt.MouseButton.LeftButton)
    chooser = dialog.findChild(QFileDialog)
    assert isinstance(chooser, QFileDialog)
    qtbot.waitUntil(chooser.isVisible, timeout=20_000)
    assert chooser.nameFilters() == ["GGUF models (*.gguf)"]
    assert Path(chooser.directory().path()) == folder
    chooser.selectFile(str(folder / "target.gguf"))
    chooser.fileSelected.emit(str(folder / "target.gguf"))
    chooser.reject()
    assert dialog.files().target == str(folder / "target.gguf")
    waits_for(qtbot, dialog, "No draft")


def test_choosing_a_chat_template(opened: Opened, folder: Path, choice: PairFiles, qtbot: QtBot) -> None:
    own = str(folder / "own.jinja")
    dialog = opened(choice, gpus=TWO_GPUS, templates={str(folder / "other.gguf"): "gemma"})
    dialog.findChildren(Section)[2].button.click()
    box = named(dialog, QComboBox, "Chat template")
    assert isinstance(box, QComboBox) and box.currentText() == "The model's own"
    assert not dialog.needs_reload
    QTest.keyClicks(box, "Chat")
    assert (dialog.files().template, dialog.needs_reload) == ("chatml", True)
    box.setCurrentIndex(box.findText("File…"))
    box.activated.emit(box.currentIndex())
    chooser = dialog.findChild(QFileDialog)
    assert isinstance(chooser, QFileDialog)
    qtbot.waitUntil(chooser.isVisible, timeout=20_000)
    assert (box.currentText(), dialog.files().template) == ("ChatML", "chatml"), "until a file is chosen"
    chooser.fileSelected.emit(own)
    chooser.reject()
    assert (box.currentText(), dialog.files().template) == ("own.jinja", own)
    assert dialog.findChildren(Section)[2]._summary.text() == "own.jinja"
    row(dialog, 0).set_path(str(folder / "other.gguf"))
    assert dialog.files().template == "gemma"
    button(dialog, "Reset to defaults").click()
    assert dialog.files().template == ""


def dropped(widget: QWidget, *paths: Path) -> bool:
    """Drop files on a widget; whether it took them."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    keys, copies = (Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier), Qt.DropAction.CopyAction
    enter = QDragEnterEvent(QPoint(5, 5), copies, data, *keys)
    enter.setAccepted(False)
    QApplication.sendEvent(widget, enter)
    if enter.isAccepted():
        QApplication.sendEvent(widget, QDropEvent(QPointF(5, 5), copies, data, *keys))
    return enter.isAccepted()


def test_files_can_be_dropped(opened: Opened, folder: Path, qtbot: QtBot) -> None:
    target, draft = folder / "target.gguf", folder / "draft.gguf"
    dialog = opened(PairFiles(""))
    assert dropped(dialog, draft, target)
    qtbot.waitUntil(lambda: dialog.files().draft is not None)
    assert (dialog.files().target, dialog.files().draft) == (str(target), str(draft))
    waits_for(qtbot, dialog, "Compatible")
    assert dropped(row(dialog, 1), folder / "other.gguf")
    assert dialog.files().draft == str(folder / "other.gguf")
    assert dropped(dialog, draft)
    assert dialog.files().target == str(draft)
    assert not dropped(dialog, folder / "notes.txt")
    assert not dropped(row(dialog, 0), folder / "notes.txt")
    assert dropped(row(dialog, 0), target, draft)
    qtbot.waitUntil(lambda: dialog.files().target == str(target))
    assert (dialog.files().target, dialog.files().draft) == (str(target), str(draft))


def test_wheel_changes_nothing_without_focus(opened: Opened) -> None:
    dialog = opened(PairFiles(""))
    for field in (*dialog.findChildren(Whole), *dialog.findChildren(QComboBox)):
        assert field.focusPolicy() is Qt.FocusPolicy.StrongFocus
    dialog.findChildren(Section)[0].button.click()
    area, field = dialog.findChildren(QScrollArea)[0], spin(dialog, "Context length")
    before = dialog.files()

    def turn() -> None:
        area.ensureWidgetVisible(field)
        QTest.wheelEvent(dialog.windowHandle(), QPointF(field.mapTo(dialog, field.rect().center())), QPoint(0, 120))

    turn()
    assert dialog.files() == before
    field.setFocus()
    turn()
    assert dialog.files() != before
