"""The four sections of the Open models dialog: each shows a part of the choice and gives it back."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QCheckBox, QPlainTextEdit, QRadioButton, QVBoxLayout, QWidget

from app.protocol.limits import MAX_CONTEXT_LENGTH, MAX_THREADS, KvType
from app.protocol.messages import AcceptRule, LoadSettings, Sampling
from app.ui.models.choice import OpenModelsChoice, stop_strings_as_text, stop_strings_from
from app.ui.widgets.controls import explain, label
from app.ui.widgets.number_fields import FIELD_WIDTH, Decimal, Digits, FieldTable, OneOf, Whole
from app.ui.widgets.theme import SPACING

_LONGEST = 2**30
_HIGHEST_SEED = 2**63 - 1
_AUTOMATIC = -1
_NO_GPU = "No GPU in this build: everything runs on the processor."
_LAYERS_HELP = "How many layers are computed on the GPU. Automatic: as many as fit; 0 keeps all on the processor."


class SamplingFields(FieldTable):
    """How the next token is drawn, and when an answer ends."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._temperature = Decimal(0, 10, 0.05, "greedy")
        self._top_k = Whole(0, 1_000_000, 5, "off")
        self._top_p = Decimal(0.0001, 1, 0.01)
        self._min_p = Decimal(0, 1, 0.01, "off")
        self._repetition = Decimal(0.01, 10, 0.05)
        self._frequency = Decimal(-10, 10, 0.1)
        self._presence = Decimal(-10, 10, 0.1)
        self._window = Whole(0, _LONGEST, 16, "none")
        self._random_seed = QCheckBox("Random")
        self._seed = Digits(_HIGHEST_SEED)
        self._longest = Whole(0, _LONGEST, 64, "no limit")
        self._stop = QPlainTextEdit()
        self._add_rows()
        spins = (self._top_k, self._window, self._longest)
        decimals = (
            self._temperature,
            self._top_p,
            self._min_p,
            self._repetition,
            self._frequency,
            self._presence,
        )
        for whole in spins:
            whole.valueChanged.connect(self.changed)
        for decimal in decimals:
            decimal.valueChanged.connect(self.changed)
        self._random_seed.toggled.connect(self._on_random_toggled)
        self._seed.textChanged.connect(self.changed)
        self._stop.textChanged.connect(self.changed)

    def _add_rows(self) -> None:
        self.add("Temperature", self._temperature, "Higher is more varied. 0 always takes the most likely token.")
        self.add("Top-k", self._top_k, "Keeps the k most likely tokens. 0 keeps all.")
        self.add("Top-p", self._top_p, "Keeps the likeliest tokens until their shares add up to this. 1 is off.")
        self.add("Min-p", self._min_p, "Drops tokens below this share of the likeliest one. 0 is off.")
        self.add("Repetition penalty", self._repetition, "Above 1 makes tokens that stand there already less likely.")
        self.add(
            "Frequency penalty", self._frequency, "Taken off for each time a token stands there already. 0 is off."
        )
        self.add("Presence penalty", self._presence, "Taken off once for a token that stands there already. 0 is off.")
        self.add("Penalty window", self._window, "How many of the last tokens the penalties look at.")
        self.add("Seed", self._random_seed, "Another seed for each answer, or one of yours: same seed, same answer.")
        self.add("Fixed seed", self._seed, "A whole number; only while the seed is not random.")
        self.add("Longest answer", self._longest, "Tokens after which an answer is cut. 0 is no limit.", "max tokens")
        self._stop.setTabChangesFocus(True)
        self._stop.setFixedSize(FIELD_WIDTH, 64)
        self.add(
            "Stop strings", self._stop, "One a line. The answer ends before the first of them; \\n is a line break."
        )

    def show_choice(self, choice: OpenModelsChoice) -> None:
        sampling = choice.sampling
        self._temperature.setValue(sampling.temperature)
        self._top_k.setValue(sampling.top_k)
        self._top_p.setValue(sampling.top_p)
        self._min_p.setValue(sampling.min_p)
        self._repetition.setValue(sampling.repetition_penalty)
        self._frequency.setValue(sampling.frequency_penalty)
        self._presence.setValue(sampling.presence_penalty)
        self._window.setValue(sampling.penalty_window)
        self._random_seed.setChecked(choice.seed is None)
        self._seed.set_value(choice.seed)
        self._seed.setEnabled(choice.seed is not None)
        self._longest.setValue(choice.max_tokens or 0)
        self._stop.setPlainText(stop_strings_as_text(choice.stop))

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        sampling = Sampling(
            temperature=self._temperature.value(),
            top_k=self._top_k.value(),
            top_p=self._top_p.value(),
            min_p=self._min_p.value(),
            repetition_penalty=self._repetition.value(),
            frequency_penalty=self._frequency.value(),
            presence_penalty=self._presence.value(),
            penalty_window=self._window.value(),
        )
        return replace(
            choice,
            sampling=sampling,
            seed=None if self._random_seed.isChecked() else self._seed.value() or 0,
            max_tokens=self._longest.value() or None,
            stop=stop_strings_from(self._stop.toPlainText()),
        )

    def summary(self) -> str:
        parts = [f"temperature {self._temperature.text()}", f"top-k {self._top_k.text()}"]
        parts.append("random seed" if self._random_seed.isChecked() else f"seed {self._seed.text() or '0'}")
        if self._longest.value():
            parts.append(f"at most {self._longest.value():,} tokens")
        return " · ".join(parts)

    def _on_random_toggled(self, is_random: bool) -> None:
        self._seed.setEnabled(not is_random)
        if not is_random and not self._seed.text():
            self._seed.set_value(0)
        self.changed.emit()


class SystemPromptField(QWidget):
    """What the model is told before each chat."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._text = QPlainTextEdit()
        self._text.setTabChangesFocus(True)
        self._text.setFixedHeight(96)
        self._text.setPlaceholderText("None. For example: Answer in short sentences.")
        self._text.setAccessibleName("System prompt")
        explain(self._text, "What the model is told before each chat. It stays in the context when old messages leave.")
        column = QVBoxLayout(self)
        column.setContentsMargins(6 * SPACING, 0, 0, 2 * SPACING)
        column.addWidget(self._text)
        self._text.textChanged.connect(self.changed)

    def show_choice(self, choice: OpenModelsChoice) -> None:
        self._text.setPlainText(choice.system_prompt)

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        return replace(choice, system_prompt=self._text.toPlainText())

    def summary(self) -> str:
        words = " ".join(self._text.toPlainText().split())
        return "none" if not words else words if len(words) <= 48 else f"{words[:47]}…"


class MemoryFields(FieldTable):
    """How the pair is loaded; a change here needs a reload."""

    changed = Signal()

    def __init__(self, *, has_gpu: bool) -> None:
        super().__init__()
        self._has_gpu = has_gpu
        self._context = Whole(0, MAX_CONTEXT_LENGTH, 1024, "automatic")
        self._threads = Whole(0, MAX_THREADS, 1, "automatic")
        self._target_layers = Whole(_AUTOMATIC, 10_000, 1, "automatic")
        self._draft_layers = Whole(_AUTOMATIC, 10_000, 1, "automatic")
        self._batch = Whole(32, 65_536, 32)
        self._micro_batch = Whole(32, 65_536, 32)
        self._kv_type = OneOf([("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")])
        self._kept = Whole(_AUTOMATIC, _LONGEST, 256, "automatic")
        self._kept.setSuffix(" MiB")
        self._add_rows()
        for layers in (self._target_layers, self._draft_layers):
            layers.setEnabled(has_gpu)
        for field in (
            self._context,
            self._threads,
            self._target_layers,
            self._draft_layers,
            self._batch,
            self._micro_batch,
            self._kept,
        ):
            field.valueChanged.connect(self.changed)
        self._kv_type.currentIndexChanged.connect(self.changed)

    def _add_rows(self) -> None:
        layers_help = _LAYERS_HELP if self._has_gpu else _NO_GPU
        context_help = "Tokens a chat can have. Automatic: what the target was trained for, at most 8,192."
        self.add("Context length", self._context, context_help)
        self.add("Threads", self._threads, "Automatic: one for each physical core.")
        self.add("Target on the GPU", self._target_layers, layers_help, "offload, GPU layers")
        self.add("Draft on the GPU", self._draft_layers, layers_help, "offload, GPU layers")
        self.add("Batch size", self._batch, "Tokens of a prompt processed between two looks at Stop and the progress.")
        self.add("Micro-batch size", self._micro_batch, "Most tokens computed at once; smaller needs less memory.")
        self.add(
            "KV cache", self._kv_type, "q8_0 needs half the memory of f16, q4_0 a quarter, at some loss.", "KV type"
        )
        self.add(
            "Recent chats",
            self._kept,
            "Memory to go on with a recent chat without reading it again; long ones go to disk. 0 keeps none.",
            "kept KV caches",
        )

    def show_choice(self, choice: OpenModelsChoice) -> None:
        load = choice.load
        self._context.setValue(load.context_length)
        self._threads.setValue(load.threads)
        self._target_layers.setValue(load.target_gpu_layers)
        self._draft_layers.setValue(load.draft_gpu_layers)
        self._batch.setValue(load.batch_size)
        self._micro_batch.setValue(load.micro_batch_size)
        self._kv_type.set_value(load.kv_type)
        self._kept.setValue(load.kept_cache_mib)

    def set_context(self, tokens: int) -> None:
        self._context.setValue(tokens)

    def set_target_layers(self, layers: int) -> None:
        self._target_layers.setValue(layers)

    def set_kv_type(self, kv_type: KvType) -> None:
        self._kv_type.set_value(kv_type)

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        load = LoadSettings(
            context_length=self._context.value(),
            threads=self._threads.value(),
            target_gpu_layers=self._target_layers.value(),
            draft_gpu_layers=self._draft_layers.value(),
            batch_size=self._batch.value(),
            micro_batch_size=self._micro_batch.value(),
            kv_type=cast(KvType, self._kv_type.value()),
            kept_cache_mib=self._kept.value(),
        )
        return replace(choice, load=load)

    def summary(self) -> str:
        context = self._context.value()
        parts = [f"context {context:,}" if context else "automatic context", f"KV cache {self._kv_type.value()}"]
        layers = "as many layers as fit" if self._target_layers.value() < 0 else f"{self._target_layers.text()} layers"
        parts.append(f"{layers} on the GPU" if self._has_gpu else "no GPU")
        return " · ".join(parts)


class AcceptRuleFields(QWidget):
    """How it is decided whether a guess is kept."""

    changed = Signal()

    _RULES: tuple[tuple[AcceptRule, str, str], ...] = (
        (
            "coupled",
            "Coupled: same seed, same answer",
            "The same seed gives the same answer with any draft, any draft length, or none.",
        ),
        (
            "rejection",
            "Rejection sampling",
            "The classic rule: answers are as likely as without a draft, but the draft changes which one a seed gives.",
        ),
        (
            "block",
            "Block verification",
            "As rejection sampling, but it judges a draft as a whole and keeps as much of it or more.",
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        column = QVBoxLayout(self)
        column.setContentsMargins(6 * SPACING, 0, 0, 2 * SPACING)
        column.setSpacing(SPACING)
        self._group = QButtonGroup(self)
        self._buttons: dict[AcceptRule, QRadioButton] = {}
        for rule, title, help_text in self._RULES:
            button = QRadioButton(title)
            explain(button, help_text)
            button.setAccessibleDescription(help_text)
            hint = label(help_text, "quiet", wraps=True)
            hint.setContentsMargins(6 * SPACING, 0, 0, SPACING)
            self._group.addButton(button)
            self._buttons[rule] = button
            column.addWidget(button)
            column.addWidget(hint)
        self._buttons["coupled"].setChecked(True)
        self._group.buttonToggled.connect(self._on_toggled)

    def show_choice(self, choice: OpenModelsChoice) -> None:
        self._buttons[choice.accept].setChecked(True)

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        return replace(choice, accept=self._rule())

    def summary(self) -> str:
        return self._rule()

    def _rule(self) -> AcceptRule:
        return next(rule for rule, button in self._buttons.items() if button.isChecked())

    def _on_toggled(self, _button: object, is_checked: bool) -> None:
        if is_checked:
            self.changed.emit()
