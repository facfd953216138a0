"""Help → About Slipstream, Help → Keyboard shortcuts and Help → What the figures mean."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import PySide6
from PySide6.QtCore import Qt, QUrl, qVersion
from PySide6.QtGui import QDesktopServices, QFontDatabase, QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QGridLayout,
    QHBoxLayout,
    QPlainTextEdit,
    QWidget,
)

from app import __version__, paths
from app.ui.speed.wording import HELP
from app.ui.widgets import icons
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

_LOGO = 64
_WIDTH = 480
_MARGINS = (6 * SPACING, 6 * SPACING, 6 * SPACING, 5 * SPACING)
_ALWAYS = (("Send the message", "Enter"), ("New line in the message", "Shift+Enter"))


class AboutDialog(QDialog):
    """What Slipstream is, and the versions a report of a problem should name."""

    def __init__(
        self, engine: str, devices: Sequence[str] = (), features: Sequence[str] = (), parent: QWidget | None = None
    ) -> None:
        """``engine``, ``devices`` and the processor's ``features`` as the engine tells them when it starts.

        An empty ``engine`` is not running.
        """
        super().__init__(parent)
        self._rows = (
            ("Slipstream", __version__),
            ("Engine", engine or "not running"),
            ("Computes on", ", ".join(devices) or "the processor"),
            ("Processor", ", ".join(features) or "not known yet"),
            ("Qt", f"{qVersion()} (PySide6 {PySide6.__version__})"),
            ("Python", platform.python_version()),
            ("System", platform.platform()),
        )
        self.setWindowTitle("About Slipstream")
        licence = label(
            "Slipstream is free software under the MIT licence. It computes with llama.cpp (MIT) through "
            "llama-cpp-python (MIT) and shows its window with Qt (LGPL 3). Nothing you write leaves this computer.",
            "quiet",
            wraps=True,
        )
        buttons = self._buttons()
        parts = (self._heading(), _table(self._rows), licence, None, buttons)
        layout = column(*parts, gap=5 * SPACING, margins=_MARGINS, on=self)
        buttons.button(QDialogButtonBox.StandardButton.Close).setFocus()
        # Known only once the labels have their fonts.
        self.ensurePolished()
        layout.activate()
        self.setMinimumWidth(_WIDTH)
        self.resize(_WIDTH, layout.totalHeightForWidth(_WIDTH))

    def versions(self) -> str:
        """The table as text, to be put into a report."""
        return "\n".join(f"{name}: {value}" for name, value in self._rows)

    def _heading(self) -> QHBoxLayout:
        logo = label()
        logo.setPixmap(icons.application().pixmap(_LOGO, _LOGO))
        title = label("Slipstream", scale=1.6, bold=True)
        says = label("Chat with language models on your own computer, drafted ahead and verified.", wraps=True)
        return row(logo, (column(None, title, says, None, gap=SPACING), 1), gap=4 * SPACING)

    def _buttons(self) -> QDialogButtonBox:
        box = _closing_buttons(self)
        _add_button(box, "Copy versions", lambda: QGuiApplication.clipboard().setText(self.versions()))
        _add_button(box, "Licences", lambda: LicencesDialog(paths.licences(), self).open())
        return box


class LicencesDialog(QDialog):
    """Under which licences Slipstream and all that comes with it are."""

    def __init__(self, file: Path, parent: QWidget | None = None) -> None:
        """``file`` as `paths.licences` has it; the texts it names are in its folder."""
        super().__init__(parent)
        self.setWindowTitle("Licences")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        layout = column((_text(file.read_text("utf-8")), 1), gap=4 * SPACING, margins=_MARGINS, on=self)
        buttons = _closing_buttons(self)
        if file.name == "LICENSE":
            others = f"Each Python package that Slipstream runs with has its own, in {sysconfig.get_path('purelib')}."
            layout.addWidget(label(others, "quiet", wraps=True))
        else:
            folder = QUrl.fromLocalFile(str(file.parent))
            _add_button(buttons, "Open folder", lambda: QDesktopServices.openUrl(folder))
        layout.addWidget(buttons)
        self.resize(2 * _WIDTH, _WIDTH)


class ShortcutsDialog(QDialog):
    """All keys, in the order of the menus."""

    def __init__(self, shortcuts: Sequence[tuple[str, str]], parent: QWidget | None = None) -> None:
        """``shortcuts`` are pairs of what happens and the keys, as the menu bar has them."""
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        column(_table((*_ALWAYS, *shortcuts)), _closing_buttons(self), gap=5 * SPACING, margins=_MARGINS, on=self)
        self.setMinimumWidth(340)


def _text(words: str) -> QPlainTextEdit:
    shown = QPlainTextEdit(words)
    shown.setReadOnly(True)
    shown.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)  # tables
    shown.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
    shown.setAccessibleName("Licences")
    return shown


def _table(rows: Sequence[tuple[str, str]]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(6 * SPACING)
    grid.setVerticalSpacing(2 * SPACING)
    grid.setColumnStretch(1, 1)
    for place, (name, value) in enumerate(rows):
        shown = label(value, wraps=True)
        shown.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        shown.setAccessibleName(f"{name}: {value}")
        grid.addWidget(label(name, "quiet"), place, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(shown, place, 1)
    return grid


def _add_button(box: QDialogButtonBox, text: str, act: Callable[[], object]) -> None:
    button = box.addButton(text, QDialogButtonBox.ButtonRole.ActionRole)
    button.setAutoDefault(False)
    button.clicked.connect(lambda: act())  # noqa: PLW0108 - without Qt's argument


def _closing_buttons(dialog: QDialog) -> QDialogButtonBox:
    box = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
    close = box.button(QDialogButtonBox.StandardButton.Close)
    close.setText("Close")
    close.setDefault(True)
    box.rejected.connect(dialog.reject)
    return box


class FiguresDialog(QDialog):
    """The definitions that tooltips also give, for the keyboard and for screen readers."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("What the figures mean")
        self.text = QPlainTextEdit("\n\n".join(f"{title}\n{HELP[name]}" for name, title in _FIGURES))
        self.text.setReadOnly(True)
        self.text.setAccessibleName("What the figures mean")
        self.text.setTabChangesFocus(True)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        column(self.text, _closing_buttons(self), gap=4 * SPACING, margins=_MARGINS, on=self)
        self.resize(_WIDTH, _WIDTH)


_FIGURES = (
    ("speed", "Speed"),
    ("acceptance", "Kept"),
    ("speed-up", "Speed-up"),
    ("positions", "Kept by position"),
    ("round", "A round"),
    ("curve", "Speed by draft length"),
    ("kinds", "What drafting pays on"),
    ("draft-length", "Draft length"),
    ("drafter", "Who guesses"),
)
