"""Imports into a real store, by way of a real helper process; and that our own JSON has everything."""

from __future__ import annotations

import hashlib
import json
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.chats.attachments import Content, prompt_text
from app.chats.database import MEMORY
from app.chats.exporting import Export
from app.chats.formats import slipstream
from app.chats.formats.reading import ChatReading
from app.chats.formats.records import ChatRecord, MessageRecord
from app.chats.formats.writing import WRITE
from app.chats.importing import Import, Imported
from app.chats.model import StoredCall, StoredMessage, calls_to_json, to_json
from app.chats.settings import ChatSettings, chat_settings
from app.chats.store import ChatStore, new_id
from app.helper import Died, Helper, NotStarted, TookTooLong, TooMuchMemory, shared
from app.protocol.answering import SamplingChoice
from app.system import Canceled, KnownError
from tests.chats.formats.test_formats import DATA
from tests.chats.formats.test_tool_calls import DATA as TOOL_CALLS
from tests.support.chats import add_question, begin_answer


def import_all(store: ChatStore, *paths: Path, folder: str = "") -> Imported:
    imported, _ = Import(paths).run(lambda chats: store.add_records(chats, folder))
    return imported


CHART = b"\x89PNG of a result"
CALLS = [
    StoredCall(
        id="c1",
        name="tea__look_up",
        arguments='{ "tea":"sencha",\n "n": [1, 2.50]}',
        server="Tea",
        tool="look_up",
        text=3,
        thinking=7,
        tokens=1,
        state="done",
        result="``` 80 °C\n\0",
        images=(hashlib.sha256(CHART).hexdigest(),),
        seconds=0.25,
    ),
    StoredCall(id="c2", name="current_time", text=3, thinking=18, tokens=1, state="denied", result="Not now."),
    StoredCall(id="c3", name="calculate", arguments='{"e":"1/0"}', text=6, thinking=18, tokens=3, state="failed"),
]


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
            calls_json=calls_to_json(CALLS),
            attachments=(store.keep(Content("image", "chart.png", CHART, "image/png", 2, 2)),),
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


def test_calls_come_back_exactly(tmp_path: Path) -> None:
    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        chat_id = rich_chat(store)
        import_all(other, export(store, [chat_id], "json", tmp_path / "chat.json"))
        for one in (store, other):
            [answer] = [message for message in one.record(chat_id).messages if message.calls]
            assert answer.calls == CALLS
            assert [image.data for image in answer.attachments] == [CHART]


def hostile(*calls: object, role: str = "assistant", text: str = "Tea") -> dict[str, Any]:
    message = {"id": "a", "parent": None, "role": role, "text": text, "calls": calls}
    return {"slipstream_chat": 1, "id": "x", "messages": [message]}


def test_imported_calls_never_wait_and_lie_in_the_text(tmp_path: Path) -> None:
    known = {"id": "a", "name": "f"}
    path = tmp_path / "chats.json"
    chats = [
        hostile({**known, "state": "asked"}, {**known, "state": "running", "text": 99, "thinking": -5, "tokens": -1}),
        hostile({**known, "name": " a\n" * 999, "arguments": "rm -rf", "seconds": -1.5}, {**known, "text": -3}),
        hostile({**known, "state": "done", "result": "x" * 1_500_000, "images": ["0" * 64, "../../etc/passwd"]}),
        hostile({**known, "arguments": "", "result": "unasked"}, {**known, "arguments": "[" * 5000}),
        hostile(*({**known, "id": str(at), "tokens": 5000 - at} for at in range(5000))),
        hostile(known, role="user"),
    ]
    path.write_text(json.dumps(chats))
    with ChatStore(MEMORY) as store:
        added = import_all(store, path).added
        found = [store.branch(one)[0].calls for one in added]
        assert [len(calls) for calls in found] == [2, 2, 1, 2, 1000, 0]
        for calls in found:
            assert len({one.id for one in calls}) == len(calls)
            assert all(isinstance(json.loads(one.arguments), dict) and one.has_ended for one in calls)
            assert list(calls) == sorted(calls, key=lambda one: (one.text, one.tokens))
            assert all(0 <= one.text <= 3 and one.thinking == 0 and one.tokens >= 0 <= one.seconds for one in calls)
            assert all(one.images == () and len(one.result) <= 1_000_000 and len(one.name) <= 200 for one in calls)


@pytest.mark.parametrize(
    "calls",
    [
        7,
        [7],
        [{"id": "a"}],
        [{"id": 1, "name": "f"}],
        [{"id": "a", "name": "f", "state": "allowed"}],
        [{"id": "a", "name": "f", "text": 10**30}],
        [{"id": "a", "name": "f", "result": {"x": 1}}],
    ],
)
def test_a_message_with_impossible_calls_is_damaged(tmp_path: Path, calls: object) -> None:
    chat = hostile()
    chat["messages"].append({"id": "b", "parent": "a", "role": "assistant", "text": "", "calls": calls})
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(chat))
    batch = ChatReading([path]).next()
    assert ([len(one.messages) for one in batch.chats], batch.left_out) == ([1], {"damaged": 1})


def test_long_results_are_cut_before_a_chat_is_left_out(tmp_path: Path) -> None:
    results = ({"id": str(at), "name": "f", "state": "done", "result": "x" * 500_000} for at in range(30))
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(hostile(*results)))
    [chat] = ChatReading([path]).next().chats
    assert {one.result for one in chat.messages[0].calls} == {"x" * 9_999 + "…"}


def test_chats_with_too_much_in_their_calls_are_left_out(tmp_path: Path) -> None:
    many = ({"id": str(at), "name": "f", "arguments": "x" * 13_000} for at in range(1000))
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([hostile(*many), hostile({"id": "a", "name": "f", "result": "x" * 100_000_000})]))
    batch = ChatReading([path]).next()
    assert (batch.chats, batch.left_out) == ([], {"too_large": 2})


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
ARGUMENTS = st.dictionaries(TEXTS, TEXTS | st.integers() | st.none(), max_size=2).map(to_json)
CALL = st.builds(
    StoredCall,
    id=st.uuids().map(str),
    name=st.text(string.ascii_letters, min_size=1, max_size=9),
    arguments=ARGUMENTS,
    server=TEXTS,
    tool=TEXTS,
    state=st.sampled_from(["done", "failed", "denied", "stopped"]),
    result=TEXTS,
    seconds=st.floats(0, 1e6),
)


@st.composite
def answers_with_calls(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> MessageRecord:
    """Calls in an order that is possible."""
    text, thinking = draw(texts), draw(texts)
    calls = draw(st.lists(CALL, max_size=4))
    places = [sorted(draw(st.lists(st.integers(0, len(one)), min_size=4, max_size=4))) for one in (text, thinking)]
    turns = sorted(draw(st.lists(st.integers(1, 3), min_size=4, max_size=4)))
    placed = [
        msgspec.structs.replace(one, text=places[0][at], thinking=places[1][at], tokens=turns[at])
        for at, one in enumerate(calls)
    ]
    return MessageRecord("", None, "assistant", text, 1e9, thinking, calls=placed)


MESSAGES = answers_with_calls(TEXTS) | st.builds(
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
                    calls_json=calls_to_json(record.calls),
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


@pytest.mark.parametrize("name", ["json", "llama.cpp", "openai", "markdown"])
def test_calls_go_through_other_formats(tmp_path: Path, name: str) -> None:
    """Spaces at the edges of texts may change, and what is no form of another app: the reason why a call failed."""

    def told(store: ChatStore) -> list[list[tuple[object, ...]]]:
        chats = [
            [message for message in store.branch(chat.id) if message.text or message.calls] for chat in store.chats()
        ]
        found: list[list[tuple[object, ...]]] = [
            [
                (
                    *(one.role, one.text.split(), one.thinking.split()),
                    *((call.name, call.arguments, call.result) for call in one.calls),
                    *(len(one.attachments) for _ in range(name != "markdown")),
                )
                for one in branch
            ]
            for branch in chats
        ]
        return sorted(found, key=repr)

    with ChatStore(MEMORY) as store, ChatStore(MEMORY) as other:
        ids = import_all(store, TOOL_CALLS).added
        assert len(ids) == 9
        if WRITE[name].joins:
            path = export(store, ids, name, tmp_path / f"chats{WRITE[name].suffix}")
        else:
            path = tmp_path
            Export(store.record, shared()).to_folder(ids, name, tmp_path)
        import_all(other, path)
        assert told(other) == told(store)


def said(store: ChatStore, chat_id: str) -> list[tuple[object, ...]]:
    """What the model would read."""
    return [
        (
            *(message.role, message.thinking, prompt_text(message.text, message.attachments)),
            *((one.name, one.arguments, one.state, one.result) for one in message.calls),
        )
        for message in store.branch(chat_id)
    ]
