"""File → Open a model on a server…: address, key, test, model."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from PySide6.QtCore import QSignalBlocker, Qt, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QCompleter,
    QDialog,
    QDialogButtonBox,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QWidget,
)

from app import words
from app.protocol.events import LoadFailed, PairLoaded
from app.protocol.remote import (
    MAX_ADDRESS_CHARACTERS,
    MAX_KEY_CHARACTERS,
    Connect,
    FindServers,
    ModelState,
    Probe,
    ServedModel,
    Server,
    ServerProbed,
    ServersFound,
)
from app.storage.secrets import SecretPlace
from app.system import KnownError
from app.ui.context import AppContext
from app.ui.engine.client import EngineClient, EngineExit
from app.ui.engine.pair_names import PairFiles, host_of, server_name
from app.ui.models.fit import Mood
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    DIALOG_MARGINS,
    column,
    explain,
    guard_wheel,
    label,
    named,
    push_button,
    row,
    show_text,
)
from app.ui.widgets.theme import SPACING
from app.words import printable, visible

_WIDTH = 560
_FOUND_ROWS = 4
_TESTING = "Testing…"
_LOOKING = "Looking for servers…"
_NOT_ENCRYPTED = (
    "The connection to {host} isn't encrypted: anyone on the network in between can read the chat and the key. Use "
    "https, or connect only over a network that you trust."
)
_NO_FIGURES = "This server gives no drafting figures."
_NONE_FOUND = "No server answers at the usual ports of this computer."
_CHOOSE = "Choose one of its models."
_STATES: dict[ModelState, str] = {
    "unloaded": "not loaded",
    "loading": "loading",
    "sleeping": "sleeping",
    "downloading": "downloading",
}
_INTRODUCTION = (
    "Chat with a model that another program runs: llama-server, vLLM, SGLang, TensorRT-LLM, TGI, Ollama, LM Studio or "
    "anything else with an API like OpenAI's."
)


@dataclass(frozen=True)
class Verdict:
    """The result of a test. ``lines``: details."""

    text: str
    mood: Mood = "quiet"
    lines: tuple[str, ...] = ()


class ServerDialog(QDialog):
    """One for a main window, created on first use. A separate process connects to servers, so that a test disturbs
    nothing; it ends whenever the dialog closes.

    Attributes:
        address, key, model, found: Its fields.
        test, find_button, remove_key, open_button, local: Its buttons. ``local`` leads to the models on this computer.
    """

    def __init__(self, ctx: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._ctx, self._keys = ctx, ctx.loader.planner.keys
        self._values = ctx.settings.values
        self._engine: EngineClient | None = None
        self._number = 0
        """The number of the open question; 0 if there is none."""
        self._server: Server | None = None
        """What the last test found."""
        self._tested: tuple[str, str] = ("", "")
        """Address and key of that test, as typed."""
        self._stored = ""
        """The stored key for the address."""
        self._has_keyring = True
        self._wanted = ""
        """The requested model."""
        self._opens = False
        """Whether to open it when the test is done."""
        self.setWindowTitle("Open a model on a server")
        self.setMinimumWidth(400)
        self._make_fields()
        self._lay_out()
        self._connect()
        ctx.closing.callback(self._shut_down)

    def ask(self, address: str = "", model: str = "", *, for_key: bool = False) -> None:
        """Show the dialog, with this server if given. ``for_key``: its key is missing."""
        if not self.isVisible():
            self._reset()
        if address:
            self.address.setText(address)
            self._wanted = model
            if model:
                self._show_models([ServedModel(id=model)], model)
        (self.key if for_key else self.address).setFocus()
        self.open()
        self._grow()
        self.activateWindow()

    def _reset(self) -> None:
        completer = QCompleter(self._values.known_servers(), self.address)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        self.address.setCompleter(completer)
        for field in (self.address, self.key):
            field.clear()
        self._tested = "", ""
        self._on_address_changed()
        self.show_found(None)
        self._keys.has_keyring(self._on_keyring_known)
        self.resize(_WIDTH, self.sizeHint().height())

    def _shut_down(self) -> None:
        self.reject()
        if self._engine is not None:
            self._engine.shutdown()

    def _make_fields(self) -> None:
        address = QLineEdit(placeholderText="http://127.0.0.1:8080", maxLength=MAX_ADDRESS_CHARACTERS)
        self.address = explain(address, "The address of the server, with or without /v1.")
        self.key = QLineEdit(
            echoMode=QLineEdit.EchoMode.Password,
            placeholderText="Only if the server asks for one",
            maxLength=MAX_KEY_CHARACTERS,
        )
        self.model = QComboBox(
            minimumContentsLength=8, sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        guard_wheel(self.model)
        self.found = named(QListWidget(), "Servers on this computer")
        self.remove_key = push_button("Remove", self._on_remove_key, name="Remove the key")
        self.remove_key.hide()
        self.test = push_button("Test", self._on_test)
        explain(self.test, "Connects to the server and says what it is. Nothing of a chat is sent.")
        self.find_button = push_button("Find servers on this computer", self._on_find)
        explain(self.find_button, "Asks the ports that such programs usually listen on. Nothing leaves this computer.")
        self.open_button = QPushButton("Open", default=True)
        theme.set_role(self.open_button, "primary")
        self.local = push_button("Models on this computer…", self._on_local)

    def _lay_out(self) -> None:
        self._key_note = label("", "quiet", wraps=True, scale=0.9)
        self._warning = label("", "warning", wraps=True)
        self._none_found = label("", "quiet", wraps=True)
        self._verdict = label(wraps=True, bold=True, selectable=True)
        self._lines = label(wraps=True, selectable=True)
        self._model_part = QWidget()
        column(*self._named("Model", self.model), gap=SPACING, on=self._model_part)
        box = QDialogButtonBox()
        box.addButton(self.local, QDialogButtonBox.ButtonRole.ResetRole)
        box.addButton(QDialogButtonBox.StandardButton.Cancel).setText("Cancel")
        box.addButton(self.open_button, QDialogButtonBox.ButtonRole.AcceptRole)
        box.rejected.connect(self.reject)
        column(
            label(_INTRODUCTION, "quiet", wraps=True),
            2 * SPACING,
            *self._named("Address", self.address),
            self._warning,
            row(self.find_button, None),
            self._none_found,
            self.found,
            2 * SPACING,
            *self._named("Key", self.key, self.remove_key),
            self._key_note,
            2 * SPACING,
            row(self.test, None),
            self._verdict,
            self._lines,
            self._model_part,
            None,
            2 * SPACING,
            box,
            gap=SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )

    def _named(self, name: str, field: QWidget, *others: QWidget) -> list[QWidget]:
        line = QWidget()
        row((field, 1), *others, on=line)
        return [label(name, "heading", buddy=named(field, name)), line]

    def _connect(self) -> None:
        self.address.textChanged.connect(self._on_address_changed)
        self.key.textChanged.connect(self._forget_test)
        self.model.activated.connect(self._on_model_chosen)
        self.found.itemClicked.connect(self._on_found_chosen)
        self.found.itemActivated.connect(self._on_found_chosen)
        self.open_button.clicked.connect(self._on_open)
        self.finished.connect(self._on_finished)

    # ------------------------------------------------------------ display

    def _show_key(self, key: str, place: SecretPlace) -> None:
        self._stored = key
        self._key_note.setText(key_note(place, has_keyring=self._has_keyring))
        self.remove_key.setVisible(bool(key))
        self.key.setPlaceholderText("•••••• (stored)" if key else "Only if the server asks for one")

    def _show_verdict(self, verdict: Verdict) -> None:
        show_text(self._verdict, verdict.text, verdict.mood)
        show_text(self._lines, "\n".join(filter(None, verdict.lines)), "quiet")
        self._grow()

    def verdict(self) -> str:
        """The result of the last test, in lines; empty without one."""
        return "\n".join(filter(None, (self._verdict.text(), self._lines.text())))

    def key_note(self) -> str:
        """The note about the key."""
        return self._key_note.text()

    def _show_models(self, models: Sequence[ServedModel], chosen: str) -> None:
        """Show the choice only if there are several models."""
        with QSignalBlocker(self.model):
            self.model.clear()
            for one in models:
                self.model.addItem(model_title(one), one.id)
            self.model.setCurrentIndex(self.model.findData(chosen))
        self._model_part.setVisible(len(models) > 1)
        self._grow()

    def chosen_model(self) -> str:
        """The id of the chosen model; empty for none."""
        return self.model.currentData() or ""

    def show_found(self, servers: Sequence[Server] | None) -> None:
        """Servers on this computer; ``None`` if not searched yet."""
        self.found.clear()
        for one in servers or ():
            item = QListWidgetItem(server_title(one), self.found)
            item.setData(Qt.ItemDataRole.UserRole, one.address)
        rows = min(max(self.found.count(), 1), _FOUND_ROWS)
        self.found.setFixedHeight(rows * (self.fontMetrics().height() + 3 * SPACING) + 2 * SPACING)
        self.found.setVisible(bool(servers))
        show_text(self._none_found, _NONE_FOUND if servers is not None and not servers else "")
        self._grow()

    def _set_busy(self, what: str, verdict: Verdict | None = None) -> None:
        """``what`` is going on, in a few words; empty when done."""
        for button in (self.test, self.find_button, self.open_button):
            button.setEnabled(not what)
        if what or verdict is not None:
            self._show_verdict(verdict or Verdict(what))

    @Slot()
    def _grow(self) -> None:
        """Grow to the needed height, and never shrink."""
        if self.isVisible():
            layout = self.layout()
            assert layout is not None
            layout.activate()
            self.resize(self.width(), max(self.height(), layout.totalHeightForWidth(self.width())))

    # ------------------------------------------------------------ the address and its key

    @Slot()
    def _forget_test(self) -> None:
        """The test no longer applies to what is typed."""
        self._server, self._opens, self._number = None, False, 0
        self._set_busy("", Verdict(""))

    @Slot()
    def _on_address_changed(self) -> None:
        self._forget_test()
        self._wanted = ""
        self._show_models([], "")
        address = self.address.text().strip()
        show_text(self._warning, warning(address))
        self._show_key("", "nowhere")
        if address in self._values.known_servers():
            self._look_up(address)

    def _look_up(self, address: str, then: Callable[[], object] | None = None) -> None:
        """Look up the stored key for an address."""
        typed = self.address.text()

        def done(key: str, place: SecretPlace) -> None:
            if self.address.text() == typed:
                self._show_key(key, place)
                if then is not None:
                    then()

        self._keys.get(address, done)

    def _on_keyring_known(self, has_keyring: bool) -> None:
        self._has_keyring = has_keyring
        if not self._stored:
            self._show_key("", "nowhere")

    @Slot()
    def _on_remove_key(self) -> None:
        address = self._server.address if self._server else self.address.text().strip()
        self._keys.put(address, "", lambda: self._show_key("", "nowhere"), self._on_key_failed)

    def _on_key_failed(self, error: KnownError) -> None:
        self._set_busy("", Verdict(str(error), "bad"))

    def _key(self) -> str:
        """The typed key, else the stored one."""
        return self.key.text().strip() or self._stored

    # ------------------------------------------------------------ testing

    def _process(self) -> EngineClient:
        if self._engine is None:
            self._engine = engine = EngineClient(parent=self)
            engine.server_probed.connect(self._on_probed)
            engine.servers_found.connect(self._on_servers_found)
            engine.pair_loaded.connect(self._on_pair_loaded)
            engine.load_failed.connect(self._on_load_failed)
            engine.engine_exited.connect(self._on_exited)
        return self._engine

    @Slot()
    def _on_test(self) -> None:
        self._opens = False
        self._test()

    def _test(self) -> None:
        address = self.address.text().strip()
        if not address:
            self._show_verdict(Verdict("Enter the address of a server first.", "warning"))
            self.address.setFocus()
            return
        self._set_busy(_TESTING)
        self._tested = address, self._key()
        asked = Probe(request=0, address=address, key=self._tested[1], loopback_only=self._values.offline)
        self._number = self._process().search(asked)

    @Slot(object)
    def _on_probed(self, probed: ServerProbed) -> None:
        if probed.request != self._number:
            return
        self._number = 0
        server = self._server = probed.server
        if server is not None and probed.cause == "key" and not self._tested[1]:
            self._look_up(server.address, lambda: self._test() if self._stored else self._say_why_not(probed))
        elif server is None or probed.cause:
            self._say_why_not(probed)
        else:
            self._set_busy("")
            self._show_server(server)

    def _say_why_not(self, probed: ServerProbed) -> None:
        self._opens = False
        self._set_busy("", Verdict(probed.message, "bad"))
        if probed.cause == "key":
            self.key.setFocus()

    def _show_server(self, server: Server) -> None:
        if not server.is_loopback and not server.is_encrypted:
            show_text(self._warning, warning(server.address))
        chosen = self._choice(server)
        self._show_models(server.models, chosen)
        if self._opens and chosen:
            self._accept(server, chosen)
            return
        self._opens = False
        self._show_verdict(found(server, is_chosen=bool(chosen)))
        if not chosen and server.models:
            self.model.setFocus()
        self._test_model(server, chosen)

    def _choice(self, server: Server) -> str:
        """The requested model, else the loaded one if there is exactly one."""
        ids = [one.id for one in server.models]
        if self._wanted in ids:
            return self._wanted
        loaded = [one.id for one in server.models if one.state == "loaded"]
        return ids[0] if len(ids) == 1 else loaded[0] if len(loaded) == 1 else ""

    def _test_model(self, server: Server, model: str) -> None:
        """Test a model further, unless the server would have to load it for that."""
        state = next((one.state for one in server.models if one.id == model), "unloaded")
        if state in ("", "loaded"):
            self._set_busy(_TESTING)
            offline = self._values.offline
            asked = Connect(request=0, address=server.address, key=self._tested[1], model=model, loopback_only=offline)
            self._number = self._process().load(asked)

    @Slot()
    def _on_model_chosen(self) -> None:
        if self._server is not None:
            self._wanted = self.chosen_model()
            self._show_verdict(found(self._server, is_chosen=True))
            self._test_model(self._server, self._wanted)

    @Slot(object)
    def _on_pair_loaded(self, pair: PairLoaded) -> None:
        if pair.request == self._number:
            self._set_busy("", tested(pair))

    @Slot(object)
    def _on_load_failed(self, failed: LoadFailed) -> None:
        if failed.request == self._number:
            self._set_busy("", Verdict(failed.message, "bad"))

    @Slot(object)
    def _on_exited(self, ended: EngineExit) -> None:
        self._set_busy("", Verdict(f"The test stopped. {ended.sentence()}", "bad"))

    # ------------------------------------------------------------ servers on this computer

    @Slot()
    def _on_find(self) -> None:
        self._set_busy(_LOOKING)
        self._number = self._process().search(FindServers(request=0))

    @Slot(object)
    def _on_servers_found(self, answer: ServersFound) -> None:
        if answer.request == self._number:
            self._set_busy("", Verdict(""))
            self.show_found(answer.servers)
            if answer.servers:
                self.found.setFocus()

    @Slot(QListWidgetItem)
    def _on_found_chosen(self, item: QListWidgetItem) -> None:
        self.address.setText(item.data(Qt.ItemDataRole.UserRole))
        self._on_test()

    # ------------------------------------------------------------ the end

    @Slot()
    def _on_open(self) -> None:
        server, chosen = self._server, self.chosen_model()
        if server is not None and chosen and self._tested == (self.address.text().strip(), self._key()):
            self._accept(server, chosen)
        else:
            self._opens = True
            self._test()

    def _accept(self, server: Server, model: str) -> None:
        """Store a typed key, then use the model."""
        asked = self._tested

        def done() -> None:
            if self.isVisible() and self._tested == asked:  # not canceled meanwhile
                self.accept()
                self._ctx.actions.run("load_files", PairFiles(model, server=server.address))

        if asked[1]:
            self._keys.put(server.address, asked[1], done, self._on_key_failed)
        else:
            done()

    @Slot()
    def _on_local(self) -> None:
        self.reject()
        self._ctx.actions.run("open_models")

    @Slot()
    def _on_finished(self) -> None:
        self._forget_test()
        if self._engine is not None:
            self._engine.end()


def warning(address: str) -> str:
    """A warning about an address as typed so far; empty if there is no reason."""
    address = address.strip()
    if not address:
        return ""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme != "http" or not host or _is_this_computer(host):
        return ""
    return _NOT_ENCRYPTED.format(host=printable(host, 120))


def _is_this_computer(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def key_note(place: SecretPlace, *, has_keyring: bool) -> str:
    """Where the key of this server is, or would be stored."""
    if place == "keyring":
        return "A key for this server is stored in the system's keyring. Type another one to replace it."
    if place == "memory":
        return "A key for this server is kept until Slipstream closes, because this system has no keyring."
    if not has_keyring:
        return "This system has no keyring, so a key is only kept until Slipstream closes."
    return "A key that you enter is stored in the system's keyring, and only sent to this server."


def model_title(model: ServedModel) -> str:
    """A line in the list of models."""
    state = _STATES.get(model.state, "")
    return visible(" · ".join(filter(None, (model.id, state))))


def server_title(server: Server) -> str:
    """A line in the list of servers: ``llama-server · 127.0.0.1:8080 · qwen3.5``."""
    models = [one.id for one in server.models]
    shown = models[0] if len(models) == 1 else f"{words.number(len(models))} models" if models else ""
    shown = "needs a key" if server.needs_key else shown
    return visible(" · ".join(filter(None, (server_name(server), host_of(server.address), shown))))


def found(server: Server, *, is_chosen: bool) -> Verdict:
    """There is a server, whose model isn't known well yet."""
    text = f"✓ {server_name(server)} at {host_of(server.address)}"
    if not server.models:
        return Verdict(text, "warning", ("It has no model at the moment. Load one there, then test again.",))
    if not is_chosen:
        return Verdict(text, "good", (f"It has {words.number(len(server.models))} models. {_CHOOSE}",))
    return Verdict(text, "good", ("The model isn't loaded there yet. The server loads it when you open it.",))


def tested(pair: PairLoaded) -> Verdict:
    """The model answers: its details, and its drafting if known."""
    remote = pair.remote
    assert remote is not None
    figures = remote.figures_note or (_NO_FIGURES if remote.figures == "none" else "")
    context = f"{words.tokens(pair.context_length)} of context" if pair.context_length else "context length not known"
    return Verdict(
        visible(f"✓ {server_name(remote.server)} at {host_of(remote.server.address)}"),
        "good",
        (visible(f"Model: {pair.target.name} · {context}"), visible(figures)),
    )
