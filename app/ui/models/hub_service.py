"""Hugging Face beside the window's thread: searches, repositories, drafts, the access token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.errors import Cancelled, KnownError
from app.models.downloads.item import Item
from app.models.gguf import GgufHeader, read_header
from app.models.hub.api import HubConnection, network_settings
from app.models.hub.catalog import CatalogPair, resolve
from app.models.hub.drafts import DraftCandidate, find_drafts
from app.models.hub.network import Traffic
from app.models.hub.remote_header import read_remote_header
from app.models.hub.repository import RemoteModel, Repository, SearchResult, Sort
from app.models.hub.tokens import TokenPlace
from app.settings import Settings
from app.ui.widgets.tasks import Lane

_AT_ONCE = 4

T = TypeVar("T")
Failed = Callable[[KnownError], None]


class HubService(QObject):
    """One for the app.

    Attributes:
        network: The one way to the network, which the downloads use too.

    Signals:
        draft_found: A `DraftCandidate` of the search for drafts that is running. One that was stopped says nothing.
    """

    draft_found = Signal(object)

    def __init__(self, values: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._values = values
        self._connection = HubConnection(network_settings(values))
        self.network = self._connection.network
        self._lane = Lane(self, "hub", at_once=_AT_ONCE)
        self._finding = threading.Event()
        """Set to end the search for drafts that is running; each search has its own."""

    def apply_settings(self) -> None:
        """The settings of the network have changed."""
        self.network.settings = network_settings(self._values)

    def endpoint_problem(self) -> str:
        """Why the address in the settings cannot be used; empty where it can."""
        try:
            _ = self.network.endpoint
        except KnownError as error:
            return str(error)
        return ""

    def page(self, repository: str) -> str:
        """The address of a repository's page. Raises `KnownError` where there is an `endpoint_problem`."""
        return f"{self.network.endpoint}/{repository}"

    def traffic(self) -> list[Traffic]:
        """What was asked of the network since the start, newest first."""
        return self.network.traffic()

    # ------------------------------------------------------------ questions

    def search(self, words: str, sort: Sort, done: Callable[[list[SearchResult]], None], failed: Failed) -> None:
        self._lane.submit(partial(self._connection.hub.search, words, sort), done, failed)

    def repository(self, repository: str, done: Callable[[Repository], None], failed: Failed) -> None:
        self._lane.submit(partial(self._connection.hub.repository, repository), done, failed)

    def header(self, model: RemoteModel, done: Callable[[GgufHeader], None], failed: Failed) -> None:
        """What a model is, before it is downloaded."""
        self._lane.submit(partial(read_remote_header, self.network, model, self._lane.is_closed), done, failed)

    def resolve(self, pair: CatalogPair, done: Callable[[Item], None], failed: Failed) -> None:
        """What is to be downloaded for a pair of the catalogue."""
        self._lane.submit(partial(resolve, self._connection.hub, pair), done, failed)

    def find_drafts_for_file(self, path: Path, done: Callable[[int], None], failed: Failed) -> None:
        """Drafts for a model on this computer. Each is told by `draft_found`; ``done`` gets how many there were."""
        self._find(lambda: read_header(path), (), done, failed)

    def find_drafts_for_remote(
        self, repository: Repository, model: RemoteModel, done: Callable[[int], None], failed: Failed
    ) -> None:
        """The same for a model that is not downloaded."""
        stopped = self._lane.is_closed
        self._find(lambda: read_remote_header(self.network, model, stopped), repository.base_models, done, failed)

    def stop_finding(self) -> None:
        """End the search for drafts."""
        self._finding.set()

    # ------------------------------------------------------------ the token

    def token_place(self, done: Callable[[TokenPlace], None]) -> None:
        """Where the access token is kept."""
        self._lane.submit(lambda: self._connection.tokens.place(self._connection.host), done)

    def set_token(self, token: str, done: Callable[[TokenPlace], None], failed: Failed) -> None:
        def keep() -> TokenPlace:
            self._connection.tokens.set(self._connection.host, token)
            return self._connection.tokens.place(self._connection.host)

        self._lane.submit(keep, done, failed)

    def forget_token(self, done: Callable[[TokenPlace], None], failed: Failed) -> None:
        def forget() -> TokenPlace:
            self._connection.tokens.delete(self._connection.host)
            return self._connection.tokens.place(self._connection.host)

        self._lane.submit(forget, done, failed)

    def close(self) -> None:
        """Answer nothing any more, and close all connections."""
        self._finding.set()
        self._lane.close()
        self.network.close()

    # ------------------------------------------------------------ inside

    def _find(
        self, header: Callable[[], GgufHeader], bases: Sequence[str], done: Callable[[int], None], failed: Failed
    ) -> None:
        self._finding.set()
        stop = self._finding = threading.Event()

        def find() -> int:
            found: Iterable[DraftCandidate] = find_drafts(self._connection.hub, header(), bases, stop.is_set)
            number = 0
            for candidate in found:
                if stop.is_set():
                    raise Cancelled
                self._lane.post(partial(self._on_judged, stop, candidate))
                number += 1
            return number

        def unless_stopped(call: Callable[[T], None]) -> Callable[[T], None]:
            return lambda value: None if stop.is_set() else call(value)

        self._lane.submit(find, unless_stopped(done), unless_stopped(failed))

    def _on_judged(self, stop: threading.Event, candidate: DraftCandidate) -> None:
        if not stop.is_set():
            self.draft_found.emit(candidate)
