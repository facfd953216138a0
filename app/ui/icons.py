"""The app's own icons: SVG files drawn in one colour (`currentColor`), painted in the colour of the theme."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QObject, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app import paths
from app.ui import theme as themes

FOLDER = paths.resource("icons")
_SIZES = (16, 20, 24, 32, 48, 64)


@lru_cache(maxsize=256)
def _source(name: str) -> bytes:
    return (FOLDER / f"{name}.svg").read_bytes()


def pixmap(name: str, colour: QColor, size: int) -> QPixmap:
    """One icon in one colour, ``size`` pixels wide. Raises `OSError` where there is no such icon."""
    svg = _source(name).replace(b"currentColor", colour.name().encode())
    picture = QPixmap(size, size)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    QSvgRenderer(QByteArray(svg)).render(painter, QRectF(0, 0, size, size))
    painter.end()
    return picture


def themed(name: str, theme: themes.Theme) -> QIcon:
    """An icon for every size and state. Raises `OSError` where there is no such icon."""
    colours = (
        (QIcon.Mode.Normal, theme.text),
        (QIcon.Mode.Active, theme.text),
        (QIcon.Mode.Selected, theme.text),
        (QIcon.Mode.Disabled, themes.mix(theme.surface, theme.text, 0.4)),
    )
    result = QIcon()
    for mode, colour in colours:
        for size in _SIZES:
            result.addPixmap(pixmap(name, colour, size), mode)
    return result


def set_icon(target: QObject, name: str) -> None:
    """Give a button or an action this icon, now and after every change of theme."""

    def dress() -> None:
        assert hasattr(target, "setIcon")
        target.setIcon(themed(name, themes.current()))

    themes.follow(target, dress)


def application() -> QIcon:
    """The app's icon; it has colours of its own."""
    result = QIcon()
    for size in (16, 24, 32, 48, 64, 128, 256):
        result.addPixmap(pixmap("slipstream", QColor("#000000"), size))
    return result
