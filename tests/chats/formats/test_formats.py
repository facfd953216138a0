"""Chats of other apps, read from small files in their shapes (`tests/data/imports`)."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from app.chats.formats.reading import ChatReading
from app.chats.formats.records import Batch, ChatRecord
from app.chats.formats.values import without_thinking

DATA = Path(__file__).parent.parent.parent / "data" / "imports"
QUESTION, THOUGHT = "How hot should the water be?", "Green tea gets bitter above that."
TALK = [("user", "", QUESTION), ("assistant", THOUGHT, "80 °C."), ("user", "", "Thank you.")]
"""What every one shows, with these versions of the answer in most, by these models."""
VERSIONS, MODELS = ["90 °C.", "80 °C."], ["", "tea-1b", "tea-2b", ""]
AT = 1760000000.0
"""When the chat about green tea was begun, where a format has dates."""


def read(*paths: Path) -> Batch:
    """All of it, in one batch."""
    batch = ChatReading(list(paths)).next()
    assert batch.is_over
    return batch


def shown(chat: ChatRecord) -> list[tuple[str, str, str]]:
    return [(message.role, message.thinking, message.text) for message in chat.branch()]


def calls(chat: ChatRecord) -> list[tuple[str, str, str, str]]:
    """Of all answers of the shown branch."""
    return [(one.name, one.arguments, one.state, one.result) for message in chat.branch() for one in message.calls]


def attached(chat: ChatRecord) -> list[tuple[str, str]]:
    """To the first question."""
    return [(one.name, one.text) for one in chat.messages[0].attachments]


def versions(chat: ChatRecord) -> list[str]:
    """The texts of all answers to the first question."""
    return [message.text for message in chat.messages if message.parent == chat.messages[0].id]


def assert_sound(chat: ChatRecord) -> None:
    """Each message comes after its parent, and what is shown is there."""
    seen: set[str | None] = {None}
    for message in chat.messages:
        assert message.parent in seen
        assert message.id not in seen
        seen.add(message.id)
    assert chat.current in seen


def test_llama_cpp() -> None:
    batch = read(DATA / "llama-cpp.jsonl")
    [chat] = batch.chats
    assert_sound(chat)
    assert (chat.source, chat.id, chat.title) == ("llama_cpp", "conv-1", "Green tea")
    assert (chat.created_at, chat.updated_at, chat.pinned_at) == (AT + 1, AT + 500, AT + 500)
    assert chat.settings == {"system_prompt": "Be brief."}
    assert attached(chat) == [("teas.txt", "Sencha\nGyokuro\n")]
    assert shown(chat) == TALK
    assert (versions(chat), [message.model for message in chat.messages]) == (VERSIONS, MODELS)
    assert calls(chat) == [("look_up", "{}", "done", "80")]
    assert batch.left_out == {"images": 1, "empty": 1}


def test_lm_studio() -> None:
    batch = read(DATA / "green.conversation.json")
    [chat] = batch.chats
    assert_sound(chat)
    assert (chat.source, chat.title) == ("lm_studio", "Green tea")
    assert (chat.created_at, chat.updated_at) == (AT, AT + 4)
    assert chat.settings == {"system_prompt": "Be brief."}
    assert shown(chat) == TALK
    assert (versions(chat), [message.model for message in chat.messages]) == (VERSIONS, MODELS)
    assert batch.left_out == {"images": 1}


def test_chatgpt() -> None:
    batch = read(DATA / "chatgpt.json")
    [chat] = batch.chats
    assert_sound(chat)
    assert (chat.source, chat.id, chat.title) == ("chatgpt", "gpt-1", "Green tea")
    assert (chat.created_at, chat.updated_at) == (AT + 0.5, AT + 5.25)
    assert shown(chat) == TALK
    assert (versions(chat), [message.model for message in chat.messages]) == (VERSIONS, MODELS)
    assert [message.created_at for message in chat.messages] == [AT + 1, AT + 2, AT + 3, AT + 4]
    assert calls(chat) == [("python", '{"input": "look_up()"}', "stopped", "")]
    assert batch.left_out == {"images": 1, "files": 1, "references": 1}


def test_claude() -> None:
    batch = read(DATA / "claude.json")
    chat, branched = batch.chats
    assert_sound(chat)
    assert (chat.source, chat.id, chat.title) == ("claude", "cl-1", "Green tea")
    assert (chat.created_at, chat.updated_at) == (AT, AT + 5)
    assert attached(chat) == [("teas.txt", "Sencha\nGyokuro\n")]
    assert shown(chat) == TALK
    assert_sound(branched)
    assert versions(branched) == ["No.", "Yes."]
    assert shown(branched)[-1] == ("assistant", "", "Yes.")
    assert calls(chat) == [("look_up", "{}", "done", "")]
    assert batch.left_out == {"images": 1}


def test_open_webui() -> None:
    batch = read(DATA / "open-webui.json")
    [chat] = batch.chats
    assert_sound(chat)
    assert (chat.source, chat.id, chat.title) == ("open_webui", "ow-1", "Green tea")
    assert (chat.created_at, chat.updated_at, chat.pinned_at) == (AT, AT + 5, AT + 5)
    assert chat.settings == {"system_prompt": "Be brief."}
    thought = f"{THOUGHT}\nIs 85 < 90?"
    assert shown(chat) == [("user", "", QUESTION), ("assistant", thought, "80 °C."), ("user", "", "Thank you.")]
    assert versions(chat) == VERSIONS
    assert batch.left_out == {"images": 1}


def test_jan(tmp_path: Path) -> None:
    for path in (DATA / "jan", archive_of(tmp_path, DATA / "jan")):
        batch = read(path)
        [chat] = batch.chats
        assert_sound(chat)
        assert (chat.source, chat.id, chat.title) == ("jan", "jan-1", "Green tea")
        assert (chat.created_at, chat.updated_at) == (AT, AT + 5)
        assert chat.settings == {"system_prompt": "Be brief."}
        assert shown(chat) == TALK
        assert [message.created_at for message in chat.messages] == [AT + 1, AT + 3, AT + 4]
        assert batch.left_out == {"images": 1}
        assert batch.other_files == 0


def test_sharegpt() -> None:
    batch = read(DATA / "sharegpt.json")
    chat, second = batch.chats
    assert (chat.source, chat.id, chat.settings) == ("sharegpt", "sg-1", {"system_prompt": "Be brief."})
    assert shown(chat) == TALK
    assert shown(second) == [("user", "", "Milk first?"), ("assistant", "", "No.")]
    assert calls(chat) == [("tool", "{}", "stopped", "")]
    assert batch.left_out == {}


def test_openai() -> None:
    batch = read(DATA / "openai.jsonl")
    chat, second = batch.chats
    assert (chat.source, chat.settings) == ("openai", {"system_prompt": "Be brief."})
    assert shown(chat) == TALK
    assert shown(second) == [("user", "", "Milk first?"), ("assistant", "", "No.")]
    assert (calls(chat), calls(second)) == ([("tool", "{}", "done", "80")], [("look_up", "{}", "stopped", "")])
    assert batch.left_out == {"images": 1}


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    for path in sorted(one for one in DATA.iterdir() if one.suffix in (".json", ".jsonl")):
        renamed = tmp_path / "something.pdf"
        shutil.copyfile(path, renamed)
        assert read(renamed).chats == read(path).chats != []


def test_all_files_of_a_folder_and_of_an_archive(tmp_path: Path) -> None:
    in_folder, in_archive = read(DATA), read(archive_of(tmp_path, DATA))
    for batch in (in_folder, in_archive):
        assert len(batch.chats) == 12
        assert {chat.source for chat in batch.chats} == {
            *("llama_cpp", "lm_studio", "chatgpt", "claude", "open_webui", "jan", "sharegpt", "openai")
        }
        assert batch.other_files == 1  # what they are, for people
    assert in_folder.left_out == in_archive.left_out


def archive_of(target: Path, folder: Path) -> Path:
    """A zip file with everything in the folder."""
    path = target / f"{folder.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted(folder.rglob("*")):
            archive.write(one, one.relative_to(folder.parent))
    return path


def test_a_mark_that_is_quoted_in_thinking_does_not_end_it() -> None:
    thought = "It stays in `</think>`.\n\n```\n<think>\n</think>\n```\nSo."
    assert without_thinking(f"<think>\n{thought}\n</think>\n\nYes: `</think>`.") == (thought, "Yes: `</think>`.")
    assert without_thinking("<think>Open `code.</think>Yes.") == ("Open `code.", "Yes.")
    assert without_thinking("<think>Only `</think>` so far") == ("", "<think>Only `</think>` so far")
