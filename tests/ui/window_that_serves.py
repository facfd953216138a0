"""A window that serves other programs: ``python -m tests.ui.window_that_serves TARGET DRAFT [KEY]``.

Says the port and the server's process id when its model is loaded, and ends when its standard input does.
"""

from __future__ import annotations

import os
import sys

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app import paths
from app.chats.worker import ChatWorker
from app.protocol.serving import Serve
from app.settings import Pair, SettingsFile
from app.ui.engine.local_engine import LocalEngine
from app.ui.shell.application import Application
from app.ui.shell.controller import Controller
from app.ui.shell.main_window import MainWindow


def main(target: str, draft: str, key: str = "") -> None:
    application = Application([])
    settings = SettingsFile(paths.settings_file())
    settings.values.last_pair = Pair(target, draft)
    window = MainWindow(settings.values)
    engine = LocalEngine(parent=window)
    controller = Controller(window, settings, engine, ChatWorker(paths.chat_file()))
    window.show()
    serving = controller.server.serving

    def tell() -> None:
        if serving.state.kind == "listening" and controller.pair_loader.pair() is not None:
            print(serving.state.addresses[0][1], serving.process_id(), flush=True)  # noqa: T201

    serving.state_changed.connect(tell)
    controller.pair_loader.pair_changed.connect(tell)
    controller.begin()
    serving.start(Serve(host=None, port=0, key=key or None))
    _end_with_input(window)
    application.exec()
    controller.shut_down()


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
