"""Prints a chat through the system's dialog."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, QUrl
from PySide6.QtGui import QTextDocument
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtWidgets import QWidget

from app.ui.widgets.tasks import Lane

_STYLE = """
body { font-family: sans-serif; font-size: 10pt; color: black; }
h1 { font-size: 16pt; } h3 { font-size: 11pt; }
pre, code { font-family: monospace; font-size: 9pt; }
table { border-collapse: collapse; } td, th { border: 1px solid #888888; padding: 2px 4px; }
"""


class _Document(QTextDocument):
    def loadResource(self, _kind: int, _name: QUrl | str) -> object:
        """Nothing is loaded from anywhere."""
        return None


class Printing(QObject):
    """Prints one chat after another, in a thread of its own."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "printing")

    def ask(self, html: str, title: str, parent: QWidget) -> None:
        """Show the system's dialog, and print ``html`` when it is accepted."""
        printer = QPrinter(QPrinter.PrinterMode.HighResolution)
        printer.setDocName(title)
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
    document = _Document()
    document.setDefaultStyleSheet(_STYLE)
    document.setHtml(f"<body>{html}</body>")
    document.print_(printer)
