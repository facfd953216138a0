"""Prints a chat through the system's dialog."""

from __future__ import annotations

import re

from PySide6.QtCore import QByteArray, QObject, QRectF, Qt, QUrl
from PySide6.QtGui import QImage, QPainter, QTextDocument
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QWidget

from app.chats.exporting import file_name
from app.ui.widgets.tasks import Lane

_STYLE = """
body { font-family: sans-serif; font-size: 10pt; color: black; }
h1 { font-size: 16pt; } h3 { font-size: 11pt; }
pre, code { font-family: monospace; font-size: 9pt; }
table { border-collapse: collapse; } td, th { border: 1px solid #888888; padding: 2px 4px; }
"""


_SCHEME = "formula"
_FORMULA = re.compile(
    r'<svg [^>]*?style="width:([\d.]+)em;height:([\d.]+)em;vertical-align:-([\d.]+)em"[^>]*>.*?</svg>', re.DOTALL
)
_EM = 10 * 96 / 72
"""The font size, in the pixels of Qt's rich text."""
_FINENESS = 6
"""So many dots of a formula's picture fall on such a pixel."""
_MIDDLE = 0.26
"""How far above the baseline the middle of a picture stands, in font sizes."""


class _Document(QTextDocument):
    """Loads nothing from anywhere; formulas, which Qt's rich text doesn't know, are pictures of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._pictures: list[QImage] = []
        self.setDefaultStyleSheet(_STYLE)
        self.setHtml(f"<body>{_FORMULA.sub(self._add_formula, html)}</body>")

    def _add_formula(self, found: re.Match[str]) -> str:
        formula_width, formula_height, below = (float(found[index]) for index in (1, 2, 3))
        ascent = formula_height - below
        half = max(ascent - _MIDDLE, below + _MIDDLE)
        width, height = round(formula_width * _EM), round(2 * half * _EM)
        picture = QImage(width * _FINENESS, height * _FINENESS, QImage.Format.Format_ARGB32_Premultiplied)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        top, dots = half + _MIDDLE - ascent, _EM * _FINENESS
        place = QRectF(0, top * dots, formula_width * dots, formula_height * dots)
        QSvgRenderer(QByteArray(found[0].replace("currentColor", "black").encode())).render(painter, place)
        painter.end()
        self._pictures.append(picture)
        number = len(self._pictures) - 1
        return f'<img src="{_SCHEME}:{number}" width="{width}" height="{height}" style="vertical-align: middle">'

    def loadResource(self, _kind: int, name: QUrl | str) -> object:
        """A picture of a formula, or nothing."""
        scheme, _, number = (name if isinstance(name, str) else name.toString()).partition(":")
        is_known = scheme == _SCHEME and number.isdecimal() and int(number) < len(self._pictures)
        return self._pictures[int(number)] if is_known else None


class Printing(QObject):
    """Prints one chat after another, in a thread of its own."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "printing")

    def ask(self, html: str, title: str, parent: QWidget) -> None:
        """Show the system's dialog, and print ``html`` when it is accepted."""
        printer = QPrinter(QPrinter.PrinterMode.HighResolution)
        printer.setDocName(file_name(title, ""))  # Qt names the file of a PDF after it
        dialog = QPrintDialog(printer, parent)
        dialog.setWindowModality(Qt.WindowModality.WindowModal)
        dialog.setOption(QPrintDialog.PrintDialogOption.PrintSelection, False)
        dialog.accepted.connect(lambda: self.print_html(html, printer))
        dialog.finished.connect(dialog.deleteLater)
        dialog.show()  # modal to its window; `open` of this class wants a slot by its name

    def print_html(self, html: str, printer: QPrinter) -> None:
        """Print, without keeping the window's thread."""
        self._lane.submit(lambda: _print(html, printer))

    def close(self) -> None:
        self._lane.close()


def _print(html: str, printer: QPrinter) -> None:
    _Document(html).print_(printer)
