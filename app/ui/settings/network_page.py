"""Settings → Network: what may be sent, how, and what was sent."""

from __future__ import annotations

from PySide6.QtCore import QDateTime, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QDialog, QDialogButtonBox, QLineEdit, QWidget

from app import words
from app.models.hub.network import TokenPlace
from app.system import KnownError
from app.ui.context import AppContext
from app.ui.models.window import ModelsWindow
from app.ui.widgets.controls import DIALOG_MARGINS, column, explain, label, named, push_button, row, show_text
from app.ui.widgets.forms import Fields
from app.ui.widgets.table import RowsTable
from app.ui.widgets.theme import SPACING
from app.words import printable

PURPOSES = (
    ("Search", "sends your search words and the sort order"),
    ("Model page", "sends the name of a repository, to list its files, sizes and license"),
    (
        "Model header",
        "sends the name of a file and reads its beginning, to compare vocabularies before you download it",
    ),
    ("Download", "sends the names of the files"),
)
"""Every kind of request, named as in the traffic list, and what it sends."""
_TOKEN_SENT = (
    "If you entered an access token, it is sent to Hugging Face with these requests, and to a mirror only if you "
    "allow it above."
)
_SERVERS = (
    "A server whose model you opened gets the chats that you continue with it. Slipstream asks before a chat goes to "
    "another computer for the first time. An MCP server at an address gets what you allow the model to pass to its "
    "tools; one that is a program may use the network itself, even offline. The list below doesn't contain this."
)
_WHERE_TOKENS_GO = (
    "The token is stored in the system's keyring or, if there is none, in memory until Slipstream closes. It is never "
    "written to a file, and it is sent only to {host}."
)
_GATED = (
    "Some repositories are gated: you have to accept their terms on their page, and downloads need an access token "
    "from your account. A read-only token is enough."
)
_PARALLEL = "How many files are downloaded at the same time."
_ADDRESS = "Address of Hugging Face or a mirror"
TRAFFIC_INTERVAL_MS = 1000
_TOKEN_PLACES: dict[TokenPlace, str] = {
    "nowhere": "No token. Gated repositories need one.",
    "keyring": "A token is stored in the system's keyring.",
    "memory": "The token is kept in memory until Slipstream closes, because this system has no keyring to store it in.",
    "environment": "The token in the variable HF_TOKEN is used.",
}


class NetworkPage(QWidget):
    """Network settings, which take effect at once, the access token, and recent traffic.

    Signals:
        needed: The page has something to tell the user.
    """

    needed = Signal()

    def __init__(self, ctx: AppContext, models: ModelsWindow) -> None:
        super().__init__()
        self._settings, self._values = ctx.settings, ctx.settings.values
        self._hub, self._queue = models.hub, models.downloads
        self._fields = Fields(self._on_changed)
        self._offline = explain(
            self._fields.check("offline", "Work offline"),
            "No searches, no downloads and no servers on other computers.",
        )
        self._endpoint = self._fields.line("hub_endpoint", _ADDRESS, "https://huggingface.co")
        self._endpoint_problem = label(role="bad", wraps=True)
        self._to_mirror = self._fields.check("token_to_mirror", "Also send the access token to this mirror")
        self._token = label(wraps=True)
        self._enter_token = push_button(ctx.actions.text("ask_for_token"), self.ask_for_token)
        self._token_problem = label(role="bad", wraps=True)
        self._remove_token = push_button("Remove", lambda: self._set_token(None), name="Remove the access token")
        self._parallel = explain(self._fields.whole("parallel_downloads", "Simultaneous downloads", 1, 8), _PARALLEL)
        self._traffic = RowsTable(
            "Network traffic since Slipstream started",
            ["Time", "Host", "Purpose", "Received"],
            nothing=["–", "", "No traffic since Slipstream started", ""],
            height=160,
            stretched=2,
            right=(3,),
        )
        self._timer = QTimer(self, interval=TRAFFIC_INTERVAL_MS)
        self._timer.timeout.connect(self._refresh_traffic)
        self._lay_out()
        self._endpoint.textChanged.connect(self._on_typed)
        self._show_token("nowhere")

    def refresh(self) -> None:
        self._fields.show(self._values)
        self._on_typed()
        self._show_endpoint_problem()
        show_text(self._token_problem, "")
        self._hub.token_place(self._show_token)
        self._refresh_traffic()
        self._timer.start()

    @Slot()
    def _refresh_traffic(self) -> None:
        if not self.window().isVisible():
            self._timer.stop()
        self._traffic.show_rows(
            [
                [
                    QDateTime.fromSecsSinceEpoch(int(one.at)).toString("HH:mm:ss"),
                    printable(one.host),
                    printable(one.purpose, 120),
                    words.size(one.received) if one.received else "",
                ]
                for one in self._hub.network.traffic()
            ]
        )

    @Slot()
    def _on_typed(self) -> None:
        self._to_mirror.setEnabled(bool(self._endpoint.text().strip()))

    def _on_changed(self) -> None:
        self._on_typed()
        for key, value in self._fields.values().items():
            setattr(self._values, key, value)
        self._hub.apply_settings()
        self._show_endpoint_problem()
        self._queue.apply_settings()
        self._settings.apply()

    def _show_endpoint_problem(self) -> None:
        show_text(self._endpoint_problem, self._hub.endpoint_problem())

    # ------------------------------------------------------------ the token

    @Slot()
    def ask_for_token(self) -> None:
        if self._hub.endpoint_problem():
            self.needed.emit()
            return
        dialog = TokenDialog(self._hub.network.endpoint, QApplication.activeWindow())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self._set_token(dialog.token()))
        dialog.open()

    def _set_token(self, token: str | None) -> None:
        """Store the token, or remove the stored one."""

        def done(place: TokenPlace) -> None:
            show_text(self._token_problem, "")
            self._show_token(place)

        def failed(error: KnownError) -> None:
            self.needed.emit()
            show_text(self._token_problem, str(error))

        self._hub.set_token(token, done, failed)

    def _show_token(self, place: TokenPlace) -> None:
        is_set = place in ("keyring", "memory")
        self._token.setText(_TOKEN_PLACES[place])
        self._enter_token.setText("Replace…" if is_set else "Enter token…")
        self._remove_token.setVisible(is_set)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        column(
            self._offline,
            _help(
                "Slipstream doesn't use the network. Models on this computer don't need it; of servers, only those on "
                "this computer are used."
            ),
            2 * SPACING,
            label(_ADDRESS, "heading", buddy=self._endpoint),
            self._endpoint,
            self._endpoint_problem,
            self._to_mirror,
            2 * SPACING,
            label("Access token for gated models", "heading"),
            row((self._token, 1), self._enter_token, self._remove_token),
            self._token_problem,
            2 * SPACING,
            label("Downloads", "heading"),
            row(
                label("Simultaneous downloads:", buddy=self._parallel),
                self._parallel,
                (_help(_PARALLEL), 1),
                gap=3 * SPACING,
            ),
            2 * SPACING,
            label("What Slipstream sends", "heading"),
            _help(
                "Only when you ask for it, and only this. Nothing you write in a chat leaves this computer, unless you "
                "open a model on a server or allow a tool that sends it."
            ),
            *(label(f"{name}: {sent}.", wraps=True) for name, sent in PURPOSES),
            _help(_TOKEN_SENT),
            _help(_SERVERS),
            SPACING,
            (self._traffic, 1),
            margins=5 * SPACING,
            on=self,
        )


class TokenDialog(QDialog):
    """Asks for an access token for Hugging Face. After `accept`, `token` is what was entered."""

    def __init__(self, endpoint: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Access token")
        self.setMinimumWidth(440)
        self._token = named(QLineEdit(echoMode=QLineEdit.EchoMode.Password, placeholderText="hf_…"), "Access token")
        page = QUrl(f"{endpoint}/settings/tokens")
        make = push_button("Create a token on the website", lambda: QDesktopServices.openUrl(page))
        box = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        save = box.button(QDialogButtonBox.StandardButton.Ok)
        save.setText("Save")
        save.setEnabled(False)
        box.button(QDialogButtonBox.StandardButton.Cancel).setText("Cancel")
        box.addButton(make, QDialogButtonBox.ButtonRole.HelpRole)
        box.accepted.connect(self.accept)
        box.rejected.connect(self.reject)
        self._token.textChanged.connect(lambda: save.setEnabled(bool(self.token())))
        column(
            label(_GATED, wraps=True),
            self._token,
            label(_WHERE_TOKENS_GO.format(host=QUrl(endpoint).host()), "quiet", wraps=True),
            box,
            gap=3 * SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )

    def token(self) -> str:
        return self._token.text().strip()


def _help(text: str) -> QWidget:
    return label(text, "quiet", wraps=True)
