"""Settings → API server: whether and how other programs may use the model, and their recent requests."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtNetwork import QAbstractSocket, QNetworkInterface
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QTabBar, QWidget

from app.settings import ServerSettings
from app.storage.secrets import SecretPlace
from app.ui.context import WindowSettings
from app.ui.server import control as wording
from app.ui.server.control import ServerControl, needs_key
from app.ui.widgets import theme
from app.ui.widgets.controls import column, label, named, push_button, row, show_text
from app.ui.widgets.focus import announce
from app.ui.widgets.forms import Fields
from app.ui.widgets.questions import ask
from app.ui.widgets.table import RowsTable
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
_LOOPBACK = "127.0.0.1"
_PLACES: dict[SecretPlace, str] = {
    "nowhere": "The key is made when it is first needed.",
    "keyring": "The key is stored in the system's keyring.",
    "memory": "This system has no keyring, so Slipstream makes a new key each time it starts.",
}
_ROLES = {"failed": "bad", "off": "quiet"}
_REPLACE = "Programs that use the current key will be refused until you give them the new one."


class ServerPage(QWidget):
    """The server's settings, which take effect at once, and its state.

    Attributes:
        replace_key: The button that makes a new key.
    """

    def __init__(self, settings: WindowSettings, control: ServerControl) -> None:
        super().__init__()
        self._settings, self._control = settings, control
        self._values = ServerSettings()
        self._fields = fields = Fields(self._on_changed)
        self._on = fields.check("on", "Let other programs use the model")
        self._state = label(wraps=True)
        self._url = _CopiedField("Address")
        self._port = fields.whole("port", "Port", 1, 65535)
        self._port.setGroupSeparatorShown(False)
        self._port.setKeyboardTracking(False)
        self._key = _CopiedField("API key", is_secret=True)
        self.replace_key = push_button("Replace…", self._on_replace, name="Replace the API key")
        self._key_place = label(role="quiet", wraps=True)
        self._needs_key = fields.check("needs_key", "Programs on this computer need the key, too")
        self._others = fields.check("for_others", "Other computers may use it")
        self._address = fields.choice("address", "Address for other computers", {"": ALL_ADDRESSES})
        self._hosts = fields.words("hosts", "Other names for this computer", "my-computer.lan")
        self._origins = fields.words("origins", "More web pages that may use the server", "https://example.org")
        self._examples = _Examples()
        self._requests = _requests_table()
        self._lay_out()
        control.key_changed.connect(self._show_key)
        control.serving.state_changed.connect(self._show_state)
        control.serving.request_ended.connect(self._show_requests)

    # ------------------------------------------------------------ what is shown

    def refresh(self) -> None:
        values = self._settings.values.server
        self._values = values
        addresses = [*_addresses(), *filter(None, [values.address])]
        self._fields.offer("address", {"": ALL_ADDRESSES, **{one: one for one in addresses}})
        self._show(values)
        self._show_needs()
        self._show_state()
        self._show_key()
        self._show_requests()
        if needs_key(values) and values.on and not self._control.key:
            self._control.find_key()

    @Slot()
    def _show_state(self) -> None:
        state, server = self._control.serving.state, self._settings.values.server
        sentence = wording.state_sentence(state)
        if self._state.text() != sentence:
            self._state.setText(sentence)
            if self.isVisible():
                announce(self, sentence)
        theme.set_role(self._state, _ROLES.get(state.kind, "good"))
        host = _LOOPBACK
        if server.for_others:
            host = server.address or next(iter(_addresses()), _LOOPBACK)
        url = wording.base_url(host, server.port)
        self._url.set_text(url)
        self._examples.show_examples(wording.examples(url, needs_key=needs_key(server)))

    @Slot()
    def _show_key(self) -> None:
        self._key.set_text(self._control.key)
        show_text(self._key_place, _PLACES[self._control.key_place])

    @Slot()
    def _show_requests(self) -> None:
        self._requests.show_rows(wording.rows_of(self._control.serving.records))

    def _show_needs(self) -> None:
        self._needs_key.setEnabled(not self._others.isChecked())
        self._address.setEnabled(self._others.isChecked())

    # ------------------------------------------------------------ changes

    def _show(self, values: ServerSettings) -> None:
        """Apply dependent fields: other computers always need the key, so it isn't a choice then."""
        self._fields.show(msgspec.structs.replace(values, needs_key=needs_key(values)))

    def _on_changed(self) -> None:
        chosen = self._fields.values()
        if chosen["for_others"] or self._values.for_others:
            del chosen["needs_key"]
        if (values := msgspec.structs.replace(self._values, **chosen)) == self._values:
            return
        self._settings.values.server = self._values = values
        self._show(values)
        self._show_needs()
        self._control.apply()
        self._show_state()
        self._settings.save_soon()

    @Slot()
    def _on_replace(self) -> None:
        ask(
            self.window(),
            "API key",
            f"Replace the API key? {_REPLACE}",
            lossy={"Replace the key": self._control.replace_key},
        )

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        column(
            self._on,
            _help(_WHAT),
            self._state,
            2 * SPACING,
            label("Address", "heading", buddy=self._url.field),
            self._url,
            row(label("Port:", buddy=self._port), self._port, None),
            2 * SPACING,
            label("API key", "heading", buddy=self._key.field),
            row((self._key, 1), self.replace_key),
            self._key_place,
            self._needs_key,
            2 * SPACING,
            label("Other computers", "heading"),
            self._others,
            _help(_OTHERS),
            row(label("Listen at:", buddy=self._address), self._address, None),
            2 * SPACING,
            label("Examples", "heading"),
            self._examples,
            2 * SPACING,
            label("Other names for this computer", "heading", buddy=self._hosts),
            self._hosts,
            _help(_HOSTS),
            label("More web pages", "heading", buddy=self._origins),
            self._origins,
            _help(_ORIGINS),
            2 * SPACING,
            label("Last requests", "heading"),
            _help(_REQUESTS),
            (self._requests, 1),
            margins=5 * SPACING,
            on=self,
        )


class _CopiedField(QWidget):
    """A text to copy. ``field`` shows it."""

    def __init__(self, name: str, *, is_secret: bool = False) -> None:
        """``is_secret``: hidden until the user asks to see it."""
        super().__init__()
        self.field = named(QLineEdit(readOnly=True), name)
        copy = push_button("Copy", self._copy, name=f"Copy the {name if name.startswith('API') else name.lower()}")
        if not is_secret:
            row((self.field, 1), copy, on=self)
            return
        show = push_button("Show", name=f"Show the {name}")
        show.setCheckable(True)
        show.toggled.connect(self._show)
        self._show(False)
        row((self.field, 1), show, copy, on=self)

    def set_text(self, text: str) -> None:
        if text != self.field.text():
            self.field.setText(text)
            self.field.setCursorPosition(0)

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.field.text())

    @Slot(bool)
    def _show(self, shown: bool) -> None:
        self.field.setEchoMode(QLineEdit.EchoMode.Normal if shown else QLineEdit.EchoMode.Password)


class _Examples(QWidget):
    """How to use the API, in several languages."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, str] = {}
        self._languages = named(QTabBar(drawBase=False, expanding=False), "Language of the example")
        self._text = named(QPlainTextEdit(readOnly=True, tabChangesFocus=True), "Example")
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        copy = push_button("Copy", self._copy, name="Copy the example")
        self._languages.currentChanged.connect(self._show)
        theme.follow_zoom(self, self._fit)
        self._hint = _help(f"Put the key in place of {wording.KEY_PLACEHOLDER}.")
        column(row(self._languages, None, copy), self._text, self._hint, on=self)

    def show_examples(self, texts: dict[str, str]) -> None:
        self._texts = texts
        self._hint.setVisible(wording.KEY_PLACEHOLDER in "".join(texts.values()))
        if not self._languages.count():
            for language in texts:
                self._languages.addTab(language)
        self._show()

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text.toPlainText())

    @Slot()
    def _show(self) -> None:
        text = self._texts.get(self._languages.tabText(self._languages.currentIndex()), "")
        if text != self._text.toPlainText():
            self._text.setPlainText(text)

    def _fit(self) -> None:
        self._text.setFont(theme.monospace())
        line = self._text.fontMetrics().lineSpacing()
        self._text.setFixedHeight(_EXAMPLE_LINES * line + 6 * SPACING)


def _requests_table() -> RowsTable:
    return RowsTable(
        "Last requests",
        ["Time", "Program", "Path", "Tokens", "Took", "Result"],
        nothing=["–", "No requests since Slipstream started"],
        height=180,
        stretched=1,
        right=(3, 4),
        least_widths={3: 520, 4: 450},
    )


def _help(text: str) -> QWidget:
    return label(text, "quiet", wraps=True)


def _addresses() -> list[str]:
    """The addresses at which other computers could reach this one."""
    return [
        address.toString()
        for address in QNetworkInterface.allAddresses()
        if not address.isLoopback()
        and not address.isLinkLocal()
        and address.protocol() is QAbstractSocket.NetworkLayerProtocol.IPv4Protocol
    ]
