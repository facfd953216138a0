"""Answers of older versions, whose thinking is in their text."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest

from app.chats import schema
from app.chats.backup import backup_folder
from app.chats.database import open_database
from app.chats.model import StoredMessage, pack, unpack
from app.chats.raw_thinking import split
from app.chats.rows import token_blob
from app.chats.store import ChatStore
from app.engine.decoding.detokenizer import TokenTexts
from app.engine.decoding.thinking import Marks
from app.engine.decoding.thinking_formats import FORMATS
from app.protocol.events import Piece

DATA = Path(__file__).parent.parent / "data"
SPLIT = ["tags", "spelled", "thinking", "mistral", "opened", "joined", "gemma", "harmony", "hidden", "edited"]
LEFT = {
    "code": "```\n<think>A sketch.</think>\n```\nEin Entwurf.",
    "inline": "It ends with `</think>`\n\nEin Entwurf.",
    "later": "Ein Entwurf <think>A sketch.</think>\n",
    "mention": "Use </think> to end it.",
    "plain": "Ein Entwurf.",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "chats.sqlite"
    shutil.copyfile(DATA / "thinking-in-text-version-2.sqlite", path)
    return path


def rows(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT id, text, provenance, tokens, status FROM messages ORDER BY seq").fetchall()


def thoughts(message: StoredMessage) -> list[str]:
    pieces = unpack(message.text, message.provenance, message.thinking)
    return [piece.text for piece in pieces if piece.thinking and piece.text]


def test_a_file_of_version_2_tells_thinking_from_answers(path: Path) -> None:
    with ChatStore(path) as store:
        kept = {one: store.message(one) for one in (*SPLIT, *LEFT, "empty", "cut", "q")}
    for name in SPLIT:
        assert (kept[name].thinking, kept[name].text) == ("A sketch.", "Ein Entwurf."), name
    assert {name: kept[name].text for name in LEFT} == LEFT
    assert not any(kept[name].thinking for name in (*LEFT, "empty", "q"))
    assert kept["empty"].text == "Ein Entwurf."
    assert (kept["cut"].thinking, kept["cut"].text) == ("A sketch.", "")
    assert kept["q"].text == "<think>What is „Entwurf“?</think>"


def test_tokens_keep_their_place_and_where_they_came_from(path: Path) -> None:
    before = {name: (provenance, tokens) for name, _text, provenance, tokens, _status in rows(path)}
    with ChatStore(path) as store:
        for name in (*SPLIT, "empty", "cut"):
            message = store.message(name)
            provenance, tokens = before[name]
            assert [one[1:4] for one in message.provenance] == [one[1:] for one in json.loads(str(provenance))], name
            assert len(message.tokens) == len(message.provenance)
            assert token_blob(message.tokens) == tokens
        assert thoughts(store.message("tags")) == ["A sketch", "."]
        assert thoughts(store.message("hidden")) == ["A ", "sketch."]


def test_the_search_has_the_words_and_not_the_marks(path: Path) -> None:
    with ChatStore(path) as store:
        while store.update_index():
            pass
        (found,) = store.search("sketch")
        assert all(one.is_thinking == (one.message_id not in LEFT) for one in found.snippets)
        (found,) = store.search("</think")
        assert {one.message_id for one in found.snippets} == {"mention", "later", "inline"}
        assert store.search("<|channel") == []


def test_the_original_is_in_a_backup_that_stays(path: Path) -> None:
    before = rows(path)
    with ChatStore(path, clock=(datetime.now() + timedelta(days=20)).timestamp) as store:
        store.create_chat("new")
        store.tidy()
    (backup,) = backup_folder(path).glob("chats-before-version-*.sqlite")
    assert rows(backup) == before


def _die_in_the_migration(path: Path) -> None:
    step = [*schema.MIGRATIONS[-1], lambda _connection: os._exit(9)]
    open_database(path, (*schema.MIGRATIONS[:-1], step))


def test_a_process_killed_in_the_migration_loses_nothing(path: Path) -> None:
    before = rows(path)
    process = get_context("spawn").Process(target=_die_in_the_migration, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    (backup,) = backup_folder(path).glob("chats-before-version-*.sqlite")
    assert rows(backup) == before
    with ChatStore(path) as store:
        assert store.notice is None
        assert store.message("tags").thinking == "A sketch."
        assert store.message("plain").text == "Ein Entwurf."


def test_an_answer_of_version_1_is_split_too(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    shutil.copyfile(DATA / "chats-version-1.sqlite", path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        (last,) = connection.execute("SELECT id FROM messages WHERE text = 'Die zweite Antwort'").fetchone()
        connection.execute("UPDATE messages SET text = '<think>Hm.</think>' || text WHERE id = ?", (last,))
    with ChatStore(path) as store:
        assert (store.message(last).thinking, store.message(last).text) == ("Hm.", "Die zweite Antwort")


@pytest.mark.parametrize(
    "damaged",
    ["text = CAST(x'3c7468696e6b3eff3c2f7468696e6b3e41' AS TEXT)", "text = x'3c'", "provenance = CAST(x'ff' AS TEXT)"],
)
def test_a_damaged_answer_costs_no_other(path: Path, damaged: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE messages SET {damaged} WHERE id = 'tags'")
    with ChatStore(path) as store:
        assert store.notice is None
        assert store.message("spelled").thinking == "A sketch."
        assert store.message("plain").text == "Ein Entwurf."


# ---------------------------------------------------------------- one text


class Parts:
    """A vocabulary whose tokens are these texts."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:  # noqa: ARG002
        self.texts.append(text)
        return [len(self.texts) - 1]

    def piece(self, token: int) -> bytes:
        return self.texts[token].encode()

    def mark(self, token: int) -> str:  # noqa: ARG002
        return ""


SIGNS = ["<think>", "</think>", "<thi", "nk>", "</", "<", "\n", " ", "a", "é", "\n\n", "", "</think>\n"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_text_is_split_as_if_it_streamed(is_cut: bool) -> None:
    rng = random.Random(5)
    count = 0
    for _ in range(500):
        texts = ["<think>", *rng.choices(SIGNS, k=rng.randint(1, 12))]
        stream = TokenTexts(Parts(texts).piece, Marks(Parts(list(texts)), ""))
        told = [piece for at in range(len(texts)) for piece in stream.add(Piece(text="", id=at))]
        told += stream.end(cut=is_cut)
        found = split("".join(texts), pack([Piece(text=text) for text in texts]), is_cut=is_cut)
        if found is None:
            assert not any(piece.thinking and piece.text for piece in told)
            continue
        # Which of the two a token without text belongs to may still be open where the stream ends.
        assert [entry[0] for entry in found.provenance] == [len(piece.text) for piece in told], texts
        assert found.thinking == "".join(piece.text for piece in told if piece.thinking)
        assert found.text == "".join(piece.text for piece in told if not piece.thinking)
        count += bool(found.thinking and found.text)
    assert count > 50


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.opening)
@pytest.mark.parametrize("has_tokens", [True, False])
def test_every_format(form: object, has_tokens: bool) -> None:
    opening, closing, around = form.opening, form.closing, form.around  # type: ignore[attr-defined]
    before, *behind = around or ("", "")
    whole = [opening, "\nHm.\n", closing, before, "Yes.", *behind]
    texts = [part for text in whole for part in re.split(r"(<\|[^<>]*>|<[^<>]*\|>)", text) if part]
    packed = pack([Piece(text=text) for text in texts]) if has_tokens else []
    found = split("".join(texts), packed)
    assert found is not None
    assert (found.thinking, found.text) == ("Hm.", "Yes.")
    ended = split(f"Hm.\n{closing}\n\nYes.", [])
    assert ended is not None
    assert (ended.thinking, ended.text) == ("Hm.", "Yes.")


def test_channels() -> None:
    texts = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
    texts += "<|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>d"
    found = split(texts, [])
    assert found is not None
    assert (found.thinking, found.text) == ("a\n\nc", "b\n\nd")


@pytest.mark.parametrize(
    "text",
    [
        "analysis of it",
        "~~~\n</think>\n\n~~~\nYes",
        "``a </think>\n`</think>` ``\n\nYes",
        "It is opened by <think> and closed by </think>\n\nYes",
        "The tag “</think>” ends it.",
        "Here are my reasoning steps:\n1. Add.\n2. Divide.",
        'The file:\n\n<reason code="5">\nNo disk\n</reason>\n\nSave it.',
        "",
    ],
)
def test_what_only_mentions_marks_stays(text: str) -> None:
    assert split(text, []) is None
    assert split(text, pack([Piece(text=text)])) is None


@pytest.mark.parametrize(
    "packed", [[[1]], [[-1, None, 0, None]], [[99, None, 0, None]], ["x"], [[1, None, 0, None, True]]]
)
def test_damaged_provenance_costs_only_itself(packed: list[list[int | str | None]]) -> None:
    found = split("<think>Hm.</think>Yes.", packed)
    assert found is not None
    assert (found.thinking, found.text, list(found.provenance)) == ("Hm.", "Yes.", [])


def test_text_behind_the_provenance_is_split() -> None:
    found = split("<think>Hm.</think>Yes.", [[7, "model", 3, None], [2, None, 4, "x"]])
    assert found is not None
    assert (found.thinking, found.text) == ("Hm.", "Yes.")
    assert found.provenance == [[0, "model", 3, None, True], [2, None, 4, "x", True]]
