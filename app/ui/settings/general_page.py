"""Settings → General: the look of the window, the key that sends, notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QGridLayout, QWidget

from app.settings import Settings
from app.ui.chat.composer import enter, send_key
from app.ui.widgets import theme
from app.ui.widgets.controls import LEFT, column, label
from app.ui.widgets.forms import Fields
from app.ui.widgets.theme import SPACING

if TYPE_CHECKING:
    from app.ui.context import WindowSettings

ZOOM_STEPS = (50, 67, 75, 80, 90, 100, 110, 125, 150, 175, 200)
"""Percent, as in browsers."""
_THEMES = {"system": "Same as the system", "light": "Light", "dark": "Dark"}


def apply(values: Settings) -> None:
    """Apply the page's settings to the whole app, at startup and after each change."""
    theme.override({"light": theme.LIGHT, "dark": theme.DARK}.get(values.theme))
    theme.notifier().set_zoom(values.zoom)
    send_key().choose(needs_ctrl=values.send_with == "ctrl_enter")


def zoom_beside(zoom: int, step: int) -> int:
    """The next zoom step in this direction (1 or -1); the zoom itself at the end."""
    if step > 0:
        return next((one for one in ZOOM_STEPS if one > zoom), zoom)
    return next((one for one in reversed(ZOOM_STEPS) if one < zoom), zoom)


class GeneralPage(QWidget):
    """General settings; they take effect at once. The zoom can also change from the menu."""

    def __init__(self, settings: WindowSettings) -> None:
        super().__init__()
        self._settings = settings
        self._fields = Fields(self._on_changed)
        self._theme = self._fields.choice("theme", "Theme", _THEMES)
        self._zoom = self._fields.choice("zoom", "Zoom", {})
        self._enter, self._ctrl_enter = self._fields.either("send_with", ("enter", "ctrl_enter"))
        self._notify = self._fields.check("notify_finished", "Notify me when an answer is finished")
        plain, shift, ctrl = enter(), enter("Shift+"), enter("Ctrl+")
        self._enter.setText(f"{plain} ({shift} starts a new line)")
        self._ctrl_enter.setText(f"{ctrl} ({plain} starts a new line)")
        for button in (self._enter, self._ctrl_enter):
            button.setAccessibleName(f"Send messages with {button.text()}")
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
        theme.follow_zoom(self, self.refresh)

    def refresh(self) -> None:
        values = self._settings.values
        steps = sorted({*ZOOM_STEPS, values.zoom})  # the file may contain any other value
        self._fields.offer("zoom", {step: f"{step}%" for step in steps})
        self._fields.show(values)

    def _appearance(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * SPACING)
        grid.setVerticalSpacing(2 * SPACING)
        grid.setColumnStretch(1, 1)
        for place, choice in enumerate((self._theme, self._zoom)):
            grid.addWidget(label(f"{choice.accessibleName()}:", buddy=choice), place, 0)
            grid.addWidget(choice, place, 1, LEFT)
        return grid

    def _on_changed(self) -> None:
        values = self._settings.values
        for key, value in self._fields.values().items():
            setattr(values, key, value)
        apply(values)
        self._settings.save_soon()
