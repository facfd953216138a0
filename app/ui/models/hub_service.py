"""Hugging Face outside the window's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QObject

from app.errors import Canceled, KnownError
from app.models.gguf import read_header
from app.models.hub import drafts
from app.models.hub.api import Hub, HubConnection, network_settings
from app.models.hub.drafts import DraftCandidate
from app.models.hub.remote_header import read_remote_header
from app.models.hub.repository import RemoteModel
from app.models.hub.tokens import TokenPlace
from app.settings import Settings
from app.ui.widgets.tasks import Failed, Lane

T = TypeVar("T")


class HubService(QObject):
    """One for the app.

    Attributes:
        network: The one way to the network, which the downloads use too.
    """

    def __init__(self, values: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._values = values
        self._connection = HubConnection(network_settings(values))
        self.network = self._connection.network
        self._lane = Lane(self, "hub", at_once=4)
        self._found: Future[int] | None = None
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

    def is_closed(self) -> bool:
        """For a question that can stop in between; may be called from any thread."""
        return self._lane.is_closed()

    def ask(self, question: Callable[[Hub], T], done: Callable[[T], None], failed: Failed) -> Future[T]:
        """Call ``question`` in another thread, then ``done`` or ``failed`` in the window's."""
        return self._lane.submit(lambda: question(self._connection.hub), done, failed)

    def drop(self, question: Future[Any] | None) -> None:
        """The answer isn't wanted any more."""
        self._lane.drop(question)

    def find_drafts(
        self,
        model: Path | RemoteModel,
        bases: Sequence[str],
        found: Callable[[DraftCandidate], None],
        done: Callable[[int], None],
        failed: Failed,
    ) -> None:
        """Find drafts for a model on this computer, or for one that isn't downloaded and is based on ``bases``.

        ``found`` gets each, ``done`` how many there were. A search that is stopped says nothing more.
        """
        self.stop_finding()
        stop = self._finding = threading.Event()

        def tell(candidate: DraftCandidate) -> None:
            if not stop.is_set():
                found(candidate)

        def find(hub: Hub) -> int:
            if isinstance(model, Path):
                header = read_header(model)
            else:
                header = read_remote_header(self.network, model, self._lane.is_closed)
            number = 0
            for candidate in drafts.find_drafts(hub, header, bases, stop.is_set):
                if stop.is_set():
                    raise Canceled
                self._lane.post(partial(tell, candidate))
                number += 1
            return number

        self._found = self.ask(find, done, failed)

    def stop_finding(self) -> None:
        """End the search for drafts."""
        self._finding.set()
        self._lane.drop(self._found)

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
