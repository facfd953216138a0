"""Imports into a real store, by way of a real helper process; and that our own JSON has everything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.chats.attachments import prompt_text
from app.chats.database import MEMORY
from app.chats.exporting import Export
from app.chats.formats import slipstream
from app.chats.formats.reading import ChatReading
from app.chats.formats.records import ChatRecord, MessageRecord
from app.chats.formats.writing import WRITE
from app.chats.importing import Import, Imported
from app.chats.model import StoredMessage, to_json
from app.chats.settings import ChatSettings, chat_settings
from app.chats.store import ChatStore, new_id
from app.helper import Died, Helper, NotStarted, TookTooLong, TooMuchMemory, shared
from app.protocol.answering import SamplingChoice
from app.system import Canceled, KnownError
from tests.chats.formats.test_formats import DATA
from tests.support.chats import add_question, begin_answer


def import_all(store: ChatStore, *paths: Path, folder: str = "") -> Imported:
    imported, _ = Import(paths).run(lambda chats: store.add_records(chats, folder))
    return imported


def rich_chat(store: ChatStore) -> str:
    """A chat with everything that a chat can have; its id."""
    folder = store.create_folder("Tea & <more>")
    chosen = ChatSettings(system_prompt="Be brief.", seed=7, sampling=SamplingChoice(temperature=0.25), stop=["END"])
    chat = store.create_chat("Green “tea”", settings=chosen.to_json())
    question = add_question(store, chat.id, None, "How hot?\n\n<b>&</b> 🍵")
    begun = begin_answer(store, chat.id, question.id, "tea-2b + tea-1b", {"seed": 7})
    store.finish_answer(
        replace(
            begun,
            text="80 °C.",
            thinking="Bitter above that.",
            status="stopped",
            finish_reason="cancelled",
            seed=2**62,
            tokens=[1, 2, 151_000],
            figures_json=to_json({"completion_tokens": 3, "draft": {"tested": 4}, "thinking_s": 2.5}),
            provenance_json=to_json([[18, "model", 0, None, True], [6, None, 1, "90"]]),
        )
    )
    other = begin_answer(store, chat.id, question.id)
    store.finish_answer(replace(other, text="90 °C.", status="complete"))
    add_question(store, chat.id, begun.id, "Thank you.")
    add_question(store, chat.id, None, "Another beginning")
    store.set_leaf(chat.id, other.id)
    store.pin_chats([chat.id], True)
    store.move_chats([chat.id], folder.id)
    store.rename_chat(chat.id, "Green “tea” — renamed")
    return chat.id


def without_ids(record: ChatRecord) -> Any:
    """A record with places instead of ids, as messages get new ones."""
    places = {message.id: place for place, message in enumerate(record.messages)}
    content = msgspec.to_builtins(record)
    for message in content["messages"]:
        message["id"], message["parent"] = places[message["id"]], places.get(message.get("parent"))
    content["current"] = places.get(content.get("current"))
    return content


def export(store: ChatStore, chat_ids: list[str], name: str, path: Path) -> Path:
    Export(store.record, shared()).to_file(chat_ids, name, path)
    return path


def test_our_own_json_has_everything(tmp_path: Path) -> None:
    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        chat_id = rich_chat(store)
        path = export(store, [chat_id], "json", tmp_path / "chat.json")
        assert import_all(other, path).added == [chat_id]
        assert without_ids(other.record(chat_id)) == without_ids(store.record(chat_id))
        [folder] = other.folders()
        assert folder.name == "Tea & <more>"
        assert other.chat(chat_id).folder_id == folder.id
        assert [message.text for message in other.branch(chat_id)] == ["How hot?\n\n<b>&</b> 🍵", "90 °C."]
        assert other.branch(chat_id)[1].versions == 2


def test_nobody_elses_file_says_which_folders_may_be_read(tmp_path: Path) -> None:
    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        chat = store.create_chat("A", settings=ChatSettings(tools=[".read_file"], folders=["/secret"]).to_json())
        add_question(store, chat.id, None, "What is there?")
        path = export(store, [chat.id], "json", tmp_path / "chat.json")
        text = path.read_text(encoding="utf-8")
        assert "/secret" not in text and '"folders":[]' in text
        path.write_text(text.replace('"folders":[]', '"folders":["/"]'), encoding="utf-8")
        [added] = import_all(other, path).added
        assert chat_settings(other.chat(added).settings) == ChatSettings(tools=[".read_file"])
        assert chat_settings(store.chat(chat.id).settings).folders == ["/secret"]  # type: ignore[union-attr]


def test_a_chat_is_known_where_it_came_from_and_where_it_went(tmp_path: Path) -> None:
    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        chat_id = rich_chat(store)
        path = export(store, [chat_id], "json", tmp_path / "there.json")
        assert import_all(store, path).known == [chat_id]
        import_all(other, path)
        back = export(other, [chat_id], "json", tmp_path / "back.json")
        assert import_all(store, back).known == [chat_id]
        add_question(store, chat_id, store.branch(chat_id)[-1].id, "More")
        [added] = import_all(store, path).added  # it has become another one since
        assert added != chat_id
        assert import_all(store, path).known == [added]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
MESSAGES = st.builds(
    MessageRecord,
    id=st.just(""),
    parent=st.none(),
    role=st.sampled_from(["user", "assistant"]),
    text=TEXTS,
    created_at=st.floats(1e9, 2e9),
    thinking=TEXTS,
    model=TEXTS.map(str.strip),
    status=st.sampled_from(["complete", "stopped", "interrupted", "failed"]),
    finish_reason=st.none() | TEXTS,
    seed=st.none() | st.integers(0, 2**63 - 1),
    figures=st.dictionaries(
        TEXTS, st.integers(-(2**53), 2**53) | TEXTS | st.lists(st.booleans(), max_size=2), max_size=2
    ),
    tokens=st.lists(st.integers(0, 2**31 - 1), max_size=3),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(st.tuples(MESSAGES, st.integers(0, 99)), min_size=1, max_size=8), title=TEXTS)
def test_any_chat_survives_export_and_import(
    tmp_path: Path, messages: list[tuple[MessageRecord, int]], title: str
) -> None:
    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        chat = store.create_chat(title)
        ids: list[str | None] = [None]
        for record, above in messages:
            ids.append(new_id())
            store.add_message(
                StoredMessage(
                    id=str(ids[-1]),
                    chat_id=chat.id,
                    parent_id=ids[above % (len(ids) - 1)],
                    role=record.role,
                    text=record.text,
                    status=record.status,
                    created_at=record.created_at or 0.0,
                    thinking=record.thinking,
                    pair=record.model or None,
                    finish_reason=record.finish_reason,
                    seed=record.seed,
                    figures_json=to_json(record.figures),
                    tokens=record.tokens,
                )
            )
        path = tmp_path / "chat.json"
        path.write_text(f"[{slipstream.write(store.record(chat.id))}]", encoding="utf-8")
        [added] = other.add_records(ChatReading([path]).next().chats).added
        assert added == chat.id
        before, after = (without_ids(one.record(chat.id)) for one in (store, other))
        if not before.get("title"):
            after.pop("title", None)  # it got that of its first question
        assert after == before


def test_the_same_file_twice_adds_nothing(tmp_path: Path) -> None:
    with ChatStore(tmp_path / "chats.sqlite") as store:
        first = import_all(store, DATA, folder="Imported chats")
        assert len(first.added) == 12
        again = import_all(store, DATA, folder="Imported chats")
        assert (again.added, sorted(again.known)) == ([], sorted(first.added))
        [folder] = store.folders()
        assert folder.name == "Imported chats"
        assert {chat.folder_id for chat in store.chats()} == {folder.id}


def test_a_chat_that_says_more_now_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    chat = {"id": "x", "messages": [{"role": "user", "content": "Hello"}]}
    with ChatStore(MEMORY) as store:
        path.write_text(json.dumps([chat]))
        import_all(store, path)
        chat["messages"].append({"role": "assistant", "content": "Hi"})  # type: ignore[attr-defined]
        path.write_text(json.dumps([chat]))
        assert len(import_all(store, path).added) == 1
        assert len(store.chats()) == 2


def test_a_chat_in_the_trash_comes_back() -> None:
    with ChatStore(MEMORY) as store:
        added = import_all(store, DATA / "chatgpt.json").added
        store.delete_chats(added)
        assert import_all(store, DATA / "chatgpt.json").restored == added
        assert [chat.id for chat in store.chats()] == added


def test_what_is_stored(tmp_path: Path) -> None:
    with ChatStore(tmp_path / "chats.sqlite") as store:
        [chat_id] = import_all(store, DATA / "chatgpt.json", folder="Imported from ChatGPT").added
        chat = store.chat(chat_id)
        assert (chat.title, chat.created_at, chat.updated_at) == ("Green tea", 1760000000.5, 1760000005.25)
        question, answer, thanks = store.branch(chat_id)
        assert (answer.text, answer.thinking, answer.pair) == ("80 °C.", "Green tea gets bitter above that.", "tea-2b")
        assert (answer.version, answer.versions) == (2, 2)
        assert [one.text for one in store.select_version(answer.id, -1)] == [question.text, "90 °C."]
        assert (thanks.status, thanks.created_at) == ("complete", 1760000004.0)
        while store.update_index():
            pass
        for words in ("bitter above", "water hot", "green tea"):
            assert [one.chat.id for one in store.search(words)] == [chat_id]


def test_canceling_keeps_what_was_added(tmp_path: Path) -> None:
    chats = [{"id": str(place), "messages": [{"role": "user", "content": "x" * 5000}]} for place in range(600)]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(chats))
    with ChatStore(MEMORY) as store:
        reading = Import([path], is_canceled=lambda: bool(store.chats()))
        imported, _ = reading.run(store.add_records)
        assert not imported.is_complete
        assert 0 < len(imported.added) == len(store.chats()) < 600
        assert "stopped" in imported.sentence()
        assert import_all(store, path).is_complete
        assert len(store.chats()) == 600
    with pytest.raises(Canceled):
        Import([path], is_canceled=lambda: True).summary()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TooMuchMemory(), "needs too much memory"),
        (TookTooLong(), "takes too long"),
        (NotStarted("no room"), "couldn't be started: no room"),
        (Died(), "ended unexpectedly"),
    ],
)
def test_a_helper_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Helper, "ask", fail)
    with pytest.raises(KnownError, match=words):
        Import([DATA]).summary()


@pytest.mark.parametrize("name", ["json", "llama.cpp", "openai", "markdown"])
def test_other_exports_can_be_imported(tmp_path: Path, name: str) -> None:
    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        ids = import_all(store, DATA).added
        path = tmp_path
        if WRITE[name].joins:
            path = export(store, ids, name, tmp_path / f"chats{WRITE[name].suffix}")
        else:
            Export(store.record, shared()).to_folder(ids, name, tmp_path)
        imported = import_all(other, path)
        has_ids = name not in ("openai", "markdown")
        assert len(imported.added) == len(ids if has_ids else {tuple(said(store, one)) for one in ids})
        assert {tuple(said(other, one)) for one in imported.added} == {tuple(said(store, one)) for one in ids}
        if name == "llama.cpp":
            assert sum(len(other.record(one).messages) for one in imported.added) == 37


def said(store: ChatStore, chat_id: str) -> list[tuple[object, ...]]:
    """What the model would read."""
    return [
        (
            *(message.role, message.thinking, prompt_text(message.text, message.attachments)),
            *((one.name, one.arguments, one.state, one.result) for one in message.calls),
        )
        for message in store.branch(chat_id)
    ]
