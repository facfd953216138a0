"""Our Markdown: each message ends before the next one begins, and an import brings back what was exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from app.chats.formats import markdown
from app.chats.formats.reading import ChatReading
from app.chats.formats.records import AttachmentRecord, Batch, ChatRecord, MessageRecord, StoredCall
from tests.chats.test_importing import answers_with_calls


def chat_of(*messages: MessageRecord, title: str = "Tea") -> ChatRecord:
    """These messages in a row."""
    chained = [
        MessageRecord(**{**{name: getattr(one, name) for name in one.__struct_fields__}, "id": str(at),
                         "parent": str(at - 1) if at else None})
        for at, one in enumerate(messages)
    ]  # fmt: skip
    return ChatRecord(title=title, created_at=1.76e9, messages=chained, current=str(len(chained) - 1))


def said(role: str, text: str, **more: object) -> MessageRecord:
    return MessageRecord("", None, role, text, **more)  # type: ignore[arg-type]


def read_back(folder: Path, chat: ChatRecord) -> tuple[ChatRecord, Batch]:
    path = folder / "anything"
    path.write_bytes(markdown.write(chat).encode("utf-8", "replace"))
    batch = ChatReading([path]).next()
    [found] = batch.chats
    return found, batch


def seen(chat: ChatRecord) -> list[tuple[object, ...]]:
    return [
        (
            *(one.role, one.text, one.thinking, one.model, one.status),
            [(file.name, file.text) for file in one.attachments],
            [(call.name, call.arguments, call.result.rstrip(), call.state, call.text) for call in one.calls],
        )
        for one in chat.branch()
    ]


OPEN = [
    "Here:\n\n```python\nprint(1)",
    "Here:\n~~~~\n```\nprint(1)\n~~~",
    "````\n```\nprint(1)\n```",
    "1. Run:\n\n   ```sh\n   ls",
    "- a\n  - b\n    ```\n    c",
    "> ```\n> quoted",
    "> - ```\n>   c",
    "<!-- to do",
    "<details>\n<summary>More</summary>\n\nText",
    "<b>bold",
    "<script>\nlet a = 1;",
    "<pre>\n\nx",
    "<?php\n\necho",
    "<![CDATA[\n\nx",
    "<!DOCTYPE\n\nx",
    "<div>\n\n```\n<b>",
    "- item",
    "> quote",
    "    code",
    "a\\",
    "[link](",
    "`code",
    "**bold",
    "| a |\n|---|\n| b",
    "text\n===",
    "$$\nx",
    "# Heading\n\n## You\n\n<!-- slipstream 12345678: user -->\n\n## You\n\nhello",
]  # fmt: skip


@pytest.mark.parametrize("text", OPEN)
def test_the_next_message_is_not_swallowed(tmp_path: Path, text: str) -> None:
    chat = chat_of(said("assistant", text, status="stopped"), said("user", "**thanks**"), said("assistant", text))
    page = MarkdownIt().render(markdown.write(chat))
    headings = page.split("<h2>Answer</h2>")
    assert len(headings) == 3
    rest = headings[1].split("<h2>You</h2>")[-1]
    assert rest.split("<!--")[0].strip() == "<p><strong>thanks</strong></p>"
    before = headings[1][: -len(rest)]
    for tag in ("details", "div", "b"):
        assert before.count(f"<{tag}>") == before.count(f"</{tag}>")
    assert seen(read_back(tmp_path, chat)[0]) == seen(chat)


def test_what_comes_back(tmp_path: Path) -> None:
    files = [
        AttachmentRecord(kind="text", name="a `b`.md", text="```\nx\n   ````\n"),
        AttachmentRecord(kind="text", name="empty", text=""),
        AttachmentRecord(kind="image", name="cup\n.png"),
    ]
    chat = chat_of(
        said("user", "> *Thinking*\n\nWell?", attachments=files),
        said("assistant", "`a`\n\n```\nx\n```", thinking="\n> Hm.\n\n<b>\n", model="tea 1b", status="failed"),
        said("assistant", "", thinking="Only this", status="stopped"),
        said("user", "", attachments=files[:1]),
        said("assistant", ""),
    )
    found, batch = read_back(tmp_path, chat)
    assert (found.source, found.title, found.created_at) == ("markdown", "Tea", 1.76e9 - 1.76e9 % 60)
    question, *others = seen(found)
    assert question[1] == "> *Thinking*\n\nWell?"
    assert question[5] == [("a 'b'.md", "```\nx\n   ````"), ("empty", "")]
    assert [one[:5] for one in others] == [one[:5] for one in seen(chat)[1:]]
    assert batch.left_out == {"images": 1}


@pytest.mark.parametrize("text", OPEN)
def test_a_result_is_shown_as_it_is_whatever_it_says(tmp_path: Path, text: str) -> None:
    """Also behind text that opens a fence, or HTML, in which the model was stopped."""
    image = "![x](https://example.com/x.png)"
    results = [f"{ending}{mark}{ending}{image}" for ending in ("\n", "\r", "\n   ") for mark in ("```", "`````", text)]
    calls = [
        StoredCall(id=str(at), name="f`<b>", result=result, text=len(text), state="failed")
        for at, result in enumerate(results)
    ]
    chat = chat_of(said("assistant", f"{text}\n\nWell.", calls=calls), said("user", "**thanks**"))
    tokens = MarkdownIt("commonmark").parse(markdown.write(chat))
    fences = [one.content for one in tokens if one.type == "fence" and not one.level]
    assert [one for one in fences if image in one] == [f"{one}\n".replace("\r", "\n") for one in results]
    assert not [one for one in tokens if one.type == "inline" for part in one.children or () if part.type == "image"]
    assert "<h2>You</h2>\n<p><strong>thanks</strong></p>" in MarkdownIt().render(markdown.write(chat))
    found = read_back(tmp_path, chat)[0].branch()[0]
    assert (found.text, len(found.calls)) == (f"{text}\n\nWell.", len(results))
    assert [(call.name, call.text, call.result) for call in found.calls] == [
        ("f'<b>", len(text), result) for result in results
    ]


def test_a_file_that_went_through_an_editor(tmp_path: Path) -> None:
    chat = chat_of(said("user", "a\nb"), said("assistant", "```\nc", status="stopped", thinking="d"))
    written = markdown.write(chat)
    for edited in (written.replace("\n", "\r\n"), "\ufeff" + written, written.rstrip("\n"), written + "\n\n"):
        path = tmp_path / "edited.md"
        path.write_bytes(edited.encode())
        [found] = ChatReading([path]).next().chats
        assert [one[:3] for one in seen(found)] == [one[:3] for one in seen(chat)]
    damaged = written.replace(": user", ": nobody")
    path.write_text(damaged)
    batch = ChatReading([path]).next()
    assert (len(batch.chats[0].messages), batch.left_out) == (1, {"damaged": 1})


def test_other_markdown_is_no_chat(tmp_path: Path) -> None:
    for content in ("# Notes\n\n## You\n\nText", "text\n<!-- slipstream 12345678: user -->", "#"):
        path = tmp_path / "notes.md"
        path.write_text(content)
        batch = ChatReading([path]).next()
        assert (batch.chats, batch.other_files) == ([], 1)


SIGNS = ["```", "~~~", "<!--", "-->", "\n", "\n\n", "\r", "\r\n", " ", "\\", "## You", "---", "> ", "- ", "1. ", "    "]
SIGNS += ["`", "<details>", "</details>", "<b>", "</pre>", "*(stopped)*", "<!-- slipstream ", " -->\n\n## ", "é", "\0"]
PIECES = st.sampled_from([*OPEN, *SIGNS])
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=6).map("".join)
MESSAGES = st.builds(
    said,
    st.sampled_from(["user", "assistant"]),
    TEXTS,
    thinking=TEXTS,
    status=st.sampled_from(["complete", "stopped", "interrupted", "failed"]),
)


WITH_CALLS = answers_with_calls(TEXTS).map(
    lambda one: replace(
        one,
        calls=[
            replace(call, result=call.result.strip(), arguments=call.arguments.replace("\r", " ")) for call in one.calls
        ],
    )
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(MESSAGES | WITH_CALLS, min_size=1, max_size=5))
@example(messages=[said("user", "\n"), said("assistant", "\n\n", status="stopped"), said("user", "\n\n")])
def test_any_chat_comes_back_from_markdown(tmp_path: Path, messages: list[MessageRecord]) -> None:
    chat = chat_of(*messages)
    assert seen(read_back(tmp_path, chat)[0]) == seen(chat)
    tokens = MarkdownIt("commonmark").parse(markdown.write(chat))
    headings = [tokens[at + 1].content for at, one in enumerate(tokens) if one.type == "heading_open" and not one.level]
    ours = ["You" if one.role == "user" else "Answer" for one in messages]
    assert [one for one in headings if one in ("You", "Answer")].count("Answer") == ours.count("Answer")
