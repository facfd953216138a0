"""Settings → API server: whether and how other programs may use the model, and what they did."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QSize, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QTabBar,
    QWidget,
)

from app.settings import ServerSettings
from app.ui.server import wording
from app.ui.widgets import theme
from app.ui.widgets.announcing import announce
from app.ui.widgets.controls import guard_wheel, label, plain_tooltip, show_text
from app.ui.widgets.forms import Whole
from app.ui.widgets.layouts import column, row
from app.ui.widgets.table import Table
from app.ui.widgets.theme import SPACING

ALL_ADDRESSES = "All addresses"
_WHAT = (
    "Editors, scripts and other apps that speak OpenAI's or Anthropic's API can use the model that is loaded in this "
    "window. Your own chats go first, and nothing that other programs say is stored."
)
_OTHERS = (
    "They need the key. Nothing is encrypted: anyone who can read your network's traffic can read the questions and "
    "the answers."
)
_HOSTS = "In addition to localhost and this computer's addresses. Separate names with commas."
_ORIGINS = "Besides those of this computer and of apps, for example https://example.org."
_EXAMPLE_LINES = 7
_REQUESTS = "Since Slipstream started. What was asked and answered isn't recorded."


class ServerPage(QWidget):
    """Shows the settings of the server and what it does.

    Attributes:
        replace_key: The button that asks for another key.
        requests: The last requests.

    Signals:
        changed: Something else is set now; `values` says what.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._shows = False
        self._values = ServerSettings()
        self._on = QCheckBox("Let other programs use the model")
        self._state = label(wraps=True)
        self._url = _CopiedField("Address")
        self._port = Whole(1, 65535)
        self._port.setGroupSeparatorShown(False)
        self._port.setKeyboardTracking(False)
        self._port.setAccessibleName("Port")
        self._key = _CopiedField("API key", is_secret=True)
        self.replace_key = QPushButton("Replace…", autoDefault=False)
        self.replace_key.setAccessibleName("Replace the API key")
        self._key_place = label(role="quiet", wraps=True)
        self._needs_key = QCheckBox("Programs on this computer need the key, too")
        self._others = QCheckBox("Other computers may use it")
        self._address = QComboBox(sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToContents)
        self._address.setAccessibleName("Address for other computers")
        guard_wheel(self._address)
        self._hosts = QLineEdit(placeholderText="my-computer.lan")
        self._hosts.setAccessibleName("Other names for this computer")
        self._origins = QLineEdit(placeholderText="https://example.org")
        self._origins.setAccessibleName("More web pages that may use the server")
        self._examples = _Examples()
        self.requests = _RequestsTable()
        self._lay_out()
        for box in (self._on, self._needs_key, self._others):
            box.toggled.connect(self._on_changed)
        for field in (self._hosts, self._origins):
            field.editingFinished.connect(self._on_changed)
        self._port.valueChanged.connect(self._on_changed)
        self._address.activated.connect(self._on_changed)

    # ------------------------------------------------------------ what is shown

    def show_settings(self, values: ServerSettings, addresses: Sequence[str]) -> None:
        """``addresses``: those of this computer that others could reach."""
        self._shows = True
        self._values = values
        self._on.setChecked(values.on)
        self._port.setValue(values.port)
        self._needs_key.setChecked(values.needs_key or values.for_others)
        self._others.setChecked(values.for_others)
        self._address.clear()
        self._address.addItem(ALL_ADDRESSES, "")
        for address in dict.fromkeys([*addresses, *([values.address] if values.address else [])]):
            self._address.addItem(address, address)
        self._address.setCurrentIndex(max(self._address.findData(values.address), 0))
        self._hosts.setText(wording.typed(values.hosts))
        self._origins.setText(wording.typed(values.origins))
        self._shows = False
        self._refresh()

    def show_state(self, sentence: str, role: str) -> None:
        """What the server does; ``role`` is that of the text."""
        if self._state.text() != sentence:
            self._state.setText(sentence)
            if self.isVisible():
                announce(self, sentence)
        theme.set_role(self._state, role)

    def show_url(self, url: str, *, needs_key: bool) -> None:
        """What programs are given."""
        self._url.set_text(url)
        self._examples.show_examples(wording.examples(url, needs_key=needs_key))

    def show_key(self, key: str, where: str) -> None:
        """``where`` says in a sentence where it is stored."""
        self._key.set_text(key)
        show_text(self._key_place, where)

    def values(self) -> ServerSettings:
        """The current values."""
        others = self._others.isChecked()
        # What other computers need isn't a choice for this one.
        needs_key = self._values.needs_key if others or self._values.for_others else self._needs_key.isChecked()
        return msgspec.structs.replace(
            self._values,
            on=self._on.isChecked(),
            port=self._port.value(),
            for_others=others,
            address=str(self._address.currentData() or ""),
            needs_key=needs_key,
            hosts=wording.names(self._hosts.text()),
            origins=wording.names(self._origins.text()),
        )

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        headings = {
            title: label(title, "heading")
            for title in ("Address", "API key", "Other computers", "Other names for this computer", "More web pages")
        }
        headings["Address"].setBuddy(self._url.field)
        headings["API key"].setBuddy(self._key.field)
        headings["Other names for this computer"].setBuddy(self._hosts)
        headings["More web pages"].setBuddy(self._origins)
        port, listen = label("Port:"), label("Listen at:")
        port.setBuddy(self._port)
        listen.setBuddy(self._address)
        column(
            self._on,
            _help(_WHAT),
            self._state,
            2 * SPACING,
            headings["Address"],
            self._url,
            row(port, self._port, None),
            2 * SPACING,
            headings["API key"],
            row((self._key, 1), self.replace_key),
            self._key_place,
            self._needs_key,
            2 * SPACING,
            headings["Other computers"],
            self._others,
            _help(_OTHERS),
            row(listen, self._address, None),
            2 * SPACING,
            label("Examples", "heading"),
            self._examples,
            2 * SPACING,
            headings["Other names for this computer"],
            self._hosts,
            _help(_HOSTS),
            headings["More web pages"],
            self._origins,
            _help(_ORIGINS),
            2 * SPACING,
            label("Last requests", "heading"),
            _help(_REQUESTS),
            (self.requests, 1),
            margins=5 * SPACING,
            on=self,
        )

    @Slot()
    def _refresh(self) -> None:
        self._needs_key.setEnabled(not self._others.isChecked())
        self._address.setEnabled(self._others.isChecked())

    @Slot()
    def _on_changed(self) -> None:
        if self._shows:
            return
        values = self.values()
        if values != self._values:
            self._values = values
            self._shows = True
            self._needs_key.setChecked(values.needs_key or values.for_others)
            self._shows = False
            self._refresh()
            self.changed.emit()


class _CopiedField(QWidget):
    """A text to be copied.

    Attributes:
        field: Shows it.
    """

    def __init__(self, name: str, *, is_secret: bool = False) -> None:
        """``is_secret``: it is only shown when asked for."""
        super().__init__()
        self.field = QLineEdit(readOnly=True)
        self.field.setAccessibleName(name)
        copy = QPushButton("Copy", autoDefault=False)
        copy.setAccessibleName(f"Copy the {name if name.startswith('API') else name.lower()}")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.field.text()))
        if not is_secret:
            row((self.field, 1), copy, on=self)
            return
        show = QPushButton("Show", autoDefault=False)
        show.setCheckable(True)
        show.setAccessibleName(f"Show the {name}")
        show.toggled.connect(self._show)
        self._show(False)
        row((self.field, 1), show, copy, on=self)

    def set_text(self, text: str) -> None:
        if text != self.field.text():
            self.field.setText(text)
            self.field.setCursorPosition(0)

    @Slot(bool)
    def _show(self, shown: bool) -> None:
        self.field.setEchoMode(QLineEdit.EchoMode.Normal if shown else QLineEdit.EchoMode.Password)


class _Examples(QWidget):
    """How a program asks, in several languages."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, str] = {}
        self._languages = QTabBar(drawBase=False, expanding=False)
        self._languages.setAccessibleName("Language of the example")
        self._text = QPlainTextEdit(readOnly=True, tabChangesFocus=True)
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._text.setAccessibleName("Example")
        copy = QPushButton("Copy", autoDefault=False)
        copy.setAccessibleName("Copy the example")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._text.toPlainText()))
        self._languages.currentChanged.connect(self._show)
        theme.follow_zoom(self, self._fit)
        self._hint = _help(f"Put the key in place of {wording.KEY_PLACEHOLDER}.")
        column(row(self._languages, None, copy), self._text, self._hint, on=self)

    def show_examples(self, texts: dict[str, str]) -> None:
        """By language."""
        self._texts = texts
        self._hint.setVisible(wording.KEY_PLACEHOLDER in "".join(texts.values()))
        if not self._languages.count():
            for language in texts:
                self._languages.addTab(language)
        self._show()

    @Slot()
    def _show(self) -> None:
        text = self._texts.get(self._languages.tabText(self._languages.currentIndex()), "")
        if text != self._text.toPlainText():
            self._text.setPlainText(text)

    def _fit(self) -> None:
        self._text.setFont(theme.monospace())
        line = self._text.fontMetrics().lineSpacing()
        self._text.setFixedHeight(_EXAMPLE_LINES * line + 6 * SPACING)


class _RequestsTable(Table):
    """The last requests: time, program, path, tokens of prompt and answer, duration, result."""

    def __init__(self) -> None:
        super().__init__(
            "Last requests",
            ["Time", "Program", "Path", "Tokens", "Took", "Result"],
            right=(3, 4),
            stretched=1,
            least_widths={3: 520, 4: 450},
        )
        self._rows: list[list[str]] | None = None
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setMinimumHeight(120)

    def show_rows(self, rows: list[list[str]]) -> None:
        """Newest first."""
        if rows == self._rows:
            return
        self._rows = rows
        self.clear()
        for cells in rows:
            self.add(cells).setToolTip(1, plain_tooltip(cells[1]))
        if not rows:
            self.add(["–", "No requests since Slipstream started"])

    def sizeHint(self) -> QSize:
        return QSize(400, 180)


def _help(text: str) -> QWidget:
    return label(text, "quiet", wraps=True)
