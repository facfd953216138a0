"""A window that serves other programs: ``python -m tests.ui.window_that_serves TARGET DRAFT [KEY]``.

DRAFT is empty for none. The switch in its settings is on; without a key, programs need none. It says the port and the
server's process id when its model is loaded, and ends when its standard input does.
"""

from __future__ import annotations

import os
import socket
import sys

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app import system
from app.chats.worker import ChatWorker
from app.settings import Pair, ServerSettings, SettingsFile
from app.ui.app import App
from app.ui.context import make_context
from app.ui.engine.client import EngineClient
from app.ui.server.control import KEY_NAME
from app.ui.shell.all_actions import all_actions
from app.ui.shell.application import Application
from app.ui.shell.main_window import MainWindow


def main(target: str, draft: str, key: str = "") -> None:
    application = Application([])
    settings = SettingsFile(system.settings_file())
    settings.values.last_pair = Pair(target, draft or None)
    settings.values.server = ServerSettings(on=True, port=_free_port(), needs_key=bool(key))
    actions = all_actions()
    window = MainWindow(settings.values, actions)
    engine = EngineClient(parent=window)
    app = App(make_context(settings, engine, ChatWorker(system.chat_file()), actions, window), window)
    window.show()
    if key:
        app.server._store.set(KEY_NAME, key)  # there is no keyring: in memory
    serving = app.serving

    def tell() -> None:
        if serving.state.kind == "listening" and app.ctx.loader.pair() is not None:
            print(serving.state.addresses[0][1], serving.process_id(), flush=True)  # noqa: T201

    serving.state_changed.connect(tell)
    app.ctx.loader.pair_changed.connect(tell)
    app.begin()
    _end_with_input(window)
    application.exec()
    app.shut_down()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with_input(window: QWidget) -> None:
    import threading

    ended = threading.Event()
    timer = QTimer(window, interval=50)
    timer.timeout.connect(lambda: window.close() if ended.is_set() else None)
    timer.start()

    def read() -> None:
        while os.read(0, 100):
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
