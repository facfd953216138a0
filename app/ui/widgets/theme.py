"""Colors and fonts of the window, and notifications of changes.

Widgets never name a color: they ask `current()` for a role and listen to `notifier().theme_changed`. What a style sheet
can define is defined once, in `app.ui.widgets.stylesheet`; a widget chooses its part there with `set_role`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette, QPen
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

SPACING = 4
"""All distances are multiples of this many pixels."""
RADIUS = 8
"""Corners of cards and fields, in pixels."""
MINIMUM_CONTRAST = 4.5
"""The contrast WCAG 2.1 requires for text."""
MINIMUM_SHAPE_CONTRAST = 3.0
"""The contrast it requires for anything else that carries information."""
_SCALE = "fontScale"
"""Property of a widget whose text is larger or smaller than usual: the factor."""
UNDERLINES: dict[str, tuple[str, Qt.PenStyle]] = {
    "ngram": ("dotted", Qt.PenStyle.DotLine),
    "head": ("solid", Qt.PenStyle.SolidLine),
    "grammar": ("dashed", Qt.PenStyle.DashLine),
}
_OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#8c8c8c")


@dataclass(frozen=True)
class Theme:
    """One set of colors. Text, quiet, accent, good, warning and bad are readable on every surface; the tints lie
    under text that keeps its own color."""

    text: QColor
    quiet: QColor
    surface: QColor
    raised: QColor
    line: QColor
    accent: QColor
    good: QColor
    warning: QColor
    bad: QColor
    tint_model: QColor
    tint_ngram: QColor
    tint_head: QColor
    tint_grammar: QColor
    code_surface: QColor
    is_dark: bool

    @cached_property
    def softened(self) -> Theme:
        """The same with softer text, still readable on every ground, for a text beside a more important one."""
        return replace(self, text=mix(self.quiet, self.text, 0.4))

    @property
    def on_accent(self) -> QColor:
        """Text on a field filled with the accent color."""
        white, black = QColor("#ffffff"), QColor("#0d1112")
        return max(white, black, key=lambda ink: contrast(ink, self.accent))

    @property
    def tints(self) -> dict[str, QColor]:
        """Behind accepted draft tokens (`DrafterWords.tint`)."""
        model, ngram, head, grammar = self.tint_model, self.tint_ngram, self.tint_head, self.tint_grammar
        return {"model": model, "ngram": ngram, "head": head, "grammar": grammar}

    def underline(self, tint: str) -> QPen | None:
        """The line under tokens with this ``tint``, which tells the tints apart without color; none for ``model``."""
        line = UNDERLINES.get(tint)
        return QPen(self.quiet, 1.2, line[1]) if line else None

    @property
    def hover(self) -> QColor:
        """A surface under the pointer."""
        return mix(self.surface, self.text, 0.06)

    @property
    def pressed(self) -> QColor:
        return mix(self.surface, self.text, 0.12)

    @property
    def selection(self) -> QColor:
        """A selected row; text keeps its own color on it."""
        return mix(self.surface, self.accent, 0.22 if self.is_dark else 0.14)

    @property
    def selection_line(self) -> QColor:
        """The outline of what is selected, checked or chosen: a contrast of at least 3 : 1 to everything around it."""
        return _standing_out(self.control_line, self.text, self.surface, self.raised, self.selection)

    @property
    def differs(self) -> QColor:
        """Behind text that isn't the same in two answers; text keeps its own color on it."""
        return mix(self.surface, self.warning, 0.3 if self.is_dark else 0.22)

    @property
    def series(self) -> tuple[QColor, ...]:
        """Colors of a chart's kinds: Okabe and Ito's, which color-blind people can distinguish, at least 3 : 1 on the
        surface. Shape and label differ, too."""
        return tuple(_standing_out(QColor(color), self.text, self.surface) for color in _OKABE_ITO)

    @property
    def control_line(self) -> QColor:
        """The outline of a field or a check box: at least 3 : 1, as WCAG requires for controls."""
        return mix(self.surface, self.text, 0.46 if self.is_dark else 0.52)

    @property
    def focus_line(self) -> QColor:
        """The outline of the focus: at least 3 : 1 to the surfaces and to the outline it replaces."""
        return _standing_out(self.accent, self.text, self.surface, self.raised, self.selection, self.control_line)


def _theme(is_dark: bool, **colors: str) -> Theme:
    return Theme(is_dark=is_dark, **{role: QColor(value) for role, value in colors.items()})


LIGHT = _theme(
    is_dark=False,
    text="#1b2023",
    quiet="#596369",
    surface="#ffffff",
    raised="#f5f7f7",
    line="#dce1e3",
    accent="#0a6b72",
    good="#1b7040",
    warning="#835600",
    bad="#b3261e",
    tint_model="#cdeee7",
    tint_ngram="#e8dffa",
    tint_head="#f6e3b0",
    tint_grammar="#d6efcd",
    code_surface="#f1f4f4",
)

DARK = _theme(
    is_dark=True,
    text="#e5e8e9",
    quiet="#a6afb4",
    surface="#181b1d",
    raised="#1f2325",
    line="#343a3d",
    accent="#5cc6c3",
    good="#72cc8d",
    warning="#e2b25c",
    bad="#f2918a",
    tint_model="#174443",
    tint_ngram="#3a2d5e",
    tint_head="#4a3a12",
    tint_grammar="#30432d",
    code_surface="#121517",
)


# ---------------------------------------------------------------- color arithmetic


def _luminance(color: QColor) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)

    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) + 0.0722 * linear(color.blueF())


def contrast(first: QColor, second: QColor) -> float:
    """Contrast ratio of two opaque colors, 1 to 21 (WCAG 2.1)."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def mix(base: QColor, over: QColor, share: float) -> QColor:
    """``share`` (0 to 1) of ``over`` laid on ``base``."""
    return QColor.fromRgbF(
        base.redF() + (over.redF() - base.redF()) * share,
        base.greenF() + (over.greenF() - base.greenF()) * share,
        base.blueF() + (over.blueF() - base.blueF()) * share,
    )


def readable(color: QColor, fallback: QColor, *surfaces: QColor) -> QColor:
    """``color`` if text in it can be read on all these surfaces, otherwise ``fallback``."""
    return color if all(contrast(color, surface) >= MINIMUM_CONTRAST for surface in surfaces) else fallback


def _standing_out(color: QColor, ink: QColor, *surfaces: QColor) -> QColor:
    """``color`` with just enough ``ink`` to stand out from all these surfaces."""
    for percent in range(0, 100, 5):
        mixed = mix(color, ink, percent / 100)
        if all(contrast(mixed, surface) >= MINIMUM_SHAPE_CONTRAST for surface in surfaces):
            return mixed
    return ink


def from_palette(palette: QPalette) -> Theme:
    """The theme for a high-contrast palette: its own colors, strong hairlines, tints that keep text readable."""
    surface, text = palette.color(QPalette.ColorRole.Base), palette.color(QPalette.ColorRole.Text)
    is_dark = _luminance(surface) < _luminance(text)
    standard = DARK if is_dark else LIGHT

    def tint(color: QColor) -> QColor:
        share = 1.0
        while share > 0 and contrast(text, mix(surface, color, share)) < MINIMUM_CONTRAST:
            share -= 0.1
        return mix(surface, color, max(share, 0.0))

    highlight = readable(palette.color(QPalette.ColorRole.Highlight), text, surface)
    return Theme(
        text=text,
        quiet=text,
        surface=surface,
        raised=surface,
        line=text,
        accent=readable(palette.color(QPalette.ColorRole.Link), highlight, surface),
        good=readable(standard.good, text, surface),
        warning=readable(standard.warning, text, surface),
        bad=readable(standard.bad, text, surface),
        tint_model=tint(standard.tint_model),
        tint_ngram=tint(standard.tint_ngram),
        tint_head=tint(standard.tint_head),
        tint_grammar=tint(standard.tint_grammar),
        code_surface=surface,
        is_dark=is_dark,
    )


def palette_of(theme: Theme) -> QPalette:
    """Qt's palette for a theme, for what the style sheet doesn't cover."""
    palette = QPalette()
    role = QPalette.ColorRole
    for color, names in (
        (theme.text, (role.WindowText, role.Text, role.ButtonText, role.ToolTipText)),
        (theme.quiet, (role.PlaceholderText,)),
        (theme.bad, (role.BrightText,)),
        (theme.surface, (role.Base, role.Light)),
        (theme.raised, (role.Window, role.AlternateBase, role.Button, role.ToolTipBase, role.Midlight)),
        (theme.line, (role.Mid, role.Dark, role.Shadow)),
        (theme.accent, (role.Highlight, role.Accent, role.Link, role.LinkVisited)),
        (theme.on_accent, (role.HighlightedText,)),
    ):
        for name in names:
            palette.setColor(name, color)
    for name in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, mix(theme.surface, theme.text, 0.45))
    return palette


# ---------------------------------------------------------------- which theme, and notifications of changes


class ThemeNotifier(QObject):
    """Knows the theme and the zoom in use and tells widgets when they change. The one instance comes from `notifier`.

    Signals:
        theme_changed: `current` gives another theme.
        zoom_begins: All text is about to get another size.
        zoom_changed: It has it, and so has what the style sheet says in pixels.
    """

    theme_changed = Signal()
    zoom_begins = Signal()
    zoom_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._application: QApplication | None = None
        self._style_sheet: Callable[[Theme, int], str] | None = None
        self.zoom = 100
        """In percent of the system's size of text."""
        self._system_font: QFont | None = None
        """The font before the first zoom; kept, because ours has replaced it."""
        self.forced: Theme | None = None
        """Used instead of the system's theme; see `override`."""
        # Kept, because without a reference the wrapper of what it returns is deleted.
        self._hints = QGuiApplication.styleHints()
        self._hints.colorSchemeChanged.connect(self.refresh)
        # Qt before 6.10 can't report that the user wants more contrast.
        self._accessibility = self._hints.accessibility() if hasattr(self._hints, "accessibility") else None
        if self._accessibility is not None:
            self._accessibility.contrastPreferenceChanged.connect(self.refresh)
        self.theme = self._resolve()

    def apply_to(self, application: QApplication, style_sheet: Callable[[Theme, int], str]) -> None:
        """Style this application now and after every change; ``style_sheet`` makes the sheet for a theme and a zoom."""
        self._application = application
        self._style_sheet = style_sheet
        self._dress()

    @Slot()
    def refresh(self) -> None:
        """Determine the theme again; if it has changed, style the application and notify everyone."""
        theme = self._resolve()
        if theme == self.theme:
            return
        self.theme = theme
        self._dress()
        self.theme_changed.emit()

    def set_zoom(self, percent: int) -> None:
        """Show all text in this percentage of the system's size."""
        if percent == self.zoom:
            return
        self.zoom_begins.emit()
        self.zoom = percent
        if self._system_font is None:
            self._system_font = QApplication.font()
        QApplication.setFont(scaled(self._system_font, percent / 100))
        self._dress()
        self.zoom_changed.emit()

    def _resolve(self) -> Theme:
        if self.forced is not None:
            return self.forced
        if self._wants_high_contrast():
            # The system's own palette can only be read while none of ours is set.
            QGuiApplication.setPalette(QPalette())
            return from_palette(QGuiApplication.palette())
        return DARK if self._hints.colorScheme() is Qt.ColorScheme.Dark else LIGHT

    def _wants_high_contrast(self) -> bool:
        if self._accessibility is None:
            return False
        return self._accessibility.contrastPreference() is Qt.ContrastPreference.HighContrast

    def _dress(self) -> None:
        if self._application is not None and self._style_sheet is not None:
            self._application.setPalette(palette_of(self.theme))
            self._application.setStyleSheet(self._style_sheet(self.theme, self.zoom))
        # After the style sheet, which resets widgets to the fonts they had when they were created.
        for widget in QApplication.allWidgets():
            _scale_again(widget)


@cache
def notifier() -> ThemeNotifier:
    """The only notifier of this process. Needs a QGuiApplication."""
    return ThemeNotifier()


def current() -> Theme:
    """The theme in use: the override, the system's high-contrast palette, or light or dark like the system."""
    return notifier().theme


def override(theme: Theme | None) -> None:
    """Use this theme regardless of the system; ``None`` follows the system, including its high-contrast colors."""
    notifier().forced = theme
    # What the system draws, such as window frames and its own dialogs, changes, too.
    scheme = Qt.ColorScheme.Unknown if theme is None else Qt.ColorScheme.Dark if theme.is_dark else Qt.ColorScheme.Light
    QGuiApplication.styleHints().setColorScheme(scheme)
    notifier().refresh()


def follow(receiver: QObject, slot: Callable[[], None]) -> None:
    """Call ``slot`` now and at each change of theme, while ``receiver`` exists. ``slot`` may belong to anything."""
    connection = notifier().theme_changed.connect(lambda: slot() if isValid(receiver) else None)
    receiver.destroyed.connect(lambda: QObject.disconnect(connection))
    slot()


def follow_zoom(receiver: QObject, slot: Callable[[], object]) -> None:
    """The same at each change of the zoom, for sizes in pixels."""
    connection = notifier().zoom_changed.connect(lambda: slot() if isValid(receiver) else None)
    receiver.destroyed.connect(lambda: QObject.disconnect(connection))
    slot()


def px(pixels: float) -> int:
    """The number of pixels at the zoom in use, given the number at 100%."""
    return round(pixels * notifier().zoom / 100)


def set_role(widget: QWidget, role: str) -> None:
    """Choose how the style sheet draws a widget: see `app.ui.widgets.stylesheet` for the roles."""
    if widget.property("role") == role:
        return
    widget.setProperty("role", role)
    widget.style().unpolish(widget)
    widget.style().polish(widget)
    _scale_again(widget)


# ---------------------------------------------------------------- fonts


def monospace() -> QFont:
    """The system's fixed-width font, in the size of the application's font."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setFixedPitch(True)
    return resized(font, QGuiApplication.font())


def monospace_for(font: QFont) -> QFont:
    """The system's fixed-width font, to be used with ``font``: a little smaller, because it looks larger."""
    result = monospace()
    if font.pointSizeF() > 0:
        result.setPointSizeF(font.pointSizeF() * 0.93)
    return result


def tabular(font: QFont) -> QFont:
    """The same font with figures of one width, so that changing numbers don't move anything."""
    figures = QFont(font)
    figures.setFeature(QFont.Tag("tnum"), 1)
    return figures


def resized(font: QFont, model: QFont, factor: float = 1.0) -> QFont:
    """``font`` in ``factor`` times the size of ``model``; works for sizes in points and in pixels."""
    result = QFont(font)
    if model.pointSizeF() > 0:
        result.setPointSizeF(model.pointSizeF() * factor)
    else:
        result.setPixelSize(max(1, round(model.pixelSize() * factor)))
    return result


def scaled(font: QFont, factor: float) -> QFont:
    """The same font in another size."""
    return resized(font, font, factor)


def scale_font(widget: QWidget, factor: float) -> None:
    """Show a widget's text in ``factor`` times the usual size, whatever the zoom is."""
    widget.setProperty(_SCALE, factor)
    widget.setFont(resized(widget.font(), QApplication.font(), factor))


def _scale_again(widget: QWidget) -> None:
    if (factor := widget.property(_SCALE)) is not None:
        scale_font(widget, factor)
