"""``slipstream chats``, with its own store and through a window that is running."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app import paths
from app.chats.requests import ChatRead, ReadChat
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.commands.chats import access
from app.errors import KnownError
from app.protocol import frames
from app.ui.chat.writer import StoredChats
from app.ui.notices import NoticeList
from app.ui.shell.chat_requests import ChatRequests
from app.ui.shell.single_instance import SingleInstance
from tests.chats.formats.test_formats import DATA
from tests.support.command_line import called, slipstream


def chats(*arguments: str | Path) -> CompletedProcess[str]:
    return called("chats", *arguments)


def titles(done: CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [chat["title"] for chat in json.loads(done.stdout)["chats"]]


def test_in_and_out(tmp_path: Path) -> None:
    assert chats("list").stdout == "There are no chats yet.\n"
    dry = chats("import", DATA / "chatgpt.json", "--dry-run")
    assert dry.stdout.splitlines() == [
        "1 chat with 4 messages (ChatGPT: 1)",
        "From 2025-10-09 to 2025-10-09",
        "Not imported: 1 picture; 1 attachment without text; 1 reference to a source; 1 call or result of a tool.",
    ]
    assert chats("list").stdout == "There are no chats yet.\n"
    done = chats("import", DATA / "chatgpt.json", DATA / "sharegpt.json")
    assert done.stdout.splitlines()[-1] == "3 chats were imported."
    again = json.loads(chats("import", DATA / "chatgpt.json", "--json").stdout)
    assert (again["imported"]["added"], len(again["imported"]["known"])) == ([], 1)
    everything = {"Milk first?", "How hot should the water be?", "Green tea"}
    assert set(titles(chats("list", "--json"))) == everything
    assert set(titles(chats("list", "--folder", "Imported chats", "--json"))) == everything
    assert titles(chats("list", "--folder", "Other", "--json")) == []
    assert set(titles(chats("search", "bitter above", "--json"))) == everything - {"Milk first?"}
    assert "[Imported chats]" in chats("list").stdout
    shown = chats("export", "green TEA")
    assert shown.stdout.startswith("# Green tea\n")
    assert "> Green tea gets bitter above that." in shown.stdout
    path = tmp_path / "all.json"
    assert (
        chats("export", "--all", "--format", "json", "--output", path).stdout == f"3 chats were exported to {path}.\n"
    )
    assert len(json.loads(path.read_text(encoding="utf-8"))) == 3


def test_wrong_words(tmp_path: Path) -> None:
    chats("import", DATA / "sharegpt.json", "--no-folder")
    assert chats("export").returncode == 2
    assert "There is no chat “nothing”" in chats("export", "nothing").stderr
    assert "2 chats match “?”" in chats("export", "?").stderr
    assert "needs a file for each chat" in chats("export", "--all", "--output", tmp_path / "x.md").stderr
    assert chats("export", "--all", "--output", tmp_path).returncode == 0
    assert len(list(tmp_path.glob("*.md"))) == 2
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert chats("import", tmp_path / "x.json").stderr == (
        "slipstream: There are no chats in it that can be imported. Not imported: 1 file without chats.\n"
    )
    assert "can't be read: No such file" in chats("import", tmp_path / "gone").stderr


class Window:
    """What of a window answers the command line."""

    def __init__(self, qtbot: QtBot) -> None:
        self.qtbot = qtbot
        self.owner = QObject()
        self.instance = SingleInstance(paths.data_dir())
        assert self.instance.acquire()
        self.worker = ChatWorker(paths.chat_file())
        self.notice_list = NoticeList(self.owner)
        self.store = StoredChats(self.worker, self.notice_list, self.owner)
        self.requests = ChatRequests(self.store, self.owner)
        self.instance.chats_requested.connect(self.requests.serve)

    def asked(self, ask: Callable[[], Any]) -> Any:
        """What comes of a question, while the window's event loop runs."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(ask)
            self.qtbot.waitUntil(done.done)
        return done.result()

    def run(self, *arguments: str | Path) -> CompletedProcess[str]:
        """The command in a process of its own."""
        done: CompletedProcess[str] = self.asked(partial(slipstream, "chats", *arguments))
        return done

    def close(self) -> None:
        self.store.close()
        self.instance.release()


@pytest.fixture
def window(qtbot: QtBot) -> Iterator[Window]:
    window = Window(qtbot)
    yield window
    window.close()


def test_through_a_window(window: Window, tmp_path: Path) -> None:
    with window.qtbot.waitSignal(window.requests.chats_added):
        assert window.run("import", DATA).stdout.splitlines()[-1] == "12 chats were imported."
    stored = window.worker.submit(ChatStore.chats).result(timeout=10)
    assert len(stored) == 12
    assert sorted(titles(window.run("list", "--json"))) == sorted(chat.title for chat in stored)
    assert "Green tea" in titles(window.run("search", "bitter above", "--json"))
    path = tmp_path / "chat.html"
    assert window.run("export", "--output", path, "--format", "html", "Black tea").returncode == 0
    assert "<h1>Black tea</h1>" in path.read_text(encoding="utf-8")


def test_questions_that_a_window_cannot_answer(window: Window) -> None:
    def unknown() -> str:
        stream = access._window()
        assert stream is not None
        with stream:
            frames.write(stream, b'{"type":"DropChats"}')
            assert frames.read(stream) is None
        return "closed"

    def gone() -> None:
        with access.open_chats() as found:
            found.ask(ReadChat("0" * 32), ChatRead)

    assert window.asked(unknown) == "closed"
    with pytest.raises(KnownError, match="isn't there any more"):
        window.asked(gone)


def test_without_a_window_but_with_its_address(tmp_path: Path) -> None:
    run = paths.data_dir() / "run"
    run.mkdir()
    (run / "address").write_text(str(run / "socket"))
    assert chats("list").stdout == "There are no chats yet.\n"


def test_names_that_a_terminal_would_obey(tmp_path: Path) -> None:
    evil = [{"title": "a\x1b[31mb\u202e", "messages": [{"role": "user", "content": "x\x1b]0;y\x07 word"}]}]
    (tmp_path / "evil.json").write_text(json.dumps(evil))
    chats("import", tmp_path / "evil.json")
    for done in (chats("list"), chats("list", "--json"), chats("search", "word"), chats("search", "word", "--json")):
        assert done.returncode == 0
        assert not {"\x1b", "\u202e", "\x07"} & set(done.stdout)
