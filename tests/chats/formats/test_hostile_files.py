"""Files that are damaged, or made to do harm: each costs at most itself."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.chats.formats import reading as sources
from app.chats.formats.json_stream import MOST_CHARACTERS
from app.chats.formats.reading import ChatReading
from app.chats.formats.records import Batch, MessageRecord, Node, arranged
from tests.chats.formats.test_formats import DATA, assert_sound, read, shown
from tests.chats.formats.test_tool_calls import DATA as TOOL_CALLS

GOOD: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return path


def read_all(path: Path) -> tuple[int, dict[str, int]]:
    """How many chats there are in all batches, and what was left out."""
    reading, chats = ChatReading([path]), 0
    left_out: dict[str, int] = {}
    while True:
        batch: Batch = reading.next()
        chats += len(batch.chats)
        for reason, count in batch.left_out.items():
            left_out[reason] = left_out.get(reason, 0) + count
        if batch.is_over:
            return chats, left_out


@pytest.mark.parametrize(
    ("content", "chats", "left_out"),
    [
        ("", 0, {}),
        ("[", 0, {"rest": 1}),
        ("[]", 0, {}),
        ("{}", 0, {}),
        ("[1, 2, 3]", 0, {}),
        ('"text"', 0, {}),
        ("null", 0, {}),
        (json.dumps([GOOD, GOOD])[:-1], 2, {"rest": 1}),
        (json.dumps([GOOD, GOOD])[:-10], 1, {"rest": 1}),
        (json.dumps([GOOD, 7, None, "x", [], GOOD]), 2, {"damaged": 4}),
        (json.dumps([GOOD, {"messages": 7}, GOOD]), 2, {"damaged": 1}),
        (f"{json.dumps(GOOD)}\nnot JSON\n{json.dumps(GOOD)}\n", 2, {"damaged": 1}),
        (f"{json.dumps(GOOD)}\n{json.dumps(GOOD)[:-9]}", 1, {"rest": 1}),
        (f"[{json.dumps(GOOD)}, {'[' * 100_000}", 1, {"too_deep": 1}),
        (f"[{json.dumps(GOOD)} garbage {json.dumps(GOOD)}]", 1, {"rest": 1}),
        ("\ufeff" + json.dumps([GOOD]), 1, {}),
        (json.dumps([GOOD]).encode("utf-16"), 1, {}),
        ('[{"messages": [{"role": "user", "content": "caf\xe9"}]}]'.encode("latin-1"), 1, {"encoding": 1}),
    ],
)
def test_damaged_files(tmp_path: Path, content: str | bytes, chats: int, left_out: dict[str, int]) -> None:
    batch = read(written(tmp_path / "file", content))
    assert len(batch.chats) == chats
    assert batch.left_out == left_out
    assert batch.other_files == (0 if chats else 1)


def test_a_record_that_is_cut_off_by_the_end_of_what_was_read(tmp_path: Path) -> None:
    texts = ["x" * size for size in (1, 300_000, 900_000, 3_000_000, 5)]
    chats = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    for content in (json.dumps(chats), "\n".join(map(json.dumps, chats)), json.dumps(chats, indent=1)):
        path = written(tmp_path / "file", content)
        reading, found = ChatReading([path]), []
        while True:
            batch = reading.next()
            found += [chat.messages[0].text for chat in batch.chats]
            assert batch.left_out == {}
            if batch.is_over:
                break
        assert [len(text) for text in found] == [len(text) for text in texts]
        assert batch.read == batch.total == path.stat().st_size


def test_characters_of_several_bytes_at_the_end_of_what_was_read(tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": "🍵é" * (100_000 + place)}]} for place in range(4)]
    assert read_all(written(tmp_path / "file", json.dumps(chats, ensure_ascii=False))) == (4, {})


def test_a_huge_record_is_left_out(tmp_path: Path) -> None:
    huge = json.dumps({"messages": [{"role": "user", "content": "x" * (MOST_CHARACTERS + 10)}]})
    path = written(tmp_path / "file", f"{json.dumps(GOOD)}\n{huge}\n{json.dumps(GOOD)}")
    chats, left_out = read_all(path)
    assert chats >= 1
    assert left_out.get("too_large") == 1


def test_what_is_no_json_number(tmp_path: Path) -> None:
    content = f'[{{"messages": [{{"role": "user", "content": "a"}}], "created": {"9" * 5000}}}, ' + (
        '{"messages": [{"role": "user", "content": "b"}], "created": NaN}, '
        '{"messages": [{"role": "user", "content": "c"}], "created": 1e999, "created_at": -Infinity}]'
    )
    batch = read(written(tmp_path / "file", content))
    assert [chat.created_at for chat in batch.chats] == [None, None, None]
    assert [chat.messages[0].text for chat in batch.chats] == ["a", "b", "c"]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def spoiled(value: Any, draw: Any) -> Any:
    """``value`` with anything in some places."""
    if draw(st.integers(0, 7)) == 0:
        return draw(JUNK)
    if isinstance(value, dict):
        return {key: spoiled(one, draw) for key, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one, draw) for one in value]
    return value


FILES = [one for one in (*DATA.iterdir(), *TOOL_CALLS.rglob("*")) if one.suffix in (".json", ".jsonl")]


@pytest.mark.parametrize("original", FILES, ids=lambda one: f"{one.parent.name}/{one.name}")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_wrong_types_anywhere(tmp_path: Path, original: Path, data: st.DataObject) -> None:
    content = original.read_text(encoding="utf-8")
    lines = content.splitlines() if original.suffix == ".jsonl" else [content]
    records = [json.loads(line) for line in lines]
    text = "\n".join(json.dumps(spoiled(record, data.draw)) for record in records)
    for chat in read(written(tmp_path / original.name, text)).chats:
        assert_sound(chat)
        for message in chat.messages:
            assert all(one.has_ended and isinstance(json.loads(one.arguments), dict) for one in message.calls)
            assert all(0 <= one.text <= len(message.text) for one in message.calls)


@settings(max_examples=200, deadline=None)
@given(
    parents=st.lists(st.integers(-2, 12), max_size=12),
    kept=st.lists(st.booleans(), min_size=12, max_size=12),
    current=st.integers(-1, 13),
)
def test_any_tree_is_put_in_order(parents: list[int], kept: list[bool], current: int) -> None:
    message = MessageRecord("", None, "user", "x")
    nodes = {
        str(place): Node(None if parent < 0 else str(parent), message if kept[place] else None)
        for place, parent in enumerate(parents)
    }
    messages, leaf = arranged(nodes, str(current))
    assert {one.id for one in messages} == {name for name, node in nodes.items() if node.message is not None}
    seen: set[str | None] = {None}
    for one in messages:
        assert one.parent in seen
        seen.add(one.id)
    assert leaf in seen
    assert (leaf is None) == (not messages)


def test_a_long_chat_is_not_too_deep() -> None:
    message = MessageRecord("", None, "user", "x")
    nodes = {str(place): Node(str(place - 1), message if place % 2 else None) for place in range(20_000)}
    messages, leaf = arranged(dict(reversed(nodes.items())), "19999")
    assert [one.id for one in messages] == [str(place) for place in range(1, 20_000, 2)]
    assert leaf == "19999"


# ---------------------------------------------------------------- archives


def archive(path: Path, *entries: tuple[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries:
            file.writestr(name, content)
    return path


def test_unsafe_names_in_an_archive(tmp_path: Path) -> None:
    good = json.dumps([GOOD])
    names = ["../up.json", "/etc/x.json", "a/../../b.json", "C:\\x.json", "..\\x.json", "fine/x.json"]
    batch = read(archive(tmp_path / "a.zip", *((name, good) for name in names)))
    assert len(batch.chats) == 1
    assert batch.left_out == {"unsafe_names": 5}
    assert [one.name for one in tmp_path.iterdir()] == ["a.zip"]  # nothing was unpacked
    assert not (tmp_path.parent / "up.json").exists()


def test_a_zip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = b"[" + b" " * (sources._SMALL_BYTES + 40_000_000)
    path = archive(tmp_path / "bomb.zip", ("good.json", json.dumps([GOOD])), ("bomb.json", spaces))
    assert path.stat().st_size < 200_000
    assert read_all(path) == (1, {"too_much": 1})


def test_an_archive_that_is_large_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 3_000_000)
    large = json.dumps([{"messages": [{"role": "user", "content": os.urandom(500_000).hex()}]}])
    path = archive(tmp_path / "a.zip", *((f"{place}.json", large) for place in range(9)))
    chats, left_out = read_all(path)
    assert 0 < chats < 9
    assert left_out == {"too_much": 1}


def test_broken_archives(tmp_path: Path) -> None:
    noise = os.urandom(300_000).hex()
    whole = archive(
        tmp_path / "a.zip", ("x.json", json.dumps([GOOD, {"messages": [{"role": "user", "content": noise}]}]))
    )
    data = whole.read_bytes()
    assert read(written(tmp_path / "cut.zip", data[: len(data) // 2])).left_out == {"unreadable": 1}
    turned = data[:100_000] + bytes(byte ^ 0xFF for byte in data[100_000:101_000]) + data[101_000:]
    assert read(written(tmp_path / "turned.zip", turned)).left_out == {"unreadable": 1}
    assert read(written(tmp_path / "start.zip", b"PK\x03\x04")).left_out == {"unreadable": 1}


def test_encrypted_files_and_other_ways_of_packing(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(zipfile.ZipInfo("lzma.json"), json.dumps([GOOD]), zipfile.ZIP_LZMA)
        file.writestr("locked.json", json.dumps([GOOD]))
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02")
    data[place + 8] |= 1  # encrypted, says the list of files
    assert read(written(path, bytes(data))).left_out == {"unreadable": 1, "encrypted": 1}


def test_an_archive_in_an_archive_is_not_opened(tmp_path: Path) -> None:
    inner = archive(tmp_path / "inner.zip", ("x.json", json.dumps([GOOD])))
    batch = read(archive(tmp_path / "outer.zip", ("inner.zip", inner.read_bytes())))
    assert batch.chats == []
    assert batch.other_files == 1


# ---------------------------------------------------------------- folders


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    outside = written(tmp_path / "outside.json", json.dumps([GOOD]))
    folder = tmp_path / "folder"
    folder.mkdir()
    written(folder / "inside.json", json.dumps([GOOD]))
    (folder / "link.json").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    batch = read(folder)
    assert len(batch.chats) == 1
    assert shown(batch.chats[0]) == [("user", "", "Hello")]


def test_only_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ChatReading([tmp_path / "missing.json"])
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError):
            ChatReading([tmp_path / "pipe"])
