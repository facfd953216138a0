"""The two sections of the Open models dialog: each shows a part of the choice and returns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtWidgets import QRadioButton, QWidget

from app.protocol.messages import AcceptRule, LoadSettings
from app.ui.models.choice import OpenModelsChoice
from app.ui.widgets.controls import explain, label
from app.ui.widgets.forms import FIELD_MARGINS, Form, Setting
from app.ui.widgets.layouts import column
from app.ui.widgets.theme import SPACING

_NO_GPU = "This build has no GPU support, so everything runs on the CPU."


def _gpu_layers(key: str, name: str) -> Setting:
    help_text = "How many layers run on the GPU. Automatic: as many as fit. 0 runs everything on the CPU."
    return Setting(key, name, help_text, 1, "automatic", "GPU offload, GPU layers", low=-1, high=10_000)


_LOADING = (
    Setting(
        "context_length",
        "Context length",
        "How many tokens a chat can hold. Automatic: what the target model was trained for, up to 8,192.",
        1024,
        "automatic",
    ),
    Setting("threads", "Threads", "Automatic: one per physical core.", 1, "automatic"),
    _gpu_layers("target_gpu_layers", "Target on the GPU"),
    _gpu_layers("draft_gpu_layers", "Draft on the GPU"),
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
        "How many tokens are processed at once; smaller values need less memory.",
        32,
        high=65_536,
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


class MemoryFields(Form):
    """How the pair is loaded; a change here needs a reload."""

    def __init__(self, changed: Callable[[], object], *, has_gpu: bool) -> None:
        layers = {"target_gpu_layers", "draft_gpu_layers"}
        rows = [replace(one, help=_NO_GPU) if one.key in layers and not has_gpu else one for one in _LOADING]
        super().__init__(LoadSettings, rows, changed)
        self._has_gpu = has_gpu
        for key in layers:
            self.fields[key].setEnabled(has_gpu)

    def show_choice(self, choice: OpenModelsChoice) -> None:
        self.show_values(choice.load)

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with the values set here."""
        return replace(choice, load=LoadSettings(**self.values()))

    def summary(self) -> str:
        context, layers = self.value("context_length"), self.value("target_gpu_layers")
        parts = [f"context {context:,}" if context else "automatic context", f"KV cache {self.value('kv_type')}"]
        on_gpu = "as many layers as fit" if layers < 0 else "1 layer" if layers == 1 else f"{layers:,} layers"
        parts.append(f"{on_gpu} on the GPU" if self._has_gpu else "no GPU")
        return " · ".join(parts)


class AcceptRuleFields(QWidget):
    """How to decide whether a draft token is accepted."""

    _RULES: tuple[tuple[AcceptRule, str, str], ...] = (
        (
            "coupled",
            "Coupled: same seed, same answer",
            "The same seed gives the same answer with any draft model, any draft length, or no draft.",
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

    def show_choice(self, choice: OpenModelsChoice) -> None:
        self._buttons[choice.accept].setChecked(True)

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with the values set here."""
        return replace(choice, accept=self._rule())

    def summary(self) -> str:
        return self._rule()

    def _rule(self) -> AcceptRule:
        return next(rule for rule, button in self._buttons.items() if button.isChecked())
