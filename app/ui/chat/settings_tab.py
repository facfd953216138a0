"""The side panel's second tab: how the answers of the chat that is shown are written."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QSignalBlocker, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from app.chats.settings import (
    OVERFLOW_TITLES,
    ChatSettings,
    SamplingChoice,
    stop_strings_as_text,
    stop_strings_from,
)
from app.protocol.messages import DrafterChoice, Sampling
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import explain, guard_wheel, label
from app.ui.widgets.forms import Decimal, Digits, Whole, words_of
from app.ui.widgets.layouts import column, row
from app.ui.widgets.section import Section
from app.ui.widgets.theme import SPACING

CHANGE_DELAY_MS = 300
"""After the last key, before what was typed counts."""
NO_PRESET = "None"
_STEPS = {
    "temperature": 0.1,
    "top_k": 5,
    "top_p": 0.05,
    "min_p": 0.01,
    "repetition_penalty": 0.05,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "penalty_window": 16,
}
_RANGES = {
    "temperature": (0.0, 10.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0001, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0001, 10.0),
    "frequency_penalty": (-10.0, 10.0),
    "presence_penalty": (-10.0, 10.0),
    "penalty_window": (0, 1_000_000),
}
MOST_TOKENS = 2**30


class TextField(QPlainTextEdit):
    """Some lines of text; Tab leaves it."""

    def __init__(self, name: str, lines: int) -> None:
        super().__init__(tabChangesFocus=True)
        self._lines = lines
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(120, self._lines * self.fontMetrics().lineSpacing() + 4 * SPACING)

    minimumSizeHint = sizeHint


class Parameter(QWidget):
    """A number of the sampler: what is used, whose choice that is, and the way back to the recommendation."""

    changed = Signal()

    def __init__(self, key: str) -> None:
        super().__init__()
        title, description = words_of(SamplingChoice, key)
        low, high = _RANGES[key]
        self.field: Whole | Decimal
        if isinstance(low, int):
            self.field = Whole(low, int(high), int(_STEPS[key]))
        else:
            self.field = Decimal(low, high, _STEPS[key])
        self.field.setFixedWidth(theme.SPACING * 24)
        self.field.setAccessibleName(title)
        self.field.setKeyboardTracking(False)
        self._recommended: float = 0.0
        self._is_chosen = False
        self._source = label("", "quiet", wraps=True, scale=0.9)
        self.reset = QToolButton(autoRaise=True)
        icons.set_icon(self.reset, "regenerate")
        self.reset.setAccessibleName(f"{title}: as the model recommends")
        self.reset.setToolTip("As the model recommends")
        self.reset.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        keep = self.reset.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(keep)
        name = label(title, wraps=True)
        name.setBuddy(self.field)
        for part in (name, self.field):
            explain(part, description)
        column(row((name, 1), self.reset, self.field, gap=SPACING), self._source, gap=0, on=self)
        self.field.valueChanged.connect(self._on_value_changed)
        self.reset.clicked.connect(self._on_reset)

    def value(self) -> float | None:
        """``None``: as the model recommends."""
        return self.field.value() if self._is_chosen else None

    def show_value(self, chosen: float | None, recommended: float, source: str) -> None:
        """``source`` says in a few words who recommends that."""
        self._recommended, self._is_chosen = recommended, chosen is not None
        value = recommended if chosen is None else chosen
        with QSignalBlocker(self.field):
            if isinstance(self.field, Whole):
                self.field.setValue(int(value))
            else:
                self.field.setValue(value)
        shown = f"{recommended:g}"
        text = f"Recommended: {shown}" if self._is_chosen else source[:1].upper() + source[1:]
        self._source.setText(text)
        self.field.setAccessibleDescription(text)
        self.reset.setVisible(self._is_chosen)

    @Slot()
    def _on_value_changed(self) -> None:
        self._is_chosen = True
        self.changed.emit()

    @Slot()
    def _on_reset(self) -> None:
        self._is_chosen = False
        self.field.setFocus()
        self.changed.emit()


class ChatSettingsTab(QScrollArea):
    """Shows the settings of one chat, and says when the user changed them.

    Attributes:
        preset, preset_menu: The presets, and what can be done with them; a presenter fills the menu.
        recommended_button, save_button: At the foot.

    Signals:
        changed: The `ChatSettings` as they are now.
        preset_chosen: Name of a preset; empty for none.
    """

    changed = Signal(object)
    preset_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(widgetResizable=True)
        self.setAccessibleName("Chat settings")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        theme.set_role(self, "side")
        self._settings = ChatSettings()
        self._typing = QTimer(self, singleShot=True, interval=CHANGE_DELAY_MS)
        self._typing.timeout.connect(self.commit)
        self._make_fields()
        self._build()

    def _make_fields(self) -> None:
        self.preset = _combo("Preset")
        self.preset_button = QToolButton(autoRaise=True, popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        icons.set_icon(self.preset_button, "more")
        self.preset_button.setAccessibleName("Manage presets")
        self.preset_button.setToolTip("Manage presets")
        self.preset_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.preset_menu = QMenu(self.preset_button)
        self.preset_button.setMenu(self.preset_menu)
        self.system_prompt = TextField("System prompt", 5)
        self.system_prompt.setPlaceholderText("You are a helpful assistant…")
        self.parameters = {key: Parameter(key) for key in SamplingChoice.__struct_fields__}
        self.max_tokens = Whole(0, MOST_TOKENS, 100, lowest_means="No limit")
        self.seed = Digits(2**63 - 1)
        self.seed.setPlaceholderText("Random")
        self.stop = TextField("Stop strings", 2)
        self.overflow = _combo("When the context is full")
        for overflow, title in OVERFLOW_TITLES.items():
            self.overflow.addItem(title, overflow)
        self.drafter = _combo("Drafter")
        self.recommended_button = QPushButton("As the model recommends")
        self.save_button = QPushButton("Save as preset…")
        for text in (self.system_prompt, self.stop):
            text.textChanged.connect(self._typing.start)
        self.seed.textEdited.connect(lambda _text: self._typing.start())
        self.max_tokens.setKeyboardTracking(False)
        self.max_tokens.valueChanged.connect(self.commit)
        for box in (self.overflow, self.drafter):
            box.activated.connect(self.commit)
        for parameter in self.parameters.values():
            parameter.changed.connect(self.commit)
        self.preset.activated.connect(lambda place: self.preset_chosen.emit(self.preset.itemData(place)))

    def _build(self) -> None:
        page = QWidget()
        sampling = QWidget()
        first, rest = list(self.parameters.values())[:4], list(self.parameters.values())[4:]
        column(*first, *rest, gap=3 * SPACING, on=sampling)
        self.sampling_section = Section("Sampling", sampling)
        more = QWidget()
        column(
            *self._field("stop", self.stop),
            *self._field("max_tokens", self.max_tokens, beside=True),
            *self._field("seed", self.seed, beside=True),
            *self._field("overflow", self.overflow),
            *self._field("drafter", self.drafter),
            gap=SPACING,
            on=more,
        )
        self.note = label("Changes count from the next answer on.", "quiet", wraps=True, scale=0.9)
        column(
            *self._field("preset", self.preset, self.preset_button),
            2 * SPACING,
            *self._field("system_prompt", self.system_prompt),
            2 * SPACING,
            self.sampling_section,
            self.recommended_button,
            2 * SPACING,
            Section("More", more),
            None,
            self.note,
            self.save_button,
            gap=SPACING,
            margins=(4 * SPACING, 3 * SPACING, 4 * SPACING, 4 * SPACING),
            on=page,
        )
        self.setWidget(page)

    def _field(self, key: str, field: QWidget, *others: QWidget, beside: bool = False) -> list[QWidget]:
        """A heading, and the field below or beside it."""
        title, description = words_of(ChatSettings, key)
        name = label(title, "heading", wraps=True)
        name.setBuddy(field)
        for part in (name, field):
            explain(part, description)
        field.setAccessibleName(title)
        line = QWidget()
        if beside:
            row((name, 1), field, gap=2 * SPACING, margins=(0, SPACING, 0, 0), on=line)
            return [line]
        row((field, 1), *others, gap=SPACING, on=line)
        return [name, line]

    # ------------------------------------------------------------ what is shown

    def settings(self) -> ChatSettings:
        """As they are set now."""
        sampling = {key: parameter.value() for key, parameter in self.parameters.items()}
        return msgspec.structs.replace(
            self._settings,
            system_prompt=self.system_prompt.toPlainText(),
            sampling=SamplingChoice(**sampling),  # type: ignore[arg-type]
            seed=self.seed.value(),
            max_tokens=self.max_tokens.value() or None,
            stop=stop_strings_from(self.stop.toPlainText()),
            overflow=self.overflow.currentData(),
            drafter=self.drafter.currentData(),
        )

    def show_settings(self, settings: ChatSettings, recommended: Sampling, sources: dict[str, str]) -> None:
        """``sources``: for each parameter, who recommends its value, in a few words."""
        self._typing.stop()
        self._settings = settings
        for key, parameter in self.parameters.items():
            parameter.show_value(getattr(settings.sampling, key), getattr(recommended, key), sources[key])
        for field, text in (
            (self.system_prompt, settings.system_prompt),
            (self.stop, stop_strings_as_text(settings.stop)),
        ):
            if field.toPlainText() != text:
                with QSignalBlocker(field):
                    field.setPlainText(text)
        with QSignalBlocker(self.max_tokens):
            self.max_tokens.setValue(settings.max_tokens or 0)
        if self.seed.value() != settings.seed:
            self.seed.set_value(settings.seed)
        self.overflow.setCurrentIndex(self.overflow.findData(settings.overflow))
        self.drafter.setCurrentIndex(max(self.drafter.findData(settings.drafter), 0))
        chosen = settings.sampling != SamplingChoice()
        self.recommended_button.setEnabled(chosen)
        self.sampling_section.set_summary("changed" if chosen else "as recommended")

    def show_drafters(self, choices: Sequence[tuple[DrafterChoice, str]], chosen: DrafterChoice) -> None:
        """What can be chosen with the loaded model, with its words."""
        self.drafter.clear()
        for choice, text in choices:
            self.drafter.addItem(text, choice)
        self.drafter.setCurrentIndex(max(self.drafter.findData(chosen), 0))

    def show_presets(self, names: Sequence[str], chosen: str, *, is_changed: bool) -> None:
        """``is_changed``: the settings are no longer those of the preset."""
        self.preset.clear()
        self.preset.addItem(NO_PRESET, "")
        for name in names:
            self.preset.addItem(f"{name} (changed)" if name == chosen and is_changed else name, name)
        self.preset.setCurrentIndex(max(self.preset.findData(chosen), 0))

    @Slot()
    def commit(self) -> None:
        """What was changed counts now."""
        self._typing.stop()
        settings = self.settings()
        if settings != self._settings:
            self._settings = settings
            self.changed.emit(settings)


def _combo(name: str) -> QComboBox:
    box = QComboBox(
        minimumContentsLength=8,
        sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon,
    )
    box.setAccessibleName(name)
    box.view().setAccessibleName(f"{name} choices")
    box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    guard_wheel(box, even_focused=True)
    return box
