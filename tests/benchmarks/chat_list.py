"""How long the window is busy with a list of many chats, offscreen: until all is laid out and painted.

    python -m tests.benchmarks.chat_list [--chats N] [--repeat N] [--json]

Medians and the longest, in milliseconds. The chats are made here, in two folders and with three pinned; reading them
from the store is its thread's work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.chats.model import Chat, Folder, Found, Snippet
from app.ui.chat.chat_list import ChatList
from app.ui.widgets import stylesheet

_FOLDERS = [Folder("home", "Home", 0.0), Folder("work", "Work", 0.0)]
_NOW = 1_800_000_000.0
LABELS = {
    "first_ms": "shown for the first time",
    "newest_ms": "a message in the oldest chat, which becomes the newest",
    "same_ms": "nothing changed",
    "folder_ms": "a folder closed or opened",
    "sort_ms": "sorted otherwise",
    "all_ms": "a refresh with all chats selected",
    "found_ms": "200 chats found, with 3 passages each",
}


def made(count: int) -> list[Chat]:
    """Chats of the last years, newest first."""
    folders: list[str | None] = [None, None, "home", None, "work"]
    return [
        Chat(
            f"chat {number}",
            f"A chat about subject number {number}",
            _NOW - number * 7200,
            _NOW - number * 7200,
            None,
            folder_id=folders[number % len(folders)],
            pinned_at=_NOW - number if number in (5, 500, 900) else None,
        )
        for number in range(count)
    ]


def found(chats: list[Chat]) -> list[Found]:
    text = "… and so the draft is checked token by token, before anything of it can be seen on the screen of anybody …"
    snippets = tuple(Snippet(f"m{number}", text, ((11, 5),)) for number in range(3))
    return [Found(chat, snippets) for chat in chats[:200]]


def milliseconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    QApplication.processEvents()
    return 1000 * (time.perf_counter() - started)


def measure(count: int) -> dict[str, float]:
    panel = ChatList()
    panel.resize(220, 700)
    panel.show()
    QApplication.processEvents()
    chats = made(count)
    figures = {"first_ms": milliseconds(lambda: panel.set_chats(chats, _FOLDERS))}
    panel.set_current(chats[3].id)
    QApplication.processEvents()
    moved = [replace(chats[-1], updated_at=_NOW + 60), *chats[:-1]]
    figures["newest_ms"] = milliseconds(lambda: panel.set_chats(moved, _FOLDERS))
    again = [replace(chat) for chat in moved]
    figures["same_ms"] = milliseconds(lambda: panel.set_chats(again, _FOLDERS))
    figures["folder_ms"] = milliseconds(lambda: panel.view.open_folder("home", False))
    figures["sort_ms"] = milliseconds(lambda: panel.view.arrange("title"))
    panel.view.arrange("newest")
    panel.search_field.setText("draft")
    figures["found_ms"] = milliseconds(lambda: panel.set_found("draft", found(chats)))
    panel.end_search()
    panel.view.selectAll()
    figures["all_ms"] = milliseconds(lambda: panel.set_chats(chats, _FOLDERS))
    panel.close()
    panel.deleteLater()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    application = QApplication([])
    stylesheet.apply(application)
    measure(100)  # what is loaded and drawn for the first time
    runs = [measure(options.chats) for _ in range(options.repeat)]
    figures = {
        name: {"median": statistics.median(run[name] for run in runs), "longest": max(run[name] for run in runs)}
        for name in LABELS
    }
    if options.json:
        print(json.dumps({"chats": options.chats, **figures}))
        return
    for name, text in LABELS.items():
        print(f"{text:56} {figures[name]['median']:7.1f} {figures[name]['longest']:7.1f}")


if __name__ == "__main__":
    main()
