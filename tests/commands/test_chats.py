"""``slipstream chats``."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from app import system
from app.chats.store import ChatStore
from tests.chats.formats.test_formats import DATA
from tests.support.command_line import called


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
        "Not imported: 1 picture; 1 attachment without text; 1 reference to a source.",
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


@pytest.mark.parametrize("arguments", [["list"], ["search", "tea"], ["export", "--all"], ["import", DATA]])
def test_a_window_that_has_the_chats_open_is_to_be_closed(arguments: list[str | Path]) -> None:
    with ChatStore(system.chat_file()) as store:
        done = chats(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "such as a window of Slipstream. Close it, then try again." in done.stderr
        assert chats("import", DATA, "--dry-run").returncode == 0
        assert store.chats() == []


def test_names_that_a_terminal_would_obey(tmp_path: Path) -> None:
    evil = [{"title": "a\x1b[31mb\u202e", "messages": [{"role": "user", "content": "x\x1b]0;y\x07 word"}]}]
    (tmp_path / "evil.json").write_text(json.dumps(evil))
    chats("import", tmp_path / "evil.json")
    for done in (chats("list"), chats("list", "--json"), chats("search", "word"), chats("search", "word", "--json")):
        assert done.returncode == 0
        assert not {"\x1b", "\u202e", "\x07"} & set(done.stdout)
