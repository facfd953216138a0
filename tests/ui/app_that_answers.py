"""An app in the middle of an answer, to be killed: ``python -m tests.ui.app_that_answers``.

Sends a message to an engine that never finishes and says ``stored`` when a part of the answer is in the store.
"""

from __future__ import annotations

import sys

from PySide6.QtCore import QTimer

from app import system
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.settings import SettingsFile
from app.ui.app import App
from app.ui.context import make_context
from app.ui.engine.client import EngineClient
from app.ui.shell.all_actions import all_actions
from app.ui.shell.application import Application
from app.ui.shell.main_window import MainWindow


def answered_so_far(store: ChatStore) -> str:
    chats = store.chats()
    branch = store.branch(chats[0].id) if chats else []
    return branch[1].text if len(branch) == 2 else ""


def main() -> None:
    application = Application([])
    settings = SettingsFile(system.settings_file())
    actions = all_actions()
    window = MainWindow(settings.values, actions)
    worker = ChatWorker(system.chat_file())
    engine = EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "endless"], parent=window)
    app = App(make_context(settings, engine, worker, actions, window), window)
    window.show()
    app.begin()
    app.ctx.chats.current.send("Do not lose me")

    def look() -> None:
        if worker.submit(answered_so_far).result():
            print("stored", flush=True)  # noqa: T201
            timer.stop()

    timer = QTimer(interval=100)
    timer.timeout.connect(look)
    timer.start()
    application.exec()


if __name__ == "__main__":
    main()
