"""Help → Keyboard shortcuts, What the figures mean and About Slipstream."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import PySide6
from PySide6.QtCore import QSize, Qt, QUrl, Slot, qVersion
from PySide6.QtGui import QDesktopServices, QFont, QFontDatabase, QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QGridLayout,
    QHeaderView,
    QLineEdit,
    QPlainTextEdit,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from app import __version__, system
from app.protocol.answering import WORDS
from app.protocol.events import PROTOCOL_VERSION, Hello
from app.protocol.remote import RemoteModel
from app.ui.actions import native
from app.ui.chat import footer
from app.ui.chat.composer import send_key
from app.ui.compare import prompt_set, tab
from app.ui.engine.pair_names import server_name
from app.ui.speed.wording import HELP
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import DIALOG_MARGINS, column, label, row
from app.ui.widgets.theme import SPACING

_LOGO = 64
_WIDTH = 480
_SHORTCUTS_WIDTH, _SHORTCUTS_HEIGHT = 480, 520
_MARGINS = (6 * SPACING, 6 * SPACING, 6 * SPACING, 5 * SPACING)
_SPEED_PANEL = {
    "status": "What drafting is doing",
    "speed": "Speed",
    "acceptance": "Accepted",
    "speed-up": "Speed-up",
    "measure": "Measuring without a draft",
    "positions": "Accepted by position",
    "round": "One round",
    "server": "A server's drafting",
    "server-positions": "Draft tokens accepted per pass",
    "curve": "Speed by draft length",
    "kinds": "Where drafting helps",
    "draft-length": "Draft length",
    "drafter": "Drafter",
    "show-drafted": "Show drafted tokens",
}
_CONTEXT_TEXT = (
    "How much of the model's context the next message will take: the system prompt, the messages so far and what you "
    "are typing. Shift+F1 shows how many tokens each of them takes."
)
Group: TypeAlias = tuple[str, Sequence[tuple[str, str]]]
"""A title, and pairs of what happens and the keys."""
_SELECTABLE = Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard


class _HelpDialog(QDialog):
    """A dialog with a Close button, deleted when it is closed. ``buttons``: Close, and those of `add_button`."""

    def __init__(self, title: str, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        self.close_button = self.buttons.button(QDialogButtonBox.StandardButton.Close)
        self.close_button.setText("Close")
        self.close_button.setDefault(True)
        self.buttons.rejected.connect(self.reject)

    def add_button(self, text: str, act: Callable[[], object]) -> None:
        button = self.buttons.addButton(text, QDialogButtonBox.ButtonRole.ActionRole)
        button.setAutoDefault(False)
        button.clicked.connect(lambda: act())  # noqa: PLW0108 - without Qt's argument


class AboutDialog(_HelpDialog):
    """What Slipstream is, and the versions to include in a problem report."""

    def __init__(self, hello: Hello | None, remote: RemoteModel | None = None, parent: QWidget | None = None) -> None:
        """``hello``: see `EngineClient.hello`; ``remote``: the server's model in use, if any."""
        super().__init__("About Slipstream", parent)
        hello = hello or Hello(protocol=PROTOCOL_VERSION, engine="")
        versions = (
            ("Slipstream", __version__),
            ("Engine", hello.engine or "not running"),
            *(_where_remote(remote) if remote is not None else _where(hello)),
            ("Qt", f"{qVersion()} (PySide6 {PySide6.__version__})"),
            ("Python", platform.python_version()),
            ("System", platform.platform()),
        )
        report = "\n".join(f"{name}: {value}" for name, value in versions)
        self.add_button("Copy versions", lambda: QGuiApplication.clipboard().setText(report))
        self.add_button("Licenses", lambda: LicensesDialog(system.licenses(), self).open())
        logo = label()
        logo.setPixmap(icons.application().pixmap(_LOGO, _LOGO))
        title = label("Slipstream", scale=1.6, bold=True)
        says = label("Chat with language models on your own computer, faster with speculative decoding.", wraps=True)
        heading = row(logo, (column(None, title, says, None, gap=SPACING), 1), gap=4 * SPACING)
        license = label(
            "Slipstream is free software under the MIT license. It runs models with llama.cpp (MIT) through "
            "llama-cpp-python (MIT); its interface uses Qt (LGPL 3). Nothing you write leaves this computer unless you "
            "open a model on a server or allow a tool that sends it.",
            "quiet",
            wraps=True,
        )
        parts = (heading, _table(versions), license, None, self.buttons)
        layout = column(*parts, gap=5 * SPACING, margins=_MARGINS, on=self)
        self.close_button.setFocus()
        # Only known once the labels have their fonts.
        self.ensurePolished()
        layout.activate()
        self.setMinimumWidth(_WIDTH)
        self.resize(_WIDTH, layout.totalHeightForWidth(_WIDTH))


def _where(hello: Hello) -> list[tuple[str, str]]:
    return [
        ("Runs on", ", ".join(device.description for device in hello.devices) or "CPU"),
        ("Processor", ", ".join(hello.processor_features) or "unknown"),
    ]


def _where_remote(remote: RemoteModel) -> list[tuple[str, str]]:
    """Without the address, which doesn't belong in a report."""
    where = "this computer" if remote.server.is_loopback else "another computer"
    return [("Runs on", f"{server_name(remote.server)}, {where}")]


class LicensesDialog(_HelpDialog):
    """The licenses of Slipstream and of everything that comes with it."""

    def __init__(self, file: Path, parent: QWidget | None = None) -> None:
        """``file``: see `paths.licenses`; the texts it names are in the same folder."""
        super().__init__("Licenses", parent)
        text = QPlainTextEdit(file.read_text("utf-8"), readOnly=True)
        text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)  # it contains tables
        text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        text.setAccessibleName("Licenses")
        layout = column((text, 1), gap=4 * SPACING, margins=_MARGINS, on=self)
        if file.name == "LICENSE":
            others = f"The Python packages that Slipstream uses have their own, in {sysconfig.get_path('purelib')}."
            layout.addWidget(label(others, "quiet", wraps=True))
        else:
            folder = QUrl.fromLocalFile(str(file.parent))
            self.add_button("Open folder", lambda: QDesktopServices.openUrl(folder))
        layout.addWidget(self.buttons)
        self.resize(2 * _WIDTH, _WIDTH)


class FiguresDialog(_HelpDialog):
    """The same definitions as in the tooltips, accessible by keyboard and screen readers."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("What the figures mean", parent)
        text = QPlainTextEdit("\n\n\n".join("\n\n".join((title.upper(), *group)) for title, group in figures().items()))
        text.setReadOnly(True)
        text.setAccessibleName("What the figures mean")
        text.setTabChangesFocus(True)
        text.setTextInteractionFlags(_SELECTABLE)
        column(text, self.buttons, gap=4 * SPACING, margins=_MARGINS, on=self)
        self.resize(_WIDTH, _WIDTH)


def figures() -> dict[str, list[str]]:
    """The figures of each place that shows some: names, and below each its definition."""
    return {
        "Speed panel": [f"{title}\n{HELP[name]}" for name, title in _SPEED_PANEL.items()],
        "Below an answer": [footer.HELP],
        "Context": [_CONTEXT_TEXT],
        "Chat settings": [f"{title}\n{text}" for title, text, *_ in WORDS.values()],
        "Compare": [
            f"Speed\n{tab.SPEED_HELP}",
            f"Time\n{tab.CLOCK_HELP}",
            *(f"{title}\n{text}" for title, text in prompt_set.COLUMNS.items()),
        ],
    }


def _table(rows: Sequence[tuple[str, str]]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(6 * SPACING)
    grid.setVerticalSpacing(2 * SPACING)
    grid.setColumnStretch(1, 1)
    for place, (name, value) in enumerate(rows):
        shown = label(value, wraps=True)
        shown.setTextInteractionFlags(_SELECTABLE)
        shown.setAccessibleName(f"{name}: {value}")
        grid.addWidget(label(name, "quiet"), place, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(shown, place, 1)
    return grid


def keys_elsewhere() -> list[Group]:
    """Keys that depend on the focus and aren't actions."""
    return [
        (
            "While writing a message",
            [
                ("Send the message", send_key().text()),
                ("Start a new line", send_key().new_line_text()),
                ("Stop the answer, or cancel editing a message", native("Esc")),
            ],
        ),
        ("In the chat list", [("Next or previous chat", f"{native('Down')} or {native('Up')}")]),
        (
            "In the messages",
            [
                ("Scroll one page", f"{native('PgDown')} or {native('PgUp')}"),
                ("Go to the first or the last message", f"{native('Home')} or {native('End')}"),
                ("Zoom", f"{native('Ctrl+A').removesuffix('A')}mouse wheel"),
                ("Next or previous button, link or field", f"{native('Tab')} or {native('Shift+Tab')}"),
            ],
        ),
        ("Everywhere", [("Explain what has the focus", native("Shift+F1"))]),
        ("In other windows", [("Close the window", native("Esc"))]),
    ]


def _joined(groups: Sequence[Group]) -> list[Group]:
    """Merge sections with the same title into the first of them."""
    titles = dict.fromkeys(title for title, _ in groups)
    return [(title, [one for other, keys in groups if other == title for one in keys]) for title in titles]


class ShortcutsDialog(_HelpDialog):
    """All keys in groups, with a ``filter`` field above the ``list``."""

    def __init__(self, shortcuts: Sequence[Group], parent: QWidget | None = None) -> None:
        """``shortcuts``: those of the actions."""
        super().__init__("Keyboard shortcuts", parent)
        self.close_button.setDefault(False)
        self.close_button.setAutoDefault(False)
        self.filter = QLineEdit(placeholderText="Filter by name or key", clearButtonEnabled=True)
        self.filter.setAccessibleName("Filter the shortcuts")
        self.filter.textChanged.connect(self._on_filter_changed)
        self.list = QTreeWidget(columnCount=2)
        self._rows: list[tuple[QTreeWidgetItem, list[QTreeWidgetItem]]] = []
        self._fill(_joined([*shortcuts, *keys_elsewhere()]))
        self._nothing = label("No shortcuts found.", "quiet", wraps=True)
        self._nothing.hide()
        parts = (self.filter, self._nothing, (self.list, 1), self.buttons)
        column(*parts, gap=3 * SPACING, margins=DIALOG_MARGINS, on=self)
        self.filter.setFocus()
        self.resize(theme.px(_SHORTCUTS_WIDTH), theme.px(_SHORTCUTS_HEIGHT))
        if parent is not None:
            self.resize(self.size().boundedTo(parent.window().size()))

    def _fill(self, groups: Sequence[Group]) -> None:
        shown = self.list
        shown.setAccessibleName("Keyboard shortcuts")
        shown.setHeaderLabels(["What it does", "Keys"])
        shown.setHeaderHidden(True)
        shown.setRootIsDecorated(False)
        shown.setItemsExpandable(False)
        shown.setIndentation(0)
        bold = QFont()
        bold.setBold(True)
        for title, shortcuts in groups:
            heading = QTreeWidgetItem(shown, [title])
            heading.setFont(0, bold)
            heading.setTextAlignment(0, Qt.AlignmentFlag.AlignBottom)
            heading.setSizeHint(0, QSize(0, 2 * self.fontMetrics().height()))
            heading.setFlags(Qt.ItemFlag.ItemIsEnabled)
            rows = [QTreeWidgetItem(heading, [name, keys]) for name, keys in shortcuts]
            for one in rows:
                one.setData(0, Qt.ItemDataRole.AccessibleTextRole, f"{one.text(0)}: {one.text(1)}")
            self._rows.append((heading, rows))
        shown.expandAll()
        shown.header().setStretchLastSection(False)
        shown.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        shown.header().setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)

    @Slot(str)
    def _on_filter_changed(self, text: str) -> None:
        words = text.lower().split()
        for heading, rows in self._rows:
            for one in rows:
                said = f"{one.text(0)} {one.text(1)}".lower()
                one.setHidden(not all(word in said for word in words))
            heading.setHidden(all(one.isHidden() for one in rows))
        has_some = not all(heading.isHidden() for heading, _rows in self._rows)
        self._nothing.setVisible(not has_some)
        self.list.setVisible(has_some)
