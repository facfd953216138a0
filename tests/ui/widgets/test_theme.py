"""The theme: readable colors, one notifier, a style sheet Qt understands, icons in the theme's color."""

from __future__ import annotations

import math
import re
from itertools import combinations
from operator import mul
from pathlib import Path
from typing import get_args

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QIcon, QImage, QPalette
from PySide6.QtWidgets import (
    QApplication,
    QCompleter,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.protocol.options import Tint
from app.ui.chat.markdown.formats import code_color
from app.ui.widgets import icons, stylesheet, theme
from app.ui.widgets.controls import label
from app.ui.widgets.theme import DARK, LIGHT, MINIMUM_CONTRAST, MINIMUM_SHAPE_CONTRAST, Theme, contrast

TEXT_ROLES = ("text", "quiet", "accent", "good", "warning", "bad")
SURFACE_ROLES = ("surface", "raised", "code_surface")
TINT_ROLES = ("tint_model", "tint_ngram", "tint_head", "tint_grammar")
COLOR_BLIND = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""How color-blind people see linear red, green and blue: Machado, Oliveira and Fernandes (2009), severity 1."""
THEMES = pytest.mark.parametrize("chosen", [LIGHT, DARK], ids=["light", "dark"])

STYLED = pytest.mark.usefixtures("no_style_later")


def high_contrast(base: str, text: str, link: str) -> Theme:
    palette = QPalette()
    palette.setColor(QPalette.ColorRole.Base, QColor(base))
    palette.setColor(QPalette.ColorRole.Text, QColor(text))
    palette.setColor(QPalette.ColorRole.Link, QColor(link))
    return theme.from_palette(palette)


def lab(color: QColor, seen: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """A color in CIE L*a*b*, as someone with this color vision sees it."""
    channels = color.redF(), color.greenF(), color.blueF()
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    red, green, blue = (min(max(sum(map(mul, row, linear)), 0.0), 1.0) for row in seen)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


CHOSEN = [LIGHT, DARK, high_contrast("#000000", "#ffffff", "#ffff00"), high_contrast("#ffffff", "#000000", "#00009f")]
EVERY = pytest.mark.parametrize("chosen", CHOSEN, ids=["light", "dark", "black", "white"])
GROUNDS = (*SURFACE_ROLES, *TINT_ROLES, "hover", "selection")
Table = list[tuple[tuple[str, ...], tuple[str, ...], float]]
SEEN: Table = [
    (TEXT_ROLES, GROUNDS, MINIMUM_CONTRAST),
    (("on_accent",), ("accent",), MINIMUM_CONTRAST),
    (("text",), ("differs",), MINIMUM_CONTRAST),
    (("warning",), ("surface",), MINIMUM_CONTRAST),
    (("differs",), ("surface",), 1.15),
    (("control_line",), ("surface", "raised"), 3),
]
"""What is seen on what, and with which contrast at least."""
SEEN_BY_EVERYBODY: Table = [
    (("focus_line",), ("surface", "raised", "control_line", "selection"), MINIMUM_SHAPE_CONTRAST),
    (("on_accent",), ("accent",), MINIMUM_SHAPE_CONTRAST),  # a filled button shows the focus as a line inside
    (("selection_line",), ("surface", "raised", "selection"), MINIMUM_SHAPE_CONTRAST),
    (("text",), ("selection",), MINIMUM_CONTRAST),
    (("accent",), ("surface", "raised"), MINIMUM_SHAPE_CONTRAST),  # selected text in a field lies on the accent
]


def unseen(chosen: Theme, table: Table) -> list[str]:
    return [
        f"{ink} on {ground}"
        for inks, grounds, least in table
        for ink in inks
        for ground in grounds
        if contrast(getattr(chosen, ink), getattr(chosen, ground)) < least
    ]


def test_contrast_is_the_ratio_of_the_standard() -> None:
    assert contrast(QColor("black"), QColor("white")) == pytest.approx(21.0)
    assert contrast(QColor("#777777"), QColor("white")) == pytest.approx(4.48, abs=0.01)


@THEMES
def test_text_and_controls_are_seen_on_every_ground(chosen: Theme) -> None:
    assert unseen(chosen, SEEN) == []


@EVERY
def test_focus_and_selection_are_seen_by_everybody(chosen: Theme) -> None:
    assert unseen(chosen, SEEN_BY_EVERYBODY) == []


@THEMES
def test_the_tints_differ_clearly_and_are_equally_quiet(chosen: Theme) -> None:
    assert set(chosen.tints) == set(get_args(Tint))
    for one, other in combinations(chosen.tints.values(), 2):
        assert 60 < abs(one.hslHueF() - other.hslHueF()) * 360 < 300
    loudness = [contrast(tint, chosen.surface) for tint in chosen.tints.values()]
    assert all(1.15 < ratio < 1.7 for ratio in loudness)
    assert max(loudness) / min(loudness) < 1.2


@THEMES
def test_the_tints_are_told_apart_without_color(chosen: Theme) -> None:
    lines = {tint: chosen.underline(tint) for tint in chosen.tints}
    assert len({line.style() if line else None for line in lines.values()}) == len(lines)
    for tint, line in lines.items():
        assert line is None or contrast(line.color(), chosen.tints[tint]) >= MINIMUM_SHAPE_CONTRAST


@THEMES
@pytest.mark.parametrize("kind", COLOR_BLIND)
def test_color_blind_people_see_the_tints_and_that_they_differ(chosen: Theme, kind: str) -> None:
    seen = [lab(color, COLOR_BLIND[kind]) for color in (chosen.surface, *chosen.tints.values())]
    # Two colors side by side are told apart from a distance of about 2.3 on.
    assert all(math.dist(one, other) > 6 for one, other in combinations(seen, 2))


@THEMES
def test_the_colors_of_a_chart_stand_out_and_differ(chosen: Theme) -> None:
    assert all(contrast(color, chosen.surface) >= MINIMUM_SHAPE_CONTRAST for color in chosen.series)
    assert len({color.name() for color in chosen.series}) == len(chosen.series)


@EVERY
def test_what_is_selected_or_checked_has_an_outline_that_is_seen(chosen: Theme, qapp: QApplication) -> None:
    assert qapp is not None
    sheet = stylesheet.build(chosen)
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", sheet)
    filled = [(name.strip(), body) for name, body in rules if f"background: {chosen.selection.name()};" in body]
    assert len(filled) >= 3
    for name, body in filled:
        if ":hover" not in name:  # only what the pointer is at
            assert f"border-color: {chosen.selection_line.name()};" in body, name


@THEMES
def test_text_of_code_is_readable_on_its_surface_and_on_every_tint(chosen: Theme) -> None:
    for role in ("comment", "keyword", "string", "number", "name"):
        for ground in (chosen.code_surface, *chosen.tints.values()):
            assert contrast(code_color(chosen, role), ground) >= MINIMUM_CONTRAST, (role, ground.name())
        assert code_color(chosen, role) != chosen.text


def test_every_outline_of_the_focus_has_that_color() -> None:
    outlines = re.findall(r":focus[^{}]*\{[^}]*border(?:-color)?: ([^;]*);", stylesheet._SHEET.template)
    assert len(outlines) >= 5
    assert set(outlines) == {"$focus_line", "3px double $on_accent"}


def test_pixels_grow_with_the_zoom_but_hairlines_stay(qapp: QApplication) -> None:
    assert qapp is not None
    usual, large, small = (stylesheet.build(LIGHT, zoom) for zoom in (100, 200, 50))
    assert "padding: 5px 12px; min-height: 18px;" in usual
    assert "padding: 10px 24px; min-height: 36px;" in large
    assert "padding: 2px 6px; min-height: 9px;" in small
    for sheet in (usual, large, small):
        assert f"border: 1px solid {LIGHT.line.name()};" in sheet
    assert "margin: -12px 0px; border-radius: 15px;" in large  # a circle: Qt draws none with a larger radius


@STYLED
def test_text_of_another_size_follows_zoom_theme_and_role(qtbot: QtBot, qapp: QApplication) -> None:
    stylesheet.apply(qapp)
    window = QWidget()
    qtbot.addWidget(window)
    layout = QVBoxLayout(window)
    large = label("title", "heading", scale=1.5)
    small = label("quiet", "quiet", scale=0.9, bold=True, figures=True)
    usual = QLabel("usual")
    for one in (large, small, usual):
        layout.addWidget(one)
    window.show()
    size = qapp.font().pointSizeF()

    def factors() -> list[float]:
        return [round(one.font().pointSizeF() / size, 2) for one in (large, small, usual)]

    assert factors() == [1.5, 0.9, 1.0]
    theme.notifier().set_zoom(200)
    assert factors() == [3.0, 1.8, 2.0]
    theme.override(DARK)
    assert factors() == [3.0, 1.8, 2.0]
    theme.set_role(large, "heading-bad")
    theme.set_role(small, "bad")
    assert factors() == [3.0, 1.8, 2.0]
    assert small.font().weight() == QFont.Weight.DemiBold
    assert QFont.Tag("tnum") in small.font().featureTags()
    assert theme.px(8) == 16
    theme.notifier().set_zoom(100)
    assert factors() == [1.5, 0.9, 1.0]


@pytest.mark.parametrize(
    "colors", [("#000000", "#ffffff", "#ffff00"), ("#ffffff", "#000000", "#00009f"), ("#202020", "#ffffff", "#303030")]
)
def test_high_contrast_palette_gives_a_readable_theme(colors: tuple[str, str, str]) -> None:
    chosen = high_contrast(*colors)
    assert chosen.surface == QColor(colors[0])
    assert chosen.is_dark is (colors[0] != "#ffffff")
    for ink in TEXT_ROLES:
        assert contrast(getattr(chosen, ink), chosen.surface) >= MINIMUM_CONTRAST, ink
    for tint in TINT_ROLES:
        assert contrast(chosen.text, getattr(chosen, tint)) >= MINIMUM_CONTRAST, tint
    assert contrast(chosen.text, chosen.differs) >= MINIMUM_CONTRAST
    assert all(contrast(color, chosen.surface) >= MINIMUM_SHAPE_CONTRAST for color in chosen.series)


@STYLED
def test_override_is_announced_once_and_dresses_the_application(qtbot: QtBot, qapp: QApplication) -> None:
    theme.override(LIGHT)
    stylesheet.apply(qapp)
    with qtbot.waitSignal(theme.notifier().theme_changed):
        theme.override(DARK)
    assert theme.current() is DARK
    assert qapp.palette().color(QPalette.ColorRole.Window) == DARK.raised
    with qtbot.assertNotEmitted(theme.notifier().theme_changed):
        theme.override(DARK)


@STYLED
def test_what_follows_the_theme_or_the_zoom_does_so_until_it_is_gone(qtbot: QtBot) -> None:
    theme.override(LIGHT)
    seen: list[Theme | int] = []
    receiver, button = QWidget(), QPushButton()
    for widget in (receiver, button):
        qtbot.addWidget(widget)
    theme.follow(receiver, lambda: seen.append(theme.current()))
    theme.follow_zoom(receiver, lambda: seen.append(theme.px(10)))
    icons.set_icon(button, "stop")
    theme.override(DARK)
    theme.notifier().set_zoom(150)
    assert inks(button.icon()) == {DARK.text.name()}
    assert seen == [LIGHT, 10, DARK, 15]
    receiver.deleteLater()
    qtbot.waitUntil(lambda: not isValid(receiver))
    theme.override(LIGHT)
    theme.notifier().set_zoom(100)
    assert seen == [LIGHT, 10, DARK, 15]


class DarkSystem:
    """What Qt says of a system that is dark; the offscreen platform never is."""

    def colorScheme(self) -> Qt.ColorScheme:  # noqa: N802
        return Qt.ColorScheme.Dark


@STYLED
def test_a_change_of_the_system_is_followed_unless_a_theme_was_chosen(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    theme.override(None)
    assert theme.current() is LIGHT
    monkeypatch.setattr(theme.notifier(), "_hints", DarkSystem())
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert theme.current() is DARK
    theme.override(LIGHT)
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert theme.current() is LIGHT
    theme.override(None)
    assert theme.current() is DARK


def inks(icon: QIcon) -> set[str]:
    image = icon.pixmap(32, 32).toImage()
    colors = (image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height()))
    return {color.name() for color in colors if color.alpha() == 255}


@THEMES
def test_every_icon_is_drawn_in_the_color_of_the_text(chosen: Theme, qapp: QApplication) -> None:
    assert qapp is not None
    own_color = [path.stem for path in sorted(icons.FOLDER.glob("*.svg")) if b"currentColor" in path.read_bytes()]
    assert {"send", "stop", "copy", "regenerate", "new-chat"} <= set(own_color)
    for name in own_color:
        assert inks(icons.themed(name, chosen)) >= {chosen.text.name()}, name


def test_every_icon_is_used() -> None:
    sources = Path(icons.__file__).parents[1]
    code = "".join(path.read_text(encoding="utf-8") for path in sources.rglob("*.py"))
    code += stylesheet.build(LIGHT) + stylesheet.build(DARK)
    names = [path.stem for path in icons.FOLDER.glob("*.svg")]
    assert names
    assert [name for name in names if f'"{name}"' not in code and f"slipstream:{name}.svg" not in code] == []


def test_application_icon_has_small_and_large_sizes(qapp: QApplication) -> None:
    assert qapp is not None
    assert {16, 256} <= {size.width() for size in icons.application().availableSizes()}


@STYLED
@THEMES
def test_the_style_sheet_is_understood_and_obeyed(chosen: Theme, qtbot: QtBot, qapp: QApplication) -> None:
    assert "$" not in stylesheet.build(chosen)
    theme.override(chosen)
    stylesheet.apply(qapp)  # Qt warns about a sheet it cannot parse, and a warning fails the test
    button, label, line, text = QPushButton("press"), QLabel("text"), QLineEdit(), QPlainTextEdit()
    theme.set_role(button, "primary")
    for field in (line, text):
        field.setPlaceholderText("Search")
    for widget in (button, label, line, text):
        qtbot.addWidget(widget)
        widget.show()
    assert button.grab().toImage().pixelColor(8, button.height() // 2) == chosen.accent
    theme.set_role(label, "bad")
    assert label.palette().color(QPalette.ColorRole.WindowText) == chosen.bad
    for field in (line, text):
        assert field.palette().color(QPalette.ColorRole.PlaceholderText) == chosen.quiet
    # What a field proposes has a ground of its own. Lists in windows stand on the ground of these.
    completer = QCompleter(["draft", "target"], line)
    line.setCompleter(completer)
    completer.complete()
    popup = completer.popup()
    assert popup is not None
    image = QImage(popup.size(), QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    popup.render(image, renderFlags=QWidget.RenderFlag.DrawChildren)
    assert image.pixelColor(popup.width() - 4, popup.height() // 2) == chosen.surface
    popup.hide()
