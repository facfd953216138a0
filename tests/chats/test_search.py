"""Finding chats by words, with and without the index."""

from __future__ import annotations

import shutil
import sqlite3
import string
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chats import search as searching
from app.chats.database import MEMORY, back_up, backup_folder
from app.chats.model import Found, StoredCall, StoredMessage, calls_to_json
from app.chats.store import ChatStore
from app.chats.tree import SEARCHED, SHOWN_TEXT
from tests.support.chats import add_question, begin_answer
from tests.support.matrix import in_proof

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite"


@pytest.fixture(params=["indexed", "not yet indexed", *in_proof(["in memory"])])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[ChatStore]:
    ticks = count(1_790_000_000)
    with ChatStore(MEMORY if request.param == "in memory" else path, clock=lambda: float(next(ticks))) as store:
        if request.param == "indexed":
            find = store.search

            def when_indexed(text: str, limit: int = 200) -> list[Found]:
                index(store)
                return find(text, limit)

            store.search = when_indexed  # type: ignore[method-assign]
        yield store


def index(store: ChatStore) -> None:
    while store.update_index():
        pass


def index_file(path: Path) -> Path:
    return path.with_name(path.name + ".search")


def chat_of(store: ChatStore, *texts: str, title: str = "") -> str:
    chat, parent = store.create_chat(title), None
    for text in texts:
        parent = add_question(store, chat.id, parent, text).id
    return chat.id


def finish(store: ChatStore, answer: StoredMessage, text: str) -> None:
    store.finish_answer(replace(answer, text=text, status="complete"))


def ids(found: list[Found]) -> list[str]:
    return [one.chat.id for one in found]


def marked(found: Found) -> list[list[str]]:
    return [[one.text[start : start + length] for start, length in one.matches] for one in found.snippets]


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("Viele GRÜSSE aus der Straße", "grüße STRASSE"),
        ("IŞIK ve ISPARTA", "ışık ısparta"),
        ("İstanbul'da", "istanbul"),
        ("Съешь ещё этих мягких булок", "ЕЩЁ БУЛОК"),
        ("我们昨天在图书馆见面", "图书馆"),
        ("我们昨天在图书馆见面", "昨天 见面"),
        ("東京タワーへ行きます", "タワー"),
        ("오늘은 날씨가 좋다", "날씨"),
        ("cafe\u0301 au lait", "café"),
        ("caf\u00e9 au lait", "cafe\u0301"),
        ("100% of a_b", "100% a_b"),
        ('"quoted" NOT (a OR b)* NEAR', '"quoted" (a b)* NOT'),
        ("-x:y^z {w} \\", "{w} \\ -x:y^z"),
        ("🙂 and 👩‍👩‍👧 too", "👩‍👩‍👧"),
        ("ab", "AB"),
    ],
)
def test_words_are_found_whatever_their_case_and_mean_nothing_else(store: ChatStore, text: str, search: str) -> None:
    chat_of(store, "Something else, 1000 axb", title="other")
    chat = chat_of(store, text, title="this")
    (found,) = store.search(search)
    assert found.chat == store.chat(chat)
    (one,) = found.snippets
    assert len(one.matches) >= 1
    assert store.message(one.message_id).chat_id == chat


def test_all_words_must_occur_somewhere_in_the_chat(store: ChatStore) -> None:
    both = chat_of(store, "The first message is about harbors.", "And this one about lighthouses.", title="Coast")
    chat_of(store, "Only harbors here.")
    assert ids(store.search("lighthouse harbor")) == [both]
    assert ids(store.search("lighthouse coast")) == [both]
    assert ids(store.search("harbor a")) == ids(store.search("harbor"))
    assert store.search("harbor nowhere") == []
    assert store.search("  ") == store.search("%") == []


def test_every_version_is_searched_and_a_snippet_names_its_message(store: ChatStore) -> None:
    chat = store.create_chat("c")
    asked = add_question(store, chat.id, None, "Tell me")
    hidden, shown = begin_answer(store, chat.id, asked.id), begin_answer(store, chat.id, asked.id)
    finish(store, hidden, "An unmistakable answer")
    finish(store, shown, "Another")
    (found,) = store.search("unmistakable")
    assert [one.message_id for one in found.snippets] == [hidden.id]
    assert [one.id for one in store.select_version(hidden.id, 0)] == [asked.id, hidden.id]


def test_snippets_are_one_line_and_at_most_three_a_chat(store: ChatStore) -> None:
    long = "word " * 60 + "here comes\n\n the  Needle, and a needle " + "word " * 60
    chat_of(store, long, "needle 2", "needle 3", "needle 4")
    (found,) = store.search("needle")
    assert len(found.snippets) == 3
    chat_of(store, long)
    found = store.search("needle")[0]
    (one,) = found.snippets
    assert one.text.startswith("…") and one.text.endswith("…") and "here comes the Needle, and a needle" in one.text
    assert "\n" not in one.text and len(one.text) < 200
    assert marked(found) == [["Needle", "needle"]]


def test_matches_are_told_in_the_text_that_is_shown() -> None:
    assert searching.matches("Straße, STRASSE", searching.words_of("strasse")) == ((0, 6), (8, 7))
    assert searching.matches("abab", ["ab", "ba"]) == ((0, 4),)
    assert searching.matches("ﬁne İıI", searching.words_of("fin iii")) == ((0, 2), (4, 3))


def test_words_of_thinking_and_answer_are_found_and_a_snippet_says_which(store: ChatStore) -> None:
    chat = store.create_chat()
    asked = add_question(store, chat.id, None, "Which?")
    answer = begin_answer(store, chat.id, asked.id)
    store.finish_answer(replace(answer, text="The blue one.", thinking="Red or blue? Perhaps.", status="complete"))

    def snippets(search: str) -> list[tuple[str, bool]]:
        return [(one.text, one.is_thinking) for found in store.search(search) for one in found.snippets]

    assert snippets("perhaps") == [("Red or blue? Perhaps.", True)]
    assert snippets("blue") == [("The blue one.", False)]
    assert snippets("ps") == [("Red or blue? Perhaps.", True)]
    assert snippets("perhaps one") == [("The blue one.", False), ("Red or blue? Perhaps.", True)]
    assert snippets("blue one") == [("The blue one.", False)]
    assert snippets("one.red") == []  # they are texts of their own
    store.delete_message(answer.id, following=False)
    assert snippets("perhaps") == []


def with_calls(store: ChatStore, *calls: StoredCall, text: str = "It is in the kitchen.") -> StoredMessage:
    asked = add_question(store, store.create_chat().id, None, "Where?")
    answer = begin_answer(store, asked.chat_id, asked.id)
    store.finish_answer(replace(answer, text=text, status="complete", calls_json=calls_to_json(calls)))
    return store.message(answer.id)


def test_tool_calls_are_found_by_their_names_arguments_and_results(store: ChatStore) -> None:
    arguments = '{"path": "C:\\\\Tea", "note": "say \\"h\\u00e9llo\\"\\nto 7 cups", "tags": ["green", {"deep": 7.5}]}'
    call = StoredCall(
        id="c", name="find_kettle", arguments=arguments, result='Two <b>"kettles"</b>\nfound', state="done"
    )
    answer = with_calls(store, call)

    def snippets(search: str) -> list[tuple[str, bool]]:
        return [(one.text, one.is_call) for found in store.search(search) for one in found.snippets]

    line = 'find_kettle path: C:\\Tea note: say "héllo" to 7 cups tags: green deep: 7.5 Two <b>"kettles"</b> found'
    for words in ("find_kettle", "C:\\Tea", '"HÉLLO" cups', "deep 7.5", '"kettles"', "to"):
        [(found, is_call)] = snippets(words)
        assert is_call and line.endswith(found.lstrip("…")) and len(found) > 50
    assert [is_call for _, is_call in snippets("kitchen kettles")] == [False, True]
    assert snippets("u00e9") == snippets("nto") == []
    store.delete_message(answer.id, following=False)
    assert snippets("kettles") == []


@given(st.text("aßİﬁıΣ\u0301é🍵 ", max_size=30))
def test_every_place_of_a_folded_text_has_one_in_the_text(text: str) -> None:
    text = searching._composed(text)
    folded, places = searching._with_places(text)
    found = [searching._unfolded(text, place, len(folded) - len(text)) for place in range(len(folded))]
    assert found == (list(range(len(text))) if places is None else places)


def test_long_results_are_indexed_in_steps(path: Path) -> None:
    """Nobody else gets a turn in the store during one."""
    with ChatStore(path) as store:
        long = StoredCall(id="c", name="fetch", result="kettle " * 20_000, state="done")
        answers = [with_calls(store, long) for _ in range(5)]
        steps = 1
        while store.update_index():
            steps += 1
        assert steps > len(answers)
        opened = store._upkeep.opened()
        assert opened is not None and len(opened.newest("kettle")) == len(answers)


@pytest.mark.parametrize("stored", ["{", "[7]", '[{"id": "a"}]', '"x"', "[" * 3000, '[{"id":"a","name":"\\ud800"}]'])
def test_damaged_tool_calls_cost_only_themselves(path: Path, stored: str) -> None:
    with ChatStore(path) as store:
        answer = with_calls(store, text="unmistakable")
        store._connection.execute("UPDATE messages SET calls = ? WHERE id = ?", (stored, answer.id))
        store._connection.execute("UPDATE messages SET calls = CAST(x'5bff' AS TEXT) WHERE role = 'user'")
        for _ in range(2):
            assert ids(store.search("unmistakable")) == [answer.chat_id]
            index(store)
        store.delete_chats([answer.chat_id])
        store.erase_deleted()
        assert store.search("unmistakable") == []


def test_the_index_from_before_tools_is_still_valid(path: Path) -> None:
    """Messages have to leave it with exactly the text with which they came, or their words stay in it."""
    shutil.copyfile(DATA / "chats-version-4.sqlite", path)
    with ChatStore(path) as store:
        query = f"SELECT {SEARCHED}, {SHOWN_TEXT} || iif(m.thinking = '', '', char(10) || m.thinking) FROM messages m"
        rows = store._connection.execute(query).fetchall()
    assert rows and all(now == before for now, before in rows)


def test_deleted_chats_and_messages_are_not_found(store: ChatStore) -> None:
    chat = chat_of(store, "the only one", "unmistakable")
    store.delete_chats([chat])
    assert store.search("unmistakable") == []
    store.restore_chats([chat])
    assert ids(store.search("unmistakable")) == [chat]
    leaf = store.chat(chat).leaf_id
    assert leaf is not None
    deletion = store.delete_message(leaf, following=False)
    assert store.search("unmistakable") == []
    store.undo_deletion(deletion)
    assert ids(store.search("unmistakable")) == [chat]


def test_an_answer_is_found_when_it_is_finished(store: ChatStore) -> None:
    chat = store.create_chat("c")
    answer = begin_answer(store, chat.id, add_question(store, chat.id, None, "?").id)
    store.update_answer(answer.id, "something unmistakable", [])
    assert store.search("unmistakable") == []
    finish(store, answer, "something unmistakable")
    assert ids(store.search("unmistakable")) == [chat.id]
    store.resume_answer(answer.id)
    finish(store, answer, "something else")
    assert store.search("unmistakable") == []
    assert ids(store.search("else")) == [chat.id]
    begin_answer(store, chat.id, answer.id)
    store.update_answer(store.branch(chat.id)[-1].id, "cut off", [])
    store.mark_interrupted()
    assert ids(store.search("cut")) == [chat.id]


def test_short_words_are_read_for_in_the_newest_messages_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatStore(path) as store:
        old, _ = chat_of(store, "图书 in the past", title="old"), chat_of(store, "x" * 2000)
        newest = chat_of(store, "图书 of late", title="newest")
        assert ids(store.search("图书")) == [newest, old]
        monkeypatch.setattr(searching, "MOST_READ", 1500)
        assert ids(store.search("图书")) == [newest]
        store.rename_chat(old, "我的图书")
        assert ids(store.search("图书")) == [newest, old]


@pytest.mark.parametrize("loss", ["missing", "no database", "of other chats", "damaged"])
def test_an_index_that_is_lost_is_made_anew(path: Path, tmp_path: Path, loss: str) -> None:
    with ChatStore(path) as store:
        chats = [chat_of(store, f"unmistakable {string.ascii_letters}") for _ in range(60)]
        index(store)
    file = index_file(path)
    assert not file.with_name(file.name + "-wal").exists()
    if loss == "missing":
        file.unlink()
    elif loss == "no database":
        file.write_bytes(b"no database" * 1000)
    elif loss == "damaged":
        data = file.read_bytes()
        file.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    else:
        other = tmp_path / "other" / "chats.sqlite"
        with ChatStore(other) as store:
            index(store)
        file.write_bytes(index_file(other).read_bytes())
    with ChatStore(path) as store:
        assert store.notice is None
        assert sorted(ids(store.search("unmistakable"))) == sorted(chats)
        index(store)
        assert sorted(ids(store.search("unmistakable"))) == sorted(chats)
        opened = store._upkeep.opened()
        assert opened is not None and len(opened.newest("unmistakable")) == 60


def test_an_index_that_cannot_be_written_costs_nothing_but_time(path: Path) -> None:
    index_file(path).mkdir(parents=True)
    with ChatStore(path) as store:
        chat = chat_of(store, "unmistakable")
        index(store)
        assert ids(store.search("unmistakable")) == [chat]
        store.delete_chats([chat])
        store.erase_deleted()
        assert store.chats() == []


def test_no_backup_has_the_index(path: Path, tmp_path: Path) -> None:
    with ChatStore(path) as store:
        chat_of(store, "unmistakable")
        index(store)
        back_up(store._connection, tmp_path / "copy.sqlite")
    copies = [tmp_path / "copy.sqlite", *backup_folder(path).iterdir()]
    assert len(copies) == 2
    for copy in copies:
        with sqlite3.connect(copy) as connection:
            assert connection.execute("SELECT count(*) FROM search_index").fetchone() == (0,)
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        connection.close()
        assert "texts" not in names and "owners" not in names


def test_what_was_erased_is_not_in_the_index_either(path: Path) -> None:
    with ChatStore(path) as store:
        chats = [chat_of(store, f"kept {number} " * 50) for number in range(20)]
        erased = chat_of(store, *[f"xqzxq unmistakable {number}" for number in range(50)])
        index(store)
        opened = store._upkeep.opened()
        assert opened is not None and len(opened.newest("xqzxq")) == 50
        store.delete_chats([erased])
        store.erase_deleted()
        index(store)
        assert opened.newest("xqzxq") == []
        files = [file for file in path.parent.glob("chats.sqlite*") if file.is_file()]
        assert len(files) >= 3
        data = b"".join(file.read_bytes() for file in files)
        assert data.count(b"kept") > 0
        # The index has terms of three letters, and of a term what differs from the one before it.
        assert data.count(b"unmistakable") == data.count(b"xqz") == data.count(b"zxq") == 0
        (terms,) = opened._connection.execute("SELECT count(*) FROM owners").fetchone()
        assert terms == len(chats)


def test_deleted_messages_leave_the_index_with_the_next_chat_that_is_erased(path: Path) -> None:
    with ChatStore(path) as store:
        chat_of(store, *[f"kept {number} " * 50 for number in range(20)])
        erased = chat_of(store, "xqzxq unmistakable")
        index(store)
        store.delete_message(store.branch(erased)[0].id, following=True)
        store.delete_chats([erased])
        store.erase_deleted()
        index(store)
        assert index_file(path).read_bytes().count(b"xqz") == 0


def test_killed_while_a_message_is_removed_the_index_is_made_anew(path: Path) -> None:
    with ChatStore(path) as store:
        chat = chat_of(store, "first", "unmistakable")
        index(store)
        opened = store._upkeep.opened()
        assert opened is not None
        opened.begin_removing()
    with ChatStore(path) as store:
        store._connection.execute("UPDATE chats SET leaf_id = NULL")
        store._connection.execute("DELETE FROM messages WHERE text = 'unmistakable'")
        index(store)
        opened = store._upkeep.opened()
        assert opened is not None and opened.newest("unmistakable") == []
        assert ids(store.search("first")) == [chat]
