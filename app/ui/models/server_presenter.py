"""Opens a model on a server: what the dialog shows, and the process that tests an address."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QListWidgetItem, QWidget

from app.errors import KnownError
from app.protocol.events import LoadFailed, PairLoaded
from app.protocol.remote import Connect, FindServers, Probe, Server, ServerProbed, ServersFound
from app.settings import Settings
from app.storage.secrets import SecretPlace
from app.ui.engine.client import EngineClient, EngineExit
from app.ui.engine.pair_files import PairFiles
from app.ui.engine.server_keys import ServerKeys
from app.ui.models import server_text
from app.ui.models.server_dialog import ServerDialog
from app.ui.models.server_text import Verdict

_TESTING = "Testing…"
_LOOKING = "Looking for servers…"


class ServerPresenter(QObject):
    """One for a main window. Each dialog has a process of its own, so that a test disturbs nothing.

    Attributes:
        dialog: While it is open.
    """

    def __init__(
        self,
        values: Settings,
        keys: ServerKeys,
        load: Callable[[PairFiles], object],
        open_local: Callable[[], object],
        parent: QObject | None = None,
    ) -> None:
        """``load`` uses a model on a server; ``open_local`` shows the models on this computer instead."""
        super().__init__(parent)
        self._values = values
        self._keys = keys
        self._load = load
        self._open_local = open_local
        self.dialog: ServerDialog | None = None
        self._engine: EngineClient | None = None
        self._number = 0
        """Of the open question; 0 if there is none."""
        self._load_number = 0
        self._server: Server | None = None
        """What the last test found."""
        self._tested: tuple[str, str] = ("", "")
        """Address and key of that, as they were typed."""
        self._stored = ""
        """The key that is known for the address."""
        self._has_keyring = True
        self._wanted = ""
        """The model that was asked for."""
        self._opens = False
        """Whether it is to be opened when the test is done."""

    def open(self, window: QWidget, address: str = "", model: str = "", *, for_key: bool = False) -> None:
        """Show the dialog, with this server if one is given. ``for_key``: its key is what is missing."""
        if self.dialog is None:
            self._make(window)
        dialog = self.dialog
        assert dialog is not None
        if address:
            dialog.show_address(address, model)
            self._wanted = model
        (dialog.key if for_key else dialog.address).setFocus()
        dialog.open()
        dialog.activateWindow()

    def close(self) -> None:
        """The main window is closed."""
        if self.dialog is not None:
            self.dialog.reject()
        if self._engine is not None:
            self._engine.shutdown()

    def _make(self, window: QWidget) -> None:
        self.dialog = dialog = ServerDialog(self._values.known_servers(), window)
        self._server, self._tested, self._opens, self._wanted, self._stored = None, ("", ""), False, "", ""
        dialog.address.textChanged.connect(self._on_address_changed)
        dialog.key.textChanged.connect(self._forget_test)
        dialog.model.activated.connect(self._on_model_chosen)
        dialog.test.clicked.connect(self._on_test)
        dialog.find_button.clicked.connect(self._on_find)
        dialog.found.itemClicked.connect(self._on_found_chosen)
        dialog.found.itemActivated.connect(self._on_found_chosen)
        dialog.open_button.clicked.connect(self._on_open)
        dialog.remove_key.clicked.connect(self._on_remove_key)
        dialog.local.clicked.connect(self._on_local)
        dialog.finished.connect(self._on_finished)
        self._keys.has_keyring(self._on_keyring_known)
        self._show_key("", "nowhere")

    # ------------------------------------------------------------ the address and its key

    @Slot()
    def _forget_test(self) -> None:
        """What was tested is not what is typed."""
        self._server, self._opens, self._number, self._load_number = None, False, 0, 0
        if self.dialog is not None:
            self.dialog.set_busy("")
            self.dialog.show_verdict(Verdict(""))

    @Slot()
    def _on_address_changed(self) -> None:
        dialog = self.dialog
        if dialog is None:
            return
        self._forget_test()
        self._wanted = ""
        dialog.show_models([], "")
        address = dialog.address.text().strip()
        dialog.show_warning(server_text.warning(address))
        self._show_key("", "nowhere")
        if address in self._values.known_servers():
            self._look_up(address)

    def _look_up(self, address: str, then: Callable[[], object] | None = None) -> None:
        """Find the key that is stored for an address."""
        typed = self.dialog.address.text() if self.dialog else ""

        def done(key: str, place: SecretPlace) -> None:
            if self.dialog is not None and self.dialog.address.text() == typed:
                self._show_key(key, place)
                if then is not None:
                    then()

        self._keys.get(address, done)

    def _show_key(self, key: str, place: SecretPlace) -> None:
        self._stored = key
        if self.dialog is not None:
            note = server_text.key_note(place, has_keyring=self._has_keyring)
            self.dialog.show_key_note(note, is_stored=bool(key))

    def _on_keyring_known(self, has_keyring: bool) -> None:
        self._has_keyring = has_keyring
        if self.dialog is not None and not self._stored:
            self._show_key("", "nowhere")

    @Slot()
    def _on_remove_key(self) -> None:
        dialog = self.dialog
        if dialog is None:
            return
        address = self._server.address if self._server else dialog.address.text().strip()
        self._keys.put(address, "", lambda: self._show_key("", "nowhere"), self._on_key_failed)

    def _on_key_failed(self, error: KnownError) -> None:
        if self.dialog is not None:
            self.dialog.set_busy("")
            self.dialog.show_verdict(Verdict(str(error), "bad"))

    def _key(self) -> str:
        """The typed one goes before the stored one."""
        return (self.dialog.key.text().strip() if self.dialog else "") or self._stored

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
        dialog = self.dialog
        if dialog is None:
            return
        address = dialog.address.text().strip()
        if not address:
            dialog.show_verdict(Verdict("Enter the address of a server first.", "warning"))
            dialog.address.setFocus()
            return
        dialog.set_busy(_TESTING)
        self._tested = address, self._key()
        offline = self._values.offline
        self._number = self._process().search(
            Probe(request=0, address=address, key=self._tested[1], loopback_only=offline)
        )

    @Slot(object)
    def _on_probed(self, probed: ServerProbed) -> None:
        dialog = self.dialog
        if dialog is None or probed.request != self._number:
            return
        self._number = 0
        server = self._server = probed.server
        if server is not None and probed.cause == "key" and not self._tested[1]:
            self._look_up(server.address, lambda: self._test() if self._stored else self._say_why_not(probed))
            return
        dialog.set_busy("")
        if server is None or probed.cause:
            self._say_why_not(probed)
        else:
            self._show_server(server)

    def _say_why_not(self, probed: ServerProbed) -> None:
        assert self.dialog is not None
        self._opens = False
        self.dialog.set_busy("")
        self.dialog.show_verdict(Verdict(probed.message, "bad"))
        if probed.cause == "key":
            self.dialog.key.setFocus()

    def _show_server(self, server: Server) -> None:
        dialog = self.dialog
        assert dialog is not None
        if not server.is_loopback and not server.is_encrypted:
            dialog.show_warning(server_text.warning(server.address))
        chosen = self._choice(server)
        dialog.show_models(server.models, chosen)
        if self._opens and chosen:
            self._accept(server, chosen)
            return
        self._opens = False
        dialog.show_verdict(server_text.found(server, is_chosen=bool(chosen)))
        if not chosen and server.models:
            dialog.model.setFocus()
        self._test_model(server, chosen)

    def _choice(self, server: Server) -> str:
        """The model that was asked for; else the one that is loaded, if there is only one of them."""
        ids = [one.id for one in server.models]
        if self._wanted in ids:
            return self._wanted
        loaded = [one.id for one in server.models if one.state == "loaded"]
        return ids[0] if len(ids) == 1 else loaded[0] if len(loaded) == 1 else ""

    def _test_model(self, server: Server, model: str) -> None:
        """Find out more about a model, unless the server would have to load it for that."""
        state = next((one.state for one in server.models if one.id == model), "unloaded")
        if self.dialog is not None and state in ("", "loaded"):
            self.dialog.set_busy(_TESTING)
            offline = self._values.offline
            asked = Connect(request=0, address=server.address, key=self._tested[1], model=model, loopback_only=offline)
            self._load_number = self._process().load(asked)

    @Slot()
    def _on_model_chosen(self) -> None:
        if self.dialog is not None and self._server is not None:
            self._wanted = self.dialog.chosen_model()
            self.dialog.show_verdict(server_text.found(self._server, is_chosen=True))
            self._test_model(self._server, self._wanted)

    @Slot(object)
    def _on_pair_loaded(self, pair: PairLoaded) -> None:
        if self.dialog is not None and pair.request == self._load_number:
            self.dialog.set_busy("")
            self.dialog.show_verdict(server_text.tested(pair))

    @Slot(object)
    def _on_load_failed(self, failed: LoadFailed) -> None:
        if self.dialog is not None and failed.request == self._load_number:
            self.dialog.set_busy("")
            self.dialog.show_verdict(Verdict(failed.message, "bad"))

    @Slot(object)
    def _on_exited(self, ended: EngineExit) -> None:
        if self.dialog is not None:
            self.dialog.set_busy("")
            self.dialog.show_verdict(Verdict(f"The test stopped. {ended.sentence()}", "bad"))

    # ------------------------------------------------------------ servers on this computer

    @Slot()
    def _on_find(self) -> None:
        if self.dialog is not None:
            self.dialog.set_busy(_LOOKING)
            self._number = self._process().search(FindServers(request=0))

    @Slot(object)
    def _on_servers_found(self, answer: ServersFound) -> None:
        if self.dialog is not None and answer.request == self._number:
            self.dialog.set_busy("")
            self.dialog.show_verdict(Verdict(""))
            self.dialog.show_found(answer.servers)
            if answer.servers:
                self.dialog.found.setFocus()

    @Slot(QListWidgetItem)
    def _on_found_chosen(self, item: QListWidgetItem) -> None:
        if self.dialog is not None:
            self.dialog.address.setText(item.data(Qt.ItemDataRole.UserRole))
            self._on_test()

    # ------------------------------------------------------------ the end

    @Slot()
    def _on_open(self) -> None:
        dialog = self.dialog
        if dialog is None:
            return
        server, chosen = self._server, dialog.chosen_model()
        if server is not None and chosen and self._tested == (dialog.address.text().strip(), self._key()):
            self._accept(server, chosen)
        else:
            self._opens = True
            self._test()

    def _accept(self, server: Server, model: str) -> None:
        """Store the key if one was typed, then use the model."""
        dialog = self.dialog
        assert dialog is not None
        files = PairFiles(model, server=server.address)

        def done() -> None:
            if self.dialog is dialog:  # not canceled meanwhile
                dialog.accept()
                self._load(files)

        if self._tested[1]:
            self._keys.put(server.address, self._tested[1], done, self._on_key_failed)
        else:
            done()

    @Slot()
    def _on_local(self) -> None:
        if self.dialog is not None:
            self.dialog.reject()
        self._open_local()

    @Slot()
    def _on_finished(self) -> None:
        self.dialog = None
        if self._engine is not None:
            self._engine.end()
