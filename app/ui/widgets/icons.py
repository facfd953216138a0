"""The app's own icons: SVG files drawn in one color (`currentColor`), painted in the color of the theme."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QAction, QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QAbstractButton

from app import system
from app.ui.widgets import theme as themes

FOLDER = system.resource("icons")
_SIZES = (16, 20, 24, 32, 48, 64)
_drawn: dict[tuple[str, int, int], QIcon] = {}


def pixmaps(name: str, color: QColor, sizes: Iterable[int]) -> list[QPixmap]:
    """One icon in one color and several widths in pixels. Raises `OSError` if there is no such icon."""
    source = (FOLDER / f"{name}.svg").read_bytes().replace(b"currentColor", color.name().encode())
    renderer = QSvgRenderer(QByteArray(source))
    pictures = []
    for size in sizes:
        picture = QPixmap(size, size)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        renderer.render(painter, QRectF(0, 0, size, size))
        painter.end()
        pictures.append(picture)
    return pictures


def _recolored(picture: QPixmap, color: QColor) -> QPixmap:
    """The same picture of one color in another one, which is faster than drawing it again."""
    result = QPixmap(picture)
    painter = QPainter(result)
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
    painter.fillRect(result.rect(), color)
    painter.end()
    return result


def themed(name: str, theme: themes.Theme) -> QIcon:
    """An icon for every size and state, drawn once. Raises `OSError` if there is no such icon."""
    key = name, theme.text.rgba(), theme.surface.rgba()
    if key in _drawn:
        return _drawn[key]
    result, faint = QIcon(), themes.mix(theme.surface, theme.text, 0.4)
    for picture in pixmaps(name, theme.text, _SIZES):
        # Specified, because Qt would tint missing ones.
        for mode in (QIcon.Mode.Normal, QIcon.Mode.Active, QIcon.Mode.Selected):
            result.addPixmap(picture, mode)
        result.addPixmap(_recolored(picture, faint), QIcon.Mode.Disabled)
    _drawn[key] = result
    return result


def set_icon(target: QAbstractButton | QAction, name: str) -> None:
    """Set this icon on a button or an action, now and after every change of theme."""
    themes.follow(target, lambda: target.setIcon(themed(name, themes.current())))


def application() -> QIcon:
    """The app's icon, which has its own colors."""
    result = QIcon()
    for picture in pixmaps("slipstream", QColor("#000000"), (16, 24, 32, 48, 64, 128, 256)):
        result.addPixmap(picture)
    return result
