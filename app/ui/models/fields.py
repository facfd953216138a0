"""The four sections of the Open models dialog: each shows a part of the choice and gives it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtWidgets import QCheckBox, QPlainTextEdit, QRadioButton, QWidget

from app.protocol.messages import AcceptRule, LoadSettings, Sampling
from app.settings import Settings
from app.ui.models.choice import OpenModelsChoice, stop_strings_as_text, stop_strings_from
from app.ui.widgets.controls import explain, label
from app.ui.widgets.forms import FIELD_MARGINS, FIELD_WIDTH, Digits, Form, Setting
from app.ui.widgets.layouts import column
from app.ui.widgets.theme import SPACING

_HIGHEST_SEED = 2**63 - 1
_NO_GPU = "This build has no GPU support, so everything runs on the CPU."

_SAMPLING = (
    Setting(
        "temperature",
        "Temperature",
        "Higher values give more varied answers. At 0, the most likely token is always picked.",
        0.05,
        "greedy",
    ),
    Setting(
        "top_k",
        "Top-k",
        "Only the k most likely tokens are considered. 0 considers all of them.",
        5,
        "off",
        high=1_000_000,
    ),
    Setting(
        "top_p",
        "Top-p",
        "Only the most likely tokens are considered, until their probabilities add up to this value. 1 turns it off.",
        0.01,
        low=0.0001,
    ),
    Setting(
        "min_p",
        "Min-p",
        "Ignores tokens whose probability is below this fraction of the most likely token's. 0 turns it off.",
        0.01,
        "off",
    ),
    Setting(
        "repetition_penalty",
        "Repetition penalty",
        "Values above 1 make tokens less likely if they have already been used.",
        0.05,
        low=0.01,
    ),
    Setting(
        "frequency_penalty",
        "Frequency penalty",
        "Subtracted each time a token has already been used. 0 turns it off.",
        0.1,
    ),
    Setting(
        "presence_penalty",
        "Presence penalty",
        "Subtracted once if a token has already been used. 0 turns it off.",
        0.1,
    ),
    Setting(
        "penalty_window", "Penalty window", "How many of the most recent tokens the penalties apply to.", 16, "none"
    ),
)
_LONGEST = Setting(
    "longest_answer",
    "Maximum answer length",
    "Answers are cut off after this many tokens. 0 means no limit.",
    64,
    "no limit",
    "max tokens",
)


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
        "How many prompt tokens are processed before Stop and the progress are checked again.",
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


class SamplingFields(Form):
    """How the next token is drawn, and when an answer ends."""

    def __init__(self, changed: Callable[[], object]) -> None:
        super().__init__(Sampling, _SAMPLING, changed)
        self._random_seed = QCheckBox("Random")
        self._seed = Digits(_HIGHEST_SEED)
        self.add("Seed", self._random_seed, "Another seed for each answer, or one of yours: same seed, same answer.")
        self.add("Fixed seed", self._seed, "A whole number, used when the seed is not random.")
        self.add_settings(Settings, [_LONGEST])
        self._stop = QPlainTextEdit(tabChangesFocus=True)
        self._stop.setFixedSize(FIELD_WIDTH, 64)
        stop_help = "One per line. The answer ends before the first of them appears; \n stands for a line break."
        self.add("Stop strings", self._stop, stop_help)
        self._random_seed.toggled.connect(self._on_random_toggled)
        self._seed.textChanged.connect(changed)
        self._stop.textChanged.connect(changed)

    def show_choice(self, choice: OpenModelsChoice) -> None:
        for setting in _SAMPLING:
            self.set_value(setting.key, getattr(choice.sampling, setting.key))
        self._random_seed.setChecked(choice.seed is None)
        self._seed.set_value(choice.seed)
        self._seed.setEnabled(choice.seed is not None)
        self.set_value("longest_answer", choice.max_tokens)
        self._stop.setPlainText(stop_strings_as_text(choice.stop))

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        return replace(
            choice,
            sampling=Sampling(**{setting.key: self.value(setting.key) for setting in _SAMPLING}),
            seed=None if self._random_seed.isChecked() else self._seed.value() or 0,
            max_tokens=self.value("longest_answer"),
            stop=stop_strings_from(self._stop.toPlainText()),
        )

    def summary(self) -> str:
        parts = [f"temperature {self.text_of('temperature')}", f"top-k {self.text_of('top_k')}"]
        parts.append("random seed" if self._random_seed.isChecked() else f"seed {self._seed.text() or '0'}")
        if longest := self.value("longest_answer"):
            parts.append(f"up to {longest:,} tokens")
        return " · ".join(parts)

    def _on_random_toggled(self, is_random: bool) -> None:
        self._seed.setEnabled(not is_random)
        if not is_random and not self._seed.text():
            self._seed.set_value(0)
        self._changed()


class SystemPromptField(QWidget):
    """What the model is told before each chat."""

    def __init__(self, changed: Callable[[], object]) -> None:
        super().__init__()
        example = "None. For example: Answer in short sentences."
        self._text = QPlainTextEdit(tabChangesFocus=True, placeholderText=example)
        self._text.setFixedHeight(96)
        self._text.setAccessibleName("System prompt")
        explain(
            self._text,
            (
                "Instructions that the model gets at the start of every chat. They stay in the context "
                "when old messages are dropped."
            ),
        )
        column(self._text, margins=FIELD_MARGINS, on=self)
        self._text.textChanged.connect(changed)

    def show_choice(self, choice: OpenModelsChoice) -> None:
        self._text.setPlainText(choice.system_prompt)

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        return replace(choice, system_prompt=self._text.toPlainText())

    def summary(self) -> str:
        words = " ".join(self._text.toPlainText().split())
        return "none" if not words else words if len(words) <= 48 else f"{words[:47]}…"


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
        """``choice`` with what is set here."""
        return replace(choice, load=LoadSettings(**self.values()))

    def summary(self) -> str:
        context, layers = self.value("context_length"), self.value("target_gpu_layers")
        parts = [f"context {context:,}" if context else "automatic context", f"KV cache {self.value('kv_type')}"]
        on_gpu = "as many layers as fit" if layers < 0 else f"{layers:,} layers"
        parts.append(f"{on_gpu} on the GPU" if self._has_gpu else "no GPU")
        return " · ".join(parts)


class AcceptRuleFields(QWidget):
    """How it is decided whether a guess is kept."""

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
                "The classic method: answers are as likely as without a draft, but the draft affects which answer a "
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
        """``choice`` with what is set here."""
        return replace(choice, accept=self._rule())

    def summary(self) -> str:
        return self._rule()

    def _rule(self) -> AcceptRule:
        return next(rule for rule, button in self._buttons.items() if button.isChecked())
