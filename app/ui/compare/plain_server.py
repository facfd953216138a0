"""The second server of a comparison: it answers without a draft where the one in use can't. No widgets."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from app.compare import two_servers
from app.protocol.events import LoadFailed, PairLoaded
from app.protocol.remote import Connect
from app.settings import Pair, Settings
from app.storage.secrets import SecretPlace
from app.ui.compare import wording
from app.ui.engine.interface import EngineExit
from app.ui.engine.local_engine import LocalEngine
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import recent_title, server_name
from app.ui.engine.server_keys import ServerKeys


class PlainServer(QObject):
    """One for a Compare window. It is remembered for each server in use.

    It is connected anew for each comparison, in a process of its own that ends with the comparison.

    Attributes:
        engine: Answers when it is connected.

    Signals:
        connected: Its `PairLoaded`; emitted before ``engine`` is ready.
        failed: Why it couldn't be connected, or was lost, for the user.
        changed: What the other methods return.
    """

    connected = Signal(object)
    failed = Signal(str)
    changed = Signal()

    def __init__(
        self,
        engine: LocalEngine,
        pair_loader: PairLoader,
        values: Settings,
        keys: ServerKeys,
        save: Callable[[], object],
        parent: QObject | None = None,
    ) -> None:
        """``engine`` is for this server alone; ``save`` is called when ``values`` has changed."""
        super().__init__(parent)
        self._pair_loader = pair_loader
        self._values = values
        self._keys = keys
        self._save = save
        self._number = 0
        """Of the newest connection; an older one isn't waited for any more."""
        self._request = 0
        self._is_connecting = False
        self._known: tuple[Pair, PairLoaded] | None = None
        """What was connected last, and what came of it."""
        self.engine = engine
        engine.setParent(self)
        self.engine.pair_loaded.connect(self._on_pair_loaded)
        self.engine.load_failed.connect(self._on_load_failed)
        self.engine.engine_exited.connect(self._on_exited)

    # ------------------------------------------------------------ which one it is

    def is_needed(self) -> bool:
        """Whether the model in use can't answer without a draft."""
        remote = self._pair_loader.remote()
        return remote is not None and not remote.can_switch_drafting

    def chosen(self) -> Pair | None:
        """The model to compare the one in use with, if the user has chosen one."""
        remote = self._pair_loader.remote()
        return self._values.plain_servers.get(remote.server.address) if remote is not None else None

    def choose(self, model: str, address: str) -> None:
        """Use this one from now on, and connect it to see what it is."""
        remote = self._pair_loader.remote()
        if remote is None:
            return  # another pair was loaded meanwhile
        self._values.remember_plain_server(remote.server.address, Pair(model, server=address))
        self._save()
        self.connect_now()

    def pair(self) -> PairLoaded | None:
        """What is known of the chosen one; ``None`` before it was connected."""
        return self._known[1] if self._known is not None and self._known[0] == self.chosen() else None

    def title(self) -> str:
        """The chosen one: ``llama-server b9000 at 127.0.0.1:8081``; less before it was connected."""
        pair, chosen = self.pair(), self.chosen()
        if pair is not None:
            return wording.server_title(pair)
        return recent_title(chosen) if chosen is not None else ""

    def doubts(self) -> list[str]:
        """Why the comparison may be unfair, in sentences for the user."""
        mine, other = self._pair_loader.pair(), self.pair()
        return two_servers.differences(mine, other) if mine is not None and other is not None else []

    def why_not(self) -> str:
        """Why nothing can be compared with it; empty if something can, as far as is known."""
        remote, chosen = self._pair_loader.remote(), self.chosen()
        if remote is None or not self.is_needed():
            return ""
        if chosen is None:
            return wording.NO_SECOND.format(server=server_name(remote.server))
        same = (chosen.server, chosen.target) == (remote.server.address, remote.model)
        return wording.SAME_SERVER if same else ""

    # ------------------------------------------------------------ the connection

    def is_connecting(self) -> bool:
        return self._is_connecting

    def connect_now(self) -> None:
        """Connect the chosen one; `connected` or `failed` follows, unless `end` is called."""
        chosen = self.chosen()
        assert chosen is not None
        self._number += 1
        number, self._is_connecting = self._number, True

        def with_key(key: str, _place: SecretPlace) -> None:
            if number == self._number:
                offline = self._values.offline
                self._request = self.engine.connect_server(
                    Connect(request=0, address=chosen.server, key=key, model=chosen.target, loopback_only=offline)
                )

        self.changed.emit()
        self._keys.get(chosen.server, with_key)

    def end(self) -> None:
        """It isn't needed for the moment; a request that is open is dropped at once."""
        self._number += 1
        self._is_connecting = False
        self.engine.end()
        self.changed.emit()

    def go_offline(self) -> None:
        """Offline, a server on another computer isn't used any more."""
        pair = self.pair()
        if not self.engine.state().has_ended and (pair is None or not _is_here(pair)):
            self.end()
            self.failed.emit(wording.OFFLINE)

    def shut_down(self) -> None:
        """The main window is closed."""
        self._number += 1
        self.engine.shutdown()

    @Slot(object)
    def _on_pair_loaded(self, pair: PairLoaded) -> None:
        chosen = self.chosen()
        if not self._is_connecting or pair.request != self._request or chosen is None:
            return
        self._is_connecting = False
        self._known = chosen, pair
        self.changed.emit()
        self.connected.emit(pair)

    @Slot(object)
    def _on_load_failed(self, failed: LoadFailed) -> None:
        if self._is_connecting and failed.request == self._request:
            self._fail(failed.message)

    @Slot(object)
    def _on_exited(self, ended: EngineExit) -> None:
        self._fail(ended.sentence())

    def _fail(self, message: str) -> None:
        self._is_connecting = False
        self.changed.emit()
        self.failed.emit(wording.NOT_CONNECTED.format(reason=message))


def _is_here(pair: PairLoaded) -> bool:
    return pair.remote is not None and pair.remote.server.is_loopback
