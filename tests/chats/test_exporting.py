"""Exports: what they look like, and that nothing in a chat gets power over the page."""

from __future__ import annotations

import base64
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from app.chats.attachments import Content
from app.chats.database import MEMORY
from app.chats.exporting import Export, file_name
from app.chats.formats.html_page import for_paper
from app.chats.model import StoredCall, StoredMessage, calls_to_json
from app.chats.store import ChatStore, new_id
from app.helper import Helper, shared
from app.system import Canceled, KnownError
from tests.chats.test_importing import rich_chat
from tests.support.chats import add_question, begin_answer
from tests.support.vision_models import make_image


def text_of(store: ChatStore, chat_id: str, name: str = "markdown") -> str:
    return b"".join(Export(store.record, shared()).parts([chat_id], name)).decode()


def test_markdown() -> None:
    with ChatStore(MEMORY) as store:
        chat = store.create_chat("Words")
        begun = begin_answer(store, chat.id, add_question(store, chat.id, None, "Which?").id, "Guide", {})
        store.finish_answer(replace(begun, text="**These**\n\n```\ncode\n```\n", status="stopped"))
        lines = text_of(store, chat.id).splitlines()
        assert lines[0] == "# Words"
        assert [line for line in lines[4:] if not line.startswith("<!-- ")] == [
            *("", "## You", "", "Which?", "", "", "## Guide", "", "**These**", "", "```", "code", "```", "", ""),
            "*(stopped)*",
        ]


def test_markdown_quotes_the_thinking() -> None:
    headings = {
        "{}": "Thinking",
        '{"thinking_s":11.6}': "Thought for 12 s",
        '{"thinking_s":125}': "Thought for 2 min 5 s",
        '{"thinking_s":"x"}': "Thinking",
    }
    for figures, heading in headings.items():
        with ChatStore(MEMORY) as store:
            begun = begin_answer(store, store.create_chat("Words").id, None, "Guide", {})
            whole = replace(begun, text="These.", thinking="Which?\n\n```\ncode\n```\n", status="complete")
            store.finish_answer(replace(whole, figures_json=figures))
            assert text_of(store, begun.chat_id).splitlines()[6:] == [
                "## Guide", "", f"> *{heading}*", ">", "> Which?", ">", "> ```", "> code", "> ```", ">", "", "These.",
            ]  # fmt: skip


def test_a_page_has_its_images_inside(tmp_path: Path) -> None:
    with ChatStore(MEMORY) as store:
        chat = store.create_chat("Words")
        data = Path(make_image(tmp_path / "a.png").path).read_bytes()
        kept = store.keep(Content("image", 'a" onload="x.png', data, "text/html"))
        text = store.keep(Content("image", "b.svg", b"<svg onload='x'>", "image/svg+xml"))
        question = StoredMessage(new_id(), chat.id, None, "user", "Well?", "complete", 0.0, attachments=(kept, text))
        store.add_message(question)
        page = text_of(store, chat.id, "html")
    encoded = base64.b64encode(data).decode()
    assert f'<img alt="a&quot; onload=&quot;x.png" src="data:image/png;base64,{encoded}">' in page
    assert page.count("<img ") == 1 and "<svg" not in page


HOSTILE = """<script>alert(1)</script> <img src=x onerror=alert(1)>

![a cup](https://example.com/cup.png "title") [run](javascript:alert(1)) [page](https://example.com/?a=1&b="2")

<https://example.com/auto>

[ref]: https://example.com/x.css
![ref]

```html
</code></pre><script>alert(2)</script>
```

| a | b |
|---|---|
| <iframe src=x> | `<b>` |
"""


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def test_nothing_in_a_chat_becomes_html_of_its_own() -> None:
    with ChatStore(MEMORY) as store:
        chat = store.create_chat("</title><script>alert(0)</script>")
        question = add_question(store, chat.id, None, HOSTILE)
        answer = begin_answer(store, chat.id, question.id, "<img src=x onerror=alert(3)>")
        call = StoredCall(
            id="c", name=HOSTILE, server=HOSTILE, arguments=HOSTILE, result=HOSTILE, text=9, state="failed"
        )
        calls = calls_to_json([call])
        store.finish_answer(replace(answer, text=HOSTILE, thinking=HOSTILE, status="stopped", calls_json=calls))
        paper = for_paper(store.record(chat.id), Export(store.record, shared()).render)
        for page in (text_of(store, chat.id, "html"), paper):
            found = Tags()
            found.feed(page)
            assert not {"script", "img", "iframe", "link", "object", "base", "form"} & set(found.tags)
            assert not [one for one in found.attributes if one[1].startswith("on") or one[1] in ("src", "style")]
            addresses = {value for tag, name, value in found.attributes if name == "href"}
            assert addresses == {
                "https://example.com/cup.png",
                "https://example.com/?a=1&b=%222%22",
                "https://example.com/auto",
                "https://example.com/x.css",
            }
            assert "<td>" in page  # what is harmless is shown as in the window
            assert "alert(1)" in page


def test_calls_stand_where_they_were_made() -> None:
    call = StoredCall(id="c", name="look_up", server="Tea", arguments='{"tea": "a\\"b"}', result="x" * 9000, text=5)
    with ChatStore(MEMORY) as store:
        answer = begin_answer(store, store.create_chat("Words").id, None, "Guide", {})
        calls = calls_to_json([msgspec.structs.replace(call, state="done")])
        store.finish_answer(replace(answer, text="Well.\n\n**80**", status="complete", calls_json=calls))
        page = text_of(store, answer.chat_id, "html")
        paper = for_paper(store.record(answer.chat_id), Export(store.record, shared()).render)
        lines = text_of(store, answer.chat_id).splitlines()
    shown = "<details><summary>Tool call: look_up (Tea)</summary>\n<pre>{&quot;tea&quot;: &quot;a\\&quot;b&quot;}</pre>"
    assert page.index("Well.") < page.index(shown) < page.index("x" * 9000) < page.index("<strong>80</strong>")
    assert paper.index("Well.") < paper.index("<i>Tool call: look_up (Tea)</i>") < paper.index("<strong>80</strong>")
    assert "x" * 3999 + "…" in paper and "x" * 4000 not in paper
    assert [line for line in lines[4:] if line and not line.startswith("<!-- ")] == [
        *("## Guide", "Well.", "*Tool call*", "`look_up`", "```", '{"tea": "a\\"b"}', "```", "```", "x" * 9000, "```"),
        "**80**",
    ]


def test_a_page_loads_nothing() -> None:
    with ChatStore(MEMORY) as store:
        page = text_of(store, rich_chat(store), "html")
        assert "Content-Security-Policy\" content=\"default-src 'none'" in page
        assert "<details><summary>Thought for" not in page  # the shown version had no thinking
        assert "<h2>Guide</h2>" in page


def test_text_that_takes_forever_is_shown_as_it_is() -> None:
    helper, text = Helper(seconds=0.1), "*a* <b>\n\n" * 400_000
    try:
        shown, short = Export(lambda _: pytest.fail(), helper).render([text, ""])
        assert shown == f"<pre>{escape(text)}</pre>\n"
        assert short == ""
    finally:
        helper.stop()


def test_several_chats_in_a_folder(tmp_path: Path) -> None:
    with ChatStore(MEMORY) as store:
        ids = [store.create_chat("The same: a/b").id for _ in range(3)]
        (tmp_path / "The same a b.md").write_text("mine")
        Export(store.record, shared()).to_folder(ids, "markdown", tmp_path)
        names = {one.name for one in tmp_path.iterdir()}
        assert names == {f"The same a b{number}.md" for number in ("", " 2", " 3", " 4")}
        assert (tmp_path / "The same a b.md").read_text() == "mine"


def test_an_export_that_is_canceled_or_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text("old")
    with ChatStore(MEMORY) as store:
        ids = [store.create_chat("a").id, store.create_chat("b").id]
        with pytest.raises(Canceled):
            Export(store.record, shared(), lambda: True).to_file(ids, "json", path)
        with pytest.raises(KnownError, match="couldn't be exported"):
            Export(store.record, shared()).to_file(ids, "json", tmp_path / "missing" / "chats.json")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["chats.json"]


def test_names_of_files() -> None:
    assert file_name("a/b: c?", ".md") == "a b c.md"
    assert file_name("...", ".html") == "chat.html"
