"""Tool calls in the chat file: saved, interrupted, copied, erased."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.chats.attachments import Content, attachments_folder
from app.chats.database import MEMORY
from app.chats.model import Attachment, CallState, StoredCall, StoredMessage, calls_to_json
from app.chats.store import ChatStore
from tests.support.chats import add_question, begin_answer

DATA = Path(__file__).parent.parent / "data"
CALL = StoredCall(id="call_1", name="forecast", arguments='{"place": "Oslo"}', server="weather", tokens=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with ChatStore(path) as opened:
        yield opened


def in_state(state: CallState, **others: object) -> StoredCall:
    return StoredCall(id=f"call_{state}", name="forecast", state=state, **others)  # type: ignore[arg-type]


def radar(store: ChatStore, content: bytes = b"radar") -> Attachment:
    return store.keep(Content("image", "radar.png", content, "image/png", 1, 1))


def calling(store: ChatStore, *calls: StoredCall, images: tuple[Attachment, ...] = ()) -> StoredMessage:
    """An answer that is being written, in a chat of its own."""
    chat = store.create_chat()
    question = add_question(store, chat.id, None, "Rain?")
    answer = begin_answer(store, chat.id, question.id)
    store.update_answer(answer.id, "Let me look.", [[12, None, 0, None]], [1, 2, 3], "", calls, images)
    return store.message(answer.id)


def rows(path: Path, *, without: str = "") -> dict[str, list[tuple[object, ...]]]:
    """Everything in a chat file but its search index."""
    found = {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ("chats", "folders", "messages", "attachments", "unsent", "unsent_attachments"):
            names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})") if name != without]
            found[table] = connection.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY 1, 2").fetchall()
    return found


def test_a_file_of_version_4_opens_with_nothing_lost(path: Path) -> None:
    shutil.copyfile(DATA / "chats-version-4.sqlite", path)
    shutil.copytree(DATA / "chats-version-4" / "attachments", attachments_folder(path))
    before = rows(path)
    assert before["messages"]
    with ChatStore(path) as store:
        store.tidy()
        store.mark_interrupted()
        assert {one.calls for chat in store.chats() for one in store.branch(chat.id)} == {()}
    assert rows(path, without="calls") == before


def test_a_file_of_version_5_opens(path: Path) -> None:
    shutil.copyfile(DATA / "chats-version-5.sqlite", path)
    shutil.copytree(DATA / "chats-version-5" / "attachments", attachments_folder(path))
    with ChatStore(path) as store:
        store.tidy()
        store.mark_interrupted()
        chat = store.chats()[0]
        _question, answer, _asked, cut = store.branch(chat.id)
    first, second = answer.calls
    assert (first.server, first.arguments, first.result) == ("weather", '{"place": "Oslo"}', "Regen, 8 °C")
    assert (second.state, second.result, second.tokens) == ("denied", "Die Uhr sehe ich selbst.", 4)
    (image,) = answer.attachments
    assert first.images == (image.sha256,) and Path(image.path).is_file()
    assert (answer.text[first.text :], list(answer.tokens)) == ("\n\nJa.", [1, 2, 3, 4, 5])
    assert (cut.status, [one.state for one in cut.calls]) == ("interrupted", ["stopped"])


def test_calls_are_saved_while_the_answer_is_written_and_at_its_end(store: ChatStore) -> None:
    answer = calling(store, CALL)
    assert answer.calls == (CALL,)
    image = radar(store)
    done = replace(
        answer,
        status="complete",
        calls_json=calls_to_json([replaced(CALL, state="done", result="Rain \ud800", images=(image.sha256,))]),
        attachments=(image,),
    )
    store.finish_answer(done)
    store.update_answer(answer.id, "late", [], [], "", [CALL])  # it has ended
    store.tidy()  # nothing that a message refers to is swept
    stored = store.message(answer.id)
    assert stored.calls[0].result == "Rain ?"
    assert stored.attachments == (image,) and Path(stored.attachments[0].path).read_bytes() == b"radar"


def replaced(call: StoredCall, **others: object) -> StoredCall:
    return StoredCall(**{name: getattr(call, name) for name in call.__struct_fields__} | others)


def test_images_of_results_are_kept_while_the_answer_is_written(store: ChatStore) -> None:
    image = radar(store)
    answer = calling(store, in_state("done", images=(image.sha256,)), images=(image,))
    store.update_answer(answer.id, "More.", [], [], "", answer.calls)  # nothing is said of images
    store.tidy()
    (kept,) = store.message(answer.id).attachments
    assert Path(kept.path).read_bytes() == b"radar"


ALL: tuple[CallState, ...] = ("asked", "running", "done", "failed", "denied", "stopped")
AFTERWARDS = ["stopped", "stopped", "done", "failed", "denied", "stopped"]


def test_open_calls_of_an_answer_that_was_cut_are_stopped(store: ChatStore) -> None:
    cut = calling(store, *map(in_state, ALL))
    whole = calling(store, *map(in_state, ALL))
    store.finish_answer(replace(whole, status="stopped"))
    store.mark_interrupted()
    assert [one.state for one in store.message(cut.id).calls] == AFTERWARDS
    assert [one.state for one in store.message(whole.id).calls] == list(ALL)  # that is its writer's affair


def test_damaged_calls_are_none_and_everything_else_is_read(store: ChatStore) -> None:
    answer = calling(store, CALL)
    store._connection.execute("UPDATE messages SET calls = '[{\"id\": 5'")
    store._connection.commit()
    store.mark_interrupted()
    found = store.message(answer.id)
    assert (found.calls, found.text, found.status) == ((), "Let me look.", "interrupted")


def test_a_copied_chat_has_them_and_nobody_decides_there(store: ChatStore) -> None:
    image = radar(store)
    answer = calling(store, *map(in_state, ALL), images=(image,))
    copied = store.copy_branch(answer.chat_id, answer.id)
    _, there = store.branch(copied.id)
    assert ([one.state for one in there.calls], there.status) == (AFTERWARDS, "interrupted")
    assert there.attachments == (image,)
    assert store.message(answer.id).status == "streaming"


def test_a_deleted_answer_comes_back_with_its_calls(store: ChatStore) -> None:
    image = radar(store)
    answer = calling(store, in_state("done", result="Rain"), in_state("running"), images=(image,))
    deletion = store.delete_message(answer.id, following=False)
    store.tidy()
    store.undo_deletion(deletion)
    found = store.message(answer.id)
    assert [(one.state, one.result) for one in found.calls] == [("done", "Rain"), ("stopped", "")]
    assert Path(found.attachments[0].path).is_file()


def test_results_and_their_images_are_erased_with_the_chat(path: Path, store: ChatStore) -> None:
    secret = "Zebrastreifen"
    image = radar(store, secret.encode())
    call = in_state("done", result=f"{secret} 1", arguments=f'{{"a": "{secret} 2"}}', images=(image.sha256,))
    answer = calling(store, call, images=(image,))
    store.finish_answer(replace(answer, status="complete", calls_json=calls_to_json([call]), attachments=(image,)))
    while store.update_index():
        pass
    store.delete_chats([answer.chat_id])
    store.erase_deleted()
    for file in path.parent.rglob("*"):
        if file.is_file() and "backups" not in file.parts:
            assert secret.encode() not in file.read_bytes(), file.name


def test_a_temporary_chat_leaves_nothing_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with ChatStore(MEMORY) as store:
        image = radar(store)
        answer = calling(store, in_state("done", result="Rain", images=(image.sha256,)), images=(image,))
        assert Path(answer.attachments[0].path).read_bytes() == b"radar"
    assert list(tmp_path.iterdir()) == []
