"""Hugging Face outside the window's thread: searches, repositories, drafts, the access token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.errors import Canceled, KnownError
from app.models.downloads.item import Item
from app.models.gguf import read_header
from app.models.hub import drafts
from app.models.hub.api import HubConnection, network_settings
from app.models.hub.catalog import CatalogModel, Offer
from app.models.hub.catalog_items import resolve
from app.models.hub.heads import HubModel, look_at
from app.models.hub.projectors import projector_for
from app.models.hub.remote_header import read_remote_header
from app.models.hub.repository import RemoteModel, Repository, SearchResult, Sort
from app.models.hub.tokens import TokenPlace
from app.settings import Settings
from app.ui.widgets.tasks import Failed, Lane

T = TypeVar("T")


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
        self._lane = Lane(self, "hub", at_once=4)
        self._finding = threading.Event()
        """Set to stop the draft search that is running; each search has its own event."""

    def apply_settings(self) -> None:
        """The settings of the network have changed."""
        self.network.settings = network_settings(self._values)

    def endpoint_problem(self) -> str:
        """Why the address in the settings can't be used; empty if it can."""
        try:
            _ = self.network.endpoint
        except KnownError as error:
            return str(error)
        return ""

    def page(self, repository: str) -> str:
        """The address of a repository's page. Raises `KnownError` if there is an `endpoint_problem`."""
        return f"{self.network.endpoint}/{repository}"

    # ------------------------------------------------------------ questions

    def search(self, words: str, sort: Sort, done: Callable[[list[SearchResult]], None], failed: Failed) -> None:
        self._lane.submit(partial(self._connection.hub.search, words, sort), done, failed)

    def repository(self, repository: str, done: Callable[[Repository], None], failed: Failed) -> None:
        self._lane.submit(partial(self._connection.hub.repository, repository), done, failed)

    def look_at(
        self, model: RemoteModel, repository: Repository, done: Callable[[HubModel], None], failed: Failed
    ) -> None:
        """What a model of ``repository`` is before it is downloaded, and which MTP head and projector are its own."""
        self._lane.submit(
            partial(look_at, self.network, model, repository.heads, self._lane.is_closed, vision=repository.vision),
            done,
            failed,
        )

    def resolve(self, offer: Offer, done: Callable[[Item], None], failed: Failed, *, with_images: bool = False) -> None:
        """What to download for a recommended model. ``with_images``: with its projector."""
        self._lane.submit(partial(resolve, self._connection.hub, offer, with_images=with_images), done, failed)

    def find_projector(self, model: CatalogModel, path: Path, done: Callable[[Item], None], failed: Failed) -> None:
        """What the file ``path`` of a recommended model needs to see images."""
        self._lane.submit(partial(projector_for, self._connection.hub, model, path), done, failed)

    def find_drafts(
        self, model: Path | RemoteModel, bases: Sequence[str], done: Callable[[int], None], failed: Failed
    ) -> None:
        """Find drafts for a model on this computer, or for one that isn't downloaded and is based on ``bases``.

        Each is reported by `draft_found`; ``done`` gets how many there were.
        """
        self._finding.set()
        stop = self._finding = threading.Event()

        def unless_stopped(call: Callable[[T], None]) -> Callable[[T], None]:
            return lambda value: None if stop.is_set() else call(value)

        tell = unless_stopped(self.draft_found.emit)

        def find() -> int:
            if isinstance(model, Path):
                header = read_header(model)
            else:
                header = read_remote_header(self.network, model, self._lane.is_closed)
            number = 0
            for candidate in drafts.find_drafts(self._connection.hub, header, bases, stop.is_set):
                if stop.is_set():
                    raise Canceled
                self._lane.post(partial(tell, candidate))
                number += 1
            return number

        self._lane.submit(find, unless_stopped(done), unless_stopped(failed))

    def stop_finding(self) -> None:
        """End the search for drafts."""
        self._finding.set()

    # ------------------------------------------------------------ the token

    def token_place(self, done: Callable[[TokenPlace], None]) -> None:
        """Where the access token is stored."""
        self._lane.submit(lambda: self._connection.tokens.place(self._connection.host), done)

    def set_token(self, token: str | None, done: Callable[[TokenPlace], None], failed: Failed) -> None:
        """Store this access token, or delete it."""

        def change() -> TokenPlace:
            tokens, host = self._connection.tokens, self._connection.host
            if token is None:
                tokens.delete(host)
            else:
                tokens.set(host, token)
            return tokens.place(host)

        self._lane.submit(change, done, failed)

    def close(self) -> None:
        """Drop all questions, and close all connections."""
        self._finding.set()
        self._lane.close()
        self.network.close()
