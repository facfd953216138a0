"""Settings → General: the look of the window, the key that sends, notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QCheckBox, QComboBox, QGridLayout, QRadioButton, QWidget

from app.settings import Settings
from app.ui.chat.editor import enter, send_key
from app.ui.widgets import theme
from app.ui.widgets.controls import guard_wheel, label
from app.ui.widgets.layouts import LEFT, column
from app.ui.widgets.theme import SPACING

if TYPE_CHECKING:
    from app.ui.context import WindowSettings

ZOOM_STEPS = (50, 67, 75, 80, 90, 100, 110, 125, 150, 175, 200)
"""Percent, as in browsers."""
_THEMES = {"system": "Same as the system", "light": "Light", "dark": "Dark"}


def apply(values: Settings) -> None:
    """Apply the page's settings to the whole app; at startup and after each change."""
    theme.override({"light": theme.LIGHT, "dark": theme.DARK}.get(values.theme))
    theme.notifier().set_zoom(values.zoom)
    send_key().choose(needs_ctrl=values.send_with == "ctrl_enter")


def zoom_beside(zoom: int, step: int) -> int:
    """The next step above a zoom (``step`` 1) or below it (-1); the zoom itself if there is none."""
    if step > 0:
        return next((one for one in ZOOM_STEPS if one > zoom), zoom)
    return next((one for one in reversed(ZOOM_STEPS) if one < zoom), zoom)


class GeneralPage(QWidget):
    """A change takes effect at once; the zoom also changes from the menu."""

    def __init__(self, settings: WindowSettings) -> None:
        super().__init__()
        self._settings = settings
        self._shows = False
        self._theme = _choice("Theme", _THEMES)
        self._zoom = _choice("Zoom", {step: f"{step}%" for step in ZOOM_STEPS})
        self._enter = QRadioButton()
        self._ctrl_enter = QRadioButton()
        self._notify = QCheckBox("Notify me when an answer is finished")
        self._lay_out()
        self._name_keys()
        for choice in (self._theme, self._zoom):
            choice.currentIndexChanged.connect(self._on_changed)
        self._ctrl_enter.toggled.connect(self._on_changed)
        self._notify.toggled.connect(self._on_changed)
        theme.follow_zoom(self, self.refresh)

    def refresh(self) -> None:
        values = self._settings.values
        self._shows = True
        self._theme.setCurrentIndex(self._theme.findData(values.theme))
        if self._zoom.findData(values.zoom) < 0:  # someone wrote another one into the file
            self._zoom.addItem(f"{values.zoom}%", values.zoom)
        self._zoom.setCurrentIndex(self._zoom.findData(values.zoom))
        (self._ctrl_enter if values.send_with == "ctrl_enter" else self._enter).setChecked(True)
        self._notify.setChecked(values.notify_finished)
        self._shows = False

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        column(
            label("Appearance", "heading"),
            self._appearance(),
            3 * SPACING,
            label("Send messages with", "heading"),
            (self._enter, LEFT),
            (self._ctrl_enter, LEFT),
            3 * SPACING,
            label("Notifications", "heading"),
            self._notify,
            label("Only while you are using another app.", "quiet", wraps=True),
            None,
            margins=5 * SPACING,
            on=self,
        )

    def _appearance(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * SPACING)
        grid.setVerticalSpacing(2 * SPACING)
        grid.setColumnStretch(1, 1)
        for place, choice in enumerate((self._theme, self._zoom)):
            grid.addWidget(label(f"{choice.accessibleName()}:", buddy=choice), place, 0)
            grid.addWidget(choice, place, 1, LEFT)
        return grid

    def _name_keys(self) -> None:
        plain, shift, ctrl = enter(), enter("Shift+"), enter("Ctrl+")
        self._enter.setText(f"{plain} ({shift} starts a new line)")
        self._ctrl_enter.setText(f"{ctrl} ({plain} starts a new line)")
        for button in (self._enter, self._ctrl_enter):
            button.setAccessibleName(f"Send messages with {button.text()}")

    @Slot()
    def _on_changed(self) -> None:
        if self._shows:
            return
        values = self._settings.values
        values.theme, values.zoom = self._theme.currentData(), self._zoom.currentData()
        values.send_with = "ctrl_enter" if self._ctrl_enter.isChecked() else "enter"
        values.notify_finished = self._notify.isChecked()
        apply(values)
        self._settings.save_soon()


def _choice(name: str, values: Mapping[Any, str]) -> QComboBox:
    """One of these values, each with its text on screen."""
    result = QComboBox()
    result.setAccessibleName(name)
    for value, text in values.items():
        result.addItem(text, value)
    guard_wheel(result)
    return result
