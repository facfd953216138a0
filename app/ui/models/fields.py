"""The sections of the Open models dialog, with its rows for the model files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMimeData, QObject, QRegularExpression, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QRegularExpressionValidator
from PySide6.QtWidgets import QComboBox, QFileDialog, QLineEdit, QMenu, QPushButton, QRadioButton, QToolButton, QWidget
from shiboken6 import isValid

from app import words
from app.models.library.library import LibraryEntry
from app.models.measurements import Trial
from app.models.model_memory import ModelShape
from app.models.ranking import RankedDraft, Ranking
from app.protocol.events import Device
from app.protocol.options import AS_PLANNED, MAX_LAYERS, TEMPLATE_TITLES, AcceptRule, LoadSettings
from app.system import KnownError
from app.ui.models.library_service import LibraryService
from app.ui.widgets import icons
from app.ui.widgets.controls import LEFT, column, explain, guard_wheel, label, plain_tooltip, push_button, row
from app.ui.widgets.forms import FIELD_MARGINS, Form, OneOf, Setting, keep_width
from app.ui.widgets.questions import open_in_folder
from app.ui.widgets.theme import SPACING
from app.words import printable, visible

_EXPERTS_HELP = (
    "How many layers keep their experts in system memory, which costs less speed than moving whole layers. Automatic: "
    "as few as necessary. 0: none."
)
_DRAFT_CONTEXT_HELP = "In longer chats, the draft model doesn't draft. Automatic: as long as the target's."


_TEMPLATE_HELP = (
    "How a chat is written as text for the model. Its own template is right, unless answers make no sense or don't "
    "end: some files have a wrong one, or none. Your own file must contain Jinja source."
)
_OTHER_FILE = "\0"
"""Stands for a file that isn't chosen yet."""


def _gpu_layers(key: str, name: str) -> Setting:
    help_text = "How many layers run on the GPU. Automatic: as many as fit. 0 runs everything on the CPU."
    return Setting(key, name, help_text, 1, "automatic", "GPU offload, GPU layers", low=-1, high=10_000)


_MEMORY = (
    Setting(
        "context_length",
        "Context length",
        "How many tokens a chat can hold. Automatic: what the target model was trained for, up to 8,192.",
        1024,
        "automatic",
    ),
    _gpu_layers("target_gpu_layers", "Target on the GPU"),
    _gpu_layers("draft_gpu_layers", "Draft on the GPU"),
    Setting(
        "expert_layers_on_cpu",
        "Experts on the CPU",
        _EXPERTS_HELP,
        1,
        "automatic",
        "CPU MoE, n-cpu-moe",
        AS_PLANNED,
        MAX_LAYERS,
    ),
    Setting(
        "kv_type",
        "KV cache",
        "q8_0 needs half the memory of f16 and q4_0 a quarter, with some loss of quality.",
        term="KV type",
    ),
    Setting(
        "chat_cache_mib",
        "Recent chats",
        (
            "Memory for continuing recent chats without processing them again; long ones are stored on disk. 0 turns "
            "it off."
        ),
        256,
        "automatic",
        "prompt cache",
        suffix=" MiB",
    ),
)
_SPECIAL = (
    Setting(
        "threads",
        "Threads",
        "How many CPU threads generate tokens. Automatic: the faster of two numbers, timed once for each model, and "
        "fewer while other programs are busy.",
        1,
        "automatic",
    ),
    Setting(
        "batch_threads",
        "Batch threads",
        "How many CPU threads process prompts and verify drafts. Automatic: as above, or one per fast core.",
        1,
        "automatic",
        "threads-batch",
    ),
    Setting(
        "batch_size",
        "Batch size",
        "How many prompt tokens are processed before the progress is updated and Stop takes effect.",
        32,
        high=65_536,
    ),
    Setting(
        "micro_batch_size",
        "Micro-batch size",
        "How many tokens are processed at once; smaller values need less memory, but prompts take longer.",
        32,
        high=65_536,
        term="ubatch size",
    ),
    Setting(
        "flash_attention",
        "Flash attention",
        "Needs less memory in long chats and is usually faster. q8_0 and q4_0 KV caches need it.",
        titles={"auto": "automatic"},
    ),
    Setting("draft_context_length", "Draft context", _DRAFT_CONTEXT_HELP, 1024, "automatic"),
    Setting(
        "draft_kv_type",
        "Draft KV cache",
        "Automatic: as the target's. A smaller one may make the draft a little worse.",
        titles={"auto": "automatic"},
    ),
)
_GPU_FIELDS = ("target_gpu_layers", "draft_gpu_layers", "expert_layers_on_cpu")


def _devices(gpus: Sequence[Device]) -> list[Setting]:
    """Settings for several GPUs."""
    names = {gpu.name: f"{gpu.name} · {printable(gpu.description, 40)}" for gpu in gpus}
    return [
        Setting(
            "split_mode",
            "Several GPUs",
            "Spread a model by layers, or by the rows of its matrices, or put it on one, which is fastest if it fits.",
            titles={"layer": "by layers", "row": "by rows", "none": "use one"},
            term="split mode",
        ),
        Setting("main_gpu", "Main GPU", "The one that everything is on.", titles={"": "the first", **names}),
        Setting(
            "draft_device",
            "Draft's GPU",
            "A small draft is fastest on one GPU. Automatic: the one that leaves most for the target.",
            titles={"": "automatic", **names},
        ),
    ]


class LoadFields(Form):
    """Some of the `LoadSettings`, whose changes need a reload."""

    def __init__(self, settings: Sequence[Setting], changed: Callable[[], object], gpus: Sequence[Device]) -> None:
        super().__init__(LoadSettings, settings, changed)
        self._gpus = gpus

    def show_pair(self, target: ModelShape | None, draft: ModelShape | None, *, has_draft: bool) -> None:
        """Show the fields that apply to these models, as far as known, and their memory costs."""
        hidden = set() if self._gpus else set(_GPU_FIELDS)
        hidden |= set() if has_draft else {"draft_gpu_layers"}
        is_head = draft is not None and draft.is_head_only  # its context is the target's
        hidden |= set() if has_draft and not is_head else {"draft_context_length", "draft_kv_type", "draft_device"}
        hidden |= set() if target is not None and target.expert_layers else {"expert_layers_on_cpu"}
        for key, field in self.fields.items():
            self.show_row(field, key not in hidden)
        for key, text in (("expert_layers_on_cpu", _experts_take(target)), ("draft_context_length", _takes(draft))):
            if key in self.fields:
                self.set_help(self.fields[key], text)


def _experts_take(target: ModelShape | None) -> str:
    layers = [layer.experts for layer in target.layers if layer.experts] if target is not None else []
    return (
        f"{_EXPERTS_HELP} Those of one layer take {words.size(sum(layers) // len(layers))}."
        if layers
        else _EXPERTS_HELP
    )


def _takes(draft: ModelShape | None) -> str:
    """Memory for the context of a draft."""
    cells = sum(layer.keys + layer.values for layer in draft.layers if not layer.window) if draft is not None else 0
    return (
        f"{_DRAFT_CONTEXT_HELP} 1,000 tokens take {words.size(2000 * cells)} (f16)." if cells else _DRAFT_CONTEXT_HELP
    )


class MemoryFields(LoadFields):
    """The settings with the most effect on memory."""

    def __init__(self, changed: Callable[[], object], gpus: Sequence[Device] = ()) -> None:
        super().__init__(_MEMORY, changed, gpus)
        self.show_pair(None, None, has_draft=False)

    def summary(self) -> str:
        context, layers = self.value("context_length"), self.value("target_gpu_layers")
        parts = [
            f"context {words.number(context)}" if context else "automatic context",
            f"KV cache {self.value('kv_type')}",
        ]
        on_gpu = "as many layers as fit" if layers < 0 else words.count(layers, "layer")
        parts.append(f"{on_gpu} on the GPU" if self._gpus else "no GPU")
        return " · ".join(parts)


class SpecialFields(LoadFields):
    """Settings that few people need to change."""

    def __init__(self, changed: Callable[[], object], gpus: Sequence[Device] = ()) -> None:
        several = _devices(gpus) if len(gpus) > 1 else []
        super().__init__([*_SPECIAL, *several], changed, gpus)
        for field in self.fields.values():
            if isinstance(field, OneOf):
                keep_width(field)
        self._shares = Shares() if several else None
        if self._shares is not None:
            text = "How much of the model each GPU gets, for example 3, 1. Empty: by their free memory, or as it fits."
            self.add("Shares of GPUs", self._shares, text, "tensor split")
            self._shares.textChanged.connect(changed)
            split = self.fields["split_mode"]
            assert isinstance(split, OneOf)
            split.currentIndexChanged.connect(self._show_split)
        self.show_pair(None, None, has_draft=False)

    def show_pair(self, target: ModelShape | None, draft: ModelShape | None, *, has_draft: bool) -> None:
        """See `LoadFields.show_pair`."""
        super().show_pair(target, draft, has_draft=has_draft)
        self._show_split()

    def show_values(self, values: object) -> None:
        super().show_values(values)
        if self._shares is not None and isinstance(values, LoadSettings):
            self._shares.set_value(values.tensor_split)

    def values(self) -> dict[str, Any]:
        return super().values() | ({"tensor_split": self._shares.value()} if self._shares is not None else {})

    def summary(self) -> str:
        """What differs from the defaults."""
        usual = LoadSettings()
        changed = [key for key in self.fields if self.value(key) != getattr(usual, key)]
        parts = []
        for key in changed:
            name, text = self._settings[key][0].name, self.text_of(key).split(" · ")[0]  # only the name of a GPU
            parts.append(f"{name[0].lower()}{name[1:]} {text}")
        parts += ["shares of GPUs"] if self._shares is not None and self._shares.value() else []
        return " · ".join(parts) or "automatic"

    def _show_split(self) -> None:
        if self._shares is None:
            return
        is_one = self.value("split_mode") == "none"
        self.show_row(self.fields["main_gpu"], is_one)
        self.show_row(self._shares, not is_one)


class Shares(QLineEdit):
    """A list of numbers with commas between them; empty for none."""

    def __init__(self) -> None:
        super().__init__()
        keep_width(self)
        pattern = QRegularExpression(r"[0-9]{0,6}(\.[0-9]{0,3})?(\s*,\s*[0-9]{0,6}(\.[0-9]{0,3})?){0,15}")
        self.setValidator(QRegularExpressionValidator(pattern, self))

    def value(self) -> tuple[float, ...]:
        parts = (part.strip() for part in self.text().split(","))
        return tuple(float(part) for part in parts if part not in ("", "."))

    def set_value(self, shares: Sequence[float]) -> None:
        self.setText(", ".join(f"{share:g}" for share in shares))


class TemplateFields(QWidget):
    """The chat template: the model's own, a general one or a file. ``template``: as in `PairFiles.template`."""

    def __init__(self, changed: Callable[[], object]) -> None:
        super().__init__()
        self._changed = changed
        self.template = ""
        self.box = QComboBox()
        self.box.setAccessibleName("Chat template")
        guard_wheel(self.box)
        self.box.addItem("The model's own", "")
        for name, title in TEMPLATE_TITLES.items():
            self.box.addItem(title, name)
        self.box.addItem("File…", _OTHER_FILE)
        explain(self.box, _TEMPLATE_HELP)
        parts = column((self.box, LEFT), label(_TEMPLATE_HELP, "quiet", wraps=True), gap=SPACING, on=self)
        parts.setContentsMargins(*FIELD_MARGINS)
        self.box.activated.connect(self._on_activated)

    def show_template(self, template: str) -> None:
        if self.box.findData(template) < 0:
            self.box.insertItem(self.box.count() - 1, printable(Path(template).name, 40), template)
        self.template = template
        self.box.setCurrentIndex(self.box.findData(template))
        self._changed()

    def summary(self) -> str:
        text = self.box.currentText()
        return text if self.template else text[0].lower() + text[1:]

    @Slot(int)
    def _on_activated(self, index: int) -> None:
        if (template := str(self.box.itemData(index))) != _OTHER_FILE:
            self.show_template(template)
            return
        self.show_template(self.template)
        filters = "Chat templates (*.jinja *.jinja2 *.j2 *.txt *.json);;All files (*)"
        dialog = QFileDialog(self, "Choose a chat template", filter=filters)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.show_template)
        open_in_folder(dialog, "" if self.template in TEMPLATE_TITLES else str(Path(self.template).parent))


class AcceptRuleFields(QWidget):
    """How to decide whether a draft token is accepted."""

    _RULES: tuple[tuple[AcceptRule, str, str], ...] = (
        (
            "coupled",
            "Coupled: same seed, same answer",
            "The same seed gives the same answer with any draft model, any draft length, or no draft.",
        ),
        (
            "exact",
            "Exact: the same even where rounding differs",
            (
                "Like Coupled, also on GPUs and for models in F16 or Q4_K_M, where rounding depends on how many tokens "
                "are checked at once. Answers can be slower there; everywhere else nothing changes."
            ),
        ),
        (
            "rejection",
            "Rejection sampling",
            (
                "The standard method: each answer is as likely as without a draft, but the draft affects which one a "
                "seed gives."
            ),
        ),
        (
            "block",
            "Block verification",
            "Like rejection sampling, but it checks the draft as a whole and accepts as many tokens or more.",
        ),
    )

    def __init__(self, changed: Callable[[], object]) -> None:
        super().__init__()
        parts = column(gap=SPACING, margins=FIELD_MARGINS, on=self)
        self._buttons: dict[AcceptRule, QRadioButton] = {}
        for rule, title, help_text in self._RULES:
            button = QRadioButton(title)
            explain(button, help_text)
            button.setAccessibleDescription(help_text)
            hint = label(help_text, "quiet", wraps=True)
            hint.setContentsMargins(6 * SPACING, 0, 0, SPACING)
            self._buttons[rule] = button
            parts.addWidget(button)
            parts.addWidget(hint)
        self._buttons["coupled"].setChecked(True)
        for button in self._buttons.values():
            button.toggled.connect(lambda is_checked: changed() if is_checked else None)

    def show_rule(self, rule: AcceptRule) -> None:
        self._buttons[rule].setChecked(True)

    def summary(self) -> str:
        return self.rule()

    def rule(self) -> AcceptRule:
        return next(rule for rule, button in self._buttons.items() if button.isChecked())


FILE_FILTER = "GGUF models (*.gguf)"
_TYPING_MS = 300
MOST, MOST_GRAY = 30, 12
"""The most models a picker lists, of those that can be chosen and of the others; more would fill the screen."""
_NO_TARGET = "Choose a target model first."


def dropped_files(data: QMimeData) -> list[str]:
    """Paths of the GGUF files that are being dragged."""
    paths = [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
    return [path for path in paths if path.lower().endswith(".gguf")]


class FileRow(QWidget):
    """A path that can be typed, chosen or dropped, with a description of the file below it."""

    path_changed = Signal()
    """Emitted when the user stops typing, not after every key."""

    def __init__(
        self, title: str, help_text: str, *, can_be_empty: bool, start_folder: str = "", picker: str = "Library"
    ) -> None:
        """``start_folder``: where the file dialog opens without a path. ``picker``: the text of the button that lists
        models of the library.
        """
        super().__init__()
        self._title = title
        self._start_folder = start_folder
        self._edit = QLineEdit(placeholderText="None" if can_be_empty else "Choose a .gguf file or drop it here")
        self._edit.setAccessibleName(title)
        choose = push_button("Choose…", self._on_choose, name=f"Choose {title.lower()}")
        self.picker = ModelPicker(picker, f"{title} from the library")
        self.picker.chosen.connect(self.set_path)
        clear = QToolButton()
        icons.set_icon(clear, "close")
        clear.setAccessibleName(f"No {title.lower()}")
        clear.setToolTip(f"No {title.lower()}")
        self._info = label(role="quiet", wraps=True)
        self._info.setMinimumHeight(self._info.fontMetrics().height())
        self._pause = QTimer(self, singleShot=True, interval=_TYPING_MS)
        heading = label(title, "heading", buddy=self._edit)
        for part in (heading, self._edit):
            explain(part, help_text)
        column(heading, row((self._edit, 1), clear, self.picker, choose), self._info, gap=SPACING, on=self)
        clear.setVisible(can_be_empty)  # only now that it has a parent, or it would briefly be a window of its own
        self.setAcceptDrops(True)
        self._edit.setAcceptDrops(False)  # it would insert the URL as text
        self._edit.textEdited.connect(self._pause.start)
        self._edit.editingFinished.connect(self._on_editing_finished)
        self._pause.timeout.connect(self._on_changed)
        clear.clicked.connect(lambda: self.set_path(""))

    def path(self) -> str:
        """The path as typed or pasted, also quoted, as a file's address or with ``~``; empty for none."""
        typed = self._edit.text().strip().strip("'\"")
        typed = url.toLocalFile() if (url := QUrl(typed)).isLocalFile() else typed
        return str(Path(typed).expanduser()) if typed.startswith("~/") else typed

    def set_path(self, path: str) -> None:
        """Emits `path_changed` if it differs."""
        if path == self.path():
            return
        self._edit.setText(path)
        self._on_changed()

    def set_info(self, text: str) -> None:
        """Show the description of the file."""
        self._info.setText(visible(text))

    @Slot()
    def _on_editing_finished(self) -> None:
        if self._pause.isActive():
            self._on_changed()

    @Slot()
    def _on_changed(self) -> None:
        self._pause.stop()
        self.path_changed.emit()

    @Slot()
    def _on_choose(self) -> None:
        dialog = QFileDialog(self, f"Choose {self._title.lower()}", filter=FILE_FILTER)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        folder = str(Path(self.path()).parent) if self.path() else self._start_folder
        dialog.fileSelected.connect(self.set_path)
        open_in_folder(dialog, folder)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(len(dropped_files(event.mimeData())) == 1)

    def dropEvent(self, event: QDropEvent) -> None:
        self.set_path(dropped_files(event.mimeData())[0])
        event.acceptProposedAction()


@dataclass(frozen=True)
class Pick:
    """One model in the menu."""

    path: str
    text: str
    can_choose: bool = True
    reason: str = ""
    """Why an entry can't be chosen; shown after its text and as its tooltip."""


class ModelPicker(QPushButton):
    """A button with a menu of models; those that can't be chosen are gray and say why. Signal ``chosen``: the path of a
    model.
    """

    chosen = Signal(str)

    def __init__(self, text: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(f"{text} ▾", parent, autoDefault=False)
        self.setAccessibleName(name)
        self._menu = QMenu(self, toolTipsVisible=True)
        self.setMenu(self._menu)

    def show_picks(self, picks: Sequence[Pick], otherwise: str) -> None:
        """``otherwise`` is shown if there are none."""
        self._menu.clear()
        choosable = [pick for pick in picks if pick.can_choose]
        gray = [pick for pick in picks if not pick.can_choose]
        self._add(choosable, MOST, "more in the model library")
        if choosable and gray:
            self._menu.addSeparator()
        self._add(gray, MOST_GRAY, "more that don't fit")
        if not picks:
            self._menu.addAction(otherwise).setEnabled(False)

    def _add(self, picks: Sequence[Pick], most: int, more: str) -> None:
        """Add the first ``most`` of them; ``more`` describes the others."""
        for pick in picks[:most]:
            text = pick.text if pick.can_choose else f"{pick.text}: {pick.reason}"
            action = self._menu.addAction(text.replace("&", "&&"))
            action.setToolTip(plain_tooltip("\n".join(part for part in (pick.path, pick.reason) if part)))
            action.setEnabled(pick.can_choose)
            action.triggered.connect(lambda _checked=False, path=pick.path: self.chosen.emit(path))
        if len(picks) > most:
            self._menu.addAction(f"{len(picks) - most} {more}").setEnabled(False)


class PairPicks(QObject):
    """Fills the pickers when the library or the target changes: all models as targets, and drafts ranked for the
    target. Signal ``ranked``: the `RankedDraft`s for the target, most promising first.
    """

    ranked = Signal(list)

    def __init__(
        self, targets: ModelPicker, drafts: ModelPicker, library: LibraryService, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._targets = targets
        self._drafts = drafts
        self._library = library
        self._target = ""
        self.entry: LibraryEntry | None = None
        """The target that drafts were ranked for."""
        self._ranked: Sequence[RankedDraft] = ()
        self.own_head: Trial | None = None
        """The trial of the MTP head inside it."""
        library.scanned.connect(self._on_scanned)
        self._drafts.show_picks([], _NO_TARGET)
        self._on_scanned()
        library.scan()

    def set_target(self, path: str) -> None:
        """The file that drafts are ranked for; empty for none."""
        self._target = path
        if self.entry is not None and str(self.entry.path) != path:
            self.entry = self.own_head = None
        if not path:
            self._drafts.show_picks([], _NO_TARGET)
            return
        self._library.ask(
            lambda library: library.entry_at(Path(path)), partial(self._rank, path), partial(self._on_failed, path)
        )

    def proposal(self, *, only_head: bool) -> str:
        """The most promising draft without a warning; empty for none. A target that drafts itself needs none, unless
        one measured faster. ``only_head``: only a file with a head of the target.
        """
        best = next((draft for draft in self._ranked if draft.verdict.fits and draft.verdict.warning is None), None)
        if best is None or (only_head and not best.entry.is_head):
            return ""
        own = self.own_head.speed_up if self.own_head else 1.0
        was_faster = best.trial is not None and best.trial.speed_up > max(1.0, own)
        drafts_itself = self.entry is not None and self.entry.drafts_itself
        return str(best.entry.path) if was_faster or not drafts_itself else ""

    @Slot()
    def _on_scanned(self) -> None:
        entries = sorted(self._library.entries(), key=lambda entry: entry.last_used or 0, reverse=True)
        self._targets.show_picks([_target_pick(entry) for entry in entries], "No models in the library yet.")
        self.set_target(self._target)

    def _rank(self, path: str, target: LibraryEntry) -> None:
        if isValid(self) and path == self._target:
            self._library.rank(target, partial(self._on_ranked, path, target))

    def _on_ranked(self, path: str, target: LibraryEntry, ranking: Ranking) -> None:
        if isValid(self) and path == self._target:
            self.entry, self.own_head, self._ranked = target, ranking.own_head, ranking.drafts
            self._drafts.show_picks([_draft_pick(one) for one in ranking.drafts], "No other models in the library.")
            self.ranked.emit(ranking.drafts)

    def _on_failed(self, path: str, error: KnownError) -> None:
        if isValid(self) and path == self._target:
            self._drafts.show_picks([], str(error))


def _name(entry: LibraryEntry) -> str:
    quantization = entry.summary.quantization if entry.summary else ""
    parts = (printable(entry.title, 60), printable(quantization), words.size(entry.size))
    return " · ".join(dict.fromkeys(part for part in parts if part))


def _target_pick(entry: LibraryEntry) -> Pick:
    away = "" if entry.available else "its folder isn't available"
    return Pick(str(entry.path), _name(entry), entry.usable, entry.problem or away)


def _draft_pick(ranked: RankedDraft) -> Pick:
    text, trial = _name(ranked.entry), ranked.trial
    if ranked.entry.is_head:
        text = f"{ranked.entry.head_title} · {text}"
    if ranked.verdict.fits and trial is not None:
        accepted = "" if trial.acceptance_rate is None else f"{words.accepted(trial.acceptance_rate)}, "
        text += f" · {accepted}{words.speed_up(trial.speed_up)} here"
    elif ranked.verdict.fits and ranked.verdict.warning:
        text += " · large for a draft"
    return Pick(str(ranked.entry.path), text, ranked.verdict.fits, ranked.verdict.reason)
