"""Attachments in the store: their files, which message has them, copies of chats, erasing, backups."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.chats import attachments
from app.chats.attachments import Content, attachments_folder, prompt_images, prompt_text
from app.chats.database import MEMORY, backup_folder, daily_backups
from app.chats.formats import slipstream
from app.chats.formats.reading import ChatReading
from app.chats.formats.writing import WRITE
from app.chats.model import Attachment, StoredMessage
from app.chats.store import ChatStore, new_id
from app.system import KnownError
from tests.support.vision_models import make_image

DATA = Path(__file__).parent.parent / "data"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
TEA = Content("image", "tea.png", PNG, "image/png", 30, 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats" / "chats.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with ChatStore(path) as store:
        yield store


def ask(store: ChatStore, chat_id: str, *attached: Attachment, text: str = "What is it?") -> StoredMessage:
    message = StoredMessage(new_id(), chat_id, None, "user", text, "complete", 1.0, attachments=attached)
    return store.add_message(message)


def notes(store: ChatStore, text: str = "Grüner Tee\n", name: str = "notes.md") -> Attachment:
    return store.keep(Content("text", name, text.encode(), "text/markdown"))


def files(folder: Path) -> list[str]:
    """The names of the attachments beside a chat file, or a backup."""
    return sorted(file.name for file in attachments_folder(folder).rglob("*") if file.is_file())


def test_a_message_has_its_attachments_in_their_order(store: ChatStore, path: Path) -> None:
    chat = store.create_chat()
    text, image = notes(store), store.keep(TEA)
    asked = ask(store, chat.id, image, text)
    for message in (asked, store.message(asked.id), *store.branch(chat.id), *store.branch_end(chat.id, 1)):
        assert message.attachments == (image, text)
        first, second = message.attachments
        assert (second.text, second.size, second.media_type) == ("Grüner Tee\n", 12, "text/markdown")
        assert Path(first.path).read_bytes() == PNG
        assert (first.width, first.height, first.name, first.is_missing) == (30, 20, "tea.png", False)
        assert Path(first.path) == path.parent / "attachments" / first.sha256[:2] / first.sha256
    assert store._files.read(text.sha256) == "Grüner Tee\n".encode()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_only_the_user_may_read_them(store: ChatStore, path: Path) -> None:
    kept = Path(notes(store).path)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (kept, kept.parent, kept.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_the_same_content_is_one_file(store: ChatStore, path: Path) -> None:
    first, second = notes(store, name="a.md"), notes(store, name="b.md")
    assert first.path == second.path
    assert files(path) == [first.sha256]
    chats = store.create_chat(), store.create_chat()
    ask(store, chats[0].id, first)
    ask(store, chats[1].id, second)
    store.delete_chats([chats[0].id])
    store.erase_deleted()
    assert files(path) == [first.sha256]
    assert [one.attachments[0].text for one in store.branch(chats[1].id)] == ["Grüner Tee\n"]


def test_what_the_model_reads(store: ChatStore) -> None:
    text, image = notes(store, "a\n```\nb\n```\n"), store.keep(TEA)
    assert prompt_text("Why?", [text, image]) == "`notes.md`\n\n````\na\n```\nb\n```\n````\n\nWhy?"
    assert prompt_text("", [text]).endswith("````")
    assert [(one.sha256, one.path) for one in prompt_images([text, image])] == [(image.sha256, image.path)]


def test_one_that_is_not_there_any_more(store: ChatStore) -> None:
    chat = store.create_chat()
    text, image = notes(store), store.keep(TEA)
    asked = ask(store, chat.id, text, image)
    Path(text.path).unlink()
    Path(image.path).unlink()
    gone = store.message(asked.id).attachments
    assert [(one.name, one.is_missing, one.text, one.path) for one in gone] == [
        ("notes.md", True, "", ""),
        ("tea.png", True, "", ""),
    ]
    assert prompt_text("Why?", gone) == "Why?"
    assert prompt_images(gone) == ()
    assert store._files.read(text.sha256) is None


def test_they_go_with_a_deleted_message_and_come_back_with_it(store: ChatStore, path: Path) -> None:
    chat = store.create_chat()
    asked = ask(store, chat.id, notes(store))
    deletion = store.delete_message(asked.id, False)
    assert store.branch(chat.id) == []
    store.tidy()
    assert files(path) == [asked.attachments[0].sha256]  # it can still be undone
    store.undo_deletion(deletion)
    store.undo_deletion(deletion)
    assert [one.attachments for one in store.branch(chat.id)] == [asked.attachments]
    store.delete_message(asked.id, False)
    del deletion
    store.tidy()
    assert files(path) == []


def test_they_are_in_the_trash_with_their_chat_and_erased_with_it(store: ChatStore, path: Path) -> None:
    chat = store.create_chat()
    ask(store, chat.id, notes(store))
    store.set_unsent_attachments(chat.id, [notes(store, "unsent")])
    store.delete_chats([chat.id])
    store.tidy()
    assert len(files(path)) == 2
    store.restore_chats([chat.id])
    assert store.branch(chat.id)[0].attachments[0].text == "Grüner Tee\n"
    store.delete_chats([chat.id])
    store.erase_deleted()
    assert files(path) == []
    assert list(attachments_folder(path).iterdir()) == []
    assert store.unsent_attachments(chat.id) == ()


def test_erasing_that_fails_is_repeated_at_the_next_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatStore(path) as store:
        chat = store.create_chat()
        ask(store, chat.id, notes(store))
        store.delete_chats([chat.id])

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patched:
            patched.setattr(attachments, "remove_except", refuse)
            with pytest.raises(KnownError, match="couldn't be erased"):
                store.erase_deleted()
        assert len(files(path)) == 1
    with ChatStore(path) as store:
        assert store.has_to_erase()
        store.tidy()
        assert files(path) == []


def test_what_is_attached_to_an_unsent_message_is_kept_and_a_start_removes_what_no_message_has(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.create_chat()
        store.set_unsent_attachments(chat.id, [notes(store, "one"), notes(store, "two")])
        store.set_unsent_attachments(None, [notes(store, "three")])
        store.set_unsent_attachments("deleted meanwhile", [notes(store, "four")])
        sent, dropped = notes(store), notes(store, "dropped")
        ask(store, store.create_chat().id, sent)
        store.tidy()
        assert len(files(path)) == 5 and dropped.sha256 in files(path)  # it may still be sent
    stray = Path(sent.path).with_name("0123.part")
    stray.write_bytes(b"half")
    with ChatStore(path) as store:
        store.tidy()
        assert [one.text for one in store.unsent_attachments(chat.id)] == ["one", "two"]
        assert [one.text for one in store.unsent_attachments(None)] == ["three"]
        assert store.unsent_attachments("deleted meanwhile") == ()
        assert len(files(path)) == 4 and dropped.sha256 not in files(path)
        assert not stray.exists()
        store.set_unsent_attachments(chat.id, [])
        assert store.unsent_attachments(chat.id) == ()


def test_a_full_disk_is_a_sentence(store: ChatStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KnownError, match=r"attachment couldn't be saved.*No space left on device"):
        notes(store)


def test_a_chat_in_memory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ChatStore(MEMORY) as store:
        chat = store.create_chat()
        asked = ask(store, chat.id, notes(store))
        assert (asked.attachments[0].text, asked.attachments[0].path) == ("Grüner Tee\n", "")
        assert store._files.read(asked.attachments[0].sha256) == "Grüner Tee\n".encode()
        store.delete_chats([chat.id])
        store.erase_deleted()
        assert store._files.read(asked.attachments[0].sha256) is None
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------ backups


def test_a_backup_has_its_attachments_and_gives_them_back(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.create_chat()
        kept = ask(store, chat.id, notes(store)).attachments[0]
    (backup,) = daily_backups(path)
    assert files(backup) == [kept.sha256]
    with ChatStore(path) as store:  # later than the backup
        later = ask(store, chat.id, notes(store, "later")).attachments[0]
    path.write_bytes(b"damaged" * 1000)
    with ChatStore(path) as store:
        assert "restored from the backup" in (store.notice or "")
        store.tidy()
        assert [one.attachments[0].text for one in store.branch(chat.id)] == ["Grüner Tee\n"]
    (aside,) = path.parent.glob("chats.broken-*.attachments")
    assert (aside / later.sha256[:2] / later.sha256).read_text() == "later"


def test_a_damaged_backup_costs_no_attachment(path: Path) -> None:
    now = datetime(2026, 11, 1)
    with ChatStore(path, clock=now.timestamp) as store:
        ask(store, store.create_chat().id, notes(store))
    daily_backups(path)[0].write_bytes(b"damaged" * 1000)
    later = (now + timedelta(days=40)).timestamp
    with ChatStore(path, clock=later) as store:
        store.rename_chat(store.chats()[0].id, "changed")
        store.tidy()
    assert len(files(backup_folder(path) / path.name)) == 1


# ------------------------------------------------------------ files of other versions, export and import


def test_a_file_of_version_4_opens(path: Path) -> None:
    path.parent.mkdir()
    shutil.copyfile(DATA / "chats-version-4.sqlite", path)
    shutil.copytree(DATA / "chats-version-4" / "attachments", attachments_folder(path))
    with ChatStore(path) as store:
        store.tidy()
        (chat,) = store.chats()
        asked, answer = store.branch(chat.id)
        text, image = asked.attachments
        assert (text.name, text.text, text.media_type) == ("Übersicht.csv", "Tee,Grad\nSencha,80\n", "text/csv")
        assert (image.name, image.width, image.height, image.is_missing) == ("tee.png", 640, 480, False)
        assert Path(image.path).read_bytes() == PNG[:8]
        assert (answer.text, answer.attachments) == ("80 °C.", ())
        (unsent,) = store.unsent_attachments(chat.id)
        assert (unsent.name, unsent.text) == ("Pasted text", "halb")
        assert len(files(path)) == 3


def test_our_json_has_them(store: ChatStore, tmp_path: Path) -> None:
    chat = store.create_chat()
    text, image = notes(store), store.keep(TEA)
    asked = ask(store, chat.id, text, image)
    file = tmp_path / "export.json"
    file.write_text(f"[{slipstream.write(store.record(chat.id))}]", encoding="utf-8")
    read = ChatReading([file]).next().chats
    assert store.add_records(read).known == [chat.id]  # it is the same chat
    with ChatStore(tmp_path / "other" / "chats.sqlite") as other:
        assert other.add_records(read).added == [chat.id]
        (message,) = other.branch(chat.id)
        assert message.attachments == asked.attachments
        assert message.attachments[0].text == "Grüner Tee\n"
        assert Path(message.attachments[1].path).read_bytes() == PNG
        other.delete_chats([chat.id])
        other.erase_deleted()
        assert files(tmp_path / "other" / "chats.sqlite") == []


@pytest.mark.parametrize("format", ["llama.cpp", "openai", "json"])
def test_images_come_back_from_other_formats(store: ChatStore, tmp_path: Path, format: str) -> None:
    made = make_image(tmp_path / "a.png", 160, 96)
    data = Path(made.path).read_bytes()
    image = store.keep(Content("image", "a.png", data, "image/png", 160, 96))
    ask(store, (chat := store.create_chat()).id, image, text="What is it?")
    file = tmp_path / "chat"
    file.write_text(WRITE[format].write(store.record(chat.id), list), encoding="utf-8")
    with ChatStore(tmp_path / "other" / "chats.sqlite") as other:
        (added,) = other.add_records(ChatReading([file]).next().chats).added
        (question,) = other.branch(added)
        (found,) = question.attachments
        assert question.text == "What is it?"
        assert (found.kind, found.sha256, found.width, found.height) == ("image", made.sha256, 160, 96)
        assert Path(found.path).read_bytes() == data


@pytest.mark.parametrize(
    "attachment",
    [
        {"kind": "video", "name": "a"},
        {"kind": "image", "name": "a", "data": "not base64!"},
        {"kind": "image", "name": "a", "data": "", "width": 2**70},
        {"kind": "text", "name": "a", "text": 7},
        "a",
    ],
)
def test_a_damaged_attachment_is_a_damaged_message(tmp_path: Path, attachment: object) -> None:
    messages = [
        {"id": "1", "parent": None, "role": "user", "text": "Well?", "attachments": [attachment]},
        {"id": "2", "parent": "1", "role": "assistant", "text": "So."},
    ]
    file = tmp_path / "export.json"
    file.write_text(json.dumps([{"slipstream_chat": 1, "id": "a", "current": "2", "messages": messages}]))
    batch = ChatReading([file]).next()
    assert [message.text for message in batch.chats[0].messages] == ["So."]
    assert batch.left_out == {"damaged": 1}


def test_images_of_a_chat_in_memory_are_files_until_it_is_closed(tmp_path: Path) -> None:
    store = ChatStore(Path(":memory:"))
    image, text = store.keep(Content("image", "a.png", b"image")), store.keep(Content("text", "a.md", b"text"))
    path = Path(image.path)
    assert path.read_bytes() == b"image" and not image.is_missing
    assert (path.parents[1].stat().st_mode & 0o77) == 0
    assert text.path == "" and text.text == "text" and store._files.read(image.sha256) == b"image"
    chat = store.create_chat("")
    store.set_unsent_attachments(chat.id, [image])
    store.set_unsent_attachments(chat.id, [])
    store.close()
    assert not path.parents[1].exists()


def test_old_backups_take_their_attachments_along(path: Path) -> None:
    now = datetime(2026, 11, 1)

    def opened() -> ChatStore:
        return ChatStore(path, clock=now.timestamp)

    with opened() as store:
        chat = store.create_chat()
        first = ask(store, chat.id, notes(store, "first")).attachments[0]
    now += timedelta(days=1)
    with opened() as store:
        store.delete_chats([chat.id])
        store.erase_deleted()
        second = ask(store, store.create_chat().id, notes(store, "second")).attachments[0]
    assert files(backup_folder(path) / path.name) == sorted([first.sha256, second.sha256])
    now += timedelta(days=30)
    with opened() as store:
        store.tidy()
        assert files(backup_folder(path) / path.name) == [second.sha256]


def test_other_addresses_of_images_are_left_alone(tmp_path: Path) -> None:
    data = "data:image/png;base64,"
    for address in ("https://example.org/a.png", f"{data}!!!!", f"{data}aGVsbG8=", "file:///a.png", "", 3):
        part = {"type": "image_url", "image_url": {"url": address}}
        messages = [{"role": "user", "content": [{"type": "text", "text": "What?"}, part, 3]}]
        (tmp_path / "chat.json").write_text(json.dumps([{"messages": messages}]))
        batch = ChatReading([tmp_path / "chat.json"]).next()
        assert batch.left_out == {"images": 1, "files": 1}
        assert batch.chats[0].messages[0].attachments == []
