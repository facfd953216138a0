"""Answers the command line, which asks for the chats while the window has their file for itself."""

from __future__ import annotations

import logging
from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalSocket
from shiboken6 import isValid

from app.chats import requests
from app.chats.requests import AddChats, Answer, Refused
from app.errors import KnownError
from app.protocol import frames
from app.ui.chat.writer import StoredChats

_log = logging.getLogger(__name__)


class ChatRequests(QObject):
    """One for a window.

    Signals:
        chats_added: An import has added chats.
    """

    chats_added = Signal()

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat_store = chat_store

    def serve(self, connection: QLocalSocket) -> None:
        """Answer what comes on this connection until it is closed."""
        reader = frames.FrameReader()
        connection.readyRead.connect(partial(self._on_ready, connection, reader))
        self._on_ready(connection, reader)

    def _on_ready(self, connection: QLocalSocket, reader: frames.FrameReader) -> None:
        try:
            asked = [frames.decode(requests.REQUESTS, body) for body in reader.feed(bytes(connection.readAll().data()))]
        except frames.ProtocolError as error:
            _log.info("another process asks for something unknown: %s", error)
            connection.abort()
            return
        for request in asked:
            self._ask(connection, request)

    def _ask(self, connection: QLocalSocket, request: requests.Request) -> None:
        def done(answer: Answer) -> None:
            if isinstance(request, AddChats):
                self.chats_added.emit()
            _send(connection, answer)

        def failed(error: KnownError) -> None:
            _send(connection, Refused(str(error)))

        self._chat_store.ask(lambda store: requests.carry_out(store, request), done, failed)


def _send(connection: QLocalSocket, answer: Answer) -> None:
    if isValid(connection) and connection.state() is QLocalSocket.LocalSocketState.ConnectedState:
        body = frames.encode(answer)
        try:
            connection.write(frames.framed(body))
        except frames.ProtocolError:
            connection.write(frames.framed(frames.encode(Refused("The chat is too large."))))
