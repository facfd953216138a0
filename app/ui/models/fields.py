"""The sections of the Open models dialog: each shows a part of how models are loaded and used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QRegularExpression, Slot
from PySide6.QtGui import QRegularExpressionValidator
from PySide6.QtWidgets import QComboBox, QFileDialog, QLineEdit, QRadioButton, QWidget

from app.models.memory_estimate import ModelShape
from app.models.text import printable, size_text
from app.protocol.devices import Device
from app.protocol.limits import AS_PLANNED, MAX_LAYERS
from app.protocol.options import TEMPLATE_TITLES, AcceptRule, LoadSettings
from app.ui.widgets.controls import explain, guard_wheel, label
from app.ui.widgets.forms import FIELD_MARGINS, Form, OneOf, Setting, keep_width
from app.ui.widgets.layouts import LEFT, column
from app.ui.widgets.questions import open_in_folder
from app.ui.widgets.theme import SPACING

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
"""Stands for a file that is still to be chosen."""


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
    """Some of the `LoadSettings`; a change here needs a reload."""

    def __init__(self, settings: Sequence[Setting], changed: Callable[[], object], gpus: Sequence[Device]) -> None:
        super().__init__(LoadSettings, settings, changed)
        self._gpus = gpus

    def show_pair(self, target: ModelShape | None, draft: ModelShape | None, *, has_draft: bool) -> None:
        """Show what makes sense for these models, as far as they are known, and what it takes."""
        hidden = set() if self._gpus else set(_GPU_FIELDS)
        hidden |= set() if has_draft else {"draft_gpu_layers"}
        is_head = draft is not None and draft.is_head_only  # its context is that of the target
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
        f"{_EXPERTS_HELP} Those of one layer take {size_text(sum(layers) // len(layers))}." if layers else _EXPERTS_HELP
    )


def _takes(draft: ModelShape | None) -> str:
    """What the context of a draft takes."""
    cells = sum(layer.keys + layer.values for layer in draft.layers if not layer.window) if draft is not None else 0
    return f"{_DRAFT_CONTEXT_HELP} 1,000 tokens take {size_text(2000 * cells)} (f16)." if cells else _DRAFT_CONTEXT_HELP


class MemoryFields(LoadFields):
    """What decides about memory most."""

    def __init__(self, changed: Callable[[], object], gpus: Sequence[Device] = ()) -> None:
        super().__init__(_MEMORY, changed, gpus)
        self.show_pair(None, None, has_draft=False)

    def summary(self) -> str:
        context, layers = self.value("context_length"), self.value("target_gpu_layers")
        parts = [f"context {context:,}" if context else "automatic context", f"KV cache {self.value('kv_type')}"]
        on_gpu = "as many layers as fit" if layers < 0 else "1 layer" if layers == 1 else f"{layers:,} layers"
        parts.append(f"{on_gpu} on the GPU" if self._gpus else "no GPU")
        return " · ".join(parts)


class SpecialFields(LoadFields):
    """What few people need to change."""

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
        """What isn't as by default."""
        usual = LoadSettings()
        changed = [key for key in self.fields if self.value(key) != getattr(usual, key)]
        parts = []
        for key in changed:
            name, text = self._settings[key][0].name, self.text_of(key).split(" · ")[0]  # of a GPU only its name
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
    """The chat template: the model's own, a general one or a file.

    Attributes:
        template: As in `PairFiles.template`.
    """

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
